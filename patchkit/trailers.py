"""What a patch's header says of the patch: its subject and its trailers, read where git and DEP-3 keep them.

The trailer block is found as `git interpret-trailers` finds it (trailer.c, find_trailer_start): the last paragraph
before the `---` line, if all of it are trailers, or a quarter of it and one that git itself writes. DEP-3 fields
stand at the top: https://dep-team.pages.debian.net/deps/dep3/
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence

from patchkit.errors import SeriesError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.specifier import split_target


class Toggle(enum.Enum):
    """How a gated patch is switched: rendered or not, or both variants in the tree."""

    SELECT = "select"
    GUARD = "guard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trailers:
    """What a patch's header says about it. Empty strings and tuples where it says nothing.

    `applies_to` and `retires_when` are target specifiers (`vllm>=0.6.3,<0.6.5`), `config` a symbol without CONFIG_.
    """

    subject: str
    config: str
    toggle: Toggle
    applies_to: str
    origin: str
    forwarded: str
    retires_when: str
    requires: tuple[str, ...]
    needs_runtime: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Field:
    """A named value with the line it stands on, counted from 1; `text` is that line."""

    name: str
    value: str
    line_number: int
    text: str


_ONCE = {
    "config": "Config",
    "toggle": "Toggle",
    "applies-to": "Applies-To",
    "origin": "Origin",
    "forwarded": "Forwarded",
    "retires-when": "Retires-When",
}
_LISTS = {"requires": "Requires", "needs-runtime": "Needs-Runtime"}
_OURS = _ONCE | _LISTS
_HEADER_NAMES = {*_OURS, "from", "author", "date", "bug", "last-update", "applied-upstream", "reviewed-by"}
_GIT_WRITES = ("Signed-off-by: ", "(cherry picked from commit ")
_FIELD = compile_lazily(r"([A-Za-z0-9-]+)[ \t]*:")
_PATCH_PREFIX = compile_lazily(r"\s*(?:re:\s*)*\[[^\]]*\bPATCH\b[^\]]*\]\s*", re.IGNORECASE)
_SYMBOL = compile_lazily(r"[A-Za-z0-9_]+")
_RUNTIME_PART = compile_lazily(r"[a-z][a-z0-9_]*")
_BLANKS = " \t\r"


def parse_trailers(preamble: bytes, *, source: str = "patch") -> Trailers:
    """Read what stands before a patch's first file; `source` names the patch in messages."""
    lines = _message_lines(preamble)
    fields = _read_fields(lines)
    once = _single_fields(fields, source)
    config = _config(once.get("config"), source)
    return Trailers(
        subject=_subject(lines),
        config=config,
        toggle=_toggle(once.get("toggle"), config, source),
        applies_to=_target(once.get("applies-to"), source),
        origin=_value(once.get("origin")),
        forwarded=_value(once.get("forwarded")),
        retires_when=_retires_when(once.get("retires-when"), source),
        requires=_list(fields, "requires"),
        needs_runtime=_runtime_parts(fields, source),
    )


def suspicious_trailers(preamble: bytes) -> tuple[str, ...]:
    """Return a warning for every line that looks like a trailer of ours and is not read as one."""
    lines = _message_lines(preamble)
    read = {field.line_number: field for field in _read_fields(lines)}
    warnings = []
    for number, text in enumerate(_decoded_lines(preamble), 1):
        field = read.get(number)
        match = _FIELD.match(text)
        if match is None or (field and field.name.lower() in _OURS):
            continue
        name = match.group(1)
        if name.lower() in _OURS.keys() - {"origin", "forwarded"}:
            warnings.append(f"line {number}: `{name}:` is not in the last paragraph of the message: it has no effect")
        elif field and (near := _near_miss(name)):
            warnings.append(f"line {number}: `{name}:` has no meaning; did you mean `{near}:`?")
    return tuple(warnings)


