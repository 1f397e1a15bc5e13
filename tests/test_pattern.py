"""A pattern that is compiled at its first use behaves as one that was compiled at once."""

from __future__ import annotations

import re

import pytest

from patchkit.pattern import compile_lazily


def test_methods_and_attributes_are_those_of_the_compiled_pattern() -> None:
    lazy = compile_lazily(r"(a+)(b)?", re.IGNORECASE)
    found = lazy.fullmatch("AAb")
    assert found is not None
    assert found.groups() == ("AA", "b")
    assert lazy.sub("x", "caab") == "cx"
    assert [found.group() for found in lazy.finditer("ab aa")] == ["ab", "aa"]
    assert lazy.pattern == r"(a+)(b)?"
    assert lazy.search("c") is None
    assert compile_lazily(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_malformed_pattern_is_found_at_its_first_use() -> None:
    lazy = compile_lazily("(")
    with pytest.raises(re.error, match="missing"):
        lazy.match("x")
