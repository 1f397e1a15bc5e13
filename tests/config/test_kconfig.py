"""Kconfig files: what of the language is read, what is refused and where, and that nothing outside is touched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import kconfiglib
import pytest

from patchkit.config import kconfig_parser
from patchkit.config.fault import Fault, KconfigError
from patchkit.config.kconfig import Menu, load_kconfig
from patchkit.config.kconfig_parser import KconfigSource
from patchkit.errors import SeriesError


def source(files: dict[str, str], name: str = "vllm/Kconfig") -> KconfigSource:
    def read(path: PurePosixPath, place: str) -> str:
        if str(path) not in files:
            raise SeriesError(f"{place}: {path} is not there")
        return files[str(path)]

    return KconfigSource(name=name, read=read)


def load(text: str, version: str = "0.6.3", *, engine: str = "vllm", **files: str) -> Menu:
    named = {path.replace("__", "/"): content for path, content in files.items()}
    return load_kconfig([source({"Kconfig": text, **named})], engine=engine, version=version)


def value(menu: Menu, name: str) -> str:
    return str(menu.kconf.syms[name].str_value)


def test_a_nul_byte_is_refused_with_its_line() -> None:
    with pytest.raises(SeriesError) as refused:
        load('config A\n\tbool "A\0B"\n')
    assert refused.value.what == "vllm/Kconfig:2: a NUL byte"


def test_a_file_that_cannot_be_read_is_named_itself() -> None:
    with pytest.raises(SeriesError) as refused:
        load_kconfig([source({})], engine="vllm", version="0.6.3")
    assert refused.value.what == "vllm/Kconfig: Kconfig is not there"


def test_the_language_is_read() -> None:
    menu = load(
        """
mainmenu "Toggles"
menu "Attention"
	visible if VLLM
config SCALE
	bool "Scale"
	default y
	help
		Help may say "source", $(shell) and tristate.

		A second paragraph.
if SCALE
config VALUE
	string "Value"
	default "0.5" if VLLM_VERSION >= 0.6
	default "1.0"
endif
endmenu
config WINDOW
	int "Window"
	range 16 4096
	default 128
	depends on SCALE && !OFF
config OFF
	bool "Off"
config MASK
	hex "Mask"
	default 0x1f
choice
	prompt "Which"
	default SECOND
config FIRST
	bool "First"
config SECOND
	bool "Second"
endchoice
config FORCED
	bool
config FORCING
	def_bool y
	select FORCED
