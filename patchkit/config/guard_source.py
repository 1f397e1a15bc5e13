"""A Python file as lines and syntax tree; its variants share the statements that they do not change.

A variant is parsed anew only where its lines differ: whole statements of the module, of a class or of a function. That
is exact: a text that parses by itself, from the start of a statement to the start of another, ends with the tokenizer
where it began, so that what follows parses as before. Where it does not parse by itself the whole file is parsed.
"""

from __future__ import annotations

import ast
import copy
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from patchkit.diff.compare import Block, compare_lines
from patchkit.pattern import compile_lazily

BOM = b"\xef\xbb\xbf"
_CODING = compile_lazily(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8 = frozenset((b"utf-8", b"utf8", b"utf-8-sig", b"ascii", b"us-ascii"))
_LONE_CR = compile_lazily(rb"\r(?!\n)")
_Holder = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_HOLDERS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class UnguardableError(Exception):
    """Something cannot stand in both variants; `line` is the 1-based line of the base, 0 when it is the whole file."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class UnreadableError(UnguardableError):
    """A text does not parse, so that nothing can be said of it."""


class PartialSourceError(Exception):
    """Lines were asked for of a statement that is shared, in part or wholly: parse the file wholly, and ask again."""


class Source:
    """The lines of a file (each with its LF) and its statements.

    In a variant, statements that are shared with the base carry the base's line numbers: `foreign` holds their ids.
    `partial` are the ids of the classes and functions that have both kinds of statements; they are foreign too.
    `parsed` keeps the parts that variants were parsed anew for.
    """

    __slots__ = ("body", "foreign", "lines", "newline", "parsed", "partial")

    def __init__(
        self,
        lines: list[bytes],
        body: list[ast.stmt],
        foreign: frozenset[int] = frozenset(),
        partial: frozenset[int] = frozenset(),
    ) -> None:
        self.lines = lines
        self.body = body
        self.foreign = foreign
        self.partial = partial
        self.parsed: dict[tuple[int, bytes, bytes], list[ast.stmt]] = {}
        self.newline = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"


def read_lines(content: bytes) -> list[bytes]:
    """Return the lines of a Python file, the last one with its LF too. UnguardableError where Python counts others."""
    if _LONE_CR.search(content):
        raise UnguardableError("a line ends in a CR without LF")
    lines = _split(content.removeprefix(BOM))
    for line in lines[:2]:
        coding = _CODING.match(line)
        if coding and coding.group(1).lower().replace(b"_", b"-") not in _UTF8:
            raise UnguardableError(f"its encoding is {coding.group(1).decode('ascii', 'replace')}, not UTF-8")
    return lines


def _split(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    last = lines.pop()
    ending = b"\r\n" if lines and lines[0].endswith(b"\r") else b"\n"
    return [line + b"\n" for line in lines] + ([last + ending] if last else [])


def parse_source(lines: list[bytes]) -> Source:
    """Parse a whole file. UnreadableError when this interpreter cannot."""
    return Source(lines, _parse(b"".join(lines)))


def _parse(text: bytes) -> list[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, "<guard>").body
    except SyntaxError as error:
        raise UnreadableError(f"it does not parse: {error.msg}", error.lineno or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableError(f"it does not parse: {str(error) or type(error).__name__}") from error


def first_line(statement: ast.stmt) -> int:
    """Return the 1-based line on which a statement starts, with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def last_line(statement: ast.stmt) -> int:
    """Return the 1-based line on which a statement ends."""
    return statement.end_lineno or statement.lineno


def vary(base: Source, lines: list[bytes], hint: Sequence[Block] = (), *, placed: bool = True) -> Source:
    """Parse a variant of a (wholly parsed) base, as far as it differs; a wrong `hint` at the blocks is not believed.

    Not `placed`: the line numbers of what is parsed anew do not count, and equal parts of several variants are one.
    """
    blocks = list(hint) if hint and _are_blocks(hint, base.lines, lines) else compare_lines(base.lines, lines)
    starts = [first_line(statement) - 1 for statement in base.body]
    if not starts or any(after <= before for before, after in pairwise(starts)):
        return parse_source(lines)  # `a; b`: two statements on a line
    variation = _Variation(base, lines, placed=placed)
    try:
        body = variation.statements(base.body, blocks, starts, _Extent(0, len(base.lines)), b"")
    except UnguardableError:
        return parse_source(lines)
    return Source(lines, body, frozenset(variation.foreign), frozenset(variation.partial))


def _are_blocks(blocks: Sequence[Block], old: list[bytes], new: list[bytes]) -> bool:
    """Tell whether the lines between the blocks are equal."""
    place = made = 0
    for block in [*blocks, Block(len(old), len(old), len(new), len(new))]:
        if old[place : block.old_start] != new[made : block.new_start]:
            return False
        place, made = block.old_end, block.new_end
    return True


def _groups(blocks: Sequence[Block], starts: list[int], end: int) -> list[tuple[range, list[Block]]]:
    """Return which statements each change touches, those that share one joined; the range is empty above the first.

    A statement owns the lines from its own start to the next one's. A change above the first one touches the first too.
    """
    groups: list[tuple[range, list[Block]]] = []
    for block in blocks:
        last = block.old_end - 1 if block.old_end > block.old_start else block.old_start - 1
        first = min(block.old_start, last)
        cells = range(max(bisect_right(starts, first) - 1, 0), min(bisect_right(starts, max(last, 0)), len(starts)))
        if first < (starts[0] if starts else end):
            cells = range(max(cells.stop, min(1, len(starts))))
        if groups and groups[-1][0].stop > cells.start:
            joined = range(groups[-1][0].start, max(groups[-1][0].stop, cells.stop))
            groups[-1] = (joined, [*groups[-1][1], block])
        else:
            groups.append((cells, [block]))
    return groups


class _Extent(NamedTuple):
    """0-based lines of the base, half open, that a list of statements owns."""

    start: int
    end: int


class _Variation:
    """A variant in the making."""

    def __init__(self, base: Source, lines: list[bytes], *, placed: bool) -> None:
        self._base = base
        self._lines = lines
        self._placed = placed
        self.foreign: set[int] = set()
        self.partial: set[int] = set()

    def statements(
        self, body: list[ast.stmt], blocks: Sequence[Block], starts: list[int], extent: _Extent, indent: bytes
    ) -> list[ast.stmt]:
        """Return a list of statements with those parsed anew that the blocks touch. UnguardableError if these do not
        parse by themselves, so far indented.
        """
        made: list[ast.stmt] = []
        done = 0
        for cells, changes in _groups(blocks, starts, extent.end):
            made += self._kept(body[done : cells.start])
            first = starts[cells.start] if cells.start else extent.start
            last = starts[cells.stop] if cells.stop < len(starts) else extent.end
            made += self._cells(body[cells.start : cells.stop], changes, _Extent(first, last), indent)
            done = cells.stop
        return made + self._kept(body[done:])

    def _kept(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        self.foreign.update(map(id, statements))
        return statements

    def _cells(
        self, statements: list[ast.stmt], changes: list[Block], old: _Extent, indent: bytes
    ) -> Sequence[ast.stmt]:
        """Parse neighbouring statements anew; of a single class or function only what is touched in it."""
        if len(statements) == 1 and isinstance(statements[0], _HOLDERS):
            made = self._holder(statements[0], changes, old.end)
            if made is not None:
                return [made]
        shift = changes[0].new_start - changes[0].old_start
        growth = sum((one.new_end - one.new_start) - (one.old_end - one.old_start) for one in changes)
        lines = self._lines[old.start + shift : old.end + shift + growth]
        above = old.start + shift if self._placed else int(bool(indent))
        if not indent:
            return _parse_part(self._base, b"", above, b"".join(lines))
        parsed = _parse_part(self._base, b"if 1:", above, b"".join(lines))
        if len(parsed) != 1 or not isinstance(parsed[0], ast.If) or parsed[0].orelse:
            raise UnguardableError("ends what is around it")
        if any(lines[first_line(one) - 1 - above][: one.col_offset] != indent for one in parsed[0].body):
            raise UnguardableError("is indented otherwise")
        return parsed[0].body

    def _holder(self, holder: _Holder, changes: list[Block], end: int) -> _Holder | None:
        """Return a class or function with its touched statements parsed anew; None when its header is touched or they
        do not parse by themselves.
        """
        starts = [first_line(member) - 1 for member in holder.body]
        indent = self._base.lines[starts[0]][: holder.body[0].col_offset]
        if starts[0] < holder.lineno or any(a >= b for a, b in pairwise(starts)):
            return None
        if changes[0].old_start <= starts[0] or not indent or indent.strip():
            return None
        try:
            body = self.statements(holder.body, changes, starts, _Extent(starts[0], end), indent)
        except UnguardableError:
            return None
        made = copy.copy(holder)
        made.body = body
        self.partial.add(id(made))
        self.foreign.add(id(made))
        return made


def _parse_part(base: Source, opening: bytes, above: int, text: bytes) -> list[ast.stmt]:
    """Parse lines that stand below `above` others, once for each text; the opening stands on the line above them."""
    key = (above, opening, text)
    if key not in base.parsed:
        gap = b"\n" * (above - 1) + opening + b"\n" if above else opening
        base.parsed[key] = _parse(gap + text)
    return base.parsed[key]
