"""The lines before a file's first hunk: git's extended header, or the `---` and `+++` of a traditional diff."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from patchkit.diff.damage import check_words
from patchkit.diff.model import BINARY_MARKER, Change
from patchkit.diff.names import (
    NameLine,
    decode_name,
    names_agree,
    read_name_line,
    read_whole_name,
    split_binary_names,
    split_git_names,
)
from patchkit.diff.text import PatchText
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

DIFF_GIT = b"diff --git "
BINARY_DIFFERS = compile_lazily(rb"Binary files (.+) differ\r?$")
_KEYWORD = compile_lazily(
    rb"(--- |\+\+\+ |old mode |new mode |deleted file mode |new file mode |copy from |copy to |rename from |rename to "
    rb"|rename old |rename new |similarity index |dissimilarity index |index )",
)
_SYNONYMS = {b"rename old ": b"rename from ", b"rename new ": b"rename to "}
_MODE = compile_lazily(rb"[0-7]{1,7}(?=\s|$)")
_INDEX = compile_lazily(rb"([0-9a-f]{1,64})\.\.([0-9a-f]{1,64})(?: (.+))?$")
_USUAL_INDEX = compile_lazily(rb"index ([0-9a-f]{7,64})\.\.([0-9a-f]{7,64})(?: (100644|100755))?")
_USUAL_NAME = compile_lazily(rb"[A-Za-z0-9_./+-]+[A-Za-z0-9_.+-]")
# Lines that name a file before its `---` line: diff's and svn's own, with the ruler below `Index:`, and CVS's.
_COMMAND_LINES = (b"diff ", b"Index: ", b"=====", b"RCS file: ", b"retrieving revision ")
_FORMAT, _REGULAR, _SYMLINK, _SUBMODULE = 0o170000, 0o100000, 0o120000, 0o160000
_CHANGES = (
    (b"new file mode ", Change.CREATE),
    (b"deleted file mode ", Change.DELETE),
    (b"rename from ", Change.RENAME),
    (b"rename to ", Change.RENAME),
    (b"copy from ", Change.COPY),
    (b"copy to ", Change.COPY),
)
_WORDS = {Change.RENAME: (b"rename from ", b"rename to "), Change.COPY: (b"copy from ", b"copy to ")}
_ONE_NAME = (Change.CREATE, Change.DELETE)
_SIDES = (b"--- ", b"+++ ")

_T = TypeVar("_T")
_Fields = dict[bytes, tuple[int, bytes]]
_NameLines = tuple["NameLine | None", "NameLine | None"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a header says. `start` is the index of the first line that names the file, `stop` is behind the header.

    `metadata` tells whether there is something to do even without a hunk.
    """

    change: Change
    old_name: str | None
    new_name: str | None
    git: bool
    start: int
    stop: int
    old_mode: int | None = None
    new_mode: int | None = None
    old_blob: str = ""
    new_blob: str = ""
    metadata: bool = False


def read_git_header(text: PatchText, index: int) -> Header | None:
    """Read the header that the `diff --git` line at `index` begins; None when no header follows it, as git decides."""
    return _read_usual_header(text, index) or _read_any_header(text, index)


def _read_usual_header(text: PatchText, index: int) -> Header | None:
    """Read what nearly every header is: one plain name, perhaps its blobs, and a hunk; None for any other."""
    blobs = _USUAL_INDEX.fullmatch(text.lines[index + 1]) if index + 1 < text.end else None
    start = index + 1 if blobs is None else index + 2
    lines = text.lines[start : start + 3]
    if len(lines) < 3 or not lines[2].startswith(b"@@ -") or lines[0][:6] != b"--- a/":  # noqa: PLR2004 -- its lines
        return None
    old, new = lines[0][4:], b"b/" + lines[0][6:]
    if lines[1] != b"+++ " + new or text.lines[index] != b"diff --git %b %b" % (old, new):
        return None
    if not _USUAL_NAME.fullmatch(old):
        return None
    return Header(
        change=Change.MODIFY,
        old_name=old.decode(),
        new_name=new.decode(),
        git=True,
        start=index,
        stop=start + 2,
        old_mode=int(blobs[3], 8) if blobs is not None and blobs[3] is not None else None,
        old_blob="" if blobs is None else blobs[1].decode(),
        new_blob="" if blobs is None else blobs[2].decode(),
    )


def _read_any_header(text: PatchText, index: int) -> Header | None:
    fields, stop = _collect(text, index + 1)
    if not fields and not _binary_follows(text, stop):
        return None
    lines = _name_line(text, fields, b"--- "), _name_line(text, fields, b"+++ ")
    change = _change_by_null(text, fields, _change_by_word(text, fields), lines)
    old, new = _git_names(text, index, fields, change, lines)
    old_mode, new_mode = _modes(text, fields, new if change is Change.CREATE else old)
    found = _INDEX.match(fields[b"index "][1]) if b"index " in fields else None
    blobs = (found[1].decode(), found[2].decode()) if found is not None else ("", "")
    check_words(text, fields, blobs, change.value)
    return Header(
        change=change,
        old_name=None if change is Change.CREATE else old,
        new_name=None if change is Change.DELETE else new,
        git=True,
        start=index,
        stop=stop,
        old_mode=old_mode,
        new_mode=new_mode,
        old_blob=blobs[0],
        new_blob=blobs[1],
        metadata=_acts_alone(change, fields),
    )


