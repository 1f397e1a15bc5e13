"""RECORD, the list of files that a distribution's installer keeps: read as bytes, and rewritten row by row."""

from __future__ import annotations

import binascii
import hashlib
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from patchkit.pattern import compile_lazily
from patchkit.tree import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# A row with its line end. Adjacent quoted parts stand for CSV's doubled quotes: the same text, no ambiguity.
_ROW = compile_lazily(rb'(?:"[^"]*"|[^"\r\n])*(?:\r\n|\n|\r|\Z)')
_LINE = compile_lazily(rb"[^\n]*(?:\n|\Z)")
_QUOTED_FIELD = compile_lazily(rb'"(?:[^"]|"")*"')
_SIZE_FIELD = compile_lazily(r"[0-9]{1,19}")
_MUST_QUOTE = compile_lazily(rb'[,"\r\n]')
_OWN_ROW = b".dist-info/RECORD"
# base64 with the two letters that names of files may hold.
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), str.maketrans("-_", "+/")
_ODD = b'".'  # what a path begins with that is quoted, or has `./` before it


def unzip_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return what zipfile raises on damaged content, and others; lzma and its error are not in every Python."""
    import zlib
    from zipfile import BadZipFile

    errors: tuple[type[Exception], ...] = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, *others)
    try:
        from lzma import LZMAError
    except ImportError:
        return errors
    return (*errors, LZMAError)


def rewrite_record(record: bytes, changes: Mapping[PurePosixPath, bytes | None]) -> bytes:
    """Return RECORD as it is after `changes`: the new content by path, None for a file that is gone.

    Rows of changed files are computed anew, rows of new files stand before RECORD's own row where that is the last,
    else at the end. Every other byte stays as it is.
    """
    wanted = {_encode(path): content for path, content in changes.items()}
    rows = _split_rows(record)
    paths = _paths_of(rows)
    own = bool(paths) and paths[-1].endswith(_OWN_ROW)
    end = (_line_end(rows[0]) if rows else b"") or b"\n"
    listed = set(paths)
    added = [
        _render_row(_quote(path), content, end)
        for path, content in sorted(wanted.items())
        if content is not None and path not in listed and not path.endswith(_OWN_ROW)
    ]
    kept = [_changed_row(row, path, wanted) if path in wanted else row for row, path in zip(rows, paths, strict=True)]
    if added and not own and rows and kept[-1] and not _line_end(rows[-1]):
        added.insert(0, end)
    place = len(kept) - own
    return b"".join((*kept[:place], *added, *kept[place:]))


def record_rows(record: bytes) -> dict[str, tuple[str, int | None]]:
    """Return path -> (digest field as written, size) of every row; "" and None where a row leaves them out."""
    return dict(_table(record))


def recorded_sha256(record: bytes, path: PurePosixPath | str) -> str | None:
    """Return the SHA-256 (hex) that the installer wrote down for a file; None when it wrote none."""
    digest, _ = _table(record).get(str(path), ("", None))
    algorithm, _, encoded = digest.partition("=")
    if algorithm != "sha256":
        return None
    try:
        decoded = binascii.a2b_base64(encoded.translate(_FROM_URL) + "=" * (-len(encoded) % 4))
    except ValueError:
        return None
    return decoded.hex() if len(decoded) == hashlib.sha256().digest_size else None


@lru_cache(maxsize=2)
def _table(record: bytes) -> Mapping[str, tuple[str, int | None]]:
    table: dict[str, tuple[str, int | None]] = {}
    for row in _split_rows(record):
        fields = row[len(_path_field(row)) :].decode("utf-8", "replace").rstrip("\r\n").split(",")
        size = fields[2] if len(fields) > 2 else ""  # noqa: PLR2004 - nothing, digest, size
        digest = fields[1] if len(fields) > 1 else ""
        table[_decode(_path_of(row))] = (digest, int(size) if _SIZE_FIELD.fullmatch(size) else None)
    return table


def _split_rows(record: bytes) -> list[bytes]:
    inside, rest = b"".join(record.split(b'"')[1::2]), record.count(b'"') % 2
    if not rest and b"\n" not in inside and b"\r" not in inside:  # no line end stands inside of quotes
        return record.splitlines(keepends=True)
    rows = []
    position = 0
    while position < len(record):
        match = _ROW.match(record, position) or _LINE.match(record, position)
        rows.append(match[0] if match else record[position:])
        position += len(rows[-1])
    return rows


def _path_field(row: bytes) -> bytes:
    """Return the path as it is written, quotes and all."""
    if row[:1] == b'"' and (match := _QUOTED_FIELD.match(row)):
        return match[0]
    return row.partition(b",")[0].rstrip(b"\r\n")


def _paths_of(rows: list[bytes]) -> list[bytes]:
    """Return the path of every row; at once but for those written in an odd way, for there are thousands."""
    try:
        return [_path_of(row) if row[0] in _ODD else row[: row.index(b",")] for row in rows]
    except ValueError:  # a row without a comma
        return [_path_of(row) for row in rows]


def _path_of(row: bytes) -> bytes:
    """Return the path that a row is about, without quotes and without the `./` that some writers put before it."""
    path, comma, _ = row.partition(b",")
    if comma and row[0] not in _ODD:
        return path
    end = row.find(b'"', 1)
    if row[:1] == b'"' and row[end + 1 : end + 2] == b",":  # quoted, and no quote in it is doubled
        return row[1:end].removeprefix(b"./")
    path = _path_field(row)
    if path[:1] == b'"' and path[-1:] == b'"' and len(path) > 1:
        path = path[1:-1].replace(b'""', b'"')
    return path.removeprefix(b"./")


def _changed_row(row: bytes, path: bytes, wanted: Mapping[bytes, bytes | None]) -> bytes:
    if path.endswith(_OWN_ROW):
        return row
    content = wanted[path]
    return b"" if content is None else _render_row(_path_field(row), content, _line_end(row))


def _render_row(quoted: bytes, content: bytes, end: bytes) -> bytes:
    digest = binascii.b2a_base64(bytes.fromhex(sha256_of(content)), newline=False).translate(_TO_URL).rstrip(b"=")
    return b"%b,sha256=%b,%d%b" % (quoted, digest, len(content), end)


def _line_end(row: bytes) -> bytes:
    return row[len(row.rstrip(b"\r\n")) :]


def _quote(path: bytes) -> bytes:
    return b'"%b"' % path.replace(b'"', b'""') if _MUST_QUOTE.search(path) else path


def _encode(path: PurePosixPath) -> bytes:
    return str(path).encode("utf-8", "surrogateescape")


def _decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
