"""A workload by ours, FlexAttention, FlashAttention 3, cuDNN and FlashAttention 2, in one process on one GPU.

It is the part of attention_gpu.py that has the workload's name.
Every forward is captured in a CUDA graph and replayed, the L2 cache overwritten before each replay. TFLOP/s count keys
that are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from patchkit.attention.bench import BenchResult
from patchkit.attention.case import problem_of
from patchkit.attention.timing import Timing
from patchkit.attention.workload import GPU, operations, visible_pairs
from patchkit.record import replace
from patchkit.runtime.attention.problem import BACKWARD
from patchkit.runtime.attention.registry import load_kernels

(BACKWARD_NAME,) = (one.name for one in GPU if one.step == BACKWARD)
REPEATS = 40

Call = Callable[[], Any]


def results_of(workload: str) -> Iterator[BenchResult]:
    """Yield what every kernel and every peer did with the workload of a name."""
    from benchmarks import attention_cases as cases

    for case in (one for one in cases.PREFILLS if one.name == workload):
        made = cases.make_prefill(case)
        for name, call in cases.prefill_calls(made):
            yield _result(case.name, name, call, partial(made.error, name))
    errors: dict[str, float] = {}
    for name, call in cases.backward_calls() if workload == BACKWARD_NAME else ():
        errors = errors or cases.backward_errors()
        yield _result(BACKWARD_NAME, name, call, partial(errors.__getitem__, name), graph=False)
    for case in (one for one in cases.PAGED if one.name == workload):
        for name, call, count, error in cases.paged_calls(case):
            yield _result(case.name, name, call, error, count=count)


def _result(
    workload: str, kernel: str, call: Call, error: Call = lambda: 0.0, *, count: int = 1, graph: bool = True
) -> BenchResult:
    """Time a call of `count` equal parts; a call that fails is a result with a fault."""
    try:
        times = [one / count for one in measure(call, graph=graph)]
        return result_of(workload, kernel, times, error())
    except (
        RuntimeError,
        ValueError,
        TypeError,
        AttributeError,
    ) as refused:  # AttributeError: its library is not loaded
        said = (str(refused) or type(refused).__name__).splitlines()[0][:120]
        return replace(result_of(workload, kernel, [], 0.0), fault=said)


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
