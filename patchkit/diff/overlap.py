"""Which placed hunks share a line of the file: never two that are applied."""

from __future__ import annotations

from bisect import bisect_left, insort


class Spans:
    """Disjoint ranges of indices, each with the number of its hunk; finds a rival in logarithmic time.

    An empty range is an insertion: it collides with a range that has lines on both sides of it, never with another
    insertion.
    """

    __slots__ = ("_filled", "_points")

    def __init__(self) -> None:
        self._filled: list[tuple[int, int, int]] = []
        self._points: list[tuple[int, int]] = []

    def add(self, start: int, end: int, number: int) -> None:
        """Take in a range that has no rival."""
        if start == end:
            insort(self._points, (start, number))
        else:
            insort(self._filled, (start, end, number))

    def rival(self, start: int, end: int) -> int | None:
        """Return the number of a hunk whose range collides with this one, None when there is none."""
        following = bisect_left(self._filled, (end,))
        if following and self._filled[following - 1][1] > start and self._filled[following - 1][0] < end:
            return self._filled[following - 1][2]
        inside = bisect_left(self._points, (start + 1,)) if start < end else len(self._points)
        if inside < len(self._points) and self._points[inside][0] < end:
            return self._points[inside][1]
        return None
