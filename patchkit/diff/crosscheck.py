r"""The second reader: what unidiff makes of the same bytes, held against what our reader made of them.

Our reader is the one that applies; unidiff is independent of it, and where the two differ one of them is wrong. Only
`series lint` and the tests ask. Both are held to the same hunks in the same order: start and count of both sides, and
every line with its kind. What unidiff 1.0 is known not to read is kept from it, and this is all of it:

- Header lines. It takes the first of two names of `diff --git` that fits a pattern, keeps C-quoted names quoted, gives
  names of a CRLF patch their CR, and fails (`Target without source`) when `+++` then says otherwise: a directory that
  ends in " b", `git diff --no-index`, a timestamp behind a git header. When it fails, it is asked again without the
  lines of git's extended headers and without prose; `---`, `+++` and everything from `@@` on stay.
- `GIT binary patch`: it knows that the file is binary and drops the content. Only text hunks are compared.
- Empty lines behind a hunk: it adds them to the hunk as lines of an empty kind. These are left out.
- A line like `@@ -1 +1 @@` in the message of a mail: it takes it for a hunk. It is kept from it where git am has prose.
- A no-newline marker in another language than English behind a hunk: markers there are shown to it in English.
- A `\r` or U+2028 within a line is a line end only to a text that was split by `str.splitlines`. It is given lines that
  were split on LF, as latin-1, so that any byte is a character.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from patchkit.counting import counted
from patchkit.diff.mail import Messages
from patchkit.diff.model import Hunk, Patch
from patchkit.diff.text import PatchText, read_text

_MOST = 20
_MARKER = "\\ No newline at end of file\n"
_Reading = tuple[tuple[int, int, int, int], tuple[str, ...]]


def crosscheck(raw: bytes, patch: Patch) -> tuple[str, ...]:
    """Return where unidiff reads the hunks of `raw` otherwise than `patch` has them; empty when both agree."""
    from unidiff.errors import UnidiffParseError

    hunks = [hunk for file in patch.files for hunk in file.hunks]
    lines = _lines(read_text(raw, source=patch.source), hunks)
    try:
        theirs = list(_their_hunks(lines))
    except UnidiffParseError:
        try:
            theirs = list(_their_hunks(_without_headers(lines, hunks)))
        except UnidiffParseError as error:
            return (f"{patch.source}: unidiff cannot read it: {str(error).strip()}",)
    found = [*_disagreements(patch.source, hunks, theirs)]
    return tuple(found[:_MOST])


def _lines(text: PatchText, hunks: list[Hunk]) -> list[str]:
    lines = [f"{line.decode('latin-1')}\n" for line in text.lines]
    lines[-1] = lines[-1][:-1]
    floor = 0
    for hunk in hunks:
        last = hunk.line_number + len(hunk.lines) - 1
        if hunk.lines and hunk.lines[-1].startswith(b"\\"):
            lines[last] = _MARKER
        prose = Messages(text, floor)
        for index in range(floor, hunk.line_number - 1):
            if lines[index].startswith("@@ -") and prose.hold(index):
                lines[index] = "#\n"
        floor = last + 1
    return [line for line in lines if line]


def _without_headers(lines: list[str], hunks: list[Hunk]) -> list[str]:
    """Blot out what stands outside of hunks, except `---` and `+++` before an `@@` line, and `@@` lines."""
    inside = {index for hunk in hunks for index in range(hunk.line_number - 1, hunk.line_number + len(hunk.lines))}
    kept = set(inside)
    for index, line in enumerate(lines):
        if index not in inside and line.startswith("@@ -"):
            kept.add(index)
        if line.startswith("@@ -") and index > 1 and lines[index - 2].startswith("--- "):
            kept.update((index - 2, index - 1))
    return [line if index in kept else "#\n" for index, line in enumerate(lines)]


def _their_hunks(lines: list[str]) -> Iterator[_Reading]:
    from unidiff.patch import PatchSet

    for file in PatchSet(iter(lines)):
        for hunk in file:
            ranges = (hunk.source_start, hunk.source_length, hunk.target_start, hunk.target_length)
            body = tuple(line.line_type + line.value.removesuffix("\n") for line in hunk if line.line_type)
            yield ranges, body


def _our_reading(hunk: Hunk) -> _Reading:
    ranges = (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count)
    lines = [line.decode("latin-1") for line in hunk.lines]
    if lines and lines[-1].startswith("\\"):
        lines[-1] = _MARKER.removesuffix("\n")
    return ranges, tuple(line if line.rstrip("\r") else " " + line for line in lines)


def _disagreements(source: str, ours: list[Hunk], theirs: list[_Reading]) -> Iterator[str]:
    if len(ours) != len(theirs):
        yield f"{source}: {counted(len(ours), 'hunk')} here, {len(theirs)} by unidiff"
    for hunk, their in zip_longest(ours, theirs):
        if hunk is None:
            yield f"{source}: unidiff has a hunk more: {_range_text(their[0])}"
            continue
        place = f"{source}:{hunk.line_number}"
        our = _our_reading(hunk)
        if their is None:
            yield f"{place}: unidiff does not see the hunk {_range_text(our[0])}"
        elif our[0] != their[0]:
            yield f"{place}: {_range_text(our[0])} here, {_range_text(their[0])} by unidiff"
        elif our[1] != their[1]:
            at = next(at for at, pair in enumerate(zip_longest(*(our[1], their[1]))) if pair[0] != pair[1])
            yield f"{source}:{hunk.line_number + 1 + at}: unidiff reads another line here"


def _range_text(ranges: tuple[int, int, int, int]) -> str:
    return "-{},{} +{},{}".format(*ranges)
