"""The bytes of a patch file as lines: inflated when gz, capped in size, split on LF only, with its errors' place."""

from __future__ import annotations

import hashlib

from patchkit.errors import PatchFormatError
from patchkit.record import dataclass

MAX_RAW = 512 << 20
"""The longest patch that is read, in bytes."""
MAX_INFLATED = 256 << 20
"""The most that a gz-compressed patch may inflate to."""
_GZIP = b"\x1f\x8b"
_LF = 0x0A
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchText:
    """A patch as lines without their LF. Indices count from 0; `end` is behind the last line.

    `firsts` holds the first byte of every line (LF for an empty one), so that runs of lines are counted at C's speed.
    `mark` is the UTF-8 byte order mark that stood before the first line, or nothing.
    """

    source: str
    lines: list[bytes]
    firsts: bytes
    end: int
    mark: bytes
    sha256: str

    def join(self, start: int, stop: int) -> bytes:
        """Return the lines from `start` to before `stop` as they stand in the file."""
        if start >= stop:
            return b""
        tail = b"\n" if stop < len(self.lines) else b""
        return b"\n".join(self.lines[start:stop]) + tail

    def error(self, index: int, what: str, *, why: str = "", hint: str = "") -> PatchFormatError:
        """Return the error that shows the line at `index`; behind the end it shows the last line."""
        index = max(0, min(index, self.end - 1))
        line = self.lines[index] if self.end else b""
        return PatchFormatError(what, source=self.source, line_number=index + 1, line=line, why=why, hint=hint)


def read_text(raw: bytes, *, source: str) -> PatchText:
    """Inflate, measure and split a patch file; PatchFormatError when it is damaged or too long."""
    raw = inflate_patch(raw, source=source)
    digest = hashlib.sha256(raw).hexdigest()
    mark = _BOM if raw.startswith(_BOM) else b""
    lines = raw[len(mark) :].split(b"\n")
    return PatchText(
        source=source,
        lines=lines,
        firsts=bytes([line[0] if line else _LF for line in lines]),
        end=len(lines) - (not lines[-1]),
        mark=mark,
        sha256=digest,
    )


def inflate_patch(raw: bytes, *, source: str) -> bytes:
    """Return the patch itself: what gz bytes inflate to, other bytes unchanged."""
    if raw.startswith(_GZIP):
        return _inflate(raw, source=source)
    if len(raw) > MAX_RAW:
        raise _too_long(source, len(raw), MAX_RAW)
    return raw


def sha256_of_patch(raw: bytes, *, source: str) -> str:
    """Return the digest that a patch is known by: of its inflated bytes."""
    return hashlib.sha256(inflate_patch(raw, source=source)).hexdigest()


def _inflate(raw: bytes, *, source: str) -> bytes:
    import zlib

    parts: list[bytes] = []
    room = MAX_INFLATED
    while raw.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(raw, room + 1))
        except zlib.error as error:
            raise _damaged(source, str(error)) from error
        room -= len(parts[-1])
        if room < 0:
            raise _too_long(source, MAX_INFLATED + 1, MAX_INFLATED)
        if not member.eof:
            raise _damaged(source, "the compressed data ends too early")
        raw = member.unused_data
    if raw.strip(b"\0"):
        raise _damaged(source, "other bytes follow the compressed data")
    return b"".join(parts)


def _too_long(source: str, size: int, cap: int) -> PatchFormatError:
    return PatchFormatError(
        "the patch is too long",
        source=source,
        line_number=1,
        why=f"it has {size} bytes or more, and {cap} is the most that is read",
        hint="split it into several patches",
    )


def _damaged(source: str, why: str) -> PatchFormatError:
    return PatchFormatError(
        "the gz file is damaged", source=source, line_number=1, why=why, hint="fetch the file again"
    )
