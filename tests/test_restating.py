"""Patches of a series stated for a tree without some of them: by line numbers, and in guards without their context."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.diff.apply import apply_placements
from patchkit.diff.image import split_lines
from patchkit.diff.locate import Evidence, place_hunks
from patchkit.diff.model import Patch, Verdict
from patchkit.diff.parse import parse_patch
from patchkit.restating import Stacked, restate_patches
from tests.making import diff, lines

BASE = lines(40)


def cut(*texts: str) -> list[Patch]:
    raws = [diff({"f": before}, {"f": after}) for before, after in pairwise(texts)]
    return [parse_patch(raw, source=str(number)) for number, raw in enumerate(raws)]


def restated(patches: list[Patch], there: list[bool], *, guard: bool = True) -> list[Patch]:
    stack = [
        Stacked(patch=patch, paths=(("f", "f"),) * len(patch.files), there=is_there, guard=guard)
        for patch, is_there in zip(patches, there, strict=True)
    ]
    return [patch for patch, is_there in zip(restate_patches(stack), there, strict=True) if is_there]


def placed(patches: list[Patch], text: str) -> str | None:
    """Return what patches make of a text where every hunk stands exactly where it says, None where one does not."""
    content = text.encode()
    for patch in patches:
        for file in patch.files:
            found = place_hunks(
                file,
                split_lines(content),
                Evidence(base=None, proven=True, python=False, strict=True, crlf=patch.crlf),
            )
            if any(one.verdict is not Verdict.EXACT for one in found):
                return None
            content = apply_placements(file, split_lines(content), found)
    return content.decode()


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


OFF_AND_ON = {
    "a replaced line above": ((("line 20\n", "twenty\n"),), (("line 22\n", "22\n"),)),
    "more lines than there were": ((("line 20\n", "a\nb\nc\nd\n"),), (("line 22\n", "22\n"),)),
    "fewer lines than there were": ((("line 18\nline 19\nline 20\n", "x\n"),), (("line 22\n", "22\n"),)),
    "lines taken away": ((("line 20\n", ""),), (("line 22\n", "22\n"),)),
    "lines put in": ((("line 20\n", "line 20\nnew\n"),), (("line 22\n", "22\n"),)),
    "below": ((("line 24\n", "twenty four\n"),), (("line 22\n", "22\n"),)),
    "above and below": (
        (("line 20\n", "a\nb\n"), ("line 24\n", "")),
        (("line 22\n", "line 22\nmore\n"),),
    ),
    "between two changes": ((("line 22\n", "a\nb\n"),), (("line 20\n", "20\n"), ("line 24\n", "24\n"))),
    "the first lines": ((("line 1\n", "a\nb\n"),), (("line 3\n", "3\n"),)),
    "the last lines": ((("line 40\n", "a\nb\n"),), (("line 38\n", ""),)),
}


@pytest.mark.parametrize(("first", "second"), OFF_AND_ON.values(), ids=OFF_AND_ON)
def test_context_of_a_guard_patch_gives_way_to_what_stands_there_without_it(
    first: tuple[tuple[str, str], ...], second: tuple[tuple[str, str], ...]
) -> None:
    one = changed(BASE, *first)
    patches = cut(BASE, one, changed(one, *second))
    assert placed(restated(patches, [False, True]), BASE) == changed(BASE, *second)
    assert placed(restated(patches, [False, True], guard=False), BASE) is None, "select asks for the context"
    assert restated(patches, [True, True]) == patches


TOUCHING = {
    "edited": ((("line 20\n", "twenty\n"),), (("twenty\n", "20\n"),)),
    "inserted behind": ((("line 20\n", "twenty\n"),), (("twenty\n", "twenty\nmore\n"),)),
    "replaced below": ((("line 20\n", "twenty\n"),), (("line 21\n", "21\n"),)),
    "put where lines were taken away": ((("line 20\n", ""),), (("line 19\nline 21\n", "line 19\nnew\nline 21\n"),)),
}


@pytest.mark.parametrize(("first", "second"), TOUCHING.values(), ids=TOUCHING)
def test_what_edits_lines_of_a_patch_or_touches_them_has_no_place_without_it(
    first: tuple[tuple[str, str], ...], second: tuple[tuple[str, str], ...]
) -> None:
    one = changed(BASE, *first)
    patches = cut(BASE, one, changed(one, *second))
    assert placed(restated(patches, [False, True]), BASE) is None


def test_repeated_lines_do_not_tempt_a_hunk_to_where_it_stood_beside_the_other() -> None:
    repeated = "".join(lines(8) for _ in range(5))
    one = lines(8, name="other") + repeated
    second = one.splitlines(keepends=True)
    second[27] = "changed\n"
    wanted = repeated.splitlines(keepends=True)
    wanted[19] = "changed\n"
    for guard in (True, False):
        patches = restated(cut(repeated, one, "".join(second)), [False, True], guard=guard)
        assert placed(patches, repeated) == "".join(wanted)


def test_context_that_is_not_what_the_other_patch_makes_is_left_alone() -> None:
    one = changed(BASE, ("line 20\n", "twenty\n"))
    patches = cut(BASE, one, changed(one, ("line 22\n", "22\n")))
    other = cut(BASE, changed(BASE, ("line 20\n", "20, otherwise\n")))[0]
    assert placed(restated([other, patches[1]], [False, True]), BASE) is None


def hunk(text: str) -> Patch:
    return parse_patch(f"--- a/f\n+++ b/f\n{text}".encode(), source="hunk")


BETWEEN = {
    "lines of a patch that is left out": ("@@ -20,0 +21,3 @@\n+a\n+b\n+c\n", "@@ -21,0 +22 @@\n+x\n"),
    "what such a patch took out": ("@@ -20,2 +19,0 @@\n-line 20\n-line 21\n", "@@ -19,0 +20 @@\n+x\n"),
    "what such a patch replaced": ("@@ -20,2 +20 @@\n-line 20\n-line 21\n+twenty\n", "@@ -20,0 +21 @@\n+x\n"),
}


@pytest.mark.parametrize(("first", "second"), BETWEEN.values(), ids=BETWEEN)
def test_insertion_without_context_has_no_place_beside(first: str, second: str) -> None:
    patches = [hunk(first), hunk(second)]
    assert placed(patches, BASE) is not None
    for guard in (True, False):
        assert placed(restated(patches, [False, True], guard=guard), BASE) is None


def test_repeated_lines_do_not_tempt_a_hunk_that_was_cut_on_lines_of_a_patch_left_out() -> None:
    repeated = lines(9) + "same\n" * 9
    one = hunk("@@ -12 +12,3 @@\n-same\n+a\n+same\n+b\n")
    two = hunk("@@ -13 +13 @@\n-same\n+changed\n")
    assert placed([one, two], repeated) is not None
    assert placed(restated([one, two], [False, True]), repeated) is None


def test_behind_a_change_beside_a_patch_that_is_left_out_nothing_is_known() -> None:
    patches = [hunk("@@ -20,0 +21,3 @@\n+a\n+b\n+c\n"), hunk("@@ -24 +24 @@\n-line 21\n+21\n")]
    patches.append(hunk("@@ -30,0 +31 @@\n+x\n"))
    assert placed(patches, BASE) is not None
    assert placed(restated(patches, [False, True, True]), BASE) is None


def test_lines_that_one_patch_makes_and_another_takes_back_are_not_there() -> None:
    one = changed(BASE, ("line 20\n", "twenty\n"))
    patches = cut(BASE, one, BASE, changed(BASE, ("line 22\n", "22\n")))
    assert placed(restated(patches, [False, False, True], guard=False), BASE) == changed(BASE, ("line 22\n", "22\n"))


def test_lines_of_a_patch_that_is_left_out_are_followed_into_a_renamed_file() -> None:
    one = hunk("@@ -2,0 +3,3 @@\n+a\n+b\n+c\n")
    renamed = parse_patch(b"diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", source="renamed")
    stack = [
        Stacked(patch=one, paths=(("f", "f"),), there=False, guard=False),
        Stacked(patch=renamed, paths=(("f", "g"),), there=True, guard=False),
        Stacked(patch=hunk("@@ -33 +33 @@\n-line 30\n+30\n"), paths=(("g", "g"),), there=True, guard=False),
    ]
    assert placed(list(restate_patches(stack)[2:]), BASE) == changed(BASE, ("line 30\n", "30\n"))


def test_of_a_file_that_a_patch_brings_or_moves_nothing_is_known() -> None:
    made = parse_patch(diff({}, {"f": BASE}), source="made")
    later = cut(BASE, changed(BASE, ("line 20\n", "twenty\n")))[0]
    stack = [
        Stacked(patch=made, paths=(("", "f"),), there=False, guard=True),
        Stacked(patch=later, paths=(("f", "f"),), there=True, guard=True),
    ]
    assert placed([later], BASE) is not None
    assert placed([restate_patches(stack)[1]], BASE) is None
    renaming = b"diff --git a/e b/f\nsimilarity index 100%\nrename from e\nrename to f\n"
    renamed = parse_patch(renaming, source="renamed")
    stack = [
        Stacked(patch=renamed, paths=(("e", "f"),), there=False, guard=True),
        Stacked(patch=later, paths=(("f", "f"),), there=True, guard=True),
    ]
    assert placed([restate_patches(stack)[1]], BASE) is None


def test_file_that_comes_behind_one_that_went_is_taken_as_it_is_cut() -> None:
    gone = parse_patch(diff({"e": "e\n"}, {}), source="gone")
    made = parse_patch(diff({}, {"f": BASE}), source="made")
    stack = [
        Stacked(patch=gone, paths=(("e", ""),), there=False, guard=False),
        Stacked(patch=made, paths=(("", "f"),), there=True, guard=False),
    ]
    assert restate_patches(stack)[1] == made


@st.composite
def stacks(draw: st.DrawFn) -> tuple[list[list[tuple[int, int, str]]], list[bool]]:
    """Draw states of a file, each line with who made it and a name of its own, and which patches are there."""
    state = [(0, number, f"line {number}\n") for number in range(draw(st.integers(6, 40)))]
    states = [state]
    for patch in range(1, draw(st.integers(2, 4)) + 1):
        state = list(states[-1])
        for change in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(state)))
            gone = draw(st.integers(0, 2))
            text = [(patch, change, f"{patch}.{change}.{n}\n") for n in range(draw(st.integers(0, 3)))]
            state[at : at + gone] = text
        states.append(state)
    return states, [draw(st.booleans()) for _ in states[1:]]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(stacks())
def test_patches_find_the_place_that_their_lines_have_without_the_others_or_none(
    drawn: tuple[list[list[tuple[int, int, str]]], list[bool]],
) -> None:
    from patchkit.config.guard_replay import record_changes

    states, there = drawn
    texts = ["".join(text for *_, text in state) for state in states]
    if any(one == other for one, other in pairwise(texts)) or "" in texts:
        return
    made = placed(restated(cut(*texts), there), texts[0])
    steps = [(str(number), split_lines(text.encode())) for number, text in enumerate(texts[1:])]
    replayed = record_changes(split_lines(texts[0].encode()), steps).lines(
        frozenset(str(number) for number, is_there in enumerate(there) if is_there)
    )
    assert made is None or (replayed is not None and made.encode() == b"".join(replayed))
    if all(there):
        assert made == texts[-1]
