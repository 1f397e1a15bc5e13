"""What damage leaves of a header, a hunk or a binary patch: git passes over it, and loses what the rest of it said."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.diff.text import PatchText
from patchkit.pattern import compile_lazily

_HARMLESS = (b"index ", b"similarity index ", b"dissimilarity index ")
ORPHANS = (
    *(b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ", b"GIT binary patch"),
    *(b"rename from ", b"rename to ", b"copy from ", b"copy to ", *_HARMLESS),
)
"""How lines begin that belong to a header."""
_MODES = (b"old mode ", b"new mode ")
_NEW, _DELETED = b"new file mode ", b"deleted file mode "
_SURE = compile_lazily(rb"((old|new|deleted file|new file) mode [0-7]{6}|GIT binary patch)\r?$")
_NEIGHBOUR = compile_lazily(
    rb"diff --git |--- |(?:dis)?similarity index \d|index [0-9a-f]+\.\."
    rb"|(?:old|new|deleted file|new file) mode [0-7]{6}|GIT binary patch\r?$"
)
_PAIRS = {b"rename from ": b"rename to ", b"copy from ": b"copy to "}
_BODY = compile_lazily(rb"[> ]*@@|(?:literal|delta) \d+\r?$|.{0,4} -\d{1,9}(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
_EMPTY = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
_CHANGES = (b"+", b"-")
_NAMES = (b"--- ", b"+++ ")
_OPENINGS = (b"diff ", b"Index: ", b"=====")
_MOVES = ("rename", "copy")
COUNTS_HINT = "make the patch anew, or correct the counts with `recountdiff`"
"""What helps where a hunk is not what its counts say."""
_HINT = "fetch the patch again, or make it anew"
_Fields = Mapping[bytes, tuple[int, bytes]]


def check_orphan(text: PatchText, index: int, *, head: int | None, floor: int) -> None:
    """Refuse the line at `index`, which begins as one of ORPHANS and is of no header, unless it may be prose.

    `head` is a `diff --git` line above it that no header follows, `floor` is behind the last file.
    """
    line = text.lines[index]
    sure = _SURE.match(line) or _is_pair(text, index) or (floor and _is_in_header(text, index))
    if head is None and (line.startswith(_HARMLESS) or not sure):
        return
    why = "no `diff --git` line begins it" if head is None else f"line {head + 1} begins it, another stands between"
    raise text.error(index, "a line of a damaged header", why=why, hint=_HINT)


def _is_pair(text: PatchText, index: int) -> bool:
    """Tell whether a line and the next say together from where to where a file goes."""
    follows = text.lines[index + 1] if index + 1 < text.end else b""
    return any(text.lines[index].startswith(one) and follows.startswith(two) for one, two in _PAIRS.items())


def _is_in_header(text: PatchText, index: int) -> bool:
    """Tell whether the line before or behind is of a header too; `copy to the device` between two files is prose."""
    around = (text.lines[at] for at in (index - 1, index + 1) if at < text.end)
    return any(map(_NEIGHBOUR.match, around))


def check_words(text: PatchText, fields: _Fields, blobs: tuple[str, str], change: str) -> None:
    """Refuse a git header that lacks a line which git always writes beside the others; `change` is what they say."""
    lacking = [(one, two) for one, two in (_MODES, _MODES[::-1]) if one in fields and two not in fields]
    named = change == "modify" and b"--- " in fields  # both names are there: blobs of zeros were made up
    if change != "delete" and not named and blobs[0] and not blobs[0].strip("0") and _NEW not in fields:
        lacking.append((b"index ", _NEW))
    if change == "modify" and not named and blobs[1] and not blobs[1].strip("0"):
        lacking.append((b"index ", _DELETED))
    if b"similarity index " in fields and change not in _MOVES:
        lacking.append((b"similarity index ", b"rename from "))
    for key, other in lacking:
        why = f"with this line goes `{other.decode()}`"
        what = f"the header lacks a {'name' if other in _PAIRS else 'mode'}"
        raise text.error(fields[key][0], what, why=why, hint=_HINT)


def check_behind_header(text: PatchText, index: int, *, created: str) -> None:
    """Refuse a header without a change whose change seems lost; `created` is the blob of a file that it makes."""
    if index < text.end and (_BODY.match(text.lines[index]) or _is_between(text, index)):
        raise text.error(index, "a damaged change", why="it is not read behind the header above", hint=_HINT)
    if created and not any(blob.startswith(created) for blob in _EMPTY):
        why = f"its `index` line says that it is not empty: {created[:12]}"
        raise text.error(index - 1, "a new file without its content", why=why, hint=_HINT)


def _is_between(text: PatchText, index: int) -> bool:
    """Tell whether one line that says nothing parts a header from its `---` and `+++`: a damaged `index` line."""
    line, names = text.lines[index], text.lines[index + 1 : min(index + 3, text.end)]
    if not line.strip() or line.startswith(_OPENINGS):
        return False
    return len(names) == len(_NAMES) and all(map(bytes.startswith, names, _NAMES))


def is_damaged_hunk(line: bytes) -> bool:
    """Tell whether a line behind a hunk looks like what begins the next one, and is not."""
    return _BODY.match(line) is not None


def check_counts(text: PatchText, index: int, stop: int, old: tuple[int, int], new: tuple[int, int]) -> None:
    """Hold what was counted (first) against what the `@@` line says (second)."""
    lines = f"line {index + 1} says {old[1]} old and {new[1]} new lines, here are {old[0]} and {new[0]}"
    if old[0] < old[1] or new[0] < new[1]:
        if stop >= text.end:
            raise text.error(stop, "the patch ends in the middle of a hunk", why=lines, hint="fetch the patch again")
        raise text.error(stop, "the hunk is shorter than it says", why=lines, hint=COUNTS_HINT)
    if old[0] > old[1] or new[0] > new[1]:
        raise text.error(index, "the hunk's counts are wrong", why=lines, hint=COUNTS_HINT)
    if old[1] == new[1] and not any(line[:1] in _CHANGES for line in text.lines[index + 1 : stop]):
        raise text.error(index, "the hunk changes nothing", why="it has no line that begins with + or -")
