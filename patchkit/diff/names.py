"""How names stand in a patch: C-quoted or bare, behind `diff --git`, `---` and `+++`, with or without a timestamp."""

from __future__ import annotations

import re

from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

_ESCAPES = {
    ord("a"): 0x07,
    ord("b"): 0x08,
    ord("t"): 0x09,
    ord("n"): 0x0A,
    ord("v"): 0x0B,
    ord("f"): 0x0C,
    ord("r"): 0x0D,
    ord('"'): 0x22,
    ord("\\"): 0x5C,
}
_LETTERS = {value: bytes([letter]) for letter, value in _ESCAPES.items()}
_QUOTED = compile_lazily(rb'"((?:[^"\\\n]|\\.)*)"', re.DOTALL)
_ESCAPE = compile_lazily(rb"\\([0-3][0-7][0-7]|.)", re.DOTALL)
_UNSAFE = compile_lazily(rb'[\x00-\x1f"\\\x7f-\xff]')
# What ends a bare name: white space that is not a blank (git's name_terminate), or a NUL, as in every C program.
_NAME_END = compile_lazily(rb"[\t\r\v\f\0]")
# "2010-07-05 19:41:17.620000023 -0500" behind a tab, or behind blanks where a tab was damaged (diff_timestamp_len).
_TIMESTAMP = compile_lazily(
    rb"[\t ](?:\d\d)?\d\d-\d\d-\d\d \d?\d:\d\d:\d\d(?:\.\d+)?(?: [-+]\d\d:?\d\d)?\r?$",
)
_EPOCH = compile_lazily(rb"(1969-12-31|1970-01-01) ([0-2]\d):([0-5]\d):00(?:\.0+)? ([-+])([0-2]\d):?([0-5]\d)\r?$")
_MOVED = compile_lazily(rb"(?m)^(?:rename|copy) (?:from|old) (.+)$")
_LONGEST = 2 * 4 * 4096  # two names of PATH_MAX bytes, each byte escaped
_DEV_NULL = compile_lazily(rb"/dev/null(?=\s|$)")
_SVN_ABSENT = b"\t(nonexistent)"  # what `svn diff --git` has in place of /dev/null, behind the name of the other side


@dataclass(frozen=True, kw_only=True, slots=True)
class NameLine:
    """What a `---` or `+++` line says. `name` is None for /dev/null, `epoch` true for GNU's sign of absence."""

    name: bytes | None
    epoch: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class NamePair:
    """The two names of one line, unquoted; `second` is where the raw text of the second begins behind the keyword."""

    old: bytes
    new: bytes
    second: int


def decode_name(name: bytes) -> str:
    """Return the name as text that `os.fsencode` turns into the same bytes."""
    return name.decode("utf-8", "surrogateescape")


def quote_name(name: str) -> bytes:
    """Return the name as git writes it by default: in double quotes with octal escapes when it needs them."""
    raw = name.encode("utf-8", "surrogateescape")
    if not _UNSAFE.search(raw):
        return raw
    return b'"%b"' % _UNSAFE.sub(lambda found: _escape(found[0][0]), raw)


def _escape(byte: int) -> bytes:
    return b"\\" + _LETTERS.get(byte, b"%03o" % byte)


def unquote_name(text: bytes) -> tuple[bytes, int]:
    """Return the name that the C-quoted string at the start of `text` stands for, and the length of the quoted form.

    ValueError when it is not closed or holds an escape that neither git nor GNU diff writes.
    """
    quoted = _QUOTED.match(text)
    if quoted is None:
        raise ValueError("the quoted name is not closed")
    return _ESCAPE.sub(lambda found: _unescape(found[1]), quoted[1]), quoted.end()


def _unescape(code: bytes) -> bytes:
    if len(code) == 3:  # noqa: PLR2004 - three octal digits
        return bytes([int(code, 8)])
    if code[0] not in _ESCAPES:
        raise ValueError(f"the quoted name holds an unknown escape, \\{code.decode('latin-1')}")
    return bytes([_ESCAPES[code[0]]])


def read_name_line(rest: bytes, *, git: bool) -> NameLine:
    """Read what stands behind `--- ` or `+++ `; ValueError when a quoted name is damaged.

    In a git patch a name ends at its tab. In a traditional one a timestamp at the end is taken off first, so that a
    name may hold tabs.
    """
    if _DEV_NULL.match(rest) or (git and rest.rstrip(b"\r").endswith(_SVN_ABSENT)):
        return NameLine(name=None, epoch=False)
    epoch = not git and _is_epoch(rest)
    if rest.startswith(b'"'):
        return NameLine(name=unquote_name(rest)[0], epoch=epoch)
    stamp = None if git else _TIMESTAMP.search(rest)
    if stamp is not None and stamp.start():
        return NameLine(name=rest[: stamp.start()].rstrip(b" "), epoch=epoch)
    return NameLine(name=_NAME_END.split(rest, maxsplit=1)[0], epoch=epoch)


