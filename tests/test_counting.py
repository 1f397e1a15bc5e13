from __future__ import annotations

import pytest

from patchkit.counting import counted, counted_of


@pytest.mark.parametrize(("number", "words"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_noun_stands_in_the_plural_beside_all_but_one(number: int, words: str) -> None:
    assert counted(number, "file") == words


@pytest.mark.parametrize(("number", "words"), [(0, "0 patches do"), (1, "1 patch does"), (11, "11 patches do")])
def test_what_has_no_plural_in_s_gives_its_own(number: int, words: str) -> None:
    assert counted(number, "patch does", "patches do") == words


@pytest.mark.parametrize(
    ("number", "whole", "words"),
    [(1, 1, "1 of 1 file differs"), (1, 3, "1 of 3 files differs"), (2, 3, "2 of 3 files differ")],
)
def test_verb_follows_the_part_and_the_noun_the_whole(number: int, whole: int, words: str) -> None:
    assert counted_of(number, whole, "file", "differs", "differ") == words


def test_part_of_a_whole_needs_no_verb() -> None:
    assert counted_of(1, 2, "hunk") == "1 of 2 hunks"
