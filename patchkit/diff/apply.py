"""The new content of a file from its lines and the places of its hunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.diff.image import hunk_sides
from patchkit.diff.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from patchkit.diff.image import Sides
    from patchkit.diff.model import FilePatch, Placement


def apply_placements(file: FilePatch, lines: Sequence[bytes], placements: Sequence[Placement]) -> bytes:
    """Return the content with every EXACT and OFFSET hunk applied; PRESENT ones leave the lines as they are.

    Hunks may come in any order; insertions at the same point keep the order of the patch. ValueError for a hunk with
    another verdict, or whose lines are not where its placement says: a bug of the caller.
    """
    if len(placements) != len(file.hunks):
        message = f"{len(placements)} placements for {len(file.hunks)} hunks"
        raise ValueError(message)
    edits = []
    for number, placed in enumerate(placements):
        if placed.verdict is Verdict.PRESENT:
            continue
        if placed.verdict not in (Verdict.EXACT, Verdict.OFFSET) or placed.line is None:
            message = f"hunk {number + 1} is {placed.verdict.value}: it cannot be applied"
            raise ValueError(message)
        sides = hunk_sides(placed.hunk)
        edits.append((placed.line - 1 if sides.old else placed.line, bool(sides.old), number, sides))
    return _splice(lines if isinstance(lines, list) else list(lines), sorted(edits, key=lambda edit: edit[:3]))


def _splice(lines: list[bytes], edits: Sequence[tuple[int, bool, int, Sides]]) -> bytes:
    result: list[bytes] = []
    done = 0
    for index, _, number, sides in edits:
        end = index + len(sides.old)
        if index < done or lines[index:end] != sides.old:
            message = f"hunk {number + 1} does not stand at index {index}"
            raise ValueError(message)
        result += lines[done:index]
        result += sides.new
        done = end
    result += lines[done:]
    return b"".join(result)
