"""What benchmarks.native_gpu runs on the GPU, in a process of its own: `plain`, `shim` or `cost`, then the library.

`plain` is run without the shim; `shim` under it, and changes the mode as `patchkit native set` does. One JSON document
on stdout.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.native_gpu_cases import HEAD_DIM, SCALE, Case, digest, make_cases
from patchkit.native.monitor import look
from patchkit.native.segment import Segment
from patchkit.native.settings import Settings

EAGER, REPLAYS = 5, 3
HALF, WINDOW = 0.5, 64
BATCHES, CALLS = 60, 200
TOLERANCE = 0.02  # bfloat16, outputs of size 1

MODES: dict[str, Settings] = {
    "off": Settings(mode="off"),
    "count": Settings(),
    "trace": Settings(mode="trace"),
    "transform, qk_scale": Settings(mode="transform", qk_scale=HALF),
    "transform, window": Settings(mode="transform", window=WINDOW),
    "replace, never compared": Settings(mode="replace", every=0),
    "replace": Settings(mode="replace", every=2, tolerance=TOLERANCE),
    "replace, too strict": Settings(mode="replace", every=1, tolerance=0.0),
}


def main() -> None:
    """Do what the first word says."""
    what, library = sys.argv[1:3]
    torch.ops.load_library(library)
    cases = make_cases()
    for case in cases:
        case.call()
    torch.cuda.synchronize()
    done = {"plain": plain, "shim": shim, "cost": cost}[what](cases)
    json.dump({"torch": torch.__version__, **done}, sys.stdout)


def plain(cases: list[Case]) -> dict[str, Any]:
    """Return digests of what the library gives when nobody stands before it, and what a capture allocates."""
    captured = [capture(case) for case in cases]
    return {
        "digests": {
            "as called": digest([case.call() for case in cases]),
            "half the scale": digest([case.call(SCALE * HALF) for case in cases]),
            "window": digest([case.call(SCALE, WINDOW) for case in cases]),
            "replayed": digest([replay() for _, replay in captured]),
        },
        "allocations_in_capture": [allocated for allocated, _ in captured],
    }


def shim(cases: list[Case]) -> dict[str, Any]:
    """Return what was seen in each mode, and what a captured graph does after the mode was changed."""
    shown = Shown()
    shown.tell(MODES["off"])
    reference = [case.call().clone() for case in cases]
    modes = {name: observe(cases, shown, settings, reference) for name, settings in MODES.items()}
    return {"modes": modes, "kept": kept(cases[0], shown), "stage2": shown.counted().stage2}


class Shown:
    """The segment of this process."""

    def __init__(self) -> None:
        [watched] = look(Path(os.environ["PATCHKIT_SHIM_DIRECTORY"]), os.getpid()).watched
        self.segment = Segment(watched.path, writable=True)

    def tell(self, settings: Settings) -> None:
        """Set the mode; the calls that follow see it."""
        self.segment.write(settings)

    def counted(self) -> Any:
        """Return what the segment says now."""
        return self.segment.counted()


def observe(cases: list[Case], shown: Shown, settings: Settings, reference: list[torch.Tensor]) -> dict[str, Any]:
    """Make eager calls, captures and replays in one mode and say what was counted of each."""
    shown.tell(settings)
    list(shown.segment.records())
    stages = [shown.counted()]
    for case in cases:
        for _ in range(EAGER):
            case.call()
    outputs = [case.out.clone() for case in cases]
    stages.append(shown.counted())
    captured = [capture(case) for case in cases]
    stages.append(shown.counted())
    replayed = [replay().clone() for _, replay in captured]
    stages.append(shown.counted())
    records = list(shown.segment.records())
    return {
        "eager_calls": EAGER * len(cases),
        "captured_calls": len(cases),
        "replays": REPLAYS * len(cases),
        "counted": [after.calls - before.calls for before, after in pairwise(stages)],
        "replace": [
            [getattr(after, name) - getattr(before, name) for name in ("replaced", "compared", "differed")]
            for before, after in pairwise(stages)
        ],
        "eager_digest": digest(outputs),
        "replayed_digest": digest(replayed),
        "difference": _largest(outputs, reference),
        "replayed_difference": _largest(replayed, reference),
        "allocations_in_capture": [allocated for allocated, _ in captured],
        "records": len(records),
        "records_say": sorted({(record.device, record.dtype, record.scale, record.window) for record in records}),
        "launch_ns": statistics.median(record.nanoseconds for record in records) if records else None,
    }


def kept(case: Case, shown: Shown) -> dict[str, bool]:
    """Say what a graph that was captured in one mode does in another, and what a call does that is made then."""
    shown.tell(Settings())
    whole, half = case.call().clone(), case.call(SCALE * HALF).clone()
    _, replay = capture(case)
    shown.tell(MODES["transform, qk_scale"])
    replayed, called = replay().clone(), case.call().clone()
    shown.tell(Settings())
    return {
        "replay_is_as_captured": bool(torch.equal(replayed, whole)),
        "call_is_as_set": bool(torch.equal(called, half)),
        "they_differ": not torch.equal(whole, half),
    }


def capture(case: Case) -> tuple[int, Callable[[], torch.Tensor]]:
    """Capture a call; return how often torch's allocator was asked meanwhile, and what replays it.

    The capture is global: a call that waits, reads back or takes memory from CUDA itself makes it fail.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        before = _allocations()
        case.launch()
        allocated = _allocations() - before

    def replay() -> torch.Tensor:
        for _ in range(REPLAYS):
            case.out.fill_(float("nan"))
            graph.replay()
        torch.cuda.synchronize()
        return case.out

    return allocated, replay


def cost(cases: list[Case]) -> dict[str, Any]:
    """Return the least ns of a call, in the modes in turn where there is a shim: of many batches, the host's time."""
    case = next(case for case in cases if case.name.startswith("decoding"))
    modes: dict[str, Callable[[], None]] = {"without": lambda: None}
    if "PATCHKIT_SHIM" in os.environ:
        shown = Shown()
        names = ("off", "count", "trace", "transform, qk_scale")
        modes = {name: lambda name=name: shown.tell(MODES[name]) for name in names}  # type: ignore[misc]
    taken: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(BATCHES):
        for name, enter in modes.items():
            enter()
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            for _ in range(CALLS):
                case.launch()
            taken[name].append((time.perf_counter_ns() - began) / CALLS)
    return {"ns": {name: min(found) for name, found in taken.items()}, "head_dim": HEAD_DIM}


def _allocations() -> int:
    return int(torch.cuda.memory_stats().get("allocation.all.allocated", 0))


def _largest(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    return max(float((one.float() - other.float()).abs().max()) for one, other in zip(some, others, strict=True))


if __name__ == "__main__":
    main()