def add_trailers(preamble: bytes, trailers: Sequence[tuple[str, str]]) -> bytes:
    """Put trailers behind those that are there, or in a paragraph of their own, as `git interpret-trailers` does."""
    if not trailers:
        return preamble
    lines = _message_lines(preamble)
    raw = preamble.split(b"\n")
    end = next((index for index in range(len(lines), 0, -1) if not _is_blank(lines[index - 1])), 0)
    newline = b"\r\n" if raw[0].endswith(b"\r") else b"\n"
    gap = newline if end and _block_start(lines) == len(lines) else b""
    written = b"".join(f"{name}: {value}".encode() + newline for name, value in trailers)
    message = b"\n".join(raw[:end]) + b"\n" if end else b""
    rest = b"\n".join(raw[end:])
    return message + gap + written + rest


def _decoded_lines(preamble: bytes) -> list[str]:
    return preamble.decode("utf-8", errors="replace").split("\n")


def _message_lines(preamble: bytes) -> list[str]:
    """Return the lines before the `---` that ends the message."""
    lines = _decoded_lines(preamble)
    for index, line in enumerate(lines):
        if line.startswith("---") and line[3:4] in ("", *_BLANKS):
            return lines[:index]
    return lines


def _is_blank(line: str) -> bool:
    return not line.strip(_BLANKS)


def _separator(line: str) -> int:
    """Return where the colon of a trailer stands, 0 if the line is none."""
    match = _FIELD.match(line)
    return match.end() - 1 if match else 0


def _read_fields(lines: Sequence[str]) -> tuple[_Field, ...]:
    """Return the fields of the header and of the trailer block, each line once, in their order."""
    block = _fields(lines, _block_start(lines), len(lines))
    by_line = {field.line_number: field for field in (*_header_fields(lines), *block)}
    return tuple(by_line.values())


def _header_fields(lines: Sequence[str]) -> tuple[_Field, ...]:
    """Return the fields at the top: a mail header, or DEP-3's."""
    first = end = _after_comments(lines)
    while end < len(lines) and not _is_blank(lines[end]):
        if not (_separator(lines[end]) or (end > first and lines[end][0] in _BLANKS)):
            break
        end += 1
    return tuple(_fields(lines, first, end))


def _after_comments(lines: Sequence[str]) -> int:
    """Return the index of the first line that is neither blank, a comment (SPDX), nor mbox's `From ` line."""
    for index, line in enumerate(lines):
        if not (_is_blank(line) or line.startswith(("#", "From "))):
            return index
    return len(lines)


def _block_start(lines: Sequence[str]) -> int:
    """Return the index of the first line of the trailer block, len(lines) when there is none."""
    title_end = next((index for index, line in enumerate(lines) if _is_blank(line)), len(lines))
    end = len(lines)
    while end > title_end and (_is_blank(lines[end - 1]) or lines[end - 1].startswith("#")):
        end -= 1
    start = end
    while start > title_end + 1 and not _is_blank(lines[start - 1]):
        start -= 1
    return start if _is_trailer_block(lines[start:end]) else len(lines)


def _is_trailer_block(paragraph: Iterable[str]) -> bool:
    trailers = others = 0
    written_by_git = in_trailer = False
    for line in paragraph:
        if line.startswith("#"):
            in_trailer = False
        elif line.startswith(_GIT_WRITES):
            trailers, written_by_git, in_trailer = trailers + 1, True, True
        elif line[0] in _BLANKS:
            others += not in_trailer
        elif _separator(line):
            trailers, in_trailer = trailers + 1, True
        else:
            others, in_trailer = others + 1, False
    return trailers * 3 >= others if written_by_git else trailers > 0 and not others


def _fields(lines: Sequence[str], start: int, end: int) -> Iterator[_Field]:
    """Read fields with their continuation lines, which are unfolded with one space."""
    index = start
    while index < end:
        number, line = index + 1, lines[index]
        colon = _separator(line)
        index += 1
        if not colon:
            continue
        parts = [line[colon + 1 :]]
        while index < end and lines[index] and lines[index][0] in _BLANKS:
            parts.append(lines[index])
            index += 1
        value = " ".join(part.strip(_BLANKS) for part in parts)
        yield _Field(name=line[:colon].strip(_BLANKS), value=value.strip(), line_number=number, text=line)


