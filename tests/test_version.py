from __future__ import annotations

import pytest

from patchkit.version import read_public, read_version, set_has

DIGITS = "9" * 5000  # Python makes no int of them, and packaging passes its ValueError on


@pytest.mark.parametrize(("text", "public"), [("0.6.3", "0.6.3"), ("v0.6.3.POST1+cpu", "0.6.3.post1"), ("1!2", "1!2")])
def test_version_is_read_with_and_without_its_local_part(text: str, public: str) -> None:
    assert str(read_version(text)) == public + ("+cpu" if "+" in text else "")
    assert str(read_public(text)) == public


@pytest.mark.parametrize("text", ["", "dev", "0.6.3-x", DIGITS, f"0.6+{DIGITS}", f"0.6rc{DIGITS}"])
def test_what_is_no_version_is_none(text: str) -> None:
    assert read_version(text) is None
    assert read_public(text) is None
    assert set_has(">=0", text) is None


def test_set_has_a_version_that_is_a_pre_release_too() -> None:
    assert set_has(">=0.6,<0.7", "0.6.3rc1")
    assert set_has("", "0.6.3+cpu")
    assert set_has("<0.6", "0.6.3") is False


@pytest.mark.parametrize("specifier", ["newest", "=0.6", f">={DIGITS}", f"!={DIGITS}.*"])
def test_what_is_no_set_is_neither_yes_nor_no(specifier: str) -> None:
    assert set_has(specifier, "0.6.3") is None
