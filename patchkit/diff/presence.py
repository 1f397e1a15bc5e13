"""When a hunk that only removes lines counts as applied already.

The postimage of such a hunk is nothing but its context, and `return x` with a blank line below it stands in many
places where nothing was ever removed. Where it stands shows that the lines were removed only when

* it is the new line that the hunk states, or
* it is as far from there as the nearest hunks of the same file before and behind it are, which put lines into the
  file that stand there now, or
* it is the one place, in the scope that the hunk was cut in (by the base or by its heading), with three lines of
  context or the edge of the file on both sides, and the base did not have the same lines before.

A blank line that is added does not count as a change: it is as common as that. Anything else is a conflict: a false
"applied already" leaves lines in the file that the user believes to be gone, a refusal costs him a look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.diff.aim import conflict_of, list_lines, present_at
from patchkit.diff.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from patchkit.diff.aim import Agreement, Aim
    from patchkit.diff.image import Image
    from patchkit.diff.judge import Judge
    from patchkit.diff.model import Hunk, Placement

    Places = Sequence[tuple[int, Agreement]]

_ENOUGH_CONTEXT = 3


def only_removes(hunk: Hunk) -> bool:
    """True when the hunk takes lines away and adds none that is not blank."""
    added = any(line[:1] == b"+" and line[1:].strip() for line in hunk.lines)
    return not added and any(line[:1] == b"-" for line in hunk.lines)


def shows_removal(aim: Aim, places: Places, image: Image, judge: Judge) -> bool:
    """True when the places where the postimage stands show, without other hunks, that the lines were removed."""
    if len(places) != 1:
        return False
    ((index, agreement),) = places
    if index == max(aim.hunk.new_start - 1, 0):
        return True
    return bool(agreement.agrees) and _is_held(aim, index, image) and not judge.stood_in_base(aim.sides)


def _is_held(aim: Aim, index: int, image: Image) -> bool:
    """True when enough context, or the edge of the file, is on both sides of the change."""
    sides = aim.sides
    above = sides.leading >= _ENOUGH_CONTEXT or index == 0
    return above and (sides.trailing >= _ENOUGH_CONTEXT or index + len(sides.new) == len(image.lines))


def refuse_removal(aim: Aim, places: Places, misfit: str) -> Placement:
    """Return the conflict of a removal whose lines are not there (`misfit`) and whose context alone says nothing."""
    lines = list_lines([index + 1 for index, _ in places])
    where = f"line {lines}" if len(places) == 1 else f"lines {lines}"
    return conflict_of(
        aim, f"{misfit}; the context alone stands at {where}: nothing shows that the patch removed the lines"
    )


def follow_neighbours(aims: Sequence[Aim], placements: list[Placement | None], doubtful: Mapping[int, Places]) -> None:
    """Turn doubtful removals (their places by hunk number) that moved as their neighbours did into present ones."""
    shifts = sorted(
        (aim.hunk.new_start, placed.line - max(aim.hunk.new_start, 1))
        for aim, placed in zip(aims, placements, strict=True)
        if placed and placed.line and placed.verdict is Verdict.PRESENT and not only_removes(aim.hunk)
    )
    for number, places in doubtful.items():
        aim = aims[number]
        above = [shift for start, shift in shifts if start < aim.hunk.new_start][-1:]
        below = [shift for start, shift in shifts if start > aim.hunk.new_start][:1]
        for index, agreement in places:
            if {index + 1 - max(aim.hunk.new_start, 1)} == {*above, *below}:
                placements[number] = present_at(aim, index, agreement)