def _acts_alone(change: Change, fields: _Fields) -> bool:
    """Tell whether the header does something without a hunk.

    One that ends in `+++` promises a hunk; git and GNU patch create or remove the empty file all the same.
    """
    if change in (Change.CREATE, Change.DELETE):
        return True
    return b"+++ " not in fields and (change is not Change.MODIFY or {b"old mode ", b"new mode "} <= fields.keys())


def _collect(text: PatchText, index: int) -> tuple[_Fields, int]:
    """Gather the lines that belong to an extended header by their keyword; the first other line ends it."""
    fields: _Fields = {}
    while index < text.end:
        line = text.lines[index]
        keyword = _KEYWORD.match(line)
        if keyword is None:
            break
        key = _SYNONYMS.get(keyword[1], keyword[1])
        value = line[keyword.end() :].removesuffix(b"\r")
        if index + 1 == len(text.lines):
            raise text.error(index, "the patch ends in the middle of a line", hint="fetch the patch again")
        if fields.setdefault(key, (index, value))[1] != value:
            raise text.error(index, "inconsistent header", why=f"line {fields[key][0] + 1} says it otherwise")
        index += 1
    return fields, index


def _binary_follows(text: PatchText, index: int) -> bool:
    line = text.lines[index] if index < text.end else b""
    return line.removesuffix(b"\r") == BINARY_MARKER or BINARY_DIFFERS.match(line) is not None


def _change_by_word(text: PatchText, fields: _Fields) -> Change:
    found = sorted((fields[key][0], change.value) for key, change in _CHANGES if key in fields)
    for index, change in found[1:]:
        if change != found[0][1]:
            raise text.error(index, "inconsistent header", why=f"line {found[0][0] + 1} says {found[0][1]}")
    return Change(found[0][1]) if found else Change.MODIFY


def _name_line(text: PatchText, fields: _Fields, key: bytes) -> NameLine | None:
    if key not in fields:
        return None
    index, value = fields[key]
    return _readable(text, index, lambda raw: read_name_line(raw, git=True), value)


def _readable(text: PatchText, index: int, read: Callable[[bytes], _T], raw: bytes) -> _T:
    try:
        return read(raw)
    except ValueError as error:
        raise text.error(index, "the name cannot be read", why=str(error)) from error


def _change_by_null(text: PatchText, fields: _Fields, change: Change, lines: _NameLines) -> Change:
    """Check /dev/null against the header's own words; without such words it tells by itself, as for GNU patch."""
    implied = Change.MODIFY
    for line, key, meant in zip(lines, (b"--- ", b"+++ "), (Change.CREATE, Change.DELETE), strict=True):
        if line is not None and line.name is not None and change is meant:
            raise text.error(
                fields[key][0], "inconsistent header", why=f"the header says {change.value}: expected /dev/null"
            )
        if line is not None and line.name is None:
            if change not in (Change.MODIFY, meant) or implied is not Change.MODIFY:
                raise text.error(fields[key][0], "inconsistent header", why="/dev/null where a file's name is needed")
            implied = meant
    return implied if change is Change.MODIFY else change


def _git_names(
    text: PatchText, index: int, fields: _Fields, change: Change, lines: _NameLines
) -> tuple[str | None, str | None]:
    """Return both names with their prefixes; which of them a created or deleted file lacks is the caller's business."""
    known = tuple(_known_name(text, fields, change, side, line) for side, line in enumerate(lines))
    rest = text.lines[index][len(DIFF_GIT) :]
    words = change in _WORDS
    plain = not words and None not in known and rest == b" ".join(name or b"" for name in known)  # nearly every file
    pair = None if plain else _readable(text, index, lambda raw: split_git_names(raw, old=known[0], new=known[1]), rest)
    if pair is None and not plain and not words and any(known) and split_git_names(rest) is not None:
        side = next(side for side, name in enumerate(known) if name is not None)
        raise text.error(fields[_SIDES[side]][0], "inconsistent file name", why=f"line {index + 1} names another file")
    if pair is not None and change in _ONE_NAME and not any(known) and not names_agree(pair.old, pair.new):
        raise text.error(index, "inconsistent file name", why="a file that is created or deleted has one")
    names: list[str | None] = []
    for side, line in enumerate(lines):
        name = known[side]
        if line is not None and line.name is not None:
            name = line.name
        elif pair is not None and (name is None or _is_below_prefix((pair.old, pair.new)[side], name)):
            name = (pair.old, pair.new)[side]
        elif name is not None:
            name = b"a/" + name  # `rename from` has no prefix: git strips one component less from it
        names.append(None if name is None else checked_name(text, index, name))
    half = change is Change.MODIFY and (lines[0] is None) != (lines[1] is None)
    if half or (names[0] is None and change is not Change.CREATE) or (names[1] is None and change is not Change.DELETE):
        raise text.error(index, "the header lacks a file name", why="both `---` and `+++`, or a name twice, are needed")
    return names[0], names[1]