def _single_fields(fields: Iterable[_Field], source: str) -> dict[str, _Field]:
    found: dict[str, _Field] = {}
    for field in fields:
        name = field.name.lower()
        if name not in _ONCE:
            continue
        if name in found:
            raise _fault(field, source, f"{_ONCE[name]} is given twice", f"first on line {found[name].line_number}")
        if not field.value:
            raise _fault(field, source, f"{_ONCE[name]} has no value", "a trailer that is there says something")
        found[name] = field
    return found


def _value(field: _Field | None) -> str:
    return field.value if field else ""


def _config(field: _Field | None, source: str) -> str:
    symbol = _value(field).removeprefix("CONFIG_")
    if field and not _SYMBOL.fullmatch(symbol):
        raise _fault(field, source, "Config is not one symbol", "one patch has one gate, as in `Config: KV_REDIST`")
    return symbol


def _toggle(field: _Field | None, config: str, source: str) -> Toggle:
    if field is None:
        return Toggle.SELECT
    if not config:
        raise _fault(field, source, "Toggle stands without Config", "nothing switches this patch: it needs a symbol")
    try:
        return Toggle(field.value.lower())
    except ValueError:
        raise _fault(field, source, "Toggle has an unknown value", "expected `select` or `guard`") from None


def _target(field: _Field | None, source: str) -> str:
    if field is None:
        return ""
    try:
        split_target(field.value)
    except ValueError as error:
        raise _fault(field, source, f"{_ONCE[field.name.lower()]} is not a target", str(error)) from error
    return field.value


def _retires_when(field: _Field | None, source: str) -> str:
    text = _target(field, source)
    if field and not split_target(text)[1]:
        raise _fault(field, source, "Retires-When names no version", "expected versions, as in `vllm>=0.7`")
    return text


def _list(fields: Iterable[_Field], name: str) -> tuple[str, ...]:
    words = (word.strip() for field in fields if field.name.lower() == name for word in field.value.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def _runtime_parts(fields: Sequence[_Field], source: str) -> tuple[str, ...]:
    """Return the parts; they become directories of the engine, so a name must be a plain identifier."""
    for field in fields:
        if field.name.lower() == "needs-runtime":
            for part in _list((field,), "needs-runtime"):
                if not _RUNTIME_PART.fullmatch(part):
                    raise _fault(field, source, "Needs-Runtime names no part", f"{part!r} is not a module's name")
    return _list(fields, "needs-runtime")


def _subject(lines: Sequence[str]) -> str:
    """Return the title without `[PATCH 3/7]`: Subject, else DEP-3's Description, else the first line of prose."""
    by_name = {field.name.lower(): field for field in reversed(_header_fields(lines))}
    if "subject" in by_name:
        return _without_prefix(_decoded_words(by_name["subject"].value))
    if "description" in by_name:
        text = by_name["description"].text
        return text[_separator(text) + 1 :].strip()
    return next((line.strip() for line in lines[_after_comments(lines) :] if _is_prose(line)), "")


def _is_prose(line: str) -> bool:
    match = _FIELD.match(line)
    return not (_is_blank(line) or line[0] in _BLANKS or (match and match.group(1).lower() in _HEADER_NAMES))


def _decoded_words(text: str) -> str:
    """Decode RFC 2047 words; text that only looks like them stays as it is."""
    if "=?" not in text:
        return text
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, ValueError):
        return text


def _without_prefix(subject: str) -> str:
    match = _PATCH_PREFIX.match(subject)
    return subject[match.end() :] if match else subject


def _near_miss(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), _OURS, n=1, cutoff=0.75)
    return _OURS[near[0]] if near else ""


def _fault(field: _Field, source: str, what: str, why: str) -> SeriesError:
    shown = ascii(field.text[:120])[1:-1]
    return SeriesError(f"{source}:{field.line_number}: {what}", why=f"  {field.line_number} | {shown}\n{why}")
