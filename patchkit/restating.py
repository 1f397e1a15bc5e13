"""A patch of a series, stated for a tree in which some of the patches before it are left out.

Every patch is cut on top of all before it: its line numbers count their lines, and these stand in its context. Without
one of them the place is known all the same, by arithmetic: nothing is looked for. So the hunk is stated where its lines
are then. Where guards switch both patches, the other's lines in the context give way to what stands there without it:
no line that the hunk changes touches them, and the two patches commute. Any other hunk in which such lines stand is
adrift: it stays as it was cut, and finds no place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from patchkit.diff.model import NO_NEWLINE, Change, FilePatch, Hunk, Patch
from patchkit.diff.runs import Run, first_of, runs_of
from patchkit.moving import move_hunk
from patchkit.record import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Stacked:
    """A patch in the order of its series; `paths` are the old and new one of each file, `guard`: guards switch it."""

    patch: Patch
    paths: tuple[tuple[str, str], ...]
    there: bool
    guard: bool


class _Gap(NamedTuple):
    """Lines `start` to `end` (from 0) that patches which are left out made, `gone`; `kept` stand there without them.

    `guard`: guards switch all of these patches, and what their lines are is known.
    """

    start: int
    end: int
    gone: tuple[bytes, ...]
    kept: tuple[bytes, ...]
    guard: bool

    @property
    def growth(self) -> int:
        return len(self.kept) - (self.end - self.start)


def restate_patches(stack: Sequence[Stacked]) -> tuple[Patch, ...]:
    """Return the patches with those that are there stated for a tree without the others."""
    gaps: dict[str, list[_Gap] | None] = {}  # None: what stands there is not known by lines
    return tuple(_restate_patch(one, gaps) for one in stack)


def _restate_patch(one: Stacked, gaps: dict[str, list[_Gap] | None]) -> Patch:
    files = []
    for file, (old, new) in zip(one.patch.files, one.paths, strict=True):
        standing = gaps.get(old, [])
        files.append(_restate_file(file, standing, guard=one.guard) if one.there and standing != [] else file)
        if old == new and file.change is Change.MODIFY:
            gaps[old] = _after(file, standing, one)
            continue
        if old and file.change is not Change.COPY:
            gaps[old] = [] if one.there else None
        if new:
            gaps[new] = _after(file, standing, one) if one.there else None
    return replace(one.patch, files=tuple(files)) if tuple(files) != one.patch.files else one.patch


def _restate_file(file: FilePatch, gaps: Sequence[_Gap] | None, *, guard: bool) -> FilePatch:
    if gaps is None:
        return replace(file, hunks=tuple(replace(hunk, adrift=True) for hunk in file.hunks))
    return replace(file, hunks=tuple(_restate_hunk(hunk, gaps, guard=guard) for hunk in file.hunks))


def _restate_hunk(hunk: Hunk, gaps: Sequence[_Gap], *, guard: bool) -> Hunk:
    first = first_of(hunk)
    last = first + hunk.old_count
    inside = [gap for gap in gaps if gap.start < last and gap.end > first]
    moved = move_hunk(hunk, sum(gap.growth for gap in gaps if gap.end <= first))
    if not inside:
        return replace(moved, adrift=True) if any(map(partial(_is_between, hunk), gaps)) else moved
    if not guard or not all(gap.guard and _is_context(gap, hunk) for gap in inside):
        return replace(moved, adrift=True)
    return _with_kept_lines(moved, hunk, inside)


def _is_between(hunk: Hunk, gap: _Gap) -> bool:
    """Tell whether a hunk puts lines in where others were taken out: before or after these, nobody can tell."""
    return bool(gap.kept) and any(run.start == run.end and run.touches(gap.start, gap.end) for run in runs_of(hunk))


def _is_context(gap: _Gap, hunk: Hunk) -> bool:
    """Tell whether no change of a hunk touches a gap, and its context has the lines that are said to stand there."""
    if any(run.touches(gap.start, gap.end) for run in runs_of(hunk)):
        return False
    place = first_of(hunk)
    for line in hunk.lines:
        if line[:1] in (b"+", NO_NEWLINE):
            continue
        if gap.start <= place < gap.end and _text(line) != gap.gone[place - gap.start]:
            return False
        place += 1
    return True


def _with_kept_lines(moved: Hunk, hunk: Hunk, gaps: Sequence[_Gap]) -> Hunk:
    """Return the hunk with what stands in the gaps as context, no more of it at either end than it was cut with."""
    lines: list[bytes] = []
    place = first = first_of(hunk)
    for line in hunk.lines:
        is_old = line[:1] not in (b"+", NO_NEWLINE)
        for gap in gaps if is_old else ():
            if place == max(gap.start, first):
                lines += [b" " + kept for kept in gap.kept]
        if not is_old or not any(gap.start <= place < gap.end for gap in gaps):
            lines.append(line)
        place += is_old
    above = _context(lines) - _context(hunk.lines)
    below = _context(lines[::-1]) - _context(hunk.lines[::-1])
    before = sum(first - gap.start for gap in gaps if gap.start < first)
    body = lines[max(above, 0) : len(lines) - max(below, 0)]
    start = max(above, 0) - before
    return replace(
        move_hunk(moved, start),
        lines=tuple(body),
        old_count=sum(line[:1] not in (b"+", NO_NEWLINE) for line in body),
        new_count=sum(line[:1] not in (b"-", NO_NEWLINE) for line in body),
    )


def _context(lines: Sequence[bytes]) -> int:
    """Return how many lines of context come first."""
    return next((place for place, line in enumerate(lines) if line[:1] in (b"+", b"-", NO_NEWLINE)), len(lines))


def _text(line: bytes) -> bytes:
    """Return a line of a hunk's body without its sign; of an empty context line that may have been stripped."""
    return line[1:] if line[:1] in (b" ", b"+", b"-") else line


