"""The two sides of a hunk as lines with their terminators, and a file's lines with an index to find them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from patchkit.diff.model import NO_NEWLINE
from patchkit.record import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from patchkit.diff.model import Hunk

_MOST_TRIES = 5_000
_MOST_PLACES = 100


class Sides(NamedTuple):
    """What a hunk expects (`old`, the preimage) and what it leaves (`new`, the postimage).

    `context` counts all context lines, `leading` those before the first change and `trailing` those behind the last;
    `removal_first` tells whether the first changed line is a removed one,
    `unterminated` whether a no-newline marker was seen.
    """

    old: list[bytes]
    new: list[bytes]
    context: int
    leading: int
    trailing: int
    removal_first: bool
    unterminated: bool


def split_lines(content: bytes) -> list[bytes]:
    """Split at LF only, keeping it: a lone CR, a form feed or U+2028 is part of its line, as in git."""
    if b"\r" not in content:
        return content.splitlines(keepends=True)  # of bytes: at LF and CR only
    lines = content.split(b"\n")
    last = lines.pop()
    lines = [line + b"\n" for line in lines]
    return [*lines, last] if last else lines


def hunk_sides(hunk: Hunk) -> Sides:
    """Read both sides of a hunk; a line before a no-newline marker has no LF."""
    body = hunk.lines
    known = _recent.get(id(body))
    if known is not None:
        return known[1]
    if len(_recent) >= _MOST_RECENT:
        _recent.clear()
    sides = _read_sides(body)
    _recent[id(body)] = (body, sides)
    return sides


_MOST_RECENT = 1 << 10
# Placing and applying ask for the same hunk one after the other. Found by identity: to hash the lines of a hunk takes
# as long as half of reading them. The lines are held, so that no others get their identity.
_recent: dict[int, tuple[tuple[bytes, ...], Sides]] = {}


def _read_sides(body: tuple[bytes, ...]) -> Sides:
    old: list[bytes] = []
    new: list[bytes] = []
    context = run = 0
    leading = -1
    removal_first = unterminated = False
    sign = b" "
    for line in body:
        marker = line[:1]
        if marker == b"+":
            new.append(line[1:] + b"\n")
        elif marker == b"-":
            old.append(line[1:] + b"\n")
        elif marker == NO_NEWLINE:
            _drop_newline(old, new, sign)
            unterminated = True
            continue
        else:
            # b"\r" is an empty context line of a converted patch, its blank stripped on the way.
            text = (line if marker == b"\r" else line[1:]) + b"\n"
            old.append(text)
            new.append(text)
            run += 1
            sign = b" "
            continue
        if leading < 0:
            leading = run
            removal_first = marker == b"-"
        sign = marker
        context += run
        run = 0
    return Sides(old, new, context + run, max(leading, 0), run, removal_first, unterminated)


def _drop_newline(old: list[bytes], new: list[bytes], sign: bytes) -> None:
    if sign != b"+" and old:
        old[-1] = old[-1].removesuffix(b"\n")
    if sign != b"-" and new:
        new[-1] = new[-1].removesuffix(b"\n")


def without_carriage_returns(hunk: Hunk, *, everywhere: bool) -> Hunk:
    """Return the hunk without the CR that a conversion of the whole patch put before each LF.

    Not `everywhere`: only from lines without a newline, where the converter of the tree has put none.
    """
    lines = list(hunk.lines)
    for number, line in enumerate(lines):
        last = number + 1 < len(lines) and lines[number + 1].startswith(NO_NEWLINE)
        if everywhere or last:
            lines[number] = line.removesuffix(b"\r")
    return replace(hunk, lines=tuple(lines), section=hunk.section.removesuffix(b"\r"))


class Image:
    """A file's lines; where a given line stands is looked up in an index that is made when first needed."""

    __slots__ = ("_positions", "lines")

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines if isinstance(lines, list) else list(lines)
        self._positions: dict[bytes, list[int]] | None = None

    def positions(self, line: bytes) -> Sequence[int]:
        """Return the indices at which a line stands."""
        if self._positions is None:
            self._positions = {}
            for index, text in enumerate(self.lines):
                self._positions.setdefault(text, []).append(index)
        return self._positions.get(line, ())

    def fits(self, pattern: list[bytes], index: int) -> bool:
        """True when the pattern stands at the index."""
        return index >= 0 and self.lines[index : index + len(pattern)] == pattern

    def places(self, pattern: list[bytes], *, at_start: bool, at_end: bool) -> tuple[list[int], bool]:
        """Return where the pattern stands, and whether that is all.

        Searched through the rarest of its lines: linear in the file once, then in that line's occurrences. Gives up
        (False) after 5,000 comparisons or 100 places. An anchored pattern stands in one place only.
        """
        if at_start or at_end:
            index = 0 if at_start else len(self.lines) - len(pattern)
            reaches = not at_end or index + len(pattern) == len(self.lines)
            return ([index] if reaches and self.fits(pattern, index) else []), True
        rarest: Sequence[int] | None = None
        offset = 0
        for number, line in enumerate(pattern):
            where = self.positions(line)
            if rarest is None or len(where) < len(rarest):
                rarest, offset = where, number
            if not where:
                return [], True
        found: list[int] = []
        for tries, position in enumerate(rarest or ()):
            if tries >= _MOST_TRIES or len(found) >= _MOST_PLACES:
                return found, False
            if self.fits(pattern, position - offset):
                found.append(position - offset)
        return found, True
