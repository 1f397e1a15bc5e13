"""Measurements as a bar chart, written as SVG by ourselves: one panel per workload, one bar per kernel."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from patchkit.attention.bench import BenchResult

_WIDTH, _ROW, _HEAD, _MARGIN = 760, 24, 34, 16
_NAMES, _VALUES = 160, 150
_OURS, _OTHERS = "#1f6feb", "#8b949e"


def plot(results: Sequence[BenchResult], *, title: str) -> str:
    """Return an SVG: per workload the kernels from the fastest on, a bar as long as the median, a whisker for the
    spread.
    """
    workloads = list(dict.fromkeys(result.workload for result in results if result.timing))
    parts: list[str] = [_text(_MARGIN, _MARGIN + 12, title, size=15, bold=True)]
    y = _MARGIN + _HEAD
    for workload in workloads:
        parts.append(_text(_MARGIN, y + 12, workload, size=13, bold=True))
        y += _ROW
        timed = [result for result in results if result.workload == workload and result.timing]
        timed.sort(key=lambda one: one.timing.median if one.timing else 0.0)
        longest = max(one.timing.high for one in timed if one.timing)
        for result in timed:
            parts.append(_bar(result, y, longest))
            y += _ROW
        y += _ROW // 2
    height = y + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _bar(result: BenchResult, y: int, longest: float) -> str:
    timing = result.timing
    if timing is None:
        return ""
    room = _WIDTH - 2 * _MARGIN - _NAMES - _VALUES
    left, middle = _MARGIN + _NAMES, y + _ROW // 2 - 3
    low, length, high = (room * part / longest for part in (timing.low, timing.median, timing.high))
    colour = _OTHERS if result.yardstick else _OURS
    return "\n".join(
        [
            _text(_MARGIN, y + 13, result.kernel, size=12),
            f'<rect x="{left}" y="{y + 1}" width="{length:.1f}" height="{_ROW - 8}" fill="{colour}"/>',
            f'<path d="M{left + low:.1f} {middle}H{left + high:.1f}" stroke="black" stroke-width="1.5"/>',
            _text(
                _WIDTH - _MARGIN - _VALUES + 8,
                y + 13,
                f"{timing.median:.4g} ms, {result.teraflops:.3g} TFLOP/s",
                size=12,
            ),
        ]
    )


def _text(x: float, y: float, words: str, *, size: int, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}"{weight}>{escape(words)}</text>'
