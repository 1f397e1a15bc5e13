"""Changes held in memory over a tree: what is seen through them, and what they hide."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from patchkit.errors import RefusedError, UnsafePathError
from patchkit.overlay import KeptEntries, Overlay, PristineEntries
from patchkit.tree import TreeEntry
from tests.making import DictTree, entries_of, file, link

BELOW = DictTree(entries_of({"a": "a\n", "d/x": "x\n", "d/y": "y\n"}))


class Counting(dict[PurePosixPath, TreeEntry]):
    """A tree that counts how often it is asked."""

    asked = 0

    def get(self, *arguments: Any) -> Any:
        self.asked += 1
        return super().get(*arguments)


def test_tree_is_read_once_per_path() -> None:
    below = Counting(entries_of({"a": "1\n"}))
    kept = KeptEntries(below)
    assert kept.get(PurePosixPath("a")) == file("1\n")
    below[PurePosixPath("a")] = file("2\n")
    assert kept[PurePosixPath("a")] == file("1\n")
    assert kept.get(PurePosixPath("gone")) is None
    below[PurePosixPath("gone")] = file("there now\n")
    assert kept.get(PurePosixPath("gone")) is None
    assert below.asked == 2
    assert len(kept) == 2


def test_pristine_is_the_copy_where_there_is_one() -> None:
    copies = {PurePosixPath("a"): file("was\n"), PurePosixPath("d/x"): None}
    pristine = PristineEntries(BELOW, copies)
    assert pristine[PurePosixPath("a")] == file("was\n")
    assert pristine.get(PurePosixPath("d/x")) is None
    assert pristine[PurePosixPath("d/y")] == file("y\n")
    assert {str(path) for path in pristine} == {"a", "d/y"}
    assert len(pristine) == 2


def test_change_hides_what_lies_below() -> None:
    overlay = Overlay(BELOW)
    overlay.put("a", file("new\n"))
    overlay.put("d/x", None)
    assert overlay.lookup("a") == file("new\n")
    assert overlay.lookup("d/x") is None
    assert overlay.lookup("d/y") == file("y\n")
    assert list(overlay.changes()) == [("a", file("new\n")), ("d/x", None)]
    assert overlay.changed("a")
    assert not overlay.changed("d/y")


def test_overlay_over_an_overlay_is_taken_over_by_it() -> None:
    lower = Overlay(BELOW)
    lower.put("a", file("low\n"))
    upper = Overlay(lower)
    upper.put("a", file("high\n"))
    assert lower.lookup("a") == file("low\n")
    lower.merge(upper)
    assert lower.lookup("a") == file("high\n")


def test_nothing_is_below_a_file_that_came_or_went() -> None:
    overlay = Overlay(BELOW)
    overlay.put("d", file("a file now\n"))
    assert overlay.lookup("d/x") is None
    overlay.put("gone", None)
    assert overlay.lookup("gone/x") is None


def test_nothing_is_looked_up_below_a_link_that_came() -> None:
    overlay = Overlay(BELOW)
    overlay.put("d", link("/etc"))
    with pytest.raises(UnsafePathError, match="symlink"):
        overlay.lookup("d/passwd")
    with pytest.raises(UnsafePathError, match="symlink"):
        overlay.check_parents("d/passwd")


def test_parent_must_be_a_directory_or_make_room() -> None:
    overlay = Overlay(BELOW)
    overlay.check_parents("d/new")
    overlay.check_parents("new/deep/x")
    with pytest.raises(RefusedError, match="in the way"):
        overlay.check_parents("a/x")
    overlay.check_parents("a/x", leaving={"a"})
    overlay.put("a", link("d"))
    with pytest.raises(UnsafePathError, match="symlink"):
        overlay.check_parents("a/x", leaving={"a"})


@pytest.mark.parametrize("leads_to", ["", "a\0b", "a" * 4096], ids=["nowhere", "a NUL byte", "too long"])
def test_link_that_no_system_makes_is_refused(leads_to: str) -> None:
    overlay = Overlay(BELOW)
    overlay.put("fine", link("a" * 4095))
    with pytest.raises(RefusedError, match="l: a symlink cannot lead there"):
        overlay.put("l", link(leads_to))
    assert not overlay.changed("l")
