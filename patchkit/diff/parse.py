"""The reader of patches: bytes in one pass to records; the counts of the `@@` line say where a hunk ends.

It reads what git and GNU diff write and decides as git does, but for one thing: where git would skip lines that look
like a change (a hunk longer than its counts, a damaged `@@` line, a combined diff), it refuses instead of losing them.
"""

from __future__ import annotations

import re

from patchkit.diff.damage import (
    COUNTS_HINT,
    ORPHANS,
    check_behind_header,
    check_counts,
    check_orphan,
    is_damaged_hunk,
)
from patchkit.diff.header import (
    BINARY_DIFFERS,
    DIFF_GIT,
    Header,
    read_binary_notice,
    read_git_header,
    read_traditional_header,
)
from patchkit.diff.mail import COMMIT, Messages, boundaries, check_encoding
from patchkit.diff.model import BINARY_MARKER, MAX_BINARY, NO_NEWLINE, BinaryPatch, Change, FilePatch, Hunk, Patch
from patchkit.diff.text import PatchText, read_text
from patchkit.errors import PatchFormatError
from patchkit.pattern import compile_lazily

HUNK_HEADER = compile_lazily(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@ ?(.*)", re.DOTALL)
_ANY_NUMBERS = compile_lazily(rb"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_OLD, _NEW, _HUNK = b"--- ", b"+++ ", b"@@ -"
_COMBINED = (b"diff --cc ", b"diff --combined ")
_STARTS = (DIFF_GIT, _OLD, _HUNK, b"Binary files ", *_COMBINED, *ORPHANS)
_SIGNATURES = (b"-- ", b"--", b"-- \r", b"--\r", b"---", b"---\r")
_BODY = (b"+", b"-", b" ", NO_NEWLINE)
_CHANGES = (b"+", b"-")
_MAX_NUMBER = 999_999_999
_MARKER = NO_NEWLINE + b" "
_STRIPPED = (b"", b"\r")  # an empty context line whose blank was stripped on the way


class _Reader:
    """Where the reading stands: `floor` is behind the last file; `bare_returns` are body lines that are only a CR.

    `commit` counts the commits of a mailbox; `boundaries` part a mail, once they have been asked for.
    """

    __slots__ = ("bare_returns", "binary_room", "boundaries", "commit", "floor", "spans", "text")

    def __init__(self, text: PatchText) -> None:
        self.text = text
        self.boundaries: tuple[bytes, ...] | None = None
        self.binary_room = MAX_BINARY
        self.commit = 0
        self.floor = 0
        self.spans: list[tuple[int, int]] = []
        self.bare_returns: list[int] = []


def parse_patch(raw: bytes, *, source: str) -> Patch:
    """Read a patch (gz is inflated); PatchFormatError with file, line and the line itself when it cannot be read."""
    text = read_text(raw, source=source)
    reader = _Reader(text)
    files: list[FilePatch] = []
    while (header := _find_header(text, reader.floor)) is not None:
        files.append(_read_file(reader, header))
    if not files:
        from patchkit.diff.recognise import no_diff_error

        raise no_diff_error(text)
    check_encoding(text, reader.spans)
    crlf = _is_converted(reader)
    return Patch(
        source=source,
        sha256=text.sha256,
        preamble=text.mark + text.join(0, reader.spans[0][0]),
        files=tuple(files),
        footer=text.join(reader.floor, len(text.lines)),
        crlf=crlf,
        unterminated=bool(files[-1].hunks) and reader.floor == len(text.lines),
    )


def _find_header(text: PatchText, floor: int) -> Header | None:
    """Find the next file's header, as git's find_header does; prose before it is passed over."""
    head: int | None = None  # a `diff --git` line that no header follows
    prose = Messages(text, floor)
    for index in range(floor, text.end):
        line = text.lines[index]
        if index < prose.end or not line.startswith(_STARTS):
            continue
        header = None
        if line.startswith(DIFF_GIT):
            header, head = read_git_header(text, index), index
        elif line.startswith(_OLD):
            header = _traditional(text, index, floor)
        elif line.startswith(_COMBINED):
            raise _combined_error(text, index)
        elif not prose.hold(index):
            header = _read_lone_line(text, index, head=head, floor=floor)
        if header is not None:
            return header
    return None


def _read_lone_line(text: PatchText, index: int, *, head: int | None, floor: int) -> Header | None:
    """Read a notice of binary files. A hunk or a part of a header that is not where it belongs is an error."""
    line = text.lines[index]
    if line.startswith(_HUNK):
        if HUNK_HEADER.match(line):
            raise text.error(index, "hunk without a file header", why="no `---` and `+++` lines stand above it")
    elif line.startswith(ORPHANS):
        check_orphan(text, index, head=head, floor=floor)
    else:
        return read_binary_notice(text, index)
    return None


def _traditional(text: PatchText, index: int, floor: int) -> Header | None:
    """Read `---` and `+++` when a hunk follows them, otherwise they are prose."""
    if index + 2 >= text.end or not text.lines[index + 1].startswith(_NEW):
        return None
    if not text.lines[index + 2].startswith(b"@@"):
        return None
    return read_traditional_header(text, index, floor=floor)


def _combined_error(text: PatchText, index: int) -> PatchFormatError:
    return text.error(
        index,
        "a merge commit's combined diff cannot be applied",
        why="it has several old sides",
        hint="make the patch with `git show -m --first-parent` or `git diff OLD NEW`",
    )


def _read_file(reader: _Reader, header: Header) -> FilePatch:
    text = reader.text
    index = header.stop
    hunks: list[Hunk] = []
    # An emptied file's deletion needs no hunk: what follows its header is read as git reads it.
    mark = _HUNK if header.git and header.change is Change.DELETE else b"@@"
    while index < text.end and text.lines[index].startswith(mark):
        hunk, index = _read_hunk(reader, index)
        hunks.append(hunk)
    binary = None
    if hunks:
        _check_behind(reader, index)
        _check_sides(text, header, hunks)
    else:
        binary, index = _read_binary(reader, index)
        if binary is None and header.change is not Change.DELETE:
            check_behind_header(text, index, created=header.new_blob if header.change is Change.CREATE else "")
        if binary is None and not header.metadata:
            raise text.error(
                header.start, "a file header without any change", why="expected `@@ -` or `GIT binary patch`"
            )
    top = reader.floor if reader.spans else header.start  # what stands above the first file is the preamble
    head = text.join(top, hunks[0].line_number - 1 if hunks else index)
    if reader.spans and any(map(COMMIT.match, text.lines[reader.floor : header.start])):
        reader.commit += 1
    reader.spans.append((header.start, index))
    reader.floor = index
    return _file_patch(header, hunks, binary, head, reader.commit)


def _file_patch(header: Header, hunks: list[Hunk], binary: BinaryPatch | None, head: bytes, commit: int) -> FilePatch:
    return FilePatch(
        change=header.change,
        old_name=header.old_name,
        new_name=header.new_name,
        old_mode=header.old_mode,
        new_mode=header.new_mode,
        old_blob=header.old_blob,
        new_blob=header.new_blob,
        git=header.git,
        hunks=tuple(hunks),
        binary=binary,
        header=head,
        line_number=header.start + 1,
        commit=commit,
    )


def _read_binary(reader: _Reader, index: int) -> tuple[BinaryPatch | None, int]:
    text = reader.text
    line = text.lines[index] if index < text.end else b""
    if line.removesuffix(b"\r") == BINARY_MARKER:
        from patchkit.diff.binary import read_binary

        binary, index = read_binary(text, index, room=reader.binary_room)
        reader.binary_room -= sum(len(side.payload) for side in (binary.forward, binary.reverse) if side is not None)
        return binary, index
    if BINARY_DIFFERS.match(line):
        return BinaryPatch(forward=None, reverse=None), index + 1
    return None, index


def _read_hunk(reader: _Reader, index: int) -> tuple[Hunk, int]:
    text = reader.text
    header = text.lines[index]
    found = HUNK_HEADER.match(header)
    if found is None:
        raise _header_error(text, index)
    old_start, old, new_start, new, section = found.groups()
    old_count, new_count = int(old or b"1"), int(new or b"1")
    stop = _body_end(reader, index, old_count, new_count)
    if stop < text.end and text.lines[stop][:2] == _MARKER:
        stop += 1
    elif stop == len(text.lines):
        raise text.error(
            stop - 1,
            "the patch ends in the middle of a line",
            why="the last line of the last hunk has no line end",
            hint="fetch the patch again; if the line is whole, add a newline to the file",
        )
    lines = tuple(text.lines[index + 1 : stop])
    hunk = Hunk(
        old_start=int(old_start),
        old_count=old_count,
        new_start=int(new_start),
        new_count=new_count,
        section=section.removesuffix(b"\r"),
        lines=lines,
        header=header,
        line_number=index + 1,
    )
    return hunk, stop


def _header_error(text: PatchText, index: int) -> PatchFormatError:
    header = text.lines[index]
    if header.startswith(b"@@@"):
        return _combined_error(text, index)
    if _ANY_NUMBERS.match(header):
        return text.error(index, "a number in the hunk header is out of range", why=f"{_MAX_NUMBER} is the most")
    return text.error(
        index, "damaged hunk header", why="expected `@@ -START,COUNT +START,COUNT @@`, with single blanks"
    )


def _body_end(reader: _Reader, index: int, old: int, new: int) -> int:
    """Return the index behind the hunk's body; the counts decide, so `--- x` and `@@` can be content.

    As many lines as must follow at least are counted at once, then what is missing: a few steps for any hunk.
    """
    count = reader.text.firsts.count
    start = index + 1
    old_left, new_left, changed = old, new, 0
    while old_left or new_left:
        step = old_left if old_left > new_left else new_left  # noqa: FURB136 - max() costs a tenth of all reading
        stop = start + step
        added, removed = count(b"+", start, stop), count(b"-", start, stop)
        both = step - added - removed
        old_left -= both + removed
        new_left -= both + added
        changed += added + removed
        if old_left < 0 or new_left < 0 or both != count(b" ", start, stop):
            return _body_end_line_by_line(reader, index, old, new)
        start = stop
    if not changed:
        raise reader.text.error(index, "the hunk changes nothing", why="it has no line that begins with + or -")
    return start


def _body_end_line_by_line(reader: _Reader, index: int, old_count: int, new_count: int) -> int:
    """Return the same for a hunk with markers, stripped blanks or a fault, which is then named with its line."""
    text = reader.text
    old, new = old_count, new_count
    ended = b""  # the kinds of lines that cannot follow: a marker has ended their side
    stop = index + 1
    while stop < text.end and (old > 0 or new > 0):
        line = text.lines[stop]
        first = line[:1]
        if line[:2] == _MARKER:
            ended += _ended_by(text.lines[stop - 1][:1] if stop > index + 1 else NO_NEWLINE)
        elif first in (b" ", b"+", b"-") or line in _STRIPPED:
            old -= first != b"+"
            new -= first != b"-"
            if line == b"\r":
                reader.bare_returns.append(stop)
        else:
            break
        if ended and (first or b" ") in ended:
            why = "it ends a side of the file, and this line cannot follow"
            raise text.error(stop, "a no-newline marker is out of place", why=why)
        stop += 1
    check_counts(text, index, stop, (old_count - old, old_count), (new_count - new, new_count))
    return stop


def _ended_by(before: bytes) -> bytes:
    """Return the kinds of lines that cannot stand behind a marker which follows a line of the kind `before`."""
    return {b"-": b"- \r", b"+": b"+ \r", NO_NEWLINE: NO_NEWLINE}.get(before, b"+- \r")


def _check_behind(reader: _Reader, index: int) -> None:
    """Refuse lines behind a hunk that look like the rest of it: git passes over them and loses them."""
    text = reader.text
    blank = index
    while blank < text.end and text.lines[blank] in _STRIPPED:
        blank += 1
    line = text.lines[blank] if blank < text.end else b""
    if blank == index and is_damaged_hunk(line):
        raise _header_error(text, blank)
    if not line.startswith(_BODY if blank == index else _CHANGES) or line[:2] == _MARKER or line in _SIGNATURES:
        return
    if line.startswith(_OLD) and blank + 1 < text.end and text.lines[blank + 1].startswith(_NEW):
        return
    if reader.boundaries is None:
        reader.boundaries = boundaries(text.lines[: reader.spans[0][0] if reader.spans else index])
    if line.startswith(reader.boundaries):
        return
    raise text.error(blank, "the hunk is longer than it says", why="this line is not counted in it", hint=COUNTS_HINT)


def _check_sides(text: PatchText, header: Header, hunks: list[Hunk]) -> None:
    inserted: dict[tuple[int, int], Hunk] = {}
    for hunk in hunks:
        place = hunk.old_start, hunk.new_start
        if not hunk.old_count and inserted.setdefault(place, hunk) is not hunk:
            why = f"line {inserted[place].line_number} inserts there too"
            raise text.error(hunk.line_number - 1, "two hunks insert in one place", why=why)
    for hunk in hunks if header.change in (Change.CREATE, Change.DELETE) else ():
        if header.change is Change.CREATE and hunk.old_count:
            raise text.error(
                hunk.line_number - 1, "a created file cannot have old lines", why=f"it is {header.new_name}"
            )
        if header.change is Change.DELETE and hunk.new_count:
            raise text.error(
                hunk.line_number - 1, "a deleted file cannot have new lines", why=f"it is {header.old_name}"
            )


def _is_converted(reader: _Reader) -> bool:
    """Tell whether every line of the diff itself ends with CRLF; only there may a line be a lone CR."""
    lines, last = reader.text.lines, len(reader.text.lines) - 1
    crlf = all(
        lines[index].endswith(b"\r") or index == last for start, stop in reader.spans for index in range(start, stop)
    )
    if reader.bare_returns and not crlf:
        raise reader.text.error(reader.bare_returns[0], "not a line of a hunk", why="it is a lone CR")
    return crlf
