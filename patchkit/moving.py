"""Hunks that are stated anew, because the lines of their file moved since they were placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from patchkit.diff.image import hunk_sides
from patchkit.diff.model import FilePatch, Hunk
from patchkit.record import replace

if TYPE_CHECKING:
    from patchkit.diff.compare import Block

_SURROUNDING = 3  # lines, as many as git gives a hunk for context


def move_hunk(hunk: Hunk, offset: int) -> Hunk:
    """Return the hunk stated so many lines further down on both of its sides."""
    return replace(hunk, old_start=hunk.old_start + offset, new_start=hunk.new_start + offset) if offset else hunk


def move_with_lines(file: FilePatch, changed: Sequence[Block]) -> FilePatch:
    """State every hunk where its first line is now: repeated lines then do not tempt it to the place of before."""
    hunks = tuple(move_hunk(hunk, _shift(max(hunk.old_start - 1, 0), changed)) for hunk in file.hunks)
    return replace(file, hunks=hunks)


def surrounded_as_before(file: FilePatch, base: list[bytes], moved: FilePatch, lines: list[bytes]) -> bool:
    """Tell whether a patch without any context has the lines around each of its hunks that it had in the base."""

    def around(hunk: Hunk, whole: list[bytes]) -> list[bytes]:
        start = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        return whole[max(start - _SURROUNDING, 0) : start + hunk.old_count + _SURROUNDING]

    pairs = zip(file.hunks, moved.hunks, strict=True)
    return all(not hunk_sides(old).context and around(old, base) == around(new, lines) for old, new in pairs)


def _shift(index: int, changed: Sequence[Block]) -> int:
    """Return by how much a line has moved, given the changed ranges in order."""
    shift = 0
    for block in changed:
        if block.old_end > index:
            break
        shift = block.new_end - block.old_end
    return shift