def _after(file: FilePatch, gaps: list[_Gap] | None, one: Stacked) -> list[_Gap] | None:
    """Return the gaps behind a patch, in its lines; None when they are not known any more."""
    if gaps is None or file.binary is not None:
        return None
    runs = [run for hunk in file.hunks for run in runs_of(hunk)]
    if one.there and any(run.touches(gap.start, gap.end) for run in runs for gap in gaps):
        return None
    guard = one.guard and not one.patch.crlf and not _is_unterminated(file)
    made: list[_Gap] = []
    grown = 0
    for own, held in _touching(runs, gaps):
        growth = sum(run.growth for run in own)
        if one.there:
            made += [gap._replace(start=gap.start + grown, end=gap.end + grown) for gap in held]
        else:
            known = guard or not own
            made.append(_joined(own, held, grown, guard=known and all(gap.guard for gap in held)))
        grown += growth
    return [gap for gap in made if gap.gone != gap.kept]


def _is_unterminated(file: FilePatch) -> bool:
    return any(line[:1] == NO_NEWLINE for hunk in file.hunks for line in hunk.lines)


def _touching(runs: Sequence[Run], gaps: Sequence[_Gap]) -> Iterator[tuple[list[Run], list[_Gap]]]:
    """Yield runs and gaps in order, those together that touch."""
    bounds = sorted([*((run.start, run.end) for run in runs), *((gap.start, gap.end) for gap in gaps)])
    while bounds:
        start, end = bounds.pop(0)
        while bounds and bounds[0][0] <= end:
            end = max(end, bounds.pop(0)[1])
        yield [run for run in runs if start <= run.start <= end], [gap for gap in gaps if start <= gap.start <= end]


def _joined(runs: Sequence[Run], gaps: Sequence[_Gap], grown: int, *, guard: bool) -> _Gap:
    """Return the one gap that changes and gaps make which touch each other."""
    start = min([*(run.start for run in runs), *(gap.start for gap in gaps)])
    end = max([*(run.end for run in runs), *(gap.end for gap in gaps)])
    kept: list[bytes] = []
    gone: list[bytes] = []
    for place in range(start, end + 1):
        for run in runs:
            if run.start == place:
                gone += run.added
        for gap in gaps:
            if gap.start == place:
                kept += gap.kept
        changed = next((run for run in runs if run.start <= place < run.end), None)
        covered = next((gap for gap in gaps if gap.start <= place < gap.end), None)
        if covered is None and changed is not None:
            kept.append(changed.removed[place - changed.start])
        if changed is None and covered is not None:
            gone.append(covered.gone[place - covered.start])
    growth = sum(run.growth for run in runs)
    return _Gap(start + grown, end + grown + growth, tuple(gone), tuple(kept), guard)
