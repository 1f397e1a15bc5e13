"""RECORD, the list of files that a distribution's installer keeps: read as bytes, and rewritten row by row."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# A row with its line end. Adjacent quoted parts stand for CSV's doubled quotes: the same text, no ambiguity.
_ROW = re.compile(rb'(?:"[^"]*"|[^"\r\n])*(?:\r\n|\n|\r|\Z)')
_LINE = re.compile(rb"[^\n]*(?:\n|\Z)")
_PATH_FIELD = re.compile(rb'"(?:[^"]|"")*"|[^,\r\n]*')
_SIZE_FIELD = re.compile(r"[0-9]{1,19}")
_MUST_QUOTE = re.compile(rb'[,"\r\n]')
_OWN_ROW = ".dist-info/RECORD"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """One row: `raw` are all its bytes, `quoted` the path as written, `end` its line end."""

    raw: bytes
    quoted: bytes
    path: str
    end: bytes


def rewrite_record(record: bytes, changes: Mapping[PurePosixPath, bytes | None]) -> bytes:
    """Return RECORD as it is after `changes`: the new content by path, None for a file that is gone.

    Rows of changed files are computed anew, rows of new files stand before RECORD's own row where that is the last,
    else at the end. Every other byte stays as it is.
    """
    wanted = {str(path): content for path, content in changes.items() if not str(path).endswith(_OWN_ROW)}
    rows = _split_rows(record)
    end = next((row.end for row in rows if row.end), b"\n")
    listed = {row.path for row in rows}
    added = [
        _render_row(_quote(path), content, end)
        for path, content in sorted(wanted.items())
        if content is not None and path not in listed
    ]
    kept = [_changed_row(row, wanted) for row in rows]
    if rows and rows[-1].path.endswith(_OWN_ROW):
        return b"".join((*kept[:-1], *added, kept[-1]))
    if added and rows and not rows[-1].end and kept[-1]:
        added.insert(0, end)
    return b"".join((*kept, *added))


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
        decoded = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        return None
    return decoded.hex() if len(decoded) == hashlib.sha256().digest_size else None


@lru_cache(maxsize=2)
def _table(record: bytes) -> Mapping[str, tuple[str, int | None]]:
    table: dict[str, tuple[str, int | None]] = {}
    for row in _split_rows(record):
        rest = row.raw[len(row.quoted) : len(row.raw) - len(row.end)].decode("utf-8", "replace")
        fields = [*rest.split(","), "", ""]
        table[row.path] = (fields[1].strip(), int(fields[2]) if _SIZE_FIELD.fullmatch(fields[2]) else None)
    return table


def _split_rows(record: bytes) -> list[_Row]:
    rows = []
    position = 0
    while position < len(record):
        match = _ROW.match(record, position) or _LINE.match(record, position)
        raw = match[0] if match else record[position:]
        position += len(raw)
        end = raw[len(raw.rstrip(b"\r\n")) :]
        field = _PATH_FIELD.match(raw)
        quoted = field[0] if field else b""
        rows.append(_Row(raw=raw, quoted=quoted, path=_unquote(quoted), end=end))
    return rows


def _changed_row(row: _Row, wanted: Mapping[str, bytes | None]) -> bytes:
    if not row.path or row.path not in wanted:
        return row.raw
    content = wanted[row.path]
    return b"" if content is None else _render_row(row.quoted, content, row.end)


def _render_row(quoted: bytes, content: bytes, end: bytes) -> bytes:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return b"%b,sha256=%b,%d%b" % (quoted, digest, len(content), end)


def _quote(path: str) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    return b'"%b"' % raw.replace(b'"', b'""') if _MUST_QUOTE.search(raw) else raw


def _unquote(field: bytes) -> str:
    if len(field) > 1 and field.startswith(b'"') and field.endswith(b'"'):
        field = field[1:-1].replace(b'""', b'"')
    path = field.decode("utf-8", "surrogateescape")
    return str(PurePosixPath(path)) if path and ("//" in path or "./" in path) else path
