"""Requests on a Kconfig: what becomes of them, and that every one that does not become so is told, with its place."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from patchkit.config.configuration import KEPT, Resolution, Usage
from patchkit.config.dotconfig import Assignment, parse_dotconfig, parse_setting
from patchkit.config.kconfig import load_kconfig
from patchkit.config.selects import implies
from patchkit.config.symbols import resolve
from patchkit.config.why import Explanation, explain, words_of
from patchkit.config.written import render_dotconfig
from patchkit.record import replace
from tests.config.test_kconfig import source

KCONFIG = """\
config NEWER
	bool "Newer"
	depends on VLLM_VERSION >= 0.8.0
config BASE
	bool "Base"
	depends on NEWER
config DEEP
	bool "Deep"
	depends on BASE && !OTHER
config OTHER
	bool "Other"
config FORCING
	bool "Forcing"
	select NEWER
config NUMBER
	int "Number"
	range 1 10
	default 3
config MASK
	hex "Mask"
	default 1F
config TEXT
	string "Text"
	default "1.0"
config IDLE
	bool "Idle"
choice
	prompt "Which"
config FIRST
	bool "First"
config SECOND
	bool "Second"
endchoice
config HIDDEN
	bool
	default y
config SOUND
	bool "Sound"
	depends on NEWER
	select BASE
