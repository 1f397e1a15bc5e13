"""Whether a place is in the scope that a hunk was cut in, by the base file or by the section heading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchkit.diff.image import Image, split_lines
from patchkit.diff.model import Proof
from patchkit.diff.scope import Scopes, c_heading, default_heading, heading_at, is_heading, python_scopes

if TYPE_CHECKING:
    from patchkit.diff.image import Sides
    from patchkit.diff.model import Hunk

_C_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".cu", ".cuh", ".inl")
_DEFINITION = re.compile(rb"(?:async[ \t]+)?(class|def)[ \t]+([^\W\d][^\W]*)")
_GNU_CUT = 38  # `diff -p` cuts a heading to 40 bytes, git to 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """What comparing two scopes came to: `agrees` is None when there was nothing to compare."""

    agrees: bool | None
    before: str | None
    after: str | None
    proof: Proof


UNKNOWN = Agreement(agrees=None, before=None, after=None, proof=Proof.NONE)


class Judge:
    """Compares the scope of a place in the file with the one a hunk was cut in; parses a file when first asked."""

    def __init__(self, *, name: str, image: Image, base: bytes | None, python: bool) -> None:
        self._c = name.endswith(_C_SUFFIXES)
        self._image = image
        self._base_content = base
        self._base = None if base is None else Image(split_lines(base))
        self._python = python
        self._scopes: tuple[Scopes | None, Scopes | None] | None = None

    def compare(self, hunk: Hunk, sides: Sides, index: int) -> Agreement:
        """Compare with the base, and when that says nothing with the hunk's section heading."""
        agreement = self._with_base(hunk, sides, index)
        return agreement if agreement.agrees is not None else self._with_section(hunk, index)

    def compare_with_base(self, hunk: Hunk, sides: Sides, index: int) -> Agreement:
        """Compare a place at the stated line: only a syntax tree may contradict it."""
        return self._with_base(hunk, sides, index) if self._python else UNKNOWN

    def _with_base(self, hunk: Hunk, sides: Sides, index: int) -> Agreement:
        if self._base is None or (origin := _place_in_base(self._base, hunk, sides)) is None:
            return UNKNOWN
        if not self._python:
            rule = c_heading if self._c else default_heading
            return _agreement(rule(self._base.lines, origin + 1), rule(self._image.lines, index + 1), Proof.SCOPE)
        before, after = self._trees()
        if before is None or after is None:
            return UNKNOWN
        changed = _deciding_line(sides)
        one, other = before.at(origin + changed), after.at(index + changed)
        return Agreement(agrees=one == other, before=one, after=other, proof=Proof.SCOPE)

    def _trees(self) -> tuple[Scopes | None, Scopes | None]:
        if self._scopes is None:
            before = python_scopes(self._base_content or b"")
            self._scopes = before, python_scopes(b"".join(self._image.lines)) if before else None
        return self._scopes

    def _with_section(self, hunk: Hunk, index: int) -> Agreement:
        section = hunk.section.strip()
        if not section or not is_heading(section):
            return UNKNOWN
        if self._python:
            return self._with_python_section(section, index)
        headings = heading_at(self._image.lines, index + 1)
        match = next((heading for heading in headings if _same_text(section, heading)), None)
        return _agreement(section, (match and section) or next(iter(headings), b""), Proof.HEADING)

    def _with_python_section(self, section: bytes, index: int) -> Agreement:
        """Compare by name: `class A(B):` is `class A:`; a section that is no definition says module level only."""
        headings = heading_at(self._image.lines, index + 1)
        names = {match.groups(): heading for heading in headings if (match := _DEFINITION.match(heading))}
        wanted = _DEFINITION.match(section)
        if wanted:
            found = names.get(wanted.groups())
            return _agreement(section, section if found is not None else next(iter(headings), b""), Proof.HEADING)
        outer = default_heading(self._image.lines, index + 1)
        if _DEFINITION.match(outer):
            return _agreement(section, outer, Proof.HEADING)
        return UNKNOWN


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


def _agreement(before: bytes, after: bytes, proof: Proof) -> Agreement:
    one, other = before.decode("utf-8", "backslashreplace"), after.decode("utf-8", "backslashreplace")
    return Agreement(agrees=before == after, before=one, after=other, proof=proof)


def _same_text(section: bytes, heading: bytes) -> bool:
    return section == heading or (len(section) >= _GNU_CUT and heading.startswith(section))
