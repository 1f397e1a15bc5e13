"""What a token costs as a sequence grows, with the SM clock beside it, under two protocols on one GPU.

It is the part `cost per token` of attention_gpu.py.

Under both, the L2 cache is overwritten before every call, and NVML is asked for the SM clock while the GPU works.

- apart: one length after the other, 40 calls of each in a row, as attention_peers.py does. The GPU is busy
  for eight times as long at 128k as at 16k, and may come to its power limit there alone.
- alike: the lengths take turns, and each turn has the same number of tokens (8 calls at 16k, one at 128k) and is
  followed by the same pause, so that every length meets the GPU in the same state.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.attention_cases import PREFILLS, make_prefill
from patchkit.attention.report import SCHEMA, record_path
from patchkit.attention.timing import time_in_a_row
from patchkit.runtime.attention.registry import kernel_named

KERNEL = "hopper_prefill"
CALLS = 40
TURNS = 40
PAUSE = 0.05  # seconds
_ASK_SECONDS = 0.001

Call = Callable[[], object]


def measure_lengths(facts: dict[str, object], command: str, directory: Path) -> str:
    """Measure both protocols and write the record; "", since nothing here can be wrong without an error."""
    calls = _calls()
    for call in calls.values():
        for _ in range(3):
            call()
    results = []
    for one in (*_apart(calls), *_alike(calls)):
        print(
            f"  {one['protocol']} {one['tokens'] >> 10}k: {one['nanoseconds_per_token']:.3f} ns a token "
            f"({one['tenth_percentile']:.3f} to {one['ninetieth_percentile']:.3f}), {one['cycles_per_token']:.2f} "
            f"cycles, SM clock {one['sm_clock_mhz']} MHz ({one['lowest_sm_clock_mhz']} at the lowest), "
            f"{one['watts']} W, reasons {one['reasons']}"
        )
        results.append(one)
    document = {"schema": SCHEMA, "command": command, "kernel": KERNEL, "device": facts, "results": results}
    record_path(facts, "cost per token", directory).write_text(json.dumps(document, indent=1) + "\n")
    return ""


def _calls() -> dict[int, Call]:
    """Return the call of each length of the first row's shape, ascending."""
    run = kernel_named(KERNEL).run
    lengths = sorted(PREFILLS[:4], key=lambda case: case.query_lengths[0])
    found: dict[int, Call] = {}
    for case in lengths:
        made = make_prefill(case)
        graph = torch.cuda.CUDAGraph()
        run(made.inputs, case.pattern, made.out, made.lse)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            run(made.inputs, case.pattern, made.out, made.lse)
        found[case.query_lengths[0]] = _replay(graph, made)
    return found


def _replay(graph: torch.cuda.CUDAGraph, made: object) -> Call:
    """Return a replay that keeps the tensors which its graph reads."""

    def replay() -> object:
        graph.replay()
        return made

    return replay


def _apart(calls: dict[int, Call]) -> Iterator[dict[str, Any]]:
    for tokens, call in calls.items():
        with _watched() as seen:
            times = [one / tokens * 1e6 for one in time_in_a_row([call] * CALLS)]
        yield _result("apart", tokens, times, seen)
        time.sleep(1.0)


def _alike(calls: dict[int, Call]) -> Iterator[dict[str, Any]]:
    longest = max(calls)
    times: dict[int, list[float]] = {tokens: [] for tokens in calls}
    watched: dict[int, list[tuple[int, float, int]]] = {tokens: [] for tokens in calls}
    for _ in range(TURNS):
        for tokens, call in calls.items():
            with _watched() as seen:
                took = time_in_a_row([call] * (longest // tokens))
            times[tokens].append(statistics.fmean(took) / tokens * 1e6)
            watched[tokens].extend(seen)
            time.sleep(PAUSE)
    for tokens in calls:
        yield _result("alike", tokens, times[tokens], watched[tokens])


@contextmanager
def _watched() -> Iterator[list[tuple[int, float, int]]]:
    """Ask NVML in the meantime: SM clock in MHz, power in watts, and the reasons for a lower clock."""
    pynvml = import_module("pynvml")  # nvidia-ml-py, which only a machine with a GPU has
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    seen: list[tuple[int, float, int]] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
            seen.append((clock, watts, pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
            done.wait(_ASK_SECONDS)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _result(protocol: str, tokens: int, times: list[float], seen: list[tuple[int, float, int]]) -> dict[str, Any]:
    ordered = sorted(times)
    clock = statistics.median(one[0] for one in seen)
    median = statistics.median(ordered)
    reasons = 0
    for one in seen:
        reasons |= one[2]
    return {
        "protocol": protocol,
        "tokens": tokens,
        "nanoseconds_per_token": round(median, 4),
        "tenth_percentile": round(ordered[len(ordered) // 10], 4),
        "ninetieth_percentile": round(ordered[-1 - len(ordered) // 10], 4),
        "sm_clock_mhz": clock,
        "lowest_sm_clock_mhz": min(one[0] for one in seen),
        "cycles_per_token": round(median * clock / 1e3, 3),
        "watts": round(statistics.median(one[1] for one in seen)),
        "reasons": reasons,
    }
