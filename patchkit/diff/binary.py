"""`GIT binary patch`: base85 and zlib to a literal content or a git delta, and how each is applied; capped in size."""

from __future__ import annotations

from patchkit.counting import counted
from patchkit.diff.model import MAX_BINARY, BinaryHunk, BinaryKind, BinaryPatch
from patchkit.diff.text import PatchText
from patchkit.errors import RefusedError
from patchkit.pattern import compile_lazily

_START = compile_lazily(rb"(literal|delta) (\d{1,19})\r?$")
_SHORTEST = 6  # a length byte and one group of five
_COPY_DEFAULT = 0x10000
_COPY_BIT = 0x80
_VARINT_MAX_SHIFT = 63


def read_binary(text: PatchText, index: int, *, room: int) -> tuple[BinaryPatch, int]:
    """Read the hunks behind the marker line at `index`; also return the index behind them.

    `room` is how many bytes they may inflate to: what the binary hunks before left of MAX_BINARY.
    """
    forward, index = _read_side(text, index + 1, room=room)
    if forward is None:
        raise text.error(index, "binary patch without data", why="expected `literal SIZE` or `delta SIZE`")
    reverse, index = _read_side(text, index, room=room - len(forward.payload))
    return BinaryPatch(forward=forward, reverse=reverse), index


def _read_side(text: PatchText, index: int, *, room: int) -> tuple[BinaryHunk | None, int]:
    line = text.lines[index] if index < text.end else b""
    start = _START.match(line)
    if start is None and line.startswith((b"literal ", b"delta ")):
        raise text.error(index, "corrupt binary patch", why="expected a size in bytes")
    if start is None:
        return None, index
    size = int(start[2])
    if size > room:
        raise text.error(
            index, "binary patch is too long", why=f"{size} bytes, and {room} is the most that is read here"
        )
    stop, packed = _read_base85(text, index + 1, room=size + size // 512 + 64)
    payload = _inflate(packed, size)
    if payload is None:
        raise text.error(
            index,
            "corrupt binary patch",
            why=f"the data does not inflate to {size} bytes",
            hint="fetch the patch again",
        )
    kind = BinaryKind.LITERAL if start[1] == b"literal" else BinaryKind.DELTA
    return BinaryHunk(kind=kind, payload=payload), stop


def _read_base85(text: PatchText, index: int, *, room: int) -> tuple[int, bytes]:
    """Decode lines up to the empty one that ends them (or the end of the file: zlib tells whether all is there).

    `room` is more than zlib makes of any content of the stated size.
    """
    parts: list[bytes] = []
    for position in range(index, text.end):
        line = text.lines[position].removesuffix(b"\r")
        if not line:
            return position + 1, b"".join(parts)
        part = _decode_line(line)
        room -= 0 if part is None else len(part)
        if part is None or room < 0:
            raise text.error(
                position,
                "corrupt binary patch",
                why="not a line of base85" if room >= 0 else "more data than the size it states",
                hint="fetch the patch again",
            )
        parts.append(part)
    return text.end, b"".join(parts)


def _decode_line(line: bytes) -> bytes | None:
    """Decode one line: a letter for the length (A-Z 1 to 26, a-z 27 to 52), then groups of five for four bytes."""
    letter = line[0]
    if ord("A") <= letter <= ord("Z"):
        length = letter - ord("A") + 1
    elif ord("a") <= letter <= ord("z"):
        length = letter - ord("a") + 27
    else:
        return None
    room = (len(line) - 1) // 5 * 4
    if len(line) < _SHORTEST or (len(line) - 1) % 5 or not room - 4 < length <= room:
        return None
    from base64 import b85decode

    try:
        return b85decode(line[1:])[:length]
    except ValueError:
        return None


def _inflate(packed: bytes, size: int) -> bytes | None:
    import zlib

    stream = zlib.decompressobj()
    try:
        payload = stream.decompress(packed, size + 1)
    except zlib.error:
        return None
    return payload if stream.eof and len(payload) == size else None


def apply_binary(binary: BinaryPatch, content: bytes) -> bytes:
    """Return what the binary patch makes of `content`; RefusedError when it holds no data or is for another content."""
    hunk = binary.forward
    if hunk is None:
        raise RefusedError(
            "the patch says that a binary file differs and does not hold its content",
            why="a `GIT binary patch` with data for this direction is needed",
            hint="make the patch with `git diff --binary`",
        )
    if hunk.kind is BinaryKind.LITERAL:
        return hunk.payload
    try:
        return _apply_delta(hunk.payload, content)
    except IndexError as error:
        raise _delta_error("it ends too early") from error


def _delta_error(why: str) -> RefusedError:
    return RefusedError("the binary delta does not fit this file", why=why)


def _apply_delta(delta: bytes, content: bytes) -> bytes:
    """Apply a delta as git's packs have it (gitformat-pack, "Deltified representation")."""
    old_size, at = _varint(delta, 0)
    new_size, at = _varint(delta, at)
    if old_size != len(content):
        raise _delta_error(f"it was made for {counted(old_size, 'byte')}, the file has {len(content)}")
    if new_size > MAX_BINARY:
        raise _delta_error(f"it makes {new_size} bytes, and {MAX_BINARY} is the most")
    parts: list[bytes] = []
    left = new_size
    while at < len(delta):
        code = delta[at]
        at += 1
        if code & _COPY_BIT:
            start, length, at = _copy(delta, at, code)
            part = content[start : start + length]
        else:
            length = code
            part = delta[at : at + length]
            at += length
        left -= length
        if len(part) != length or not code or left < 0:
            raise _delta_error("an instruction of it reaches outside")
        parts.append(part)
    if left:
        raise _delta_error(f"it makes {counted(new_size - left, 'byte')} instead of {new_size}")
    return b"".join(parts)


def _varint(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
        if shift > _VARINT_MAX_SHIFT:
            raise _delta_error("a size in it is out of range")


def _copy(delta: bytes, at: int, code: int) -> tuple[int, int, int]:
    """Read a copy instruction: four bits tell which bytes of the offset follow, three which of the length."""
    fields = [0] * 7
    for bit in range(7):
        if code >> bit & 1:
            fields[bit] = delta[at]
            at += 1
    start = int.from_bytes(bytes(fields[:4]), "little")
    return start, int.from_bytes(bytes(fields[4:]), "little") or _COPY_DEFAULT, at
