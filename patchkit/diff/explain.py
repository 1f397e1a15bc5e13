"""Why a hunk does not fit: the nearest line that differs, and where its context went."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from patchkit.counting import counted_of

if TYPE_CHECKING:
    from patchkit.diff.image import Image, Sides

_COMMON = 12
_VOTERS = 60
_SHOWN = 60


def explain_misfit(sides: Sides, image: Image, stated: int) -> str:
    """Say in one phrase why the preimage is not in the file; `stated` is the index the hunk names.

    Each line of the preimage that is rare in the file votes for the place it stands at; the text compares the hunk
    with the place that has most votes, the nearest of equals. The work is bounded: 60 lines vote, each for at most 12
    places, so that 200 misfits in a long file cost milliseconds.
    """
    if reason := _line_endings(sides, image):
        return reason
    if not image.lines:
        return "the file is empty or missing"
    place = _likely_place(sides, image, stated)
    if place is None:
        return f"{_first_difference(sides, image, stated)}; none of its distinctive lines is in the file"
    same = sum(map(bytes.__eq__, sides.old, image.lines[place : place + len(sides.old)]))
    reason = _first_difference(sides, image, place)
    if place == stated:
        return reason
    return f"{reason}; {counted_of(same, len(sides.old), 'line')} now at line {place + 1}"


def _line_endings(sides: Sides, image: Image) -> str:
    """Tell a patch and a file that differ in their line endings altogether."""
    if not image.lines or not sides.old:
        return ""
    in_file = [line.endswith(b"\r\n") for line in image.lines[:200]]
    in_patch = [line.endswith(b"\r\n") for line in sides.old]
    if all(in_file) and not any(in_patch):
        return "the file has CRLF line endings, the patch LF"
    if all(in_patch) and not any(in_file):
        return "the patch has CRLF line endings, the file LF"
    return ""


def _likely_place(sides: Sides, image: Image, stated: int) -> int | None:
    """Return the index at which most of the preimage's rare lines stand, None when none of them is in the file."""
    votes: Counter[int] = Counter()
    for offset, line in enumerate(sides.old[:_VOTERS]):
        where = image.positions(line)
        if len(where) > _COMMON or not line.strip():
            continue
        votes.update(position - offset for position in where if position >= offset)
    if image.lines[stated : stated + 1] == sides.old[:1]:
        votes[stated] += 1
    if not votes:
        return None
    return min(votes, key=lambda index: (-votes[index], abs(index - stated), index))


def _first_difference(sides: Sides, image: Image, place: int) -> str:
    for offset, expected in enumerate(sides.old):
        index = place + offset
        if index >= len(image.lines):
            return f"the file ends at line {len(image.lines)}, expected {_shown(expected)}"
        found = image.lines[index]
        if found != expected:
            return f"line {index + 1}: expected {_shown(expected)}, found {_shown(found)}{_kind(expected, found)}"
    return f"it fits at line {place + 1}, {_anchor(sides)}"


def _kind(expected: bytes, found: bytes) -> str:
    if expected.rstrip(b"\n") == found.rstrip(b"\n"):
        return " (newline at the end of the file only)"
    return " (white space only)" if expected.split() == found.split() else ""


def _anchor(sides: Sides) -> str:
    """Say why a place that fits is not taken: git's anchors."""
    if not sides.trailing:
        return "but without context behind its last change it must stand at the end of the file"
    return "but a hunk that begins at line 1 must stand at the start of the file"


def _shown(line: bytes) -> str:
    """Return a line for people: cut, and with nothing in it that a terminal obeys."""
    text = line.rstrip(b"\r\n")[:_SHOWN].decode("utf-8", "backslashreplace")
    return "`" + "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text) + "`"