comment "the end"
"""
    )
    found = {name: value(menu, name) for name in ("VALUE", "WINDOW", "MASK", "FIRST", "SECOND", "FORCED")}
    assert found == {"VALUE": "0.5", "WINDOW": "128", "MASK": "0x1f", "FIRST": "n", "SECOND": "y", "FORCED": "y"}
    assert "second paragraph" in menu.kconf.syms["SCALE"].nodes[0].help
    assert menu.faults == ()


@pytest.mark.parametrize(
    ("term", "version", "holds"),
    [
        (">= 0.6.3", "0.10.2", True),
        (">= 0.10", "0.6.3", False),
        (">= 0.8.0", "0.8.0rc1", False),
        (">= 0.8.0rc1", "0.8.0", True),
        ("> 0.8.0", "0.8.0.post1", True),
        ("= 0.6.3", "0.6.3+cpu", True),
        ('= "0.6.3+cpu"', "0.6.3+cpu", True),
        ('= "0.6.3+cu121"', "0.6.3+cpu", False),
        ("< 0.10", "0.9", True),
        ("!= 0.6.3", "0.6.3", False),
        ("<= 1", "1.0.0", True),
        ("> 9", "10", True),
        (">= 0.1", "", False),
        ("< 0.1", "", True),
        (">= 0.1", "not a version", False),
    ],
)
def test_versions_compare_as_pep_440_orders_them(term: str, version: str, holds: bool) -> None:
    text = f"config A\n\tdef_bool y\n\tdepends on VLLM_VERSION {term}\n"
    menu = load(text, version)
    assert (value(menu, "A"), menu.faults) == ("y" if holds else "n", ())


def test_a_version_may_stand_on_the_right() -> None:
    text = "config A\n\tdef_bool y\n\tdepends on {} < VLLM_VERSION\n"
    assert value(load(text.format("0.9"), "0.10.0"), "A") == "y"
    assert value(load(text.format("0.11"), "0.10.0"), "A") == "n"


@pytest.mark.parametrize("term", ['"{}"', "{}.1", "0.{}rc1"])
def test_a_version_of_thousands_of_digits_is_none(term: str) -> None:
    version = term.format("9" * 5000)
    (fault,) = load(f"config A\n\tdef_bool y\n\tdepends on VLLM_VERSION < {version}\n").faults
    assert (fault.place, "is not a version" in fault.what, len(fault.what) < 300) == ("vllm/Kconfig:3", True, True)
    assert load("config A\n\tdef_bool y\n\tdepends on VLLM_VERSION < 1\n", f"0.{'9' * 5000}").faults == ()


def test_a_long_text_is_read_once() -> None:
    text = "z" * 200_000
    assert value(load(f'config A\n\tstring "a"\n\tdefault "{text}"\n', "0.9"), "A") == text


def test_kconfiglib_is_as_it_was_for_others() -> None:
    compare, system = kconfiglib._strcmp, kconfiglib.os
    load("config A\n\tbool\n\tdefault y if VLLM_VERSION >= 0.8\n", "0.10")
    assert kconfiglib._strcmp is compare
    assert kconfiglib.os is system is os


def test_the_engine_says_which_it_is() -> None:
    text = "config A\n\tdef_bool y\n\tdepends on VLLM\nconfig B\n\tdef_bool y\n\tdepends on SGLANG_VERSION >= 0.5\n"
    vllm, sglang = load(text, "0.6.3"), load(text, "0.5.9", engine="sglang")
    assert [value(vllm, "A"), value(vllm, "B")] == ["y", "n"]
    assert [value(sglang, "A"), value(sglang, "B")] == ["n", "y"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("\ttristate", "`tristate` is refused"),
        ("\tdef_tristate m", "`def_tristate` is refused"),
        ("\timply B", "`imply` is refused"),
        ('\toption env="HOME"', "`option` is refused"),
        ('\tdefault "$(shell,touch /tmp/owned)"', "begins a macro"),
        ('\tdefault "$HOME"', "begins a macro"),
        ("$(shell,touch /tmp/owned)", "begins a macro"),
        ("NAME := value", "variables are refused"),
        ("\tdepend on B", "`depend` is no word of Kconfig"),
        ("\tdefault m", "`m` is refused"),
        ("\tdepends on (B", "couldn't parse"),
        ('source "../other"', "stays below"),
        ('source "/etc/passwd"', "stays below"),
        ('source "Kconfig.*"', "stays below"),
        ('source "missing"', "is not there"),
        ('osource "missing"', "`osource` is refused"),
        ("endmenu", "closes nothing"),
        ("config A-B", "cannot be a symbol"),
        ("config 12", "cannot be a symbol"),
        ("config VLLM_VERSION", "given by patchkit"),
    ],
)
def test_what_is_refused_is_refused_with_its_place(line: str, said: str) -> None:
    with pytest.raises(SeriesError) as refused:
        load(f"config A\n\tbool\n{line}\n")
    assert refused.value.what.startswith("vllm/Kconfig:3: ")
    assert said in refused.value.what


@pytest.mark.parametrize("text", ["config A\n\tbool\n\tvisible if B\n", 'menu "m"\n\tbool\nendmenu\n'])
def test_a_property_out_of_place_is_an_error_with_its_place(text: str) -> None:
    """kconfiglib ends in an AttributeError there."""
    with pytest.raises(SeriesError, match=r"^vllm/Kconfig:[23]: what stands here has no meaning"):
        load(text)


def test_all_lines_that_are_wrong_are_told_together() -> None:
    text = """\
