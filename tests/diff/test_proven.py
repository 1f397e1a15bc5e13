"""Patching proven content as bytes: the same as placing hunks line by line, or nothing."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.diff.apply import apply_placements
from patchkit.diff.image import split_lines
from patchkit.diff.locate import Evidence, place_hunks
from patchkit.diff.model import FilePatch
from patchkit.diff.parse import parse_patch
from patchkit.diff.proven import patch_proven

PROVEN = Evidence(base=None, proven=True, python=False, strict=True, crlf=False)
NUMBERS = b"".join(b"%d\n" % number for number in range(1, 13))
TWO = b"@@ -2,3 +2,4 @@\n 2\n+new\n 3\n 4\n@@ -8,3 +9,2 @@\n 8\n-9\n 10\n"


def file_patch(hunks: bytes) -> FilePatch:
    return parse_patch(b"--- a/f\n+++ b/f\n" + hunks, source="x").files[0]


def by_lines(file: FilePatch, content: bytes) -> tuple[bytes, object]:
    lines = split_lines(content)
    placements = place_hunks(file, lines, PROVEN)
    return apply_placements(file, lines, placements), placements


def test_hunks_at_their_places_are_applied() -> None:
    file = file_patch(TWO)
    assert patch_proven(file.hunks, NUMBERS) == by_lines(file, NUMBERS)
    assert by_lines(file, NUMBERS)[0] == b"1\n2\nnew\n3\n4\n5\n6\n7\n8\n10\n11\n12\n"


@pytest.mark.parametrize(
    ("hunks", "content"),
    [
        (TWO, b"0\n" + NUMBERS),
        (b"@@ -2,2 +2,3 @@\n 2\n 3\n+new\n", NUMBERS),
        (b"@@ -1,2 +1,2 @@\n-1\n+one\n 2\n\\ No newline at end of file\n", b"1\n2"),
        (b"@@ -4,2 +4,3 @@\n a\n+new\n b\n", b"a\nb\n\na\nb\n"),
        (b"@@ -1,2 +1,3 @@\n 2\n+new\n 3\n", b"1\n2\n3\n"),
        (b"@@ -1,2 +1,3 @@\n 1\n+new\n 2\n", b"11\n2\n"),
        (b"@@ -0,0 +1 @@\n+new\n", b""),
        (b"@@ -1,2 +1,3 @@\n 1\n+new\n 2\n", b""),
    ],
    ids=["shifted", "no context behind", "marker", "stands above too", "other line", "within a line", "bare", "empty"],
)
def test_anything_else_is_left_to_the_lines(hunks: bytes, content: bytes) -> None:
    assert patch_proven(file_patch(hunks).hunks, content) is None


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"a b\r\n", b"b\x0c\n", b"+\n", b"-\n"]), max_size=14)


@given(old=LINES, new=LINES, context=st.integers(0, 3), end=st.booleans())
@settings(deadline=None, max_examples=300)
def test_what_is_made_is_what_the_lines_make(old: list[bytes], new: list[bytes], context: int, *, end: bool) -> None:
    before = b"".join(old)[: None if end else -1]
    text = b"".join(difflib.diff_bytes(difflib.unified_diff, old, new, b"a/f", b"b/f", n=context))
    if not text:
        return
    file = parse_patch(text, source="x").files[0]
    made = patch_proven(file.hunks, before)
    if made is not None:
        assert made == by_lines(file, before)
