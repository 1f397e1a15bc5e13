"""The line that patchkit puts into a file that uses the constants: their import, with a mark of their values.

    from vllm._patchkit.autoconf import CONFIG_SCHED_TRACE  # patchkit: 0123456789abcdef

The mark changes with the values, so that a cache that is keyed by the file's text (torch.compile) is not stale after a
flip.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping

from patchkit.config.guard_align import is_docstring
from patchkit.config.guard_source import Source, UnguardableError, first_line, last_line
from patchkit.pattern import compile_lazily

_NAME = compile_lazily(rb"\bCONFIG_([A-Za-z0-9_]+)\b")
_MARK = b"  # patchkit: "
_LINE = compile_lazily(
    rb"from [\w.]+ import (CONFIG_[A-Za-z0-9_]+(?:, CONFIG_[A-Za-z0-9_]+)*)  # patchkit: ([0-9a-f]{16})(?=\r?$)",
    re.MULTILINE,
)


def values_mark(values: Mapping[str, str], symbols: Iterable[str]) -> str:
    """Return the digest of the values of these symbols: 16 hex digits."""
    text = "".join(f"{symbol}={values.get(symbol, 'n')}\n" for symbol in sorted(set(symbols)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def named_constants(lines: Iterable[bytes], known: Collection[str]) -> frozenset[str]:
    """Return the known symbols whose constants are named anywhere in these lines."""
    return frozenset(name.decode() for line in lines if b"CONFIG_" in line for name in _NAME.findall(line)) & set(known)


def used_constants(source: Source, known: Collection[str]) -> tuple[str, ...]:
    """Return the known symbols whose constants the code reads. UnguardableError when the file binds one itself."""
    read: set[str] = set()
    for node in ast.walk(ast.Module(body=source.body, type_ignores=[])):
        if isinstance(node, ast.Name) and node.id.startswith("CONFIG_") and node.id.removeprefix("CONFIG_") in known:
            if not isinstance(node.ctx, ast.Load):
                raise UnguardableError(f"it binds {node.id} itself", node.lineno)
            read.add(node.id.removeprefix("CONFIG_"))
    return tuple(sorted(read))


def constants_import(source: Source, symbols: Collection[str], *, module: str, mark: str) -> bytes:
    """Return the import of these symbols' constants with its mark, as a line of the file."""
    names = ", ".join(f"CONFIG_{symbol}" for symbol in sorted(symbols))
    return f"from {module} import {names}  # patchkit: {mark}".encode() + source.newline


def import_place(source: Source) -> int:
    """Return the 0-based line above which an import may be inserted.

    Behind the docstring and the `from __future__` imports, else above the first statement, with the comments at the top
    of the file (an interpreter, an encoding, a licence) above it. UnguardableError where statements share that line.
    """
    first = 0
    for place, statement in enumerate(source.body):
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (future or (place == 0 and is_docstring(source.body))):
            break
        first = place + 1
    if first:
        line = last_line(source.body[first - 1])
        if first < len(source.body) and first_line(source.body[first]) <= line:
            raise UnguardableError("two statements stand on the line above which the constants are imported", line)
        return line
    return first_line(source.body[0]) - 1 if source.body else len(source.lines)


def imported_constants(content: bytes) -> tuple[str, ...]:
    """Return the symbols that a file imports by patchkit's line, () when it has none."""
    found = _find_line(content)
    return tuple(name.removeprefix("CONFIG_") for name in found.group(1).decode().split(", ")) if found else ()


def remarked(content: bytes, values: Mapping[str, str]) -> bytes:
    """Return the file with the mark that belongs to these values."""
    found = _find_line(content)
    if found is None:
        return content
    mark = values_mark(values, imported_constants(content)).encode()
    return content[: found.start(2)] + mark + content[found.end(2) :]


def _find_line(content: bytes) -> re.Match[bytes] | None:
    """Return the first line that imports constants. To look for its mark is much faster than for the whole pattern."""
    place = content.find(_MARK)
    while place >= 0:
        if found := _LINE.match(content, content.rfind(b"\n", 0, place) + 1):
            return found
        place = content.find(_MARK, place + 1)
    return None