config A
	tristate "A"
	imply B
	depends on (B
if A
config C
	bool
	default m
config N
	int "N"
	range 10 5
	default 7 extra
endmenu
endif
config D-E
	bool "D"
	depends on NOSUCH
choice extra words
	prompt "Which"
config F
	boool "F"
	select N
endchoice
config G
	bool "G"
	A text that has no help
	above it, of two lines.
	visible if A
source "missing"
"""
    with pytest.raises(KconfigError) as refused:
        load(text)
    assert [(fault.place.rpartition(":")[2], fault.what) for fault in refused.value.faults] == [
        ("2", "`tristate` is refused"),
        ("3", "`imply` is refused"),
        ("4", "couldn't parse 'depends on (B': malformed expression"),
        ("8", "`m` is refused"),
        ("11", "N: its range is empty"),
        ("12", "couldn't parse 'default 7 extra': extra tokens at end of line"),
        ("13", "`endmenu` stands before `endif`"),
        ("15", "'D-E' cannot be a symbol"),
        ("18", "couldn't parse 'choice extra words': extra tokens at end of line"),
        ("21", "`boool` is no word of Kconfig"),
        ("26", "`A` is no word of Kconfig"),
        ("28", "what stands here has no meaning here"),
        ("29", "missing is not there"),
    ]
    assert str(refused.value).startswith(
        "13 things are wrong with the Kconfig\nvllm/Kconfig:2: `tristate` is refused\n"
    )


def test_a_line_passed_over_makes_no_other_fault() -> None:
    """Of a symbol whose type or name could not be read nothing is said that may not be so."""
    for text in (
        'config A\n\tboool "A"\n\tdefault y\nconfig B\n\tbool\n\tdepends on A\n',
        "conifg A\n\tbool\nconfig B\n\tbool\n\tdepends on A\n",
        'config A\n\tint "A" if (B\n\trange 1 5\nconfig B\n\tbool\n',
    ):
        with pytest.raises(KconfigError) as refused:
            load(text)
        assert len(refused.value.faults) == 1, refused.value


def test_so_many_lines_are_wrong_that_reading_ends() -> None:
    wrong = 'config A\n\tbool "A"\n' + "\tdefault m\n" * 200
    with pytest.raises(
        KconfigError, match="ended at vllm/Kconfig:53: 149 lines behind it were not looked at"
    ) as refused:
        load(wrong)
    assert len(refused.value.faults) == 51
    with pytest.raises(KconfigError, match="there may be more") as refused:
        load(wrong + "#" * (1 << 20))
    assert len(refused.value.faults) == 2


@pytest.mark.parametrize("above", ["", "config A\n\tbool\n"])
def test_a_file_of_prose_is_not_read_to_its_end(above: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its lines was compared with all words of Kconfig."""
    asked: list[str] = []

    def near(word: str) -> str:
        asked.append(word)
        return ""

    monkeypatch.setattr(kconfig_parser, "near_word", near)
    lines = 100_000
    with pytest.raises(KconfigError) as refused:
        load(above + "some prose\n" * lines)
    before = above.count("\n")
    assert [(fault.place, fault.what) for fault in refused.value.faults] == [
        (f"vllm/Kconfig:{before + 1}", "`some` is no word of Kconfig"),
        (f"vllm/Kconfig:{before + 502}", "more than 500 lines are no Kconfig"),
    ]
    assert f"ended at vllm/Kconfig:{before + 502}: {lines - 502:,} lines behind it" in refused.value.why
    assert len(asked) < 2000


def test_a_loop_is_told_behind_lines_that_are_wrong() -> None:
    text = "config A\n\ttristate\n\tdepends on B\nconfig B\n\tbool\n\tdepends on A\n"
    with pytest.raises(KconfigError) as refused:
        load(text)
    assert [fault.what.partition(" ")[0] for fault in refused.value.faults] == ["recursive", "`tristate`"]


@pytest.mark.parametrize("kind", ["int", "hex"])
@pytest.mark.parametrize("digits", [65, 5000, 500_000])
@pytest.mark.parametrize(
    "line", ["range 1 {}", "range {} 1", "default {}", "depends on B && {} = 1", 'default "{}"', 'range "{}" 1']
)
def test_a_number_that_no_symbol_takes_is_refused_with_its_line(kind: str, digits: int, line: str) -> None:
    text = f'config A\n\t{kind} "A"\n\t{line}\nconfig B\n\tbool "B"\n'
    number = ("0x" if kind == "hex" else "") + "9" * digits
    try:
        faults = load(text.format(number)).faults
    except KconfigError as error:
        faults = error.faults
    told = [fault for fault in faults if "the number is too long" in fault.what]
    assert [fault.place for fault in told] == ["vllm/Kconfig:3"]
    assert f"found {len(number):,}" in told[0].why
    assert max(len(fault.what) + len(fault.why) for fault in faults) < 1000


@pytest.mark.parametrize(("kind", "low", "high"), [("int", "10", "5"), ("hex", "0x10", '"f"'), ("int", "1", "-1")])
def test_a_range_that_holds_no_number_is_a_fault(kind: str, low: str, high: str) -> None:
    menu = load(f'config N\n\t{kind} "N"\n\trange {low} {high} if VLLM\n')
    why = f"it begins at {low}, and ends at {high}".replace('"', "")
    assert menu.faults == (Fault(place="vllm/Kconfig:3", what="N: its range is empty", why=why),)
    assert load(f'config N\n\t{kind} "N"\n\trange {high} {low}\n\trange 5 5\n').faults == ()


def test_only_newlines_end_a_line() -> None:
    menu = load("config A\r\n\tbool\r\n\thelp\r\n\t\tOne\x0cline\u2028here.\r\nconfig B\n\tdef_bool y")
    assert menu.kconf.syms["B"].nodes[0].linenr == 5
    assert value(menu, "B") == "y"


def test_files_are_sourced_below_the_directory() -> None:
    menu = load(
        'source "sub/one"\nconfig LAST\n\tdef_bool y\n',
        sub__one='config ONE\n\tdef_bool y\n\thelp\n\t  The file ends in help.\n\nrsource "two"',
        sub__two="config TWO\n\tdef_bool y\n\tselect NOSUCH",
    )
    places = {name: menu.kconf.syms[name].nodes[0] for name in ("ONE", "TWO", "LAST")}
    assert [(node.filename, node.linenr) for node in places.values()] == [
        ("vllm/sub/one", 1),
        ("vllm/sub/two", 1),
        ("vllm/Kconfig", 2),
    ]
    assert [fault.place for fault in menu.faults] == ["vllm/sub/two:3"]


def test_a_file_ends_the_symbol_before_it_and_closes_what_it_opens() -> None:
    with pytest.raises(SeriesError):
        load('config A\n\tbool\nsource "b"\n', b="\tdefault y\n")
    with pytest.raises(KconfigError) as refused:
        load('source "b"\nendmenu\n', b='menu "x"\n')
    assert [(fault.place, fault.what) for fault in refused.value.faults] == [
        ("vllm/Kconfig:2", "`endmenu` closes nothing in this file"),
        ("vllm/b:1", "`menu` is not closed in this file"),
    ]


@pytest.mark.parametrize("files", [{"b": 'source "c"\n', "c": 'source "b"\n'}, {"b": 'source "b"\n'}])
def test_a_file_that_sources_itself_is_refused(files: dict[str, str]) -> None:
    with pytest.raises(SeriesError, match="sources itself") as refused:
        load('source "b"\n', **files)
    assert "Kconfig -> b" in refused.value.why


def test_a_long_chain_and_a_large_file_are_refused() -> None:
    with pytest.raises(SeriesError, match="too many Kconfig files"):
        load('source "f0"\n', **{f"f{number}": f'source "f{number + 1}"\n' for number in range(40)})
    with pytest.raises(SeriesError, match="MiB of Kconfig"):
        load('source "big"\n', big="#" + "x" * (5 << 20))
    with pytest.raises(SeriesError, match="nested too deeply"):
        load("config A\n\tbool\n\tdepends on " + "(" * 5000 + "B" + ")" * 5000 + "\n")


def test_many_unknown_symbols_are_told_without_comparing_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def near(_: str, names: Sequence[str], __: int) -> list[str]:
        nonlocal compared
        compared += len(names)
        return ["A0"]

    monkeypatch.setattr("difflib.get_close_matches", near)
    menu = load("".join(f"config A{number}\n\tbool\n\tdepends on B{number}\n" for number in range(1000)))
    assert len(menu.faults) == 1000
    assert menu.faults[0].why == "did you mean A0?"
    assert compared < 300_000


def test_a_recursive_dependency_is_shown_as_a_cycle() -> None:
    text = "config A\n\tbool\n\tdepends on B\nconfig B\n\tbool\n\tdepends on C\nconfig C\n\tbool\n\tdefault y if A\n"
    with pytest.raises(SeriesError, match="recursive dependency") as refused:
        load(text)
    chain = refused.value.what.rpartition("dependency: ")[2].split(" -> ")
    assert len(chain) == 4
    assert (set(chain), chain[0]) == ({"A", "B", "C"}, chain[-1])
    assert {"vllm/Kconfig:1: A", "vllm/Kconfig:4: B", "vllm/Kconfig:7: C"} <= set(refused.value.why.splitlines())


def test_mistakes_that_evaluate_are_faults_together() -> None:
    menu = load(
        "config A\n\tbool\n\tdepends on NOSUCH\n\tdefault y if VLLM_VERSION > 0.8.x\nconfig N\n\tint\n\tdefault A\n"
        'config U\n\tprompt "untyped"\n'
    )
    assert [(fault.place, fault.what.split(" ")[0]) for fault in menu.faults] == [
        ("vllm/Kconfig:3", "NOSUCH"),
        ("vllm/Kconfig:4", "`VLLM_VERSION"),
        ("vllm/Kconfig:5", "the"),
        ("vllm/Kconfig:8", "U"),
    ]


def test_a_symbol_of_two_kconfigs_is_a_fault() -> None:
    sources = [source({"Kconfig": "config A\n\tbool\n"}, name) for name in ("vllm/Kconfig", "own/Kconfig")]
    menu = load_kconfig(sources, engine="vllm", version="1")
    assert menu.faults == (
        Fault(
            place="own/Kconfig:1",
            what="A is defined by another Kconfig too: vllm/Kconfig:1",
            why="rename the one that is yours: a value would switch both",
        ),
    )


def test_a_gate_that_no_kconfig_defines_is_a_bool() -> None:
    menu = load_kconfig([source({"Kconfig": "config A\n\tbool\n"})], engine="vllm", version="1", gates=["A", "LOOSE"])
    assert menu.kconf.syms["LOOSE"].type == kconfiglib.BOOL
    assert len(menu.kconf.syms["A"].nodes) == 1


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "functions_of_a_stranger.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\nfunctions = {{}}\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"KCONFIG_FUNCTIONS": "functions_of_a_stranger", "CONFIG_": "OTHER_", "srctree": "/nowhere"}
    for name, text in settings.items():
        monkeypatch.setenv(name, text)
    menu = load("config A\n\tdef_bool y\n")
    assert value(menu, "A") == "y"
    assert menu.kconf.config_prefix == "CONFIG_"
    assert not (tmp_path / "owned").exists()
