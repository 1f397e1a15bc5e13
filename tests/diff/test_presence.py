"""When a hunk that only removes lines counts as applied already: its postimage is nothing but context."""

from __future__ import annotations

import pytest

from patchkit.diff.image import split_lines
from patchkit.diff.locate import Evidence, place_hunks
from patchkit.diff.model import Placement, Verdict
from patchkit.diff.parse import parse_patch

HEADER = b"--- a/f.py\n+++ b/f.py\n"


def place(hunks: bytes, content: bytes, base: bytes | None = None) -> tuple[Placement, ...]:
    (file,) = parse_patch(HEADER + hunks, source="x").files
    known = Evidence(base=base, proven=False, python=True, strict=False, crlf=False)
    return place_hunks(file, split_lines(content), known)


def only(hunk: bytes, content: bytes, base: bytes | None = None) -> Placement:
    (placed,) = place(hunk, content, base)
    return placed


def function(name: str, *lines: str) -> bytes:
    return "".join([f"def {name}():\n", *(f"    {line}\n" for line in lines)]).encode()


SHORT = b"@@ -2,3 +2,2 @@ one\n return x\n-foo()\n \n"
CHANGED = b"zero\none\nreturn x\nfoo(2)\n\ntwo\nthree\nfour\nother\nreturn x\n\nlast\n"

WIDE = b"@@ -2,7 +2,6 @@%s\n     a\n     b\n     c\n-    gone\n     d\n     e\n     f\n"
BASE = function("f", "a", "b", "c", "gone", "d", "e", "f", "g")
LEFT = BASE.replace(b"    gone\n", b"")


def test_context_that_stands_elsewhere_does_not_show_that_lines_were_removed() -> None:
    placed = only(SHORT, CHANGED)
    assert placed.verdict is Verdict.CONFLICT
    assert placed.reason == (
        "line 4: expected `foo()`, found `foo(2)`; 2 of 3 lines now at line 3; "
        "the context alone stands at line 10: nothing shows that the patch removed the lines"
    )


def test_a_removal_is_present_at_its_new_line() -> None:
    assert only(SHORT, b"one\nreturn x\n\ntwo\n").verdict is Verdict.PRESENT
    assert only(SHORT, b"one\nreturn x\n\ntwo\nreturn x\n\nend\n").line == 2


@pytest.mark.parametrize("added", [b"", b"+\n"], ids=["nothing", "a blank line"])
def test_a_blank_line_in_the_place_of_the_removed_ones_shows_nothing(added: bytes) -> None:
    hunk = b"@@ -2,3 +2,%d @@ one\n return x\n-foo()\n%s two\n" % (2 + len(added) // 2, added)
    blank = added[1:]
    assert only(hunk, b"one\nreturn x\n%stwo\n" % blank).verdict is Verdict.PRESENT
    assert only(hunk, b"one\nreturn x\nfoo(2)\ntwo\nreturn x\n%stwo\nend\n" % blank).verdict is Verdict.CONFLICT


def test_a_change_that_adds_a_line_is_present_wherever_it_stands_once() -> None:
    hunk = b"@@ -2,3 +2,3 @@ one\n return x\n-foo()\n+bar()\n \n"
    assert only(hunk, b"zero\none\n\nreturn x\nbar()\n\ntwo\n").verdict is Verdict.PRESENT


def test_a_removal_that_moved_needs_its_scope() -> None:
    moved = b"import os\n" + LEFT
    assert only(WIDE % b"", moved).verdict is Verdict.CONFLICT
    assert only(WIDE % b" def f():", moved).verdict is Verdict.PRESENT
    placed = only(WIDE % b"", moved, BASE)
    assert (placed.verdict, placed.line, placed.scope_after) == (Verdict.PRESENT, 3, "f")
    elsewhere = function("g", "pass") + LEFT.replace(b"def f", b"def h") + function("f", "pass")
    assert only(WIDE % b"", elsewhere, BASE).verdict is Verdict.CONFLICT


def test_a_removal_that_moved_needs_three_lines_of_context_or_the_edge_of_the_file() -> None:
    hunk = b"@@ -3,5 +3,4 @@ def f():\n     b\n     c\n-    gone\n     d\n     e\n"
    assert only(hunk, b"import os\n" + LEFT, BASE).verdict is Verdict.CONFLICT
    ending = b"@@ -2,5 +2,4 @@ def f():\n     a\n     b\n     c\n-    gone\n     d\n"
    base = function("f", "a", "b", "c", "gone", "d")
    left = b"import os\n" + base.replace(b"    gone\n", b"")
    assert only(ending, left, base).verdict is Verdict.PRESENT
    assert only(ending, left + b"    e\n", base).verdict is Verdict.CONFLICT


def test_context_that_stood_without_the_lines_in_the_base_shows_nothing() -> None:
    again = "a", "b", "c", "d", "e", "f"
    base = function("f", "a", "b", "c", "gone", "d", "e", "f", *again)
    content = function("f", "a", "b", "c", "gone2", "d", "e", "f", *again)
    placed = only(WIDE % b"", content, base)
    assert placed.verdict is Verdict.CONFLICT
    assert placed.reason.endswith("nothing shows that the patch removed the lines")


SECOND = b"@@ -11,3 +12,2 @@\n 11\n-12\n 13\n"
THIRD = b"@@ -20,3 +20,4 @@\n 20\n 21\n+newer\n 22\n"


def numbers(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


APPLIED = b"1\nnew\n" + numbers(2, 11) + numbers(13, 21) + b"newer\n" + numbers(22, 30)


def verdicts(hunks: bytes, content: bytes) -> list[Verdict]:
    return [placed.verdict for placed in place(hunks, content)]


def test_a_removal_is_present_where_its_neighbours_in_the_patch_moved_to() -> None:
    hunks = SECOND.replace(b"+12", b"+11") + THIRD.replace(b"+20", b"+19")
    moved = b"a\nb\n" + APPLIED
    assert verdicts(hunks, moved) == [Verdict.PRESENT, Verdict.PRESENT]
    assert verdicts(hunks, moved.replace(b"15\n", b"15\n15\n")) == [Verdict.CONFLICT, Verdict.PRESENT]
    assert verdicts(SECOND, moved) == [Verdict.CONFLICT]


def test_neighbours_that_moved_by_different_numbers_of_lines_show_nothing() -> None:
    hunks = b"@@ -2,2 +2,3 @@\n 2\n+new\n 3\n" + SECOND + THIRD
    moved = b"a\nb\n1\n2\nnew\n" + APPLIED[len(b"1\nnew\n2\n") :]
    assert verdicts(hunks, moved) == [Verdict.PRESENT] * 3
    torn = moved.replace(b"15\n", b"15\n15\n")
    assert verdicts(hunks, torn) == [Verdict.PRESENT, Verdict.CONFLICT, Verdict.PRESENT]


def test_the_neighbours_choose_among_several_places() -> None:
    hunks = SECOND.replace(b"+12", b"+11") + THIRD.replace(b"+20", b"+19")
    removal, _ = place(hunks, b"a\nb\n" + APPLIED + b"11\n13\n")
    assert (removal.verdict, removal.line) == (Verdict.PRESENT, 14)


def test_removals_do_not_vouch_for_each_other() -> None:
    other = b"@@ -20,3 +19,2 @@\n 20\n-21\n 22\n"
    content = b"a\nb\n" + APPLIED.replace(b"21\nnewer\n", b"")
    assert verdicts(SECOND + other, content) == [Verdict.CONFLICT, Verdict.CONFLICT]
