"""Whether a place is in the scope that a hunk was cut in, by the base file or by the section heading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.diff.aim import UNKNOWN, Agreement
from patchkit.diff.image import Image, split_lines
from patchkit.diff.model import Proof
from patchkit.diff.scope import Headings, Scopes, c_rule, default_rule, is_heading, python_scopes
from patchkit.diff.twins import compare_definitions, describe_difference, describe_doubt
from patchkit.pattern import compile_lazily

if TYPE_CHECKING:
    from patchkit.diff.image import Sides
    from patchkit.diff.model import Hunk
    from patchkit.diff.scope import Definition

_C_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".cu", ".cuh", ".inl")
_DEFINITION = compile_lazily(rb"(?:async[ \t]+)?(class|def)[ \t]+([^\W\d][^\W]*)")
_GNU_CUT = 38  # `diff -p` cuts a heading to 40 bytes, git to 80


class Judge:
    """Compares the scope of a place in the file with the one a hunk was cut in; parses a file when first asked."""

    def __init__(self, *, name: str, image: Image, base: bytes | None, python: bool) -> None:
        self._c = name.endswith(_C_SUFFIXES)
        self._image = image
        self._base_content = base
        self._base = None if base is None else Image(split_lines(base))
        self._python = python
        self._scopes: tuple[Scopes | None, Scopes | None] | None = None
        self._headings = Headings(image.lines)
        self._base_headings = Headings(self._base.lines if self._base else ())
        self._named: dict[bytes, bool] = {}
        self._origins: dict[int, int | None] = {}

    def compare(self, hunk: Hunk, sides: Sides, index: int) -> Agreement:
        """Compare a place of the preimage with the base, and when that says nothing with the hunk's section heading."""
        agreement = self._with_base(hunk, sides, index, _deciding_line(sides))
        decided = agreement.agrees is not None or agreement.doubt
        return agreement if decided else self._with_section(hunk, sides, index)

    def compare_standing(self, hunk: Hunk, sides: Sides, index: int) -> Agreement:
        """Compare a place of the postimage, where a removed line cannot be looked at."""
        agreement = self._with_base(hunk, sides, index, max(sides.leading, 1))
        decided = agreement.agrees is not None or agreement.doubt
        return agreement if decided else self._with_section(hunk, sides, index)

    def stood_in_base(self, sides: Sides) -> bool:
        """True when the base has the postimage already: then it says nothing to find it."""
        if self._base is None:
            return False
        places, complete = self._base.places(sides.new, at_start=False, at_end=False)
        return bool(places) or not complete

    def compare_with_base(self, hunk: Hunk, sides: Sides, index: int) -> Agreement:
        """Compare a place at the stated line: only a syntax tree may contradict it."""
        return self._with_base(hunk, sides, index, _deciding_line(sides)) if self._python else UNKNOWN

    def _with_base(self, hunk: Hunk, sides: Sides, index: int, deciding: int) -> Agreement:
        if self._base is None or (origin := self._origin(self._base, hunk, sides)) is None:
            return UNKNOWN
        if not self._python:
            rule = c_rule if self._c else default_rule
            before = self._base_headings.above(origin + deciding, rule)
            return _agreement(before, self._headings.above(index + deciding, rule), Proof.SCOPE)
        old, new = self._trees()
        if old is None or new is None:
            return UNKNOWN
        return _compare_trees(old.around(origin + deciding), new.around(index + deciding))

    def _origin(self, base: Image, hunk: Hunk, sides: Sides) -> int | None:
        """Return the hunk's index in the base, looked up once per hunk: the caller keeps its hunks."""
        if id(hunk) not in self._origins:
            self._origins[id(hunk)] = _place_in_base(base, hunk, sides)
        return self._origins[id(hunk)]

    def _trees(self) -> tuple[Scopes | None, Scopes | None]:
        if self._scopes is None:
            before = python_scopes(self._base_content or b"")
            self._scopes = before, python_scopes(b"".join(self._image.lines)) if before else None
        return self._scopes

    def _with_section(self, hunk: Hunk, sides: Sides, index: int) -> Agreement:
        """Compare the function that the hunk's heading names; another one says nothing when the change leaves it.

        A heading that is nowhere in the file is none that can contradict: the function was renamed, or removed, or the
        heading was written by hand.
        """
        section = hunk.section.strip()
        if not section or not is_heading(section):
            return UNKNOWN
        headings = self._headings.all_above(index + 1)
        outer = self._headings.above(index + 1, default_rule)
        if any(self._same(section, heading) for heading in headings):
            return _agreement(section, section, Proof.HEADING)
        if _leaves_section(sides):
            return UNKNOWN
        if self._python and not _DEFINITION.match(section) and not _DEFINITION.match(outer):
            return UNKNOWN  # two statements at module level
        after = next(iter(headings), b"")
        if self._names_a_line(section):
            return _agreement(section, after, Proof.HEADING)
        return Agreement(agrees=None, before=_text(section), after=_text(after), proof=Proof.NONE)

    def _same(self, section: bytes, heading: bytes) -> bool:
        """Compare two headings, those of Python by name: `class A(B):` is `class A:`."""
        if self._python and (one := _DEFINITION.match(section)) and (other := _DEFINITION.match(heading)):
            return one.groups() == other.groups()
        return section == heading or (len(section) >= _GNU_CUT and heading.startswith(section))

    def _names_a_line(self, section: bytes) -> bool:
        """True when a line of the file is the heading, wherever it stands."""
        if section not in self._named:
            begin = section.split(b"(")[0]
            lines = (line.strip() for line in self._image.lines if begin in line)
            self._named[section] = any(self._same(section, line[:80].rstrip()) for line in lines)
        return self._named[section]


def _place_in_base(base: Image, hunk: Hunk, sides: Sides) -> int | None:
    """Return the index of the hunk in the base: the stated one, else the only one."""
    stated = max(hunk.old_start - 1, 0)
    if base.fits(sides.old, stated):
        return stated
    places, complete = base.places(sides.old, at_start=False, at_end=False)
    return places[0] if complete and len(places) == 1 else None


def _deciding_line(sides: Sides) -> int:
    """Return which of the hunk's lines, from 1, decides its scope.

    The first removed line; of an insertion the line before it, so that what is put at the end of a function, or
    between two of them, is the first one's on both sides.
    """
    return sides.leading + 1 if sides.removal_first else max(sides.leading, 1)


def _leaves_section(sides: Sides) -> bool:
    """True when a line up to the first changed one begins another definition, or stands at the left edge.

    The heading is of the line above the hunk. What it names has ended there, or the hunk holds the start of its own.
    """
    before = sides.old[: sides.leading]
    changed = sides.old if sides.removal_first else sides.new
    at_edge = any(line.strip() and line[:1] not in b" \t" for line in [*before, *changed[sides.leading :][:1]])
    return at_edge or any(_DEFINITION.match(line.lstrip()) for line in before)


def _compare_trees(one: Definition, other: Definition) -> Agreement:
    agrees = compare_definitions(one, other)
    if agrees is None:
        doubt = describe_doubt(one, other)
        return Agreement(agrees=None, before=one.path, after=other.path, proof=Proof.NONE, doubt=doubt)
    before, after = (one.path, other.path) if agrees else describe_difference(one, other)
    return Agreement(agrees=agrees, before=before, after=after, proof=Proof.SCOPE)


def _agreement(before: bytes, after: bytes, proof: Proof) -> Agreement:
    return Agreement(agrees=before == after, before=_text(before), after=_text(after), proof=proof)


def _text(heading: bytes) -> str:
    return heading.decode("utf-8", "backslashreplace")