"""
USAGE = Usage(
    gates={"DEEP": ("0001.patch",), "FORCING": ("0002.patch",), "OTHER": ("0003.patch",)},
    read=frozenset({"NUMBER", "MASK", "TEXT", "FIRST", "HIDDEN", "SOUND"}),
    rebuild=frozenset(),
)


def asked(*settings: str, file: str = "") -> list[Assignment]:
    return [*parse_dotconfig(file, "try.config").assignments, *map(parse_setting, settings)]


def resolved(*settings: str, file: str = "", version: str = "0.10.2", kconfig: str = KCONFIG) -> Resolution:
    menu = load_kconfig([source({"Kconfig": kconfig})], engine="vllm", version=version)
    return resolve(menu, asked(*settings, file=file), USAGE)


def values(resolution: Resolution) -> Mapping[str, str]:
    return {value.symbol: value.text for value in resolution.configuration.values}


def faults(resolution: Resolution) -> list[tuple[str, str]]:
    return [(fault.place, fault.what) for fault in resolution.faults]


SOUND_KCONFIG = KCONFIG.replace("\tselect NEWER\n", "\tselect NEWER\n\tdepends on VLLM_VERSION >= 0.8.0\n")


def test_what_is_asked_for_becomes_so_or_is_a_fault() -> None:
    resolution = resolved(
        "CONFIG_FORCING=y", "CONFIG_BASE=y", "CONFIG_DEEP=y", "CONFIG_NUMBER=7", "CONFIG_SECOND=y", "CONFIG_TEXT=0.5",
        kconfig=SOUND_KCONFIG,
    )  # fmt: skip
    assert faults(resolution) == []
    assert values(resolution) == {
        "BASE": "y", "DEEP": "y", "FIRST": "n", "FORCING": "y", "HIDDEN": "y", "IDLE": "n", "MASK": "0x1f",
        "NEWER": "y", "NUMBER": "7", "OTHER": "n", "SECOND": "y", "SOUND": "n", "TEXT": "0.5",
    }  # fmt: skip
    origins = dict(zip(values(resolution), resolution.configuration.origins, strict=True))
    assert origins["NUMBER"] == "--set"
    assert origins["NEWER"] == "selected by FORCING"
    assert origins["MASK"] == "default"


def test_every_kind_of_fault_is_told_in_one_run() -> None:
    file = (
        "CONFIG_DEEP=y\nCONFIG_FORCING=y\nCONFIG_NOSUCH=y\nCONFIG_NUMBER=99\n# CONFIG_OTHER is not set\n"
        'CONFIG_OTHER=y\nCONFIG_IDLE=y\nCONFIG_TEXT=3\nCONFIG_FIRST="y"\nCONFIG_HIDDEN=n\nCONFIG_VLLM=y\n'
    )
    resolution = resolved(file=file, version="0.6.3")
    assert {place: what.split(" ")[0] for place, what in faults(resolution)} == {
        "try.config:1": "CONFIG_DEEP=y",
        "try.config:2": "FORCING",
        "try.config:3": "CONFIG_NOSUCH=y:",
        "try.config:4": "CONFIG_NUMBER=99",
        "try.config:6": "CONFIG_OTHER",
        "try.config:7": "CONFIG_IDLE=y",
        "try.config:8": "CONFIG_TEXT=3:",
        "try.config:9": 'CONFIG_FIRST="y":',
        "try.config:10": "CONFIG_HIDDEN=n",
        "try.config:11": "CONFIG_VLLM=y:",
    }
    why = {fault.place: fault.why for fault in resolution.faults}
    assert "depends on BASE, which is n (BASE=n)" in why["try.config:1"]
    assert "depends on !OTHER, which is n (OTHER=y)" in why["try.config:1"]
    assert "NEWER depends on VLLM_VERSION >= 0.8.0" in why["try.config:2"]
    assert "VLLM_VERSION=0.6.3" in why["try.config:2"]
    assert why["try.config:4"] == "range is 1 to 10"
    assert "try.config:5 says CONFIG_OTHER=n" in why["try.config:6"]


def test_a_number_that_is_none_is_a_fault_and_no_value() -> None:
    resolution = resolved(kconfig='config N\n\tint "N"\n\tdefault "x"\nconfig H\n\thex "H"\n\tdefault "1.0"\n')
    assert values(resolution) == {"H": "", "N": ""}
    assert len(resolution.faults) == 2


def test_a_range_that_symbols_make_empty_is_a_fault() -> None:
    bounds = 'config LOW\n\tint "Low"\nconfig N\n\tint "N"\n\trange LOW 10\n'
    assert not [one for one in resolved("CONFIG_LOW=10", kconfig=bounds).faults if "range" in one.what]
    found = resolved("CONFIG_LOW=11", kconfig=bounds).faults
    assert [(one.place, one.what, one.why) for one in found if "range" in one.what] == [
        ("vllm/Kconfig:3", "N: its range is empty", "it begins at LOW, which is 11, and ends at 10")
    ]


def test_a_select_is_sound_when_the_dependencies_follow() -> None:
    assert faults(resolved(kconfig=SOUND_KCONFIG)) == []
    unsound = resolved()
    assert faults(unsound) == [
        ("vllm/Kconfig:12", "FORCING selects NEWER, whose dependencies do not follow"),
    ]


@pytest.mark.parametrize(
    ("selecting", "sound"),
    [
        ("select BASE", False),
        ("depends on NEWER\n\tselect BASE", True),
        ("depends on NEWER && OTHER\n\tselect BASE", True),
        ("depends on NEWER || OTHER\n\tselect BASE", False),
        ("select BASE if NEWER", True),
        ("depends on BASE\n\tselect DEEP", False),
        ("depends on BASE && !OTHER\n\tselect DEEP", True),
        ("depends on !OTHER\n\tselect DEEP if BASE", True),
        ("depends on !(OTHER || !BASE)\n\tselect DEEP", True),
        ("depends on VLLM_VERSION >= 0.8.0\n\tselect NEWER\n\tselect BASE", True),
        ("select BASE\n\tdepends on VLLM && NEWER", True),
    ],
)
def test_selects_are_judged_by_what_follows(selecting: str, sound: bool) -> None:
    text = SOUND_KCONFIG + f'config NEW\n\tbool "New"\n\t{selecting}\n'
    assert (faults(resolved(kconfig=text)) == []) is sound


@pytest.mark.parametrize("length", [2, 4, 12, 40])
def test_what_follows_over_many_steps_follows(length: int) -> None:
    chain = [f'config T{number}\n\tbool "T{number}"\n' for number in range(length)]
    chain[1:] = [f"{text}\tdepends on T{number}\n" for number, text in enumerate(chain[1:])]
    menu = load_kconfig([source({"Kconfig": "".join(chain)})], engine="vllm", version="0.10.2")
    first, last = (menu.kconf.syms[f"T{number}"] for number in (0, length - 1))
    assert implies(last, first)
    assert not implies(first, last)


def test_a_number_without_a_value_has_no_line() -> None:
    menu = load_kconfig([source({"Kconfig": 'config H\n\thex "H"\nconfig N\n\tint "N"\n'})], engine="vllm", version="1")
    written = render_dotconfig(menu)
    assert b"CONFIG_" not in written
    assert parse_dotconfig(written.decode(), "written").assignments == ()


def test_a_value_that_is_the_default_needs_no_effect() -> None:
    assert faults(resolved(file="# CONFIG_IDLE is not set\n", kconfig=SOUND_KCONFIG)) == []
    assert len(faults(resolved(file="CONFIG_IDLE=y\n", kconfig=SOUND_KCONFIG))) == 1


def test_settings_from_before_give_way_and_are_dropped_when_they_mean_nothing() -> None:
    menu = load_kconfig([source({"Kconfig": SOUND_KCONFIG})], engine="vllm", version="0.10.2")
    kept = [replace(one, origin=KEPT) for one in asked("CONFIG_GONE=y", "CONFIG_NEWER=y", "CONFIG_BASE=y")]
    resolution = resolve(menu, [*kept, *asked("CONFIG_NEWER=n")], USAGE)
    assert [warning.split(":")[0] for warning in resolution.warnings] == [
        "CONFIG_GONE=y, set before, is left out",
        "CONFIG_BASE=y, set before, gives way",
    ]
    assert resolution.faults == ()
    assert sorted(resolution.requests) == ["BASE", "NEWER"], "it waits for its dependency"


def explained(
    name: str, *settings: str, version: str = "0.6.3", kconfig: str = KCONFIG, origin: str = "--set"
) -> Explanation:
    menu = load_kconfig([source({"Kconfig": kconfig})], engine="vllm", version=version)
    resolution = resolve(menu, [replace(one, origin=origin) for one in asked(*settings)], USAGE)
    found = explain(menu, name, resolution.requests, USAGE)
    assert found is not None
    return found


def test_why_goes_down_to_the_term_that_blocks() -> None:
    found = explained("DEEP", "CONFIG_DEEP=y")
    assert [line for block in found.blocks for line in words_of(block)] == [
        "depends on BASE, which is n (BASE=n)",
        "  depends on NEWER, which is n (NEWER=n)",
        "    depends on VLLM_VERSION >= 0.8.0, which is n (VLLM_VERSION=0.6.3)",
    ]
    assert (found.requested, found.gates, found.place) == (("y", "--set"), ("0001.patch",), "vllm/Kconfig:7")


def test_why_says_what_to_type() -> None:
    found = explained("DEEP", "CONFIG_DEEP=y", "CONFIG_OTHER=y", version="0.9")
    assert found.advice == ("CONFIG_NEWER=y", "CONFIG_BASE=y", "CONFIG_OTHER=n", "CONFIG_DEEP=y")
    held = explained("NEWER", "CONFIG_FORCING=y", "CONFIG_NEWER=n", version="0.9")
    assert held.forced == ("FORCING",)
    assert held.advice == ("CONFIG_FORCING=n", "CONFIG_NEWER=n")
    assert [block.term for block in held.blocks] == ["selected by FORCING, vllm/Kconfig:12"]


def test_why_says_what_switches_a_symbol_that_nothing_blocks() -> None:
    assert explained("OTHER").advice == ("CONFIG_OTHER=y",)
    assert explained("OTHER", "CONFIG_OTHER=y").advice == ("CONFIG_OTHER=y",), "it is not set on the tree yet"
    assert explained("OTHER", "CONFIG_OTHER=y", origin=KEPT).advice == ("CONFIG_OTHER=n",)
    assert explained("FIRST").advice == ("CONFIG_SECOND=y",)
    assert explained("HIDDEN").advice == ()


VALUES = """\
config ON
	bool "On"
