"""How long a call takes: on a GPU by events, with the second-level cache flushed before each call; medians and
spread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from patchkit.record import dataclass

_FLUSH_BYTES = 256 << 20  # several times the L2 of any GPU there is
_WARMUP_SECONDS = 0.3
_LEAST_WARMUP = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Milliseconds: the median, and the 10th and 90th percentile, of so many calls."""

    median: float
    low: float
    high: float
    calls: int


def time_call(call: Callable[[], object], device: str, *, calls: int, replayed: bool = False) -> Timing:
    """Return how long `call` takes; `replayed`: as a CUDA graph, without the host's time of launching."""
    if device != "cuda":
        return _summary(_time_on_host(call, calls))
    run = _captured(call) if replayed else call
    return _summary(_time_by_events(run, calls))


def _time_on_host(call: Callable[[], object], calls: int) -> list[float]:
    call()
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begun) * 1e3)
    return taken


def _time_by_events(run: Callable[[], object], calls: int) -> list[float]:
    begun, warm = time.perf_counter(), 0
    while warm < _LEAST_WARMUP or time.perf_counter() - begun < _WARMUP_SECONDS:
        run()
        torch.cuda.synchronize()
        warm += 1
    return time_in_a_row([run] * calls)


def time_in_a_row(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the milliseconds of each of some calls on the GPU; the second-level cache is flushed before each."""
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    pairs = []
    for call in calls:
        flush.zero_()
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        call()
        last.record()
        pairs.append((first, last))
    torch.cuda.synchronize()
    return [float(first.elapsed_time(last)) for first, last in pairs]


def _captured(call: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is compiled or allocated at the first call must not be captured
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()

    replay: Callable[[], object] = graph.replay
    return replay


def _summary(taken: list[float]) -> Timing:
    tenths = statistics.quantiles(taken, n=10) if len(taken) > 1 else [taken[0]] * 9
    return Timing(median=statistics.median(taken), low=tenths[0], high=tenths[-1], calls=len(taken))
