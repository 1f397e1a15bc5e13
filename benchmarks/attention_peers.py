"""The attention kernels beside FlexAttention, FlashAttention 3, cuDNN and FlashAttention 2, in one process on one GPU.

    python -m benchmarks.attention_peers pack DIR     fetches FlashAttention 3, packs all that the GPU machine needs
    python -m benchmarks.attention_peers run --out R  there, in DIR: builds, measures, writes records to R
                                    [--only TEXT]     of the workloads that have the text in their names

PATCHKIT_ATTENTION_LIBRARY names a library that is built already.
Every forward is captured in a CUDA graph and replayed, the L2 cache overwritten before each replay. TFLOP/s count keys
that are seen.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.two_machines import pack_or_run
from patchkit.attention.bench import BenchResult
from patchkit.attention.build import build_library
from patchkit.attention.case import problem_of
from patchkit.attention.device import device_facts
from patchkit.attention.peers import load_peers, pack_peers
from patchkit.attention.timing import Timing
from patchkit.attention.workload import GPU, operations, visible_pairs
from patchkit.record import replace
from patchkit.runtime.attention.problem import BACKWARD
from patchkit.runtime.attention.registry import load_kernels

COMMAND = "python -m benchmarks.attention_peers run"
(BACKWARD_NAME,) = (one.name for one in GPU if one.step == BACKWARD)
CHECKOUT = Path(__file__).resolve().parent.parent
REPEATS = 40

Call = Callable[[], Any]


def main() -> int:
    """Pack or run."""
    return pack_or_run(__doc__, pack_all, run_all, run_all)


def pack_all(directory: Path) -> int:
    """Lay the kernels, this script and FlashAttention 3 into a directory (about 12 MB)."""
    for part in ("patchkit", "native/attention", "benchmarks"):
        shutil.copytree(
            CHECKOUT / part, directory / part, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "out")
        )
    pack_peers(directory, progress=print)
    print(f"packed; on the GPU machine, in {directory}: python3 -m benchmarks.attention_peers run --out results")
    return 0


def run_all(directory: Path, only: str = "") -> int:
    """Measure every case and write a record for each into a directory, in the form of `attention bench --record`."""
    import os

    from patchkit.attention.report import table, write_records
    from patchkit.runtime.attention.hopper_library import VARIABLE, library_path

    facts = device_facts("cuda")
    with tempfile.TemporaryDirectory() as scratch:
        if library_path() is None:
            os.environ[VARIABLE] = str(build_library(CHECKOUT / "native", Path(scratch)).library)
        load_peers(CHECKOUT)
        results = list(_results(only))
    for line, _ in table(results):
        print(line)
    write_records(results, facts, COMMAND, directory)
    return 0


def _results(only: str) -> Iterator[BenchResult]:
    from benchmarks import attention_cases as cases

    for case in (one for one in cases.PREFILLS if only in one.name):
        made = cases.make_prefill(case)
        for name, call in cases.prefill_calls(made):
            yield _result(case.name, name, call, partial(made.error, name))
        del made
    errors: dict[str, float] = {}
    for name, call in cases.backward_calls() if only in BACKWARD_NAME else ():
        errors = errors or cases.backward_errors()
        yield _result(BACKWARD_NAME, name, call, partial(errors.__getitem__, name), graph=False)
    for case in (one for one in cases.PAGED if only in one.name):
        for name, call, count, error in cases.paged_calls(case):
            yield _result(case.name, name, call, error, count=count)


def _result(
    workload: str, kernel: str, call: Call, error: Call = lambda: 0.0, *, count: int = 1, graph: bool = True
) -> BenchResult:
    """Time a call of `count` equal parts; a call that fails is a result with a fault."""
    try:
        times = [one / count for one in measure(call, graph=graph)]
        return result_of(workload, kernel, times, error())
    except (RuntimeError, ValueError, TypeError) as refused:
        return replace(result_of(workload, kernel, [], 0.0), fault=str(refused).splitlines()[0][:120])


def result_of(workload: str, kernel: str, times: list[float], error: float) -> BenchResult:
    """Return what was measured, milliseconds ascending, with the operations and pairs of the workload of that name."""
    (found,) = (one for one in GPU if one.name == workload)
    ours = next((one for one in load_kernels()[0] if one.name == kernel and not one.yardstick), None)
    result = BenchResult(
        workload=workload,
        step=found.step,
        kernel=kernel,
        yardstick=not kernel.startswith(("triton", "hopper")),
        error=error,
    )
    if not times:
        return result
    middle = times[len(times) // 2]
    computed = ours.computed(problem_of(found.case, "cuda", step=found.step)) if ours and ours.computed else 0
    return replace(
        result,
        timing=Timing(median=middle, low=times[len(times) // 10], high=times[-1 - len(times) // 10], calls=len(times)),
        teraflops=operations(found) / middle / 1e9,
        computed_ratio=computed / visible_pairs(found.case) if computed else None,
    )


def measure(call: Call, *, graph: bool) -> list[float]:
    """Return the milliseconds of a call, ascending: of replays of a graph, or with the host's time of launching."""
    import torch

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    run = call
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            call()
        run = captured.replay
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS)]
    for begin, end in zip(begins, ends, strict=True):
        flush.zero_()
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in zip(begins, ends, strict=True))


if __name__ == "__main__":
    sys.exit(main())
