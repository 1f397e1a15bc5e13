"""The file with all toggles off, in its language: what guards it takes, and how much around one stands for itself."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from patchkit.config.guard_c import CText, guard_c_variants
from patchkit.config.guard_clash import scope_clashes
from patchkit.config.guard_edit import GuardEdit
from patchkit.config.guard_python import guard_variants
from patchkit.config.guard_scope import Scopes
from patchkit.config.guard_source import Source, first_line, parse_source, vary


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

    def clashes(self, edits: Sequence[GuardEdit], variants: Mapping[str, list[bytes]]) -> Mapping[str, range]:
        """Return the symbols that make names local in a function whose guards of other symbols take them from outside.

        See scope_clashes. UnguardableError when a variant does not parse.
        """

        def bodies() -> dict[str, list[ast.stmt]]:
            return {symbol: self._variant(lines).body for symbol, lines in variants.items()}

        return scope_clashes(self.source.body, edits, bodies, self.scopes)

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

    def clashes(self, edits: Sequence[GuardEdit], variants: Mapping[str, list[bytes]]) -> Mapping[str, range]:  # noqa: ARG002 -- directives have no scopes
        """Return none: what a directive takes away means nothing."""
        return {}

    def around(self, start: int, end: int) -> range:
        """Return these lines: a directive stands where the change is."""
        return range(start, end)
