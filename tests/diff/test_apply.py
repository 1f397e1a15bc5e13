"""The new content from the places of hunks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.diff.apply import apply_placements
from patchkit.diff.image import hunk_sides, split_lines
from patchkit.diff.locate import Evidence, place_hunks
from patchkit.diff.model import Verdict
from patchkit.diff.parse import parse_patch

TEXT = b"--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n 1\n+new\n 2\n 3\n@@ -5,3 +6,2 @@\n 5\n-6\n 7\n"
FILE = parse_patch(TEXT, source="x").files[0]
KNOWN = Evidence(base=None, proven=False, python=False, strict=False, crlf=False)
CONTENT = b"1\n2\n3\n4\n5\n6\n7\n"


def test_every_hunk_is_applied() -> None:
    lines = split_lines(CONTENT)
    assert apply_placements(FILE, lines, place_hunks(FILE, lines, KNOWN)) == b"1\nnew\n2\n3\n4\n5\n7\n"
    assert b"".join(lines) == CONTENT


def test_a_present_hunk_leaves_the_lines_as_they_are() -> None:
    lines = split_lines(b"1\nnew\n2\n3\n4\n5\n6\n7\n")
    placements = place_hunks(FILE, lines, KNOWN)
    assert [placed.verdict for placed in placements] == [Verdict.PRESENT, Verdict.OFFSET]
    assert apply_placements(FILE, lines, placements) == b"1\nnew\n2\n3\n4\n5\n7\n"


def test_other_verdicts_are_a_bug_of_the_caller() -> None:
    lines = split_lines(b"x\n")
    with pytest.raises(ValueError, match="hunk 1 is conflict"):
        apply_placements(FILE, lines, place_hunks(FILE, lines, KNOWN))


def test_a_placement_that_is_not_where_its_lines_are_is_a_bug_of_the_caller() -> None:
    lines = split_lines(CONTENT)
    first, second = place_hunks(FILE, lines, KNOWN)
    with pytest.raises(ValueError, match="hunk 2 does not stand"):
        apply_placements(FILE, lines, (first, replace(second, line=4)))
    with pytest.raises(ValueError, match="1 placements for 2 hunks"):
        apply_placements(FILE, lines, (first,))


def test_a_hunk_is_read_into_its_two_sides() -> None:
    hunk = (
        parse_patch(b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n\n-b\n\\ No newline at end of file\n+c\n", source="x")
        .files[0]
        .hunks[0]
    )
    sides = hunk_sides(hunk)
    assert sides.old == [b"a\n", b"\n", b"b"]
    assert sides.new == [b"a\n", b"\n", b"c\n"]
    assert (sides.context, sides.leading, sides.trailing) == (2, 2, 0)
    assert sides.removal_first
    assert sides.unterminated


@settings(deadline=None)
@given(st.binary() | st.text(alphabet="a\r\n\x0b\x0c\x85\u2028").map(str.encode))
def test_lines_are_split_at_lf_only_and_joined_again(content: bytes) -> None:
    lines = split_lines(content)
    assert b"".join(lines) == content
    assert all(line.endswith(b"\n") for line in lines[:-1])
    assert all(line.count(b"\n") <= 1 and line for line in lines)
