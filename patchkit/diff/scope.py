"""Which function or class a line stands in: by syntax tree for Python, by section heading for every other text.

A line belongs to the innermost `def`, `async def` or `class` around it; decorators belong to their definition. Blank
lines behind a body, and comments that are indented deeper than the definition, belong to the body, up to the next
statement: this is how people read a file. So the blank lines between two methods are the first one's.

Section headings are what `git diff` writes behind the second `@@`: the nearest line above the hunk that looks like
the start of a function (xdiff/xemit.c, userdiff.c).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from patchkit.pattern import compile_lazily

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Sequence

    Rule = Callable[[bytes], bytes]
    Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    Branch = tuple[ast.AST, str]

_HEADING_LENGTH = 80
_PYTHON_HEADING = compile_lazily(rb"[ \t]*((?:class|(?:async[ \t]+)?def)[ \t].*)", re.DOTALL)
# git's cpp driver, without its second pattern for lines that the default rule takes too: labels are no functions.
_LABEL = compile_lazily(rb"[ \t]*[A-Za-z_][A-Za-z_0-9]*:[ \t]*(?:$|/[/*])")
_C_HEADING = compile_lazily(rb"(?:::[ \t]*)?[A-Za-z_]", re.DOTALL)
_DEFAULT_FIRST = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$")
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list")
_PARTS = {"body": "", "orelse": "else of ", "finalbody": "finally of "}
_LONE_CR = compile_lazily(rb"\r(?!\n)")


class Marks(NamedTuple):
    """What may tell definitions of one name apart, as source text in one way of writing it."""

    decorators: tuple[str, ...]
    signature: str
    branches: tuple[str, ...]


class Definition:
    """A `def`, `async def` or `class` of a Python file, or the module itself.

    `path` is the qualified name, "" of the module, which has neither `parent` nor `node`. `branches` are the parts of
    compound statements between the parent and the definition, from the outside in: the statement, handler or case, and
    which of its bodies. `children` are the definitions in the body, by name: usually one for each.
    """

    __slots__ = ("_marks", "branches", "children", "node", "parent", "path")

    def __init__(self, path: str, parent: Definition | None, node: Node | None, branches: tuple[Branch, ...]) -> None:
        self.path = path
        self.parent = parent
        self.node = node
        self.branches = branches
        self.children: dict[str, list[Definition]] = {}
        self._marks: Marks | None = None

    def define(self, node: Node, branches: tuple[Branch, ...]) -> Definition:
        """Take in a definition of the body."""
        made = Definition(f"{self.path}.{node.name}" if self.path else node.name, self, node, branches)
        self.children.setdefault(node.name, []).append(made)
        return made

    def marks(self) -> Marks:
        """Return what may tell this definition from others of its name, made when first asked for."""
        if self._marks is None:
            import ast

            decorators = self.node.decorator_list if self.node else ()
            self._marks = Marks(
                decorators=tuple(ast.unparse(decorator) for decorator in decorators),
                signature=_head(self.node) if self.node else "",
                branches=tuple(f"{_PARTS[name]}{_head(part)}" for part, name in self.branches),
            )
        return self._marks


def _head(node: ast.AST) -> str:
    """Return what stands before the colon of a compound statement, without its decorators."""
    import ast
    import copy

    bare = copy.copy(node)
    for name in _BODIES:
        if hasattr(bare, name):
            setattr(bare, name, [])
    return ast.unparse(bare).strip().removesuffix(":")


class Scopes:
    """The definitions of one Python file, as the ranges of lines they own."""

    __slots__ = ("_module", "_owners", "_starts")

    def __init__(self, module: Definition, boundaries: Sequence[tuple[int, Definition]]) -> None:
        self._module = module
        self._starts = [line for line, _ in boundaries]
        self._owners = [owner for _, owner in boundaries]

    def around(self, line: int) -> Definition:
        """Return the innermost definition around the 1-based line, the module where there is none."""
        position = bisect_right(self._starts, line) - 1
        return self._owners[position] if position >= 0 else self._module

    def at(self, line: int) -> str:
        """Return the qualified name of the definition around the 1-based line, "" at module level."""
        return self.around(line).path


def python_scopes(content: bytes) -> Scopes | None:
    """Read the scopes of a Python file; None when this interpreter cannot parse it."""
    import ast
    import warnings

    # Python ends a line at a lone CR, a patch does not: the numbers must be those of the patch.
    source = _LONE_CR.sub(b" ", content) if b"\r" in content else content
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(source, "<scopes>")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    whole = Definition("", None, None, ())
    boundaries: list[tuple[int, Definition]] = []
    try:
        _collect(module.body, whole, (), source.split(b"\n"), boundaries)
    except RecursionError:
        return None
    return Scopes(whole, boundaries)


def _collect(
    statements: Sequence[ast.stmt],
    around: Definition,
    branches: tuple[Branch, ...],
    lines: Sequence[bytes],
    found: list[tuple[int, Definition]],
) -> None:
    """Append where each definition starts and where its surroundings go on, in the order of the lines."""
    import ast

    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made = around.define(statement, branches)
            start = min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
            found.append((start, made))
            _collect(statement.body, made, (), lines, found)
            found.append((_end_of_body(statement, lines) + 1, around))
        else:
            for part, name, block in _blocks(statement):
                _collect(block, around, (*branches, (part, name)), lines, found)


def _blocks(statement: ast.stmt) -> list[tuple[ast.AST, str, list[ast.stmt]]]:
    """Return the nested statement lists of a compound statement; expressions are never visited."""
    blocks: list[tuple[ast.AST, str, list[ast.stmt]]]
    blocks = [(statement, name, block) for name in ("body", "orelse") if (block := getattr(statement, name, None))]
    for name in ("handlers", "cases"):
        blocks += [(part, "body", part.body) for part in getattr(statement, name, ())]
    final = getattr(statement, "finalbody", None)
    return [*blocks, (statement, "finalbody", final)] if final else blocks


def _end_of_body(statement: Node, lines: Sequence[bytes]) -> int:
    """Return the last line of a definition, with the blank lines and deeper comments that follow it."""
    end = statement.end_lineno or statement.lineno
    while end < len(lines):
        text = lines[end].strip()
        deeper = len(lines[end]) - len(lines[end].lstrip()) > statement.col_offset
        if text and not (text.startswith(b"#") and deeper):
            break
        end += 1
    return end


class Headings:
    """The section headings that a diff of these lines may show, found by one pass over the lines for each rule."""

    __slots__ = ("_lines", "_places")

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._places: dict[Rule, list[int]] = {}

    def above(self, line: int, rule: Rule) -> bytes:
        """Return the heading of a hunk that begins at the 1-based line, b"" when no line above is one."""
        if rule not in self._places:
            self._places[rule] = [index for index, text in enumerate(self._lines) if rule(text)]
        places = self._places[rule]
        position = bisect_left(places, line - 1)
        return rule(self._lines[places[position - 1]]) if position else b""

    def all_above(self, line: int) -> tuple[bytes, ...]:
        """Return what git's default rule, its Python driver's and its C driver's find, in this order."""
        found = (self.above(line, rule) for rule in (default_rule, python_rule, c_rule))
        return tuple(dict.fromkeys(heading for heading in found if heading))


