"""The import or include that code needs which reads CONFIG_ names: put in where its author did not write it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from patchkit.pattern import compile_lazily

if TYPE_CHECKING:
    import ast

C_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hip", ".metal"})
_NAME = compile_lazily(rb"\bCONFIG_([A-Za-z0-9_]+)\b")
_INCLUDED = compile_lazily(rb'^[ \t]*#[ \t]*include[ \t]*["<][^">]*\bautoconf\.h[">]', re.MULTILINE)
_BOM = b"\xef\xbb\xbf"


def named_symbols(source: bytes) -> frozenset[str]:
    """Return the symbols whose CONFIG_ name stands anywhere in a text."""
    return frozenset(name.decode() for name in _NAME.findall(source)) if b"CONFIG_" in source else frozenset()


def supply_import(source: bytes, module: str, symbols: Collection[str]) -> bytes:
    """Return a Python file with an import from `module` of the CONFIG_ names of `symbols` that it reads and nowhere
    binds, behind the docstring and the imports from __future__. SyntaxError when it does not parse, ValueError when
    another statement stands on the line that the import has to be behind.
    """
    wanted = named_symbols(source) & frozenset(symbols)
    if not wanted:
        return source
    import ast

    tree = ast.parse(source)
    missing = sorted(name for name in _read(tree) if name.removeprefix("CONFIG_") in wanted and name.isascii())
    bound = set(_bound(tree))
    missing = [name for name in missing if name not in bound]
    if not missing:
        return source
    return _insert(source, _place(tree), f"from {module} import {', '.join(missing)}")


def supply_include(source: bytes, header: str, symbols: Collection[str]) -> bytes:
    """Return a C, C++ or CUDA file that includes `header` first, when it names one of the symbols and does not yet."""
    if not named_symbols(source) & frozenset(symbols) or _INCLUDED.search(source):
        return source
    return _insert(source, 0, f'#include "{header}"')


def _read(tree: ast.AST) -> set[str]:
    import ast

    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id.startswith("CONFIG_")
    }


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module binds anywhere: who binds one has a meaning of his own for it."""
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def _place(tree: ast.Module) -> int:
    """Return behind which line (counted from 1) an import may stand: 0 is the top of the file."""
    import ast

    behind = 0
    for place, node in enumerate(tree.body):
        docstring = (
            place == 0
            and isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            if _first_line(node) <= behind:
                raise ValueError(f"two statements stand on line {behind}, and an import must stand between them")
            return behind or _first_line(node) - 1
        behind = node.end_lineno or node.lineno
    return behind


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _insert(source: bytes, behind: int, line: str) -> bytes:
    """Put a line behind another, with the file's line ends."""
    start = len(_BOM) if source.startswith(_BOM) and not behind else 0
    lines = source[start:].splitlines(keepends=True)
    ending = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    if behind and not lines[behind - 1].endswith((b"\n", b"\r")):
        lines[behind - 1] += ending
    lines.insert(behind, line.encode() + ending)
    return source[:start] + b"".join(lines)