def _is_epoch(rest: bytes) -> bool:
    """Tell whether the timestamp is 1970-01-01 00:00:00 UTC in its own zone, as git's has_epoch_timestamp does."""
    found = _EPOCH.match(rest.rpartition(b"\t")[2]) if b"\t" in rest else None
    if found is None:
        return False
    day, hour, minute, sign, zone_hours, zone_minutes = found.groups()
    zone = int(zone_hours) * 60 + int(zone_minutes)
    local = int(hour) * 60 + int(minute) - (-zone if sign == b"-" else zone)
    return local == (24 * 60 if day == b"1969-12-31" else 0)


def read_whole_name(rest: bytes) -> bytes:
    """Read what stands behind `rename from ` and its like: one name, quoted or up to the end of the line."""
    if rest.startswith(b'"'):
        return unquote_name(rest)[0]
    return rest.removesuffix(b"\r")


def moved_from(header: bytes) -> str | None:
    """Return what a header says behind `rename from ` or `copy from `, None where it has no such line."""
    found = _MOVED.findall(header)
    return decode_name(read_whole_name(found[-1])) if found else None


def split_git_names(rest: bytes, *, old: bytes | None = None, new: bytes | None = None) -> NamePair | None:
    """Split what stands behind `diff --git ` into its two names.

    `old` and `new` are what other lines of the header say (`---`, `rename from`), as far as they say it: the pair must
    agree with them. None when no split does; without other lines the names must be the same below their prefixes.
    """
    pairs = [pair for pair in _candidate_pairs(rest.removesuffix(b"\r")) if _fits(pair, old, new)]
    if old is not None and new is not None:
        return next((pair for pair in pairs if (pair.old, pair.new) == (old, new)), pairs[0] if pairs else None)
    for same in (_same_below_prefix, bytes.__eq__, _same_tail):
        for pair in pairs:
            if same(pair.old, pair.new):
                return pair
    return None


def _fits(pair: NamePair, old: bytes | None, new: bytes | None) -> bool:
    return (old is None or names_agree(pair.old, old)) and (new is None or names_agree(pair.new, new))


def split_binary_names(rest: bytes) -> NamePair | None:
    """Split the `a/x and b/x` of a `Binary files a/x and b/x differ` line."""
    if len(rest) > _LONGEST:
        return None
    pairs = [
        NamePair(old=rest[: word.start()], new=rest[word.end() :], second=word.end())
        for word in re.finditer(b" and ", rest)
    ]
    same = (pair for pair in pairs if _same_below_prefix(pair.old, pair.new) or pair.old == pair.new)
    return next(same, pairs[0] if pairs else None)


def _candidate_pairs(rest: bytes) -> list[NamePair]:
    if len(rest) > _LONGEST:
        return []
    if rest.startswith(b'"'):
        first, length = unquote_name(rest)
        # git skips every blank; a name may begin with one, which only the other lines of the header can tell.
        starts = dict.fromkeys((len(rest) - len(rest[length:].lstrip(b" \t")), length + 1))
        return [NamePair(old=first, new=_one_name(rest[at:]), second=at) for at in starts if at < len(rest)]
    quote = rest.find(b' "')
    if quote > 0:
        return [NamePair(old=rest[:quote], new=_one_name(rest[quote + 1 :]), second=quote + 1)]
    return [
        NamePair(old=rest[: blank.start()], new=rest[blank.end() :], second=blank.end())
        for blank in re.finditer(rb"[ \t]", rest)
        if blank.start() > 0 and blank.end() < len(rest)
    ]


def _one_name(text: bytes) -> bytes:
    return unquote_name(text)[0] if text.startswith(b'"') else text


def _same_below_prefix(first: bytes, second: bytes) -> bool:
    below = first.partition(b"/")[2]
    return bool(below) and below == second.partition(b"/")[2]


def _same_tail(first: bytes, second: bytes) -> bool:
    """Tell whether the names differ only in leading directories (`a/one/f` and `b/two/f` of `git diff --no-index`)."""
    return first.rpartition(b"/")[2] == second.rpartition(b"/")[2] != b""


def _ends_in(name: bytes, tail: bytes) -> bool:
    return name == tail or name.endswith(b"/" + tail)


def names_agree(first: bytes, second: bytes) -> bool:
    """Tell whether two lines of one git header name the same file, whatever prefix each writes."""
    return _ends_in(first, second) or _ends_in(second, first) or _same_below_prefix(first, second)
