"""Decimal numbers: which comments declare one, and which texts are one."""

from __future__ import annotations

import pytest

from patchkit.config.decimals import parse_mark
from patchkit.errors import SeriesError
from tests.config.test_kconfig import load
from tests.config.test_symbols import explained, faults, resolved

MARKED = """\
config ON
	bool "On"
config TEXT
	string "Factor"
	depends on ON
	default "1.0"
	# patchkit: decimal > 0 <= 8
	help
		# patchkit: this is help
"""


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        ("decimal", "0 -1 0.5 12 1e-3 2.5E+3 007", "abc 1. .5 1,5 nan inf 1e999 1_0 0x1f +1 1e 1e400 ٣"),
        ("decimal > 0", "0.001 1e-3", "0 -0.5 0.0 1e-999"),
        ("decimal >= 0.5 < 8", "0.5 7.99", "0.49 8 8.0"),
        ("decimal<=-1", "-1 -2", "0 -0.99"),
    ],
)
def test_a_text_is_such_a_number_or_not(declared: str, good: str, bad: str) -> None:
    decimal = parse_mark(f"	# patchkit: {declared}")
    assert decimal is not None
    assert [text for text in (*good.split(), *bad.split(), "", "1 ", "1\n") if decimal.takes(text)] == good.split()


def test_what_is_expected_is_said_with_an_example_that_is_one() -> None:
    marks = [parse_mark(f"# patchkit: decimal {bounds}") for bounds in ("> 0", "> 1 <= 2", "< 0", "> 9")]
    assert [mark.words for mark in marks if mark is not None] == [
        "a decimal number > 0, as in 0.5",
        "a decimal number > 1 and <= 2, as in 1.5",
        "a decimal number < 0, as in -0.5",
        "a decimal number > 9",
    ]


def test_a_setting_that_is_no_such_number_is_a_fault_with_its_place() -> None:
    assert faults(resolved("CONFIG_ON=y", file='CONFIG_TEXT="8"\n', kconfig=MARKED)) == []
    wrong = resolved("CONFIG_ON=y", file='CONFIG_TEXT="8.5"\n', kconfig=MARKED)
    assert faults(wrong) == [("try.config:1", 'CONFIG_TEXT="8.5": not a value of this symbol')]
    assert wrong.faults[0].why == "vllm/Kconfig:3: expected a decimal number > 0 and <= 8, as in 0.5"
    bare = resolved("CONFIG_ON=y", file="CONFIG_TEXT=0.5\n", kconfig=MARKED)
    assert "double quotes" in bare.faults[0].why
    off = resolved("CONFIG_TEXT=abc", kconfig=MARKED)
    assert "not a value" in off.faults[0].what, "it is told before the toggle is on"


def test_why_says_which_number_is_wanted() -> None:
    found = explained("TEXT", "CONFIG_ON=y", kconfig=MARKED)
    assert found.to_fill == "a decimal number > 0 and <= 8, as in 0.5"


@pytest.mark.parametrize(
    ("old", "new", "place", "what"),
    [
        ("decimal > 0", "decimals > 0", 7, "is not understood"),
        ("decimal > 0 <= 8", "decimal > 0 or 8", 7, "is not understood"),
        ("\t# patchkit: decimal", "# patchkit: decimal", 7, "belongs to no symbol"),
        ("config ON", "\t# patchkit: decimal\nconfig ON", 1, "belongs to no symbol"),
        ("\thelp", "\t# patchkit: decimal\n\thelp", 8, "belongs to no symbol"),
        ("config TEXT\n", 'menu "M"\n\t# patchkit: decimal\nendmenu\nconfig TEXT\n', 4, "belongs to no symbol"),
    ],
)
def test_a_comment_that_means_nothing_is_refused_with_its_line(old: str, new: str, place: int, what: str) -> None:
    with pytest.raises(SeriesError) as refused:
        load(MARKED.replace(old, new))
    assert refused.value.what.startswith(f"vllm/Kconfig:{place}: the comment for patchkit {what}")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('string "Factor"', 'int "Factor"', "TEXT is no string"),
        ('default "1.0"', 'default "one"', "TEXT: its default 'one' is not a decimal number > 0 and <= 8"),
        ('default "1.0"', 'default "9.0" if ON', "TEXT: its default '9.0' is not a decimal number"),
    ],
)
def test_a_comment_that_its_symbol_denies_is_a_fault(old: str, new: str, what: str) -> None:
    found = [fault for fault in load(MARKED.replace(old, new)).faults if fault.place == "vllm/Kconfig:7"]
    assert [fault.what.startswith(what) for fault in found] == [True]


def test_a_comment_behind_another_file_is_not_for_its_symbol() -> None:
    with pytest.raises(SeriesError) as refused:
        load('source "Kconfig.more"\n\t# patchkit: decimal\n', **{"Kconfig.more": MARKED})
    assert refused.value.what == "vllm/Kconfig:2: the comment for patchkit belongs to no symbol"


def test_other_comments_are_comments() -> None:
    menu = load(MARKED.replace("# patchkit: decimal > 0 <= 8", "# of patchkit, not for it"))
    assert (menu.decimals, menu.faults) == ({}, ())
