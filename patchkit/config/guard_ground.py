"""The file with all toggles off, in its language: what guards it takes, and how much around one stands for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from patchkit.config.guard_c import CText, guard_c_variants
from patchkit.config.guard_clash import scope_clashes
from patchkit.config.guard_edit import GuardEdit
from patchkit.config.guard_python import guard_variants
from patchkit.config.guard_scope import Scopes
from patchkit.config.guard_source import Source, first_line, parse_source, vary


class Ground(Protocol):
    """The file with all toggles off, in its language."""

    @property
    def lines(self) -> list[bytes]:
        """Its lines."""

    def guards(self, lines: list[bytes], symbol: str) -> Sequence[GuardEdit]:
        """Return the edits that put `lines` beside it, under a guard. UnguardableError where that cannot be."""

    def part(self, start: int, end: int) -> range:
        """Return the lines of a part around some that stands for itself: it can be read without the rest."""

    def clashes(
        self, edits: Sequence[GuardEdit], variants: Mapping[str, list[bytes]], outside: frozenset[str]
    ) -> Sequence[tuple[str, range]]:
        """Return the symbols whose guards among the edits mean something for those of others, and in which lines.

        `variants` are the lines of each symbol, with those it needs, and of all of them under ""; `outside` is that
        of the whole file.
        """

    def outside(self, variants: Iterable[list[bytes]]) -> frozenset[str]:
        """Return the names that code anywhere in the file may take from around it."""

    def around(self, start: int, end: int) -> range:
        """Return some lines with all around them that mean nothing: a change among these may be a guard's of those."""


class PythonGround:
    """A Python file with all toggles off."""

    __slots__ = ("_variants", "lines", "scopes", "source")

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.source = parse_source(lines)
        self.scopes = Scopes()
        self._variants: dict[int, Source] = {}

    def guards(self, lines: list[bytes], symbol: str) -> Sequence[GuardEdit]:
        """See guard_variants."""
        return guard_variants(self.source, self._variant(lines), symbol, self.scopes)

    def _variant(self, lines: list[bytes]) -> Source:
        variant = self._variants.get(id(lines))
        if variant is None or variant.lines is not lines:
            variant = self._variants[id(lines)] = vary(self.source, lines)
        return variant

    def part(self, start: int, end: int) -> range:
        """Return the lines of the statements of the module that some lines touch."""
        starts = [first_line(statement) - 1 for statement in self.source.body]
        above = [line for line in starts if line < start]
        below = [line for line in starts if line > end]
        return range(above[-1] if above else 0, below[0] if below else len(self.lines))

    def clashes(
        self, edits: Sequence[GuardEdit], variants: Mapping[str, list[bytes]], outside: frozenset[str]
    ) -> Sequence[tuple[str, range]]:
        """Return the symbols that make names local in a function whose guards of other symbols take them from outside.

        See scope_clashes. UnguardableError when a variant does not parse.
        """

        def bodies() -> dict[str, list[ast.stmt]]:
            return {symbol: self._variant(lines).body for symbol, lines in variants.items()}

        return scope_clashes(self.source.body, edits, bodies, self.scopes, outside)

    def outside(self, variants: Iterable[list[bytes]]) -> frozenset[str]:
        """Return the names that the module has in any variant. UnguardableError when one does not parse."""
        bodies = [self.source.body, *(self._variant(lines).body for lines in variants)]
        return frozenset[str]().union(*map(self.scopes.outside, bodies))

    def around(self, start: int, end: int) -> range:
        """Return some lines with the comments and empty lines around them."""
        while start and _is_no_code(self.lines[start - 1]):
            start -= 1
        while end < len(self.lines) and _is_no_code(self.lines[end]):
            end += 1
        return range(start, end)


def _is_no_code(line: bytes) -> bool:
    return line.lstrip()[:1] in (b"", b"#")


class CGround:
    """A C, C++ or CUDA file with all toggles off."""

    __slots__ = ("lines", "text")

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.text = CText(lines)

    def guards(self, lines: list[bytes], symbol: str) -> Sequence[GuardEdit]:
        """See guard_c_variants."""
        return guard_c_variants(self.text, lines, symbol)

    def part(self, start: int, end: int) -> range:  # noqa: ARG002 -- a directive may stand anywhere above
        """Return the whole file."""
        return range(len(self.lines))

    def clashes(
        self,
        edits: Sequence[GuardEdit],  # noqa: ARG002 -- directives have no scopes
        variants: Mapping[str, list[bytes]],  # noqa: ARG002
        outside: frozenset[str],  # noqa: ARG002
    ) -> Sequence[tuple[str, range]]:
        """Return none: what a directive takes away means nothing."""
        return ()

    def outside(self, variants: Iterable[list[bytes]]) -> frozenset[str]:  # noqa: ARG002 -- as above
        """Return none."""
        return frozenset()

    def around(self, start: int, end: int) -> range:
        """Return these lines: a directive stands where the change is."""
        return range(start, end)
