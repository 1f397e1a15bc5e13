"""Lints of toggles: gates, names in code, unused symbols, patches that edit lines of others, combinations."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.cli.main import run
from tests.blackbox.wheels import engine, wheel_tree, write_tree
from tests.making import diff, header, lines

FILES = {**{path: content.decode() for path, content in engine().items()}, "vllm/a.py": lines(30)}
ONE = {**FILES, "vllm/a.py": FILES["vllm/a.py"].replace("line 10\n", "ten\n")}
TWO = {**ONE, "vllm/a.py": ONE["vllm/a.py"].replace("line 11\n", "eleven = CONFIG_VALUE\n")}
KCONFIG = """\
config ONE
	bool "One"
config TWO
	bool "Two"
	depends on ONE
config VALUE
	int "Value"
	default 3
	depends on TWO
"""


class Shelf:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.directory = place / "own" / "vllm" / "0.6.3"
        self.directory.mkdir(parents=True)
        self.kconfig(KCONFIG)
        self.patches(one=header("one", Config="ONE") + diff(FILES, ONE), two=header("two", Config="TWO") + TWO_DIFF)
        files = {name: text.encode() for name, text in FILES.items()}
        self.root = write_tree(place / "site", wheel_tree("vllm", "0.6.3", files))

    def kconfig(self, text: str) -> None:
        (self.directory.parent / "Kconfig").write_text(text)

    def patches(self, **texts: bytes) -> None:
        for name, text in texts.items():
            (self.directory / f"{name}.patch").write_bytes(text)
        (self.directory / "series").write_text("".join(f"{name}.patch\n" for name in texts))

    def lint(self, *more: str) -> int:
        return run(["series", "lint", str(self.place / "own"), *more])


TWO_DIFF = diff(ONE, TWO)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_sound_series_has_nothing_to_mend(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert shelf.lint("--root", str(shelf.root)) == 0
    said = capsys.readouterr().out
    assert "CONFIG" not in said


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("config ONE", "config OTHER", "one.patch", "`Config: ONE`: the Kconfig does not define ONE"),
        ("config VALUE", "config VALUES", "two.patch:", "CONFIG_VALUE is read, and no Kconfig defines it"),
        ('bool "One"', 'int "One"', "one.patch", "`Config: ONE`: a gate is a bool, ONE is a int"),
        ("depends on ONE", "depends on NONE", "Kconfig:5", "NONE is not defined in any Kconfig"),
        ("depends on ONE\n", "", "two.patch:12", "edits lines of one.patch in vllm/a.py, which CONFIG_ONE"),
        ("default 3", "default ONE", "Kconfig:6", "the int symbol VALUE"),
        ("\tdefault 3", "\t# patchkit: decimals", "Kconfig:8", "the comment for patchkit is not understood"),
        ("\tdefault 3", "\t# patchkit: decimal", "Kconfig:8", "VALUE is no string"),
        ("\tint", "\ttristate", "Kconfig:7", "`tristate` is refused"),
    ],
)
def test_what_is_wrong_is_found_with_its_place(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], old: str, new: str, place: str, said: str
) -> None:
    assert old in KCONFIG
    shelf.kconfig(KCONFIG.replace(old, new, 1))
    assert shelf.lint() == 1
    found = capsys.readouterr().out
    assert any(place in line and said in line for line in found.splitlines()), found


def test_a_symbol_that_does_nothing_is_a_warning(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.kconfig(KCONFIG + 'config IDLE\n\tbool "Idle"\n')
    assert shelf.lint() == 0
    assert "IDLE gates no patch, and nothing reads it" in capsys.readouterr().out


def test_a_symbol_of_another_version_is_used(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    later = shelf.directory.parent / "0.7.0"
    later.mkdir()
    (later / "x.patch").write_bytes(header("x", Config="LATER") + diff(FILES, ONE))
    (later / "series").write_text("x.patch\n")
    shelf.kconfig(KCONFIG + 'config LATER\n\tbool "Later"\n')
    assert shelf.lint() == 0
    assert "gates no patch" not in capsys.readouterr().out


def test_a_patch_that_is_always_applied_must_not_stand_on_a_gated_one(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.patches(one=header("one", Config="ONE") + diff(FILES, ONE), two=header("two") + TWO_DIFF)
    assert shelf.lint("--root", str(shelf.root)) == 1
    found = capsys.readouterr().out
    assert "gate it: `Config: ONE`" in found
    assert "with no toggle on alone" in found, "and the release shows it"


def test_a_select_is_as_good_as_a_dependency(shelf: Shelf) -> None:
    shelf.kconfig(KCONFIG.replace("depends on ONE", "select ONE"))
    assert shelf.lint("--root", str(shelf.root)) == 0


def test_names_with_a_meaning_of_their_own_are_left_alone(shelf: Shelf) -> None:
    for line in ("from transformers import CONFIG_MAPPING\n", "CONFIG_MAPPING = {}\n"):
        three = {**TWO, "vllm/a.py": TWO["vllm/a.py"].replace("line 29\n", line + "x = CONFIG_MAPPING\n")}
        (shelf.directory / "three.patch").write_bytes(header("three") + diff(TWO, three))
        (shelf.directory / "series").write_text("one.patch\ntwo.patch\nthree.patch\n")
        assert shelf.lint() == 0


def test_without_a_kconfig_requires_says_what_goes_along(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    (shelf.directory.parent / "Kconfig").unlink()
    plain = {**ONE, "vllm/a.py": ONE["vllm/a.py"].replace("line 11\n", "eleven\n")}
    two = diff(ONE, plain)
    shelf.patches(one=header("one", Config="ONE") + diff(FILES, ONE), two=header("two", Config="TWO") + two)
    assert shelf.lint() == 1
    assert "edits lines of one.patch" in capsys.readouterr().out
    with_requires = header("two", Config="TWO", Requires="one.patch") + two
    shelf.patches(one=header("one", Config="ONE") + diff(FILES, ONE), two=with_requires)
    assert shelf.lint() == 0


def test_a_symbol_may_stand_on_one_of_the_shipped_series(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.kconfig(KCONFIG.replace("depends on ONE", "depends on ONE && SCHED_TRACE"))
    assert shelf.lint("--root", str(shelf.root)) == 0
    shelf.kconfig(KCONFIG.replace("depends on ONE", "depends on ONE && SCHED_TRACES"))
    capsys.readouterr()
    assert shelf.lint() == 1
    said = capsys.readouterr()
    assert "SCHED_TRACES is not defined in any Kconfig" in said.out + said.err


def test_each_wrong_line_of_a_kconfig_is_a_finding(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.kconfig(KCONFIG.replace('bool "One"', 'tristate "One"') + "\trange 10 5\n\timply ONE\n")
    assert shelf.lint() == 1
    said = capsys.readouterr().out
    for place, what in ((2, "`tristate` is refused"), (10, "VALUE: its range is empty"), (11, "`imply` is refused")):
        assert f"Kconfig:{place}: error: {what}" in said
