"""Which patches of a series edit lines of another: those need it, and a toggle that takes it out takes them along.

Every patch is cut on top of those before it. A hunk needs an earlier patch when lines of that patch stand in it, as
context or to be removed, or when it changes something directly beside them: an insertion between two lines that touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchkit.diff.model import Change, FilePatch, Hunk, Patch
from patchkit.diff.runs import Run, first_of, runs_of
from patchkit.record import dataclass, replace
from patchkit.strip import strip_name

_END = 1 << 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Editing:
    """A hunk (`line_number` is its line in the patch) of one patch, by place in the series, on lines of `other`.

    `context` is the first of them (and its line that of the patch) where all are context: the hunk neither edits them
    nor changes what is beside them.
    """

    patch: int
    other: int
    path: str
    line_number: int
    context: bytes | None = None

    @property
    def words(self) -> str:
        """Say what the hunk does; the name of the other patch follows."""
        if self.context is None:
            return "edits lines of"
        text = self.context.strip()[:60].decode("utf-8", "backslashreplace")
        shown = "".join(char if char.isprintable() else "?" for char in text)
        return f"has in its context, at `{shown}`, what is made by"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Owned:
    """Lines from `start` up to `end` (counted from 0) that a patch made; empty where it only removed some."""

    start: int
    end: int
    patch: int


def find_edits(patches: Sequence[tuple[Patch, int]]) -> Iterator[Editing]:
    """Yield what edits lines of an earlier patch, each pair of patches once a file; a patch comes with its -p level."""
    owned: dict[str, list[_Owned]] = {}
    for number, (patch, level) in enumerate(patches):
        for file in patch.files:
            old, new = _path(file.old_name, level), _path(file.new_name, level)
            standing = owned.get(old or new, [])
            yield from _edits_in(file, standing, number, old or new)
            after = _after(file, standing, number)
            if file.change is not Change.COPY and old:
                owned.pop(old, None)
            owned[new or old] = after


def _path(name: str | None, level: int) -> str:
    split = strip_name(name, level) if name is not None else None
    return split[1] if split is not None else ""


def _edits_in(file: FilePatch, standing: Sequence[_Owned], number: int, path: str) -> Iterator[Editing]:
    seen: set[int] = set()
    if file.change in (Change.DELETE, Change.RENAME) or file.binary is not None:
        for one in standing:
            seen.add(one.patch)
        yield from (Editing(patch=number, other=other, path=path, line_number=file.line_number) for other in seen)
        return
    needed: dict[int, Editing] = {}
    for hunk in file.hunks:
        for one in standing:
            if one.patch == number:
                continue
            edits = any(run.touches(one.start, one.end) for run in runs_of(hunk))
            if not edits and (one.patch in needed or not _is_around(hunk, one)):
                continue
            if one.patch not in needed or (needed[one.patch].context is not None and edits):
                at, text = (hunk.line_number, None) if edits else _old_line(hunk, max(one.start, first_of(hunk)))
                needed[one.patch] = Editing(patch=number, other=one.patch, path=path, line_number=at, context=text)
    yield from needed.values()


def _is_around(hunk: Hunk, one: _Owned) -> bool:
    start, end = first_of(hunk), first_of(hunk) + hunk.old_count
    return one.start < end and one.end > start and (one.start < one.end or one.start > start)


def _old_line(hunk: Hunk, place: int) -> tuple[int, bytes]:
    """Return the line of the patch, and its text, that stands for a line of the file."""
    old = [(at, line) for at, line in enumerate(hunk.lines, hunk.line_number + 1) if line[:1] not in (b"+", b"\\")]
    at, line = old[place - first_of(hunk)]
    return at, line[1:]


def _after(file: FilePatch, standing: Sequence[_Owned], number: int) -> list[_Owned]:
    """Return whose the lines are when the patch is on."""
    if file.change is Change.CREATE or file.binary is not None:
        return [_Owned(start=0, end=_END, patch=number)]
    runs = [run for hunk in file.hunks for run in runs_of(hunk)]
    moved = [replace(one, start=_shifted(one.start, runs), end=_shifted_end(one.end, runs)) for one in standing]
    made = []
    for place, run in enumerate(runs):
        start = run.start + sum(before.growth for before in runs[:place])
        made.append(_Owned(start=start, end=start + len(run.added), patch=number))
    return [*(one for one in moved if one.end >= one.start), *made]


def _shifted(place: int, runs: Sequence[Run]) -> int:
    moved = place
    for run in runs:
        if run.end <= place:
            moved += run.growth
        elif run.start < place:
            moved += run.start - place + len(run.added)
    return moved


def _shifted_end(place: int, runs: Sequence[Run]) -> int:
    moved = place
    for run in runs:
        if run.end <= place and run.start < place:
            moved += run.growth
        elif run.start < place < run.end:
            moved += run.start - place
    return moved
