"""A git-style unified diff between two sets of files: what `git apply` takes, and what people read."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from patchkit.diff.compare import compare_lines
from patchkit.diff.image import split_lines
from patchkit.diff.names import quote_name
from patchkit.diff.scope import Headings, default_rule, python_rule
from patchkit.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from patchkit.diff.compare import Block
    from patchkit.tree import TreeEntry

_CONTEXT = 3
_PROBE = 8000  # git looks for a NUL in so many bytes
_NO_BLOB = "0" * 40
_SHORT = 12
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def produce_diff(old: Mapping[PurePosixPath, TreeEntry], new: Mapping[PurePosixPath, TreeEntry]) -> bytes:
    """Return the diff that takes the old files to the new ones, sorted by path; b"" when they are equal.

    Only files and symlinks can be there (ValueError). Of the permissions git knows the owner's executable bit. Nothing
    is told as a rename. A path that turns from a file into a symlink is deleted and created.
    """
    parts: list[bytes] = []
    for path in sorted(old.keys() | new.keys(), key=_sort_key):
        before, after = old.get(path), new.get(path)
        if before is not None and after is not None and before.kind is not after.kind:
            parts += _file_diff(path, before, None)
            before = None
        parts += _file_diff(path, before, after)
    return b"".join(parts)


def _sort_key(path: PurePosixPath) -> bytes:
    return str(path).encode("utf-8", "surrogateescape")


def _file_diff(path: PurePosixPath, before: TreeEntry | None, after: TreeEntry | None) -> Iterator[bytes]:
    """Yield the parts of one file's diff, nothing when it did not change."""
    mode_before, mode_after = _mode(before), _mode(after)
    one, other = before.content if before else b"", after.content if after else b""
    if mode_before == mode_after and one == other:
        return
    names = quote_name(f"a/{path}"), quote_name(f"b/{path}")
    yield b"diff --git %b %b\n" % (_unmistakable(names[0]), _unmistakable(names[1]))
    yield _mode_lines(mode_before, mode_after)
    if before and after and one == other:
        return
    binary = b"\0" in one[:_PROBE] or b"\0" in other[:_PROBE]
    yield _index_line(before, after, full=binary, mode=mode_after if mode_before == mode_after else "")
    if binary:
        yield b"GIT binary patch\n" + _literal(other) + b"\n" + _literal(one) + b"\n"
    elif one != other:
        yield b"--- %b\n+++ %b\n" % (
            _marked(names[0]) if before else b"/dev/null",
            _marked(names[1]) if after else b"/dev/null",
        )
        yield from _hunks(split_lines(one), split_lines(other), python=path.suffix in (".py", ".pyi"))


def _mode(entry: TreeEntry | None) -> str:
    """Return git's mode of an entry, "" when there is none."""
    if entry is None:
        return ""
    if entry.kind is Kind.SYMLINK:
        return "120000"
    if entry.kind is not Kind.FILE:
        message = f"a {entry.kind.value} has no diff"
        raise ValueError(message)
    return "100755" if entry.mode & 0o100 else "100644"


def _mode_lines(before: str, after: str) -> bytes:
    if not before:
        return f"new file mode {after}\n".encode()
    if not after:
        return f"deleted file mode {before}\n".encode()
    return f"old mode {before}\nnew mode {after}\n".encode() if before != after else b""


def _index_line(before: TreeEntry | None, after: TreeEntry | None, *, full: bool, mode: str) -> bytes:
    """Return the `index` line; a binary patch is only applied by its full object ids."""
    length = None if full else _SHORT
    one, other = (_blob(entry.content)[:length] if entry else _NO_BLOB[:length] for entry in (before, after))
    return f"index {one}..{other}{' ' if mode else ''}{mode}\n".encode()


def _blob(content: bytes) -> str:
    """Return git's object id of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _unmistakable(name: bytes) -> bytes:
    """Return a name as it stands behind `diff --git`, where git finds no name with a blank before a slash."""
    return b'"%b"' % name if b" /" in name and not name.startswith(b'"') else name


def _marked(name: bytes) -> bytes:
    """Return a name as it stands behind `---`: git ends one that has blanks with a tab, for GNU patch."""
    return name + b"\t" if b" " in name else name


def _literal(content: bytes) -> bytes:
    """Return one side of a binary patch: zlib, then git's base 85 in lines of 52 bytes."""
    import base64
    import zlib

    packed = zlib.compress(content)
    rows = [b"literal %d\n" % len(content)]
    for start in range(0, len(packed), 52):
        piece = packed[start : start + 52]
        sign = ord("A") + len(piece) - 1 if len(piece) <= 26 else ord("a") + len(piece) - 27  # noqa: PLR2004 - A-Z, a-z
        rows.append(bytes([sign]) + base64.b85encode(piece, pad=True) + b"\n")
    return b"".join(rows)


def _hunks(old: list[bytes], new: list[bytes], *, python: bool) -> Iterator[bytes]:
    headings, rule = Headings(old), python_rule if python else default_rule
    for group in _grouped(compare_lines(old, new)):
        first, last = group[0], group[-1]
        lead = min(_CONTEXT, first.old_start)
        tail = min(_CONTEXT, len(old) - last.old_end)
        section = headings.above(first.old_start - lead + 1, rule)
        yield b"@@ -%b +%b @@%b\n" % (
            _range(first.old_start - lead, last.old_end + tail),
            _range(first.new_start - lead, last.new_end + tail),
            b" " + section if section else b"",
        )
        at = first.old_start - lead
        for block in group:
            yield from _body(b" ", old[at : block.old_start])
            yield from _body(b"-", old[block.old_start : block.old_end])
            yield from _body(b"+", new[block.new_start : block.new_end])
            at = block.old_end
        yield from _body(b" ", old[at : at + tail])


def _grouped(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield the changes that share a hunk: their context touches."""
    group: list[Block] = []
    for block in blocks:
        if group and block.old_start - group[-1].old_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _range(start: int, end: int) -> bytes:
    """Return a side's range as git writes it: no count for one line, the line before for none."""
    if end - start == 1:
        return b"%d" % end
    return b"%d,%d" % (start + 1 if end > start else start, end - start)


def _body(sign: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line if line.endswith(b"\n") else sign + line + _NO_NEWLINE
