"""Which patches of a series edit lines of another, beside what really applies without the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from patchkit.diff.parse import parse_patch
from patchkit.stacking import find_edits
from tests.making import diff, lines


def edits(*states: dict[str, str]) -> set[tuple[int, int]]:
    raws = [diff(before, after) for before, after in pairwise(states)]
    patches = [(parse_patch(raw, source=str(number)), 1) for number, raw in enumerate(raws)]
    return {(one.patch, one.other) for one in find_edits(patches)}


BASE = lines(40)


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("first", "second", "needs"),
    [
        ((("line 20\n", "twenty\n"),), (("twenty\n", "20\n"),), True),
        ((("line 20\n", "twenty\n"),), (("line 22\n", "22\n"),), True),
        ((("line 20\n", "twenty\n"),), (("line 24\n", "24\n"),), False),
        ((("line 20\n", "twenty\n"),), (("line 9\n", "9\n"),), False),
        ((("line 20\n", "line 20\nnew\n"),), (("new\n", "new\nnewer\n"),), True),
        ((("line 20\n", "line 20\nnew\n"),), (("line 21\n", "line 21\nnewer\n"),), True),
        ((("line 20\n", ""),), (("line 21\n", "21\n"),), True),
        ((("line 20\n", ""),), (("line 19\nline 21\n", "line 19\nnew\nline 21\n"),), True),
        ((("line 20\n", ""),), (("line 30\n", "30\n"),), False),
        ((("line 5\n", "a\nb\nc\n"), ("line 30\n", "thirty\n")), (("thirty\n", "30\n"),), True),
        ((("line 5\n", "a\nb\nc\n"), ("line 30\n", "thirty\n")), (("line 20\n", "20\n"),), False),
    ],
)
def test_a_patch_needs_another_whose_lines_it_edits_or_stands_beside(
    first: tuple[tuple[str, str], ...], second: tuple[tuple[str, str], ...], needs: bool
) -> None:
    one = changed(BASE, *first)
    two = changed(one, *second)
    assert edits({"f": BASE}, {"f": one}, {"f": two}) == ({(1, 0)} if needs else set())


def test_lines_are_followed_through_patches_between() -> None:
    one = changed(BASE, ("line 30\n", "thirty\n"))
    two = changed(one, ("line 3\n", "a\nb\nc\nd\n"))
    three = changed(two, ("line 12\nline 13\n", ""))
    assert edits({"f": BASE}, {"f": one}, {"f": two}, {"f": three}, {"f": changed(three, ("thirty\n", "30\n"))}) == {
        (3, 0)
    }


def test_touching_insertions_count_without_context() -> None:
    first = b"--- a/f\n+++ b/f\n@@ -20,0 +21 @@\n+new\n"
    for second, needs in ((b"@@ -21,0 +22 @@\n", True), (b"@@ -20,0 +21 @@\n", True), (b"@@ -23,0 +24 @@\n", False)):
        raws = (first, b"--- a/f\n+++ b/f\n" + second + b"+newer\n")
        patches = [(parse_patch(raw, source="x"), 1) for raw in raws]
        assert bool(list(find_edits(patches))) is needs


def test_a_file_that_a_patch_makes_is_wholly_its_own() -> None:
    made = {"f": BASE, "g": lines(9)}
    assert edits({"f": BASE}, made, {**made, "g": changed(lines(9), ("line 9\n", "9\n"))}) == {(1, 0)}
    assert edits({"f": BASE}, made, {"f": BASE}) == {(1, 0)}
    assert edits({"f": BASE}, made, {**made, "f": changed(BASE, ("line 9\n", "9\n"))}) == set()


def test_lines_in_the_context_are_told_from_lines_that_are_edited() -> None:
    one = changed(BASE, ("line 20\n", "twenty\n"), ("line 30\n", "thirty\n"))
    near = changed(one, ("line 22\n", "22\n"))
    for second, context, line in ((near, b"twenty", 7), (changed(near, ("thirty\n", "30\n")), None, 14)):
        raws = diff({"f": BASE}, {"f": one}), diff({"f": one}, {"f": second})
        (edit,) = find_edits([(parse_patch(raw, source="x"), 1) for raw in raws])
        assert (edit.context, edit.line_number) == (context, line)
