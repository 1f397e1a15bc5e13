"""Which lines of a file a hunk replaces, run by run, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from patchkit.diff.model import NO_NEWLINE, Hunk


class Run(NamedTuple):
    """Lines from `start` up to `end` (counted from 0) that a hunk replaces; without their signs."""

    start: int
    end: int
    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]

    @property
    def growth(self) -> int:
        """How many lines the file has more with it."""
        return len(self.added) - len(self.removed)

    def touches(self, start: int, end: int) -> bool:
        """Tell whether the run meets lines, or is directly beside them: an insertion between two lines that touch."""
        return self.start <= end and start <= self.end


def first_of(hunk: Hunk) -> int:
    """Return the index of a hunk's first old line; without old lines the number names the line before."""
    return max(hunk.old_start - 1, 0) if hunk.old_count else hunk.old_start


def runs_of(hunk: Hunk) -> Iterator[Run]:
    """Yield what a hunk replaces, in order."""
    start = place = first_of(hunk)
    removed: list[bytes] = []
    added: list[bytes] = []
    for line in (*hunk.lines, b" "):
        kind = line[:1]
        if kind == b"-":
            removed.append(line[1:])
            place += 1
        elif kind == b"+":
            added.append(line[1:])
        elif kind != NO_NEWLINE:
            if removed or added:
                yield Run(start, place, tuple(removed), tuple(added))
            place += 1
            start, removed, added = place, [], []