if ON
config TEXT
	string "Text"
	default "new" if VLLM_VERSION >= 0.8.0
	default "0.5"
config COUNT
	int "Count"
	range 2 9
config MASK
	hex "Mask"
	default 0x10
config NAME
	string "Name"
endif
"""


@pytest.mark.parametrize(
    ("name", "settings", "advice", "to_fill"),
    [
        ("TEXT", (), ("CONFIG_ON=y", "CONFIG_TEXT=0.5"), ""),
        ("TEXT", ("CONFIG_TEXT=7.5",), ("CONFIG_ON=y", "CONFIG_TEXT=7.5"), ""),
        ("TEXT", ("CONFIG_ON=y",), ("CONFIG_TEXT=VALUE",), "a text"),
        ("MASK", (), ("CONFIG_ON=y", "CONFIG_MASK=0x10"), ""),
        ("COUNT", (), ("CONFIG_ON=y", "CONFIG_COUNT=VALUE"), "a whole number"),
        ("COUNT", ("CONFIG_ON=y",), ("CONFIG_COUNT=VALUE",), "a whole number, range is 2 to 9"),
        ("NAME", (), ("CONFIG_ON=y", "CONFIG_NAME=VALUE"), "a text"),
    ],
)
def test_why_gives_a_number_or_a_text_a_value_of_its_kind(
    name: str, settings: tuple[str, ...], advice: tuple[str, ...], to_fill: str
) -> None:
    found = explained(name, *settings, kconfig=VALUES)
    assert (found.advice, found.to_fill) == (advice, to_fill)


def test_why_says_when_no_setting_helps() -> None:
    found = explained("DEEP", "CONFIG_DEEP=y", version="0.6.3")
    assert (found.within_reach, found.advice) == (False, ())
    assert explained("DEEP", "CONFIG_DEEP=y", version="0.9").within_reach


def test_why_knows_no_such_symbol() -> None:
    menu = load_kconfig([source({"Kconfig": KCONFIG})], engine="vllm", version="1")
    assert explain(menu, "NOSUCH", {}, USAGE) is None


def test_a_long_chain_of_dependencies_is_resolved_and_explained() -> None:
    links = [f'config S{number}\n\tbool "x"\n\tdepends on S{number - 1} && S0\n' for number in range(1, 200)]
    text = 'config S0\n\tbool "x"\n' + "".join(links)
    menu = load_kconfig([source({"Kconfig": text})], engine="vllm", version="1")
    usage = Usage(gates={"S199": ("x",)}, read=frozenset(), rebuild=frozenset())
    resolution = resolve(menu, asked("CONFIG_S199=y"), usage)
    assert len(resolution.faults) == 1
    assert len(resolution.faults[0].why.splitlines()) < 30
    assert dict(zip(values(resolution), resolution.configuration.origins, strict=True))["S7"].startswith(
        "depends on S6"
    )


@pytest.mark.parametrize(("kind", "written"), [("int", "1_0"), ("hex", "0x1_f"), ("int", '" 7 "'), ("int", '"\u0661"')])
def test_a_number_that_only_python_reads_is_a_fault(kind: str, written: str) -> None:
    kconfig = f'config N\n\t{kind} "N"\n\tdefault {written}\n'
    (fault,) = resolved(kconfig=kconfig).faults
    assert (fault.place, fault.what) == ("vllm/Kconfig:1", f"N is {written.strip(chr(34))!r}")


def test_a_value_that_comes_of_the_other_settings_anyway_needs_no_effect() -> None:
    kconfig = SOUND_KCONFIG + 'config DERIVED\n\tint "Derived"\n\trange 1 5\n\tdepends on OTHER\n'
    assert faults(resolved("CONFIG_DERIVED=1", "CONFIG_OTHER=y", kconfig=kconfig)) == []
    (fault,) = faults(resolved("CONFIG_DERIVED=2", "CONFIG_OTHER=y", kconfig=kconfig))
    assert fault == ("--set", "CONFIG_DERIVED=2 gates nothing in this series, and nothing reads it")
