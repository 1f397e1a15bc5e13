"""A patch the other way round: what it made it takes away, as records and as bytes."""

from __future__ import annotations

from patchkit.diff.header import BINARY_DIFFERS, DIFF_GIT
from patchkit.diff.model import BINARY_MARKER, BinaryPatch, Change, FilePatch, Hunk, Patch
from patchkit.diff.names import split_binary_names, split_git_names
from patchkit.pattern import compile_lazily
from patchkit.record import replace

_RANGES = compile_lazily(rb"@@ -(\S+) \+(\S+) @@")
_SWAPPED_CHANGE = {Change.CREATE: Change.DELETE, Change.DELETE: Change.CREATE}
_SWAPPED_LINE = {b"+": b"-", b"-": b"+"}
_BINARY = b"Binary files "
_NEW_FILE = b"new file mode "
_SWAPPED_WORDS = (
    (_NEW_FILE, b"deleted file mode "),
    (b"old mode ", b"new mode "),
    (b"rename from ", b"rename to "),
    (b"rename old ", b"rename new "),
    (b"copy from ", b"copy to "),
    (b"--- ", b"+++ "),
)
_INDEX = compile_lazily(rb"index ([0-9a-f]+)\.\.([0-9a-f]+)")


def reverse_patch(patch: Patch) -> Patch:
    """Return the patch that undoes this one: its files in the opposite order, each reversed.

    The digest stays that of the bytes that were read. Text between files stays with the file it stood before.
    """
    return replace(patch, files=tuple(reverse_file(file) for file in reversed(patch.files)))


def reverse_file(file: FilePatch) -> FilePatch:
    """Return the file patch that undoes this one; a second reversal gives the first again.

    As git does, a copy reversed is a copy back (which an applier refuses, because the source is still there). A binary
    patch without its reverse side becomes one without data.
    """
    moved = file.change in _SWAPPED_CHANGE or file.new_mode is not None
    return replace(
        file,
        change=_SWAPPED_CHANGE.get(file.change, file.change),
        old_name=file.new_name,
        new_name=file.old_name,
        old_mode=file.new_mode if moved else file.old_mode,
        new_mode=file.old_mode if moved else file.new_mode,
        old_blob=file.new_blob,
        new_blob=file.old_blob,
        hunks=tuple(reverse_hunk(hunk) for hunk in file.hunks),
        binary=None if file.binary is None else BinaryPatch(forward=file.binary.reverse, reverse=file.binary.forward),
        header=_reverse_header(file),
    )


def reverse_hunk(hunk: Hunk) -> Hunk:
    """Return the hunk with its sides exchanged; the order of the lines stays."""
    return replace(
        hunk,
        old_start=hunk.new_start,
        old_count=hunk.new_count,
        new_start=hunk.old_start,
        new_count=hunk.old_count,
        lines=tuple(_SWAPPED_LINE.get(line[:1], line[:1]) + line[1:] for line in hunk.lines),
        header=_RANGES.sub(rb"@@ -\2 +\1 @@", hunk.header, count=1),
    )


def _reverse_header(file: FilePatch) -> bytes:
    """Exchange the sides in the header's own lines; prose above them stays."""
    lines = file.header.split(b"\n")
    marks = (DIFF_GIT,) if file.git else (b"--- ", _BINARY)
    start = max((at for at, line in enumerate(lines) if line.startswith(marks)), default=len(lines))
    for at in range(start, len(lines)):
        lines[at] = _reverse_line(file, lines[at])
    for old, new in _SWAPPED_WORDS:
        _swap(lines, start, old, new)
    return b"\n".join(_reverse_binary(lines, start))


def _reverse_line(file: FilePatch, line: bytes) -> bytes:
    """Exchange the sides of a line that names both."""
    if line.startswith(DIFF_GIT):
        body = line[len(DIFF_GIT) :].removesuffix(b"\r")
        pair = split_git_names(body, old=_raw(file.old_name), new=_raw(file.new_name))
        names = body if pair is None else body[pair.second :] + b" " + body[: pair.second - 1]
        return DIFF_GIT + names + line[len(DIFF_GIT) + len(body) :]
    notice = BINARY_DIFFERS.match(line)
    if notice is not None:
        pair = split_binary_names(notice[1])
        names = notice[1] if pair is None else notice[1][pair.second :] + b" and " + notice[1][: pair.second - 5]
        return _BINARY + names + line[notice.end(1) :]
    return _INDEX.sub(rb"index \2..\1", line) if line.startswith(b"index ") else line


def _raw(name: str | None) -> bytes | None:
    return None if name is None else name.encode("utf-8", "surrogateescape")


def _swap(lines: list[bytes], start: int, old: bytes, new: bytes) -> None:
    at_old, at_new = (
        next((at for at in range(start, len(lines)) if lines[at].startswith(word)), None) for word in (old, new)
    )
    if at_old is not None and at_new is not None:
        from_old, from_new = lines[at_old][len(old) :], lines[at_new][len(new) :]
        lines[at_old], lines[at_new] = old + from_new, new + from_old
    elif old == _NEW_FILE and at_old is not None:
        lines[at_old] = new + lines[at_old][len(old) :]
    elif old == _NEW_FILE and at_new is not None:
        lines[at_new] = old + lines[at_new][len(new) :]


def _reverse_binary(lines: list[bytes], start: int) -> list[bytes]:
    """Exchange the two blocks of a binary patch, each of which ends with an empty line."""
    marker = next((at for at in range(start, len(lines)) if lines[at].removesuffix(b"\r") == BINARY_MARKER), None)
    if marker is None:
        return lines
    ends = [at for at in range(marker, len(lines)) if lines[at] in (b"", b"\r")]
    if len(ends) < 2:  # noqa: PLR2004 - two sides
        return lines
    first, second = lines[marker + 1 : ends[0] + 1], lines[ends[0] + 1 : ends[1] + 1]
    return lines[: marker + 1] + second + first + lines[ends[1] + 1 :] if len(second) > 1 else lines
