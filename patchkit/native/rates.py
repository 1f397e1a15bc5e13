"""What happened between two looks at the running processes: calls a second, time a call, shapes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from patchkit.errors import PatchkitError
from patchkit.native.monitor import look
from patchkit.native.segment import Record, Segment
from patchkit.record import dataclass

_SHAPES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """One entry point of one process over some seconds.

    `calls_per_second` is counted; `median_ns` and `shapes` (the most frequent ones of q) come from `traced` records,
    `lost` records were overwritten before they were read. On a GPU the time is that of the launch: `device` says which.
    """

    pid: int
    symbol: str
    calls: int
    calls_per_second: float
    traced: int
    lost: int
    median_ns: int
    device: str
    shapes: tuple[tuple[int, ...], ...]


class Gauge:
    """Open segments, and what they said the last time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[Path, Segment] = {}
        self._calls: dict[tuple[Path, str], int] = {}

    def measure(self, seconds: float) -> tuple[Rate, ...]:
        """Return what happened since the last time, `seconds` ago; the first time everything did."""
        rates: list[Rate] = []
        for one in look(self._directory).watched:
            if not one.running:
                continue
            with contextlib.suppress(PatchkitError):  # it ended just now
                rates += self._rates(one.path, seconds)
        return tuple(rates)

    def close(self) -> None:
        """Let go of all segments."""
        for segment in self._open.values():
            segment.close()

    def _rates(self, path: Path, seconds: float) -> list[Rate]:
        if path not in self._open:
            self._open[path] = Segment(path)
        segment = self._open[path]
        lost = segment.lost
        records = list(segment.records())
        lost = segment.lost - lost
        counted = segment.counted()
        found = []
        for index, symbol in enumerate(counted.symbols):
            before = self._calls.get((path, symbol.name), 0)
            self._calls[path, symbol.name] = symbol.calls
            if symbol.way:
                own = [record for record in records if record.symbol == index]
                found.append(_rate(counted.pid, symbol.name, symbol.calls - before, seconds, own, lost))
        return found


def _rate(pid: int, name: str, calls: int, seconds: float, records: list[Record], lost: int) -> Rate:
    times = sorted(record.nanoseconds for record in records)
    return Rate(
        pid=pid,
        symbol=name,
        calls=calls,
        calls_per_second=calls / seconds if seconds else 0.0,
        traced=len(records),
        lost=lost,
        median_ns=times[len(times) // 2] if times else 0,
        device="launch" if any(record.device for record in records) else "call",
        shapes=_frequent(records),
    )


def _frequent(records: Iterable[Record]) -> tuple[tuple[int, ...], ...]:
    return tuple(shape for shape, _ in Counter(record.q for record in records).most_common(_SHAPES))
