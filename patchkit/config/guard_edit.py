"""What a guard does to a file: lines of the base that give way to others, and how much stands twice because of it."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from patchkit.record import dataclass


class Level(enum.IntEnum):
    """How much stands twice: nothing, nothing but a condition, an enclosing statement, a whole function or class.

    SELECT: one variant stands there, that of the present values.
    """

    STATEMENT = 1
    CONDITION = 2
    ENCLOSING = 3
    FUNCTION = 4
    SELECT = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardEdit:
    """Lines `start` to `end` (0-based, half open; equal for an insertion) of the base become `lines`.

    `reason` says why a level coarser than the statement's was needed, "" otherwise; `symbols` are those of its guards.
    """

    start: int
    end: int
    level: Level
    lines: tuple[bytes, ...]
    reason: str
    symbols: tuple[str, ...]

    def touches(self, other: GuardEdit) -> bool:
        """Tell whether they share a line; one that inserts also touches what it stands beside."""
        if self.start == self.end or other.start == other.end:
            return self.start <= other.end and other.start <= self.end
        return self.start < other.end and other.start < self.end


def spliced(lines: Sequence[bytes], edits: Sequence[GuardEdit]) -> list[bytes]:
    """Return the lines with all edits made; they are sorted and do not overlap."""
    result: list[bytes] = []
    done = 0
    for edit in edits:
        result += lines[done : edit.start]
        result += edit.lines
        done = edit.end
    return result + list(lines[done:])