def heading_at(lines: Sequence[bytes], line: int) -> tuple[bytes, ...]:
    """Return all section headings that a diff may give to a hunk that begins at the 1-based line."""
    return Headings(lines).all_above(line)


def default_rule(line: bytes) -> bytes:
    """Return the line as a heading if it begins with a letter, `_` or `$`, else b""; cut to 80 bytes as all of them."""
    return _cut(line) if line and line[0] in _DEFAULT_FIRST else b""


def python_rule(line: bytes) -> bytes:
    """Return a `class` or `def` line without its indentation."""
    # Asked first: the pattern would be tried on every line otherwise.
    if (b"def" in line or b"class" in line) and (match := _PYTHON_HEADING.match(line)):
        return _cut(match.group(1))
    return b""


def c_rule(line: bytes) -> bytes:
    """Return a line that begins a C or C++ function, class or namespace, never a label."""
    return _cut(line) if _C_HEADING.match(line) and not _LABEL.match(line.rstrip()) else b""


def _cut(heading: bytes) -> bytes:
    return heading[:_HEADING_LENGTH].rstrip()


def is_heading(section: bytes) -> bool:
    """True when one of the rules can have made this section text; other languages' drivers cannot be compared."""
    return section[0] in _DEFAULT_FIRST or bool(_PYTHON_HEADING.match(section) or _C_HEADING.match(section))