def _is_below_prefix(name: bytes, bare: bytes) -> bool:
    """Tell whether a name is the bare one of `rename from`, with at most one component before it."""
    return name == bare or name.partition(b"/")[2] == bare


def _known_name(text: PatchText, fields: _Fields, change: Change, side: int, line: NameLine | None) -> bytes | None:
    """Return the name of one side as the lines below `diff --git` tell it."""
    from_line = None if line is None else line.name
    if change not in _WORDS:
        return from_line
    key = _WORDS[change][side]
    if key not in fields:
        other = next(word for word in _WORDS[change] if word in fields)
        raise text.error(fields[other][0], "the header lacks a name", why=f"`{key.decode()}` is missing")
    index, value = fields[key]
    name = _readable(text, index, read_whole_name, value)
    if from_line is not None and not names_agree(from_line, name):
        raise text.error(fields[_SIDES[side]][0], "inconsistent file name", why=f"line {index + 1} names another file")
    return name


def checked_name(text: PatchText, index: int, name: bytes) -> str:
    """Return the name as text; an error when no file can have it."""
    if not name or b"\0" in name:
        raise text.error(
            index, "a file cannot have this name", why="it is empty" if not name else "it holds a NUL byte"
        )
    return decode_name(name)


def _modes(text: PatchText, fields: _Fields, name: str | None) -> tuple[int | None, int | None]:
    old = _mode(text, fields, b"old mode ", name) or _mode(text, fields, b"deleted file mode ", name)
    new = _mode(text, fields, b"new mode ", name) or _mode(text, fields, b"new file mode ", name)
    blobs = _INDEX.match(fields[b"index "][1]) if b"index " in fields else None
    if blobs is not None and blobs[3] is not None:
        old = old or _octal(text, fields[b"index "][0], blobs[3], name)
    return old, new


def _mode(text: PatchText, fields: _Fields, key: bytes, name: str | None) -> int | None:
    return _octal(text, *fields[key], name) if key in fields else None


def _octal(text: PatchText, index: int, value: bytes, name: str | None) -> int:
    """Return the mode as git keeps it: a symlink, or a file that is executable or not. Set-id bits are never taken."""
    found = _MODE.match(value)
    if found is None:
        raise text.error(index, "not a file mode", why="expected octal digits such as 100644")
    mode = int(found[0], 8)
    kind = mode & _FORMAT
    if kind == _SUBMODULE:
        raise text.error(
            index, f"a submodule is not a file: {name}"[:80], why="mode 160000 names a commit of another repository"
        )
    if kind not in (0, _REGULAR, _SYMLINK):
        raise text.error(index, f"not a file or a symlink: {name}"[:80], why=f"mode {mode:06o}")
    return _SYMLINK if kind == _SYMLINK else _REGULAR | (0o755 if mode & 0o100 else 0o644)


def read_traditional_header(text: PatchText, index: int, *, floor: int) -> Header:
    """Read the `---` and `+++` lines at `index`; lines of diff's or svn's above them, down to `floor`, belong to it."""
    old, new = (
        _readable(text, at, lambda raw: read_name_line(raw, git=False), text.lines[at][4:]) for at in (index, index + 1)
    )
    if old.name is None and new.name is None:
        raise text.error(index + 1, "inconsistent header", why="both names are /dev/null")
    change = Change.MODIFY
    if old.name is None or (old.epoch and new.name is not None):
        change = Change.CREATE
    elif new.name is None or new.epoch:
        change = Change.DELETE
    start = index
    while start > floor and text.lines[start - 1].startswith(_COMMAND_LINES):
        start -= 1
    # difflib writes an empty name where none was given: git takes the other one.
    return Header(
        change=change,
        old_name=None if change is Change.CREATE else checked_name(text, index, old.name or new.name or b""),
        new_name=None if change is Change.DELETE else checked_name(text, index + 1, new.name or old.name or b""),
        git=False,
        start=start,
        stop=index + 2,
    )


def read_binary_notice(text: PatchText, index: int) -> Header | None:
    """Read a `Binary files a/x and b/x differ` line that stands without a git header; None when it is prose."""
    found = BINARY_DIFFERS.match(text.lines[index])
    pair = split_binary_names(found[1]) if found is not None else None
    if pair is None:
        return None
    old, new = (
        _readable(text, index, lambda raw: read_name_line(raw, git=True), raw).name for raw in (pair.old, pair.new)
    )
    if old is None and new is None:
        return None
    return Header(
        change=Change.CREATE if old is None else Change.DELETE if new is None else Change.MODIFY,
        old_name=None if old is None else checked_name(text, index, old),
        new_name=None if new is None else checked_name(text, index, new),
        git=False,
        start=index,
        stop=index,
        metadata=True,
    )
