"""`patchkit config`: what is shown, explained, set and written, and the menu in a real terminal."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blackbox.command import difference, snapshot
from tests.blackbox.wheels import engine, wheel_tree, write_tree
from tests.cli.said import Patchkit
from tests.making import diff, header, lines

KCONFIG = """\
config SCALE
	bool "Scale the scores"
	help
		Multiplies every score by a factor.
config SCALE_VALUE
	string "Factor"
	depends on SCALE
	default "1.0"
config KERNEL
	bool "Another kernel"
	depends on SCALE
config LATER
	bool "For later releases"
	depends on VLLM_VERSION >= 0.8.0
"""
FILES = {
    **{path: content.decode() for path, content in engine().items()},
    "vllm/scale.py": "FACTOR = 1.0\n",
    "vllm/kernel.cu": lines(9),
    "vllm/later.py": lines(9),
}


def changed(path: str, old: str, new: str) -> bytes:
    return diff(FILES, {**FILES, path: FILES[path].replace(old, new)})


@pytest.fixture
def own(tmp_path: Path) -> Path:
    directory = tmp_path / "own" / "vllm" / "0.6.3"
    directory.mkdir(parents=True)
    texts = {
        "0001-scale.patch": header("scale", Config="SCALE") + changed("vllm/scale.py", "1.0", "CONFIG_SCALE_VALUE"),
        "0002-kernel.patch": header("kernel", Config="KERNEL") + changed("vllm/kernel.cu", "line 5\n", "five\n"),
        "0003-later.patch": header("later", Config="LATER") + changed("vllm/later.py", "line 5\n", "five\n"),
    }
    for name, text in texts.items():
        (directory / name).write_bytes(text)
    (directory / "series").write_text("".join(f"{name}\n" for name in texts))
    (tmp_path / "own" / "vllm" / "Kconfig").write_text(KCONFIG)
    return tmp_path / "own"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    files = {name: text.encode() for name, text in FILES.items()}
    return write_tree(tmp_path / "site", wheel_tree("vllm", "0.6.3", files))


@pytest.fixture
def where(own: Path, site: Path) -> tuple[str, ...]:
    return ("--root", str(site), "--patches", str(own), "--no-shipped")


@pytest.fixture
def patched(patchkit: Patchkit, where: tuple[str, ...], site: Path) -> Path:
    assert patchkit("apply", *where, "--unlocked").status == 0
    return site


def test_show_tells_values_origins_and_gates(patchkit: Patchkit, where: tuple[str, ...], own: Path) -> None:
    said = patchkit("config", "show", *where, "--set", "CONFIG_SCALE=y")
    assert said.status == 0
    assert "CONFIG_SCALE=y  (--set)\n" in said.out
    assert 'CONFIG_SCALE_VALUE="1.0"  (default)\n' in said.out
    assert f"    Scale the scores  ({own}/vllm/Kconfig:1)\n    gates 0001-scale.patch\n" in said.out
    assert "# CONFIG_LATER is not set  (depends on VLLM_VERSION >= 0.8.0, which is n)" in said.out
    kernel = said.out.partition("CONFIG_KERNEL")[2].partition("CONFIG_LATER")[0]
    assert "rebuild: required" in kernel


def test_a_number_that_nobody_gave_has_no_value(patchkit: Patchkit, where: tuple[str, ...], own: Path) -> None:
    (own / "vllm" / "Kconfig").write_text(KCONFIG + 'config SIZE\n\tint "Size"\nconfig TEXT\n\tstring "Text"\n')
    shown = patchkit("config", "show", *where).out
    assert "CONFIG_SIZE has no value  (default)\n" in shown
    assert 'CONFIG_TEXT=""  (default)\n' in shown


def test_show_document(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    document = patchkit("config", "show", *where, "--set", "CONFIG_NOSUCH=y", "--json").document
    assert document["schema"] == 1
    rows = {row["symbol"]: row for row in document["symbols"]}
    assert rows["SCALE"]["gates"] == ["0001-scale.patch"]
    assert (rows["SCALE_VALUE"]["read"], rows["KERNEL"]["rebuild"]) == (True, True)
    assert [fault["place"] for fault in document["faults"]] == ["--set"]


def test_show_of_a_release_needs_no_tree(patchkit: Patchkit, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = patchkit("config", "show", "--target", "vllm==0.6.3", "--patches", own, "--no-shipped")
    assert said.status == 0, said.err
    assert "CONFIG_SCALE is not set" in said.out


def test_a_broken_configuration_is_shown_with_status_1(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    said = patchkit("config", "show", *where, "--set", "CONFIG_LATER=y")
    assert said.status == 1
    assert "--set: CONFIG_LATER=y is not what comes of it: it is n" in said.out


def test_show_tells_of_a_kconfig_that_changed(
    patchkit: Patchkit, where: tuple[str, ...], patched: Path, own: Path
) -> None:
    assert "another Kconfig" not in patchkit("config", "show", *where).err
    (own / "vllm" / "Kconfig").write_text(KCONFIG + 'config NEW\n\tbool "New"\n')
    assert "another Kconfig" in patchkit("config", "show", *where).err
    assert patchkit("config", "show", *where, "--json").document["stale"] is True
    assert patchkit("apply", *where, "--unlocked").status == 0
    assert "another Kconfig" not in patchkit("config", "show", *where).err


def test_why_goes_down_and_says_what_to_type(patchkit: Patchkit, where: tuple[str, ...], site: Path) -> None:
    said = patchkit("config", "why", "CONFIG_KERNEL", *where, "--set", "CONFIG_KERNEL=y")
    assert said.status == 0
    assert "asked for: y, --set" in said.out
    assert "depends on SCALE, which is n (SCALE=n)" in said.out
    assert "gates 0002-kernel.patch" in said.out
    (typed,) = [line.removeprefix("next: ") for line in said.out.splitlines() if line.startswith("next: ")]
    words = typed.split()
    assert words[:2] == ["patchkit", "apply"]
    assert patchkit(*words[1:], "--unlocked").status == 0
    assert "five" in (site / "vllm/kernel.cu").read_text()


def test_what_why_says_to_type_switches_a_toggle_on_and_off(
    patchkit: Patchkit, where: tuple[str, ...], site: Path
) -> None:
    for origin, command in (("default", "apply"), ("set before", "config")):
        said = patchkit("config", "why", "CONFIG_SCALE", *where)
        assert f"  ({origin})  " in said.out.splitlines()[0]
        words = said.out.splitlines()[-1].split()
        assert words[:3] == ["next:", "patchkit", command]
        assert patchkit(*words[2:], *(["--unlocked"] if command == "apply" else [])).status == 0
    assert (site / "vllm/scale.py").read_text() == FILES["vllm/scale.py"]
    assert patchkit("config", "why", "CONFIG_SCALE", *where, "--json").document["origin"] == "set before"


def test_why_keeps_the_other_settings_in_what_to_type(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    said = patchkit("config", "why", "CONFIG_SCALE_VALUE", *where, "--set", "CONFIG_SCALE=y")
    assert said.out.splitlines()[0].startswith("CONFIG_SCALE_VALUE=1.0  (default)  ")
    typed, filled = said.out.splitlines()[-2:]
    assert typed.endswith("--set CONFIG_SCALE=y --set CONFIG_SCALE_VALUE=VALUE")
    assert filled == "      VALUE stands for a text"
    assert patchkit(*typed.replace("VALUE=VALUE", "VALUE=0.5").split()[2:], "--unlocked").status == 0


@pytest.mark.parametrize(
    ("setting", "settings"),
    [
        ("CONFIG_SCALE=m", "--set CONFIG_SCALE=y"),
        ("CONFIG_SIZE=x", "--set CONFIG_SIZE=VALUE"),
        ("CONFIG_SIZE=11", "--set CONFIG_SIZE=VALUE"),
        ("CONFIG_SIZE=10", "--set CONFIG_SIZE=10"),
        ("CONFIG_SHARE=abc", "--set CONFIG_SHARE=VALUE"),
    ],
)
def test_why_does_not_say_to_type_what_is_no_value(
    setting: str, settings: str, patchkit: Patchkit, where: tuple[str, ...], own: Path
) -> None:
    more = 'config SIZE\n\tint "Size"\n\trange 1 10\nconfig SHARE\n\tstring "Share"\n\t# patchkit: decimal\n'
    (own / "vllm" / "Kconfig").write_text(KCONFIG + more)
    said = patchkit("config", "why", setting.partition("=")[0], *where, "--set", setting)
    (typed,) = [line for line in said.out.splitlines() if line.startswith("next: ")]
    assert typed.endswith(f" --no-shipped {settings}")
    assert ("VALUE stands for" in said.out) is settings.endswith("VALUE")
    assert f"asked for: {setting.partition('=')[2]}, --set" in said.out


def test_what_patchkit_gives_itself_is_said_to_be_so(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    assert patchkit("config", "why", "VLLM_VERSION", *where).out == "CONFIG_VLLM_VERSION=0.6.3  given by patchkit\n"


def test_why_without_a_request_explains_what_hinders(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    document = patchkit("config", "why", "LATER", *where, "--json").document
    assert document["blocked_by"] == [
        {
            "term": "depends on VLLM_VERSION >= 0.8.0, which is n",
            "values": ["VLLM_VERSION=0.6.3"],
            "because": [],
        }
    ]
    assert document["help"] == ""


def test_why_of_an_unknown_symbol_names_those_that_are_near(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    for name in ("CONFIG_SCALES", "scale"):
        said = patchkit("config", "why", name, *where)
        assert said.status == 1
        assert "did you mean CONFIG_SCALE" in said.err


def test_set_changes_a_patched_tree_and_tells_derived_symbols(
    patchkit: Patchkit, where: tuple[str, ...], patched: Path
) -> None:
    said = patchkit("config", "set", "CONFIG_SCALE=y", "CONFIG_KERNEL=y", *where)
    assert said.status == 0, said.err
    assert "CONFIG_SCALE: n -> y  (--set)\n" in said.out
    assert "CONFIG_SCALE_VALUE: (no value) -> 1.0  (default)\n" in said.out
    assert "CONFIG_KERNEL: rebuild: required" in said.out
    assert "set: 3 files (1 of the configuration) and RECORD changed" in said.out
    assert "CONFIG_SCALE_VALUE" in (patched / "vllm/scale.py").read_text()
    assert "nothing to do" in patchkit("config", "set", "CONFIG_SCALE=y", *where).out
    document = patchkit("config", "set", "CONFIG_SCALE=n", "CONFIG_KERNEL=n", *where, "--json").document
    assert [one["symbol"] for one in document["changes"]] == ["KERNEL", "SCALE", "SCALE_VALUE"]
    assert document["rebuild"] == ["KERNEL"]
    assert (patched / "vllm/scale.py").read_text() == FILES["vllm/scale.py"]


def test_files_of_the_configuration_are_counted_by_themselves(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    on = (*where, "--unlocked", "--set", "CONFIG_SCALE=y")
    words = "3 files (2 of the configuration) and RECORD"
    assert patchkit("plan", *on).out.endswith(f"apply would change {words}\n")
    assert patchkit("apply", *on).out.endswith(f"applied: {words} changed\n")
    assert f"reverted: {words} changed" in patchkit("revert", *where[:2]).out


def test_set_that_cannot_be_changes_nothing(patchkit: Patchkit, where: tuple[str, ...], patched: Path) -> None:
    before = snapshot(patched, own=True)
    said = patchkit("config", "set", "CONFIG_SCALE=y", "CONFIG_LATER=y", *where)
    assert said.status == 1
    assert "VLLM_VERSION=0.6.3" in said.err
    assert difference(snapshot(patched, own=True), before) == []


def test_a_value_that_stops_the_engine_is_refused_where_it_is_written(
    patchkit: Patchkit, where: tuple[str, ...], patched: Path, own: Path, tmp_path: Path
) -> None:
    marked = KCONFIG.replace('default "1.0"\n', 'default "1.0"\n\t# patchkit: decimal > 0\n')
    (own / "vllm" / "Kconfig").write_text(marked)
    (tmp_path / "prod.config").write_text('CONFIG_SCALE=y\nCONFIG_SCALE_VALUE="abc"\n')
    before = snapshot(patched, own=True)
    for command in (("config", "set"), ("apply", "--unlocked")):
        said = patchkit(*command, *where, "--config", tmp_path / "prod.config")
        assert said.status == 1
        assert f'{tmp_path}/prod.config:2: CONFIG_SCALE_VALUE="abc": not a value of this symbol' in said.err
        assert f"{own}/vllm/Kconfig:5: expected a decimal number > 0, as in 0.5" in said.err
    assert difference(snapshot(patched, own=True), before) == []
    assert patchkit("config", "set", "CONFIG_SCALE=y", "CONFIG_SCALE_VALUE=0.5", *where).status == 0


def test_the_factor_of_the_shipped_series_is_a_number_above_0(patchkit: Patchkit) -> None:
    for value, status in (("0.5", 0), ("abc", 1), ("0", 1), ("inf", 1)):
        settings = ("--set", "CONFIG_QK_SCALE=y", "--set", f"CONFIG_QK_SCALE_VALUE={value}")
        assert patchkit("config", "show", "--target", "vllm==0.6.3", *settings).status == status


def test_set_needs_a_patched_tree_and_a_setting(patchkit: Patchkit, where: tuple[str, ...], site: Path) -> None:
    said = patchkit("config", "set", "CONFIG_SCALE=y", *where)
    assert (said.status, "not patched" in said.err, "--set" in said.err) == (1, True, True)
    assert not (site / ".patchkit").exists()
    assert patchkit("config", "set", *where).status == 2


def test_set_brings_no_series_that_is_not_there(patchkit: Patchkit, where: tuple[str, ...], patched: Path) -> None:
    """Without --no-shipped the shipped series is among those that are meant, and it is not on this tree."""
    assert patchkit("config", "set", "CONFIG_SCALE=y", *where[:4]).status == 0
    listed = patchkit("status", "--root", patched, "--json").document
    assert [layer["name"] for layer in listed["layers"]] == ["own/vllm/0.6.3"]


def test_configurations_are_written_and_read_again(
    patchkit: Patchkit, where: tuple[str, ...], patched: Path, tmp_path: Path
) -> None:
    assert patchkit("config", "set", "CONFIG_SCALE=y", "CONFIG_SCALE_VALUE=0.5", *where).status == 0
    saved = patchkit("config", "savedefconfig", *where)
    assert saved.out == 'CONFIG_SCALE=y\nCONFIG_SCALE_VALUE="0.5"\n'
    (tmp_path / "small").write_text(saved.out)
    whole = tmp_path / "whole"
    written = patchkit("config", "defconfig", *where, "--config", tmp_path / "small", "--output", whole)
    assert written.status == 0
    assert "# CONFIG_LATER is not set" not in whole.read_text(), "it is not offered on this release"
    assert "# CONFIG_KERNEL is not set" in whole.read_text()
    assert patchkit("config", "diff", whole, *where).out == ""
    assert patchkit("config", "diff", tmp_path / "small", whole).out == "+CONFIG_KERNEL n\n"
    assert "SCALE=y" not in patchkit("config", "defconfig", *where).out


@pytest.mark.parametrize("value", ["", "0.5", "a\rb", 'say "\\"', "\udcff"])
def test_the_trees_own_configuration_does_not_differ_from_it(
    value: str, patchkit: Patchkit, where: tuple[str, ...], patched: Path
) -> None:
    assert patchkit("config", "set", "CONFIG_SCALE=y", f"CONFIG_SCALE_VALUE={value}", *where).status == 0
    assert patchkit("config", "diff", patched / ".patchkit/vllm/.config", *where).out == ""


def test_a_byte_order_mark_is_no_part_of_a_file(
    patchkit: Patchkit, where: tuple[str, ...], own: Path, tmp_path: Path
) -> None:
    (own / "vllm" / "Kconfig").write_text(KCONFIG, encoding="utf-8-sig")
    given = tmp_path / "x.config"
    given.write_text("CONFIG_SCALE=y\n", encoding="utf-8-sig")
    assert patchkit("apply", *where, "--unlocked", "--config", given).status == 0


def test_an_old_configuration_is_brought_up_to_the_release(
    patchkit: Patchkit, where: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "old").write_text("CONFIG_GONE=y\nCONFIG_SCALE=y\nCONFIG_LATER=y\n")
    said = patchkit("config", "olddefconfig", tmp_path / "old", *where)
    assert said.status == 0
    assert {"-CONFIG_GONE y", "-CONFIG_LATER y", "+CONFIG_SCALE_VALUE 1.0"} <= set(said.err.splitlines())
    (tmp_path / "new").write_text(said.out)
    assert patchkit("config", "show", *where, "--config", tmp_path / "new").status == 0


def test_without_a_kconfig_gates_are_y_or_n(patchkit: Patchkit, where: tuple[str, ...], own: Path, site: Path) -> None:
    (own / "vllm" / "Kconfig").unlink()
    assert "CONFIG_SCALE is not set  (not set)" in patchkit("config", "show", *where).out
    assert patchkit("apply", *where, "--unlocked").status == 0
    assert not (site / "vllm/_patchkit").exists()
    said = patchkit("config", "set", "CONFIG_LATER=y", *where)
    assert said.status == 0, said.err
    assert "CONFIG_LATER: (no value) -> y" in said.out
    assert "five" in (site / "vllm/later.py").read_text()


EVERY_FAULT = """\
CONFIG_SCALE = y
CONFIG_SCAEL=y
CONFIG_KERNEL=y
CONFIG_NUMBER=11
CONFIG_KERNEL=n
export CONFIG_LATER=y
CONFIG_FORCES=y
CONFIG_IDLE=y
CONFIG_SCALE_VALUE=0.5
CONFIG_NUMBER=%s
# CONFIG_SCALE is  not set
CONFIG_KERNEL=y
""" % ("9" * 65)


def test_all_that_is_wrong_with_a_file_is_told_in_one_run(
    patchkit: Patchkit, where: tuple[str, ...], own: Path, site: Path, tmp_path: Path
) -> None:
    more = 'config NUMBER\n\tint "N"\n\trange 1 10\n\tdepends on SCALE || !SCALE\nconfig IDLE\n\tbool "Idle"\n'
    more += 'config FORCES\n\tbool "Forces"\n\tselect LATER\n'
    (own / "vllm" / "Kconfig").write_text(KCONFIG + more)
    (tmp_path / "x.config").write_text(EVERY_FAULT)
    before = snapshot(site)
    said = patchkit("apply", *where, "--unlocked", "--config", "x.config")
    assert (said.status, snapshot(site)) == (1, before)
    told = re.findall(r"^  x\.config:([0-9]+): (.*)", said.err, re.MULTILINE)
    expected = {
        1: "not a setting",
        2: "CONFIG_SCAEL=y: there is no such symbol",
        4: "CONFIG_NUMBER=11 gates nothing in this series, and nothing reads it",
        5: "CONFIG_KERNEL is set a second time in this file",
        6: "not a setting",
        7: f"FORCES ({own}/vllm/Kconfig:21) selects LATER, whose dependencies do not follow",
        8: "CONFIG_IDLE=y gates nothing in this series, and nothing reads it",
        9: "CONFIG_SCALE_VALUE=0.5: not a value of this symbol",
        10: "CONFIG_NUMBER: the value is too long",
        11: "not a setting",
        12: "CONFIG_KERNEL is set a second time in this file",
    }
    assert {int(line): what for line, what in reversed(told)} == expected
    assert ("4", "CONFIG_NUMBER=11 is not what comes of it: it is 1") in told
    assert ("12", "CONFIG_KERNEL=y is not what comes of it: it is n") in told
    shown = patchkit("config", "show", *where, "--config", "x.config", "--json")
    assert shown.status == 1
    assert {fault["place"] for fault in shown.document["faults"]} == {f"x.config:{number}" for number in expected}


def test_all_that_is_wrong_with_a_file_is_told_without_a_kconfig_too(
    patchkit: Patchkit, where: tuple[str, ...], own: Path, tmp_path: Path
) -> None:
    (own / "vllm" / "Kconfig").unlink()
    (tmp_path / "x.config").write_text(
        "CONFIG_SCALE=5\nCONFIG_NO=y\nexport CONFIG_SCALE=y\nCONFIG_KERNEL=n\nCONFIG_KERNEL=y\n"
    )
    (own / "vllm/0.6.3/0001-scale.patch").write_bytes(
        header("scale", Config="SCALE") + changed("vllm/scale.py", "1.0", "2.0")
    )
    said = patchkit("apply", *where, "--unlocked", "--config", "x.config")
    assert said.status == 1
    assert re.findall(r"^  x\.config:([0-9]+): (.*)", said.err, re.MULTILINE) == [
        ("1", "CONFIG_SCALE=5: not a value of this toggle"),
        ("2", "CONFIG_NO=y gates nothing in this series"),
        ("3", "not a setting"),
        ("5", "CONFIG_KERNEL is set a second time in this file"),
    ]
    (tmp_path / "x.config").write_text("export CONFIG_SCALE=y\n")
    said = patchkit("apply", *where, "--unlocked", "--config", "x.config")
    assert (said.status, said.err.splitlines()[0]) == (1, "error: x.config:1: not a setting")
    diffs = patchkit("plan", "--root", where[1], "--patch", own / "vllm/0.6.3/0001-scale.patch", "--config", "x.config")
    assert (diffs.status, "go with a series" in diffs.err) == (2, True)


def test_one_file_alone_is_compared_with_nothing(patchkit: Patchkit, tmp_path: Path) -> None:
    (tmp_path / "x.config").write_text("CONFIG_SCALE=y\n")
    said = patchkit("config", "diff", "x.config")
    assert said.status == 2
    assert said.err == "error: nothing to compare with\nnext: give a second FILE, or a tree with --target or --root\n"


@pytest.mark.parametrize("command", [("diff", "x.config"), ("olddefconfig", "x.config")])
def test_all_lines_that_set_nothing_are_told_where_a_file_is_compared(
    command: tuple[str, ...], patchkit: Patchkit, where: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "x.config").write_text("export CONFIG_SCALE=y\nCONFIG_SCALE=y\nwhat\n")
    said = patchkit("config", *command, *where)
    assert (said.status, said.out) == (1, "")
    assert [place in said.err for place in ("x.config:1: not", "x.config:2:", "x.config:3: not")] == [True, False, True]


def test_the_menu_wants_a_terminal(patchkit: Patchkit, where: tuple[str, ...]) -> None:
    said = patchkit("config", "menu", *where)
    assert said.status == 2
    assert "terminal" in said.err


class Screen:
    """A terminal of 80x24 that runs a command, driven through tmux."""

    def __init__(self, place: Path, *command: str) -> None:
        self._tmux = ["tmux", "-S", str(place / "tmux"), "-f", "/dev/null"]
        checkout = Path(__file__).resolve().parents[2]
        words = [sys.executable, "-m", "patchkit", *command]
        shell = f"cd {checkout}; TERM=screen {' '.join(map(str, words))}; echo status $?; exec cat"
        self._run("new-session", "-d", "-x", "80", "-y", "24", shell)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def wait_for(self, text: str) -> str:
        for _ in range(300):
            shown = self._run("capture-pane", "-p")
            if text in shown:
                return shown
            time.sleep(0.1)
        pytest.fail(f"{text!r} did not appear:\n{shown}")

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def screens(tmp_path: Path) -> Iterator[list[Screen]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.close()


def test_the_menu_sets_what_is_saved(
    where: tuple[str, ...], patched: Path, screens: list[Screen], tmp_path: Path
) -> None:
    screen = Screen(tmp_path, "config", "menu", *where)
    screens.append(screen)
    shown = screen.wait_for("[ ] Scale the scores")
    assert "Another kernel" not in shown, "what depends on it is not offered"
    assert "[Q] Quit" in shown
    assert max(map(len, shown.splitlines())) <= 80
    screen.press("?")
    screen.wait_for("Multiplies every score")
    screen.press("q")
    screen.wait_for("[ ] Scale the scores")
    screen.press("y")
    screen.wait_for("[ ]     Another kernel")
    screen.press("q")
    screen.wait_for("Save configuration?")
    screen.press("y")
    shown = screen.wait_for("status 0")
    assert "CONFIG_SCALE: n -> y" in shown
    assert "CONFIG_SCALE_VALUE" in (patched / "vllm/scale.py").read_text()


def test_the_menu_keeps_values_that_wait(
    patchkit: Patchkit, where: tuple[str, ...], patched: Path, screens: list[Screen], tmp_path: Path
) -> None:
    assert patchkit("config", "set", "CONFIG_SCALE=y", "CONFIG_SCALE_VALUE=0.5", "CONFIG_KERNEL=y", *where).status == 0
    assert patchkit("config", "set", "CONFIG_SCALE=n", *where).status == 0
    screen = Screen(tmp_path, "config", "menu", *where)
    screens.append(screen)
    screen.wait_for("[ ] Scale the scores")
    screen.press("q")
    shown = screen.wait_for("status 0")
    assert "nothing was saved" in shown, "what waits is no change"
    (tmp_path / "again").mkdir()
    screen = Screen(tmp_path / "again", "config", "menu", *where)
    screens.append(screen)
    screen.wait_for("[ ] Scale the scores")
    screen.press("y")
    shown = screen.wait_for("(0.5) ")
    assert "[*]     Another kernel" in shown
    screen.press("q")
    screen.wait_for("Save configuration?")
    screen.press("y")
    shown = screen.wait_for("status 0")
    assert "CONFIG_SCALE_VALUE: (no value) -> 0.5" in shown
    assert "CONFIG_KERNEL: n -> y" in shown


def test_the_menu_saves_to_the_tree_also_what_was_loaded(
    where: tuple[str, ...], patched: Path, screens: list[Screen], tmp_path: Path
) -> None:
    other = tmp_path / "other.config"
    other.write_text('CONFIG_SCALE=y\nCONFIG_SCALE_VALUE="7"\n')
    screen = Screen(tmp_path, "config", "menu", *where)
    screens.append(screen)
    screen.wait_for("[ ] Scale the scores")
    screen.press("y")
    screen.wait_for("[*] Scale the scores")
    screen.press("s")
    shown = screen.wait_for("When you leave, it is set on the tree.")
    assert "Filename" not in shown
    screen.press("Enter")
    screen.press("o")
    shown = screen.wait_for("File to load")
    assert "patchkit-menu" not in shown
    screen.press(str(other), "Enter")
    screen.wait_for("Loaded")
    screen.press("Enter", "q")
    screen.wait_for("Save configuration?")
    screen.press("y")
    shown = screen.wait_for("status 0")
    assert "CONFIG_SCALE_VALUE: (no value) -> 7" in shown
    assert other.read_text() == 'CONFIG_SCALE=y\nCONFIG_SCALE_VALUE="7"\n'


def test_the_menu_opens_on_a_broken_configuration(
    where: tuple[str, ...], screens: list[Screen], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.config"
    broken.write_text("CONFIG_NOSUCH=y\nCONFIG_LATER=y\nCONFIG_KERNEL=y\nCONFIG_SCALE=y\nCONFIG_SCALE=n\n")
    screen = Screen(tmp_path, "config", "menu", *where, "--output", str(broken))
    screens.append(screen)
    screen.wait_for("[ ] Scale the scores")
    screen.press("y")
    screen.wait_for("[*] Scale the scores")
    screen.press("q")
    screen.wait_for("Save configuration?")
    assert "NOSUCH" in broken.read_text(), "nothing is written before it is saved"
    screen.press("y")
    screen.wait_for("status 0")
    assert "NOSUCH" not in broken.read_text()
    assert "CONFIG_SCALE=y\n" in broken.read_text()


def test_the_menu_refuses_a_value_that_apply_would_refuse(
    patchkit: Patchkit, where: tuple[str, ...], own: Path, screens: list[Screen], tmp_path: Path
) -> None:
    more = "\t# patchkit: decimal > 0\n\tdepends on SCALE\n"
    kconfig = (
        KCONFIG.replace("\tdepends on SCALE\n", more, 1)
        + 'config ROOM\n\tint "Room"\n\tdepends on SCALE_VALUE != "7"\n'
    )
    (own / "vllm" / "Kconfig").write_text(kconfig)
    file = tmp_path / "bad.config"
    file.write_text('CONFIG_SCALE=y\nCONFIG_SCALE_VALUE="abc"\n')
    screen = Screen(tmp_path, "config", "menu", *where, "--output", str(file))
    screens.append(screen)
    screen.wait_for("(abc) ")
    screen.press("Down", "Down", "y", "s")
    shown = screen.wait_for("This cannot be saved:")
    assert 'CONFIG_SCALE_VALUE="abc": not a value of this symbol' in shown
    assert "expected a decimal number > 0, as in 0.5" in " ".join(shown.split())
    screen.press("Enter", "Up", "Enter")
    screen.wait_for("Factor (string)")
    screen.press("d", "Enter")
    screen.wait_for("'abcd' is not a decimal number > 0, as in 0.5")
    screen.press("Enter")
    screen.wait_for("Factor (string)")
    screen.press("BSpace", "BSpace", "BSpace", "BSpace", "8", "Enter")
    screen.wait_for("(8) ")
    assert file.read_text() == 'CONFIG_SCALE=y\nCONFIG_SCALE_VALUE="abc"\n'
    screen.press("q")
    screen.wait_for("Save configuration?")
    screen.press("y")
    screen.wait_for("status 0")
    assert 'CONFIG_SCALE_VALUE="8"\nCONFIG_KERNEL=y\n' in file.read_text()
    assert patchkit("apply", *where, "--unlocked", "--config", file).status == 0


OTHER_KCONFIG = """\
config MINE
	bool "Stands on another series"
	depends on SCALE && SCALE_VALUE != "0"
config PICK
	bool "Selects a symbol of another series"
	depends on SCALE
	select KERNEL
"""


@pytest.fixture
def second(tmp_path: Path) -> Path:
    directory = tmp_path / "second" / "vllm" / "0.6.3"
    directory.mkdir(parents=True)
    texts = {
        "0001-mine.patch": header("mine", Config="MINE") + changed("vllm/kernel.cu", "line 9\n", "nine\n"),
        "0002-pick.patch": header("pick", Config="PICK") + changed("vllm/later.py", "line 9\n", "nine\n"),
    }
    for name, text in texts.items():
        (directory / name).write_bytes(text)
    (directory / "series").write_text("".join(f"{name}\n" for name in texts))
    (directory.parent / "Kconfig").write_text(OTHER_KCONFIG)
    return tmp_path / "second"


def test_symbols_of_a_series_that_is_not_named_stand_as_they_are(
    patchkit: Patchkit, site: Path, own: Path, second: Path
) -> None:
    here = ("--root", str(site), "--no-shipped")
    first, other = ("--patches", str(own)), ("--patches", str(second))
    unnamed = patchkit("apply", *here, *other, "--unlocked", "--set", "CONFIG_MINE=y")
    assert unnamed.status == 1
    assert "SCALE is not defined in any Kconfig" in unnamed.err
    both = ("apply", *here, *first, *other, "--unlocked", "--set", "CONFIG_SCALE=y", "--set", "CONFIG_MINE=y")
    assert patchkit(*both).status == 0

    before = snapshot(site)
    for settings, series, said in (
        (["CONFIG_SCALE=n"], first, "CONFIG_MINE is y and needs CONFIG_SCALE, which would be n"),
        (["CONFIG_PICK=y"], other, "CONFIG_KERNEL is n and would be selected"),
        (["CONFIG_SCALE=n"], other, "CONFIG_SCALE=n: it is of a series that is not named"),
    ):
        refused = patchkit("config", "set", *settings, *here, *series)
        assert (refused.status, said in refused.err) == (1, True), refused.err
        assert "name that series too" in refused.err
        assert difference(snapshot(site), before) == []

    for settings, series in (
        (["CONFIG_MINE=n"], other),
        (["CONFIG_SCALE=n"], first),
        (["CONFIG_SCALE=y", "CONFIG_KERNEL=y"], first),
        (["CONFIG_MINE=y", "CONFIG_PICK=y"], other),
    ):
        assert patchkit("config", "set", *settings, *here, *series).status == 0
    assert "nine" in (site / "vllm" / "kernel.cu").read_text()
    needs = patchkit("config", "set", "CONFIG_SCALE=n", *here, *first)
    assert needs.status == 1
    assert "CONFIG_MINE is y and needs CONFIG_SCALE" in needs.err
    why = patchkit("config", "why", "MINE", *here, *other)
    assert why.status == 0
    assert patchkit("config", "show", *here, *other).out.count("CONFIG_SCALE") == 0


def test_a_value_of_a_series_that_is_not_named_decides(patchkit: Patchkit, site: Path, own: Path, second: Path) -> None:
    here = ("--root", str(site), "--no-shipped")
    both = ("--patches", str(own), "--patches", str(second))
    settings = ("--set", "CONFIG_SCALE=y", "--set", "CONFIG_SCALE_VALUE=0")
    assert patchkit("apply", *here, *both, "--unlocked", *settings).status == 0
    blocked = patchkit("config", "set", "CONFIG_MINE=y", *here, "--patches", str(second))
    assert blocked.status == 1
    assert "depends on SCALE_VALUE" in blocked.err


def test_the_trees_configuration_is_that_of_all_its_series(
    patchkit: Patchkit, site: Path, own: Path, second: Path, tmp_path: Path
) -> None:
    here = ("--root", str(site), "--no-shipped")
    first, other = ("--patches", str(own)), ("--patches", str(second))
    settings = ("--set", "CONFIG_SCALE=y", "--set", "CONFIG_SCALE_VALUE=0.5", "--set", "CONFIG_MINE=y")
    assert patchkit("apply", *here, *first, *other, "--unlocked", *settings).status == 0
    before = snapshot(site, own=True)
    for series in (first, other, (*first, *other), other):
        assert patchkit("apply", *here, *series, "--unlocked").out.endswith("nothing to do\n")
        assert difference(snapshot(site, own=True), before) == []
        assert patchkit("config", "diff", site / ".patchkit/vllm/.config", *here, *series).out == ""
    saved = patchkit("config", "savedefconfig", *here, *other).out
    assert saved == 'CONFIG_MINE=y\nCONFIG_SCALE=y\nCONFIG_SCALE_VALUE="0.5"\n'

    assert patchkit("config", "set", "CONFIG_MINE=n", *here, *other).status == 0
    (tmp_path / "kept").write_bytes((site / ".patchkit/vllm/.config").read_bytes())
    constants = (site / "vllm/_patchkit/autoconf.py").read_bytes()
    assert patchkit("revert", "--root", site).status == 0
    again = ("apply", *here, *first, *other, "--unlocked", "--config", tmp_path / "kept")
    assert patchkit(*again).status == 0
    assert (site / "vllm/_patchkit/autoconf.py").read_bytes() == constants
    assert (site / ".patchkit/vllm/.config").read_bytes() == (tmp_path / "kept").read_bytes()


def test_a_configuration_that_somebody_took_away_is_written_whole(
    patchkit: Patchkit, site: Path, own: Path, second: Path
) -> None:
    here = ("--root", str(site), "--no-shipped")
    first, other = ("--patches", str(own)), ("--patches", str(second))
    settings = ("--set", "CONFIG_SCALE=y", "--set", "CONFIG_SCALE_VALUE=", "--set", "CONFIG_KERNEL=n")
    assert patchkit("apply", *here, *first, *other, "--unlocked", *settings).status == 0
    whole = site / ".patchkit/vllm/.config"
    before = whole.read_bytes()
    whole.unlink()
    assert patchkit("apply", *here, *other, "--unlocked").status == 0
    assert whole.read_bytes() == before


def test_symbols_of_a_series_that_is_not_named_are_said_to_be_its(
    patchkit: Patchkit, site: Path, own: Path, second: Path
) -> None:
    here = ("--root", str(site), "--no-shipped")
    other = ("--patches", str(second))
    settings = ("--set", "CONFIG_SCALE=y", "--set", "CONFIG_SCALE_VALUE=0.5")
    assert patchkit("apply", *here, "--patches", own, *other, "--unlocked", *settings).status == 0
    home = "layer 1 own/vllm/0.6.3 has it: name that series too, with --patches"
    for command in (("set", "CONFIG_SCALE_VALUE=2"), ("why", "CONFIG_SCALE_VALUE"), ("why", "KERNEL")):
        said = patchkit("config", *command, *here, *other)
        assert said.status == 1
        assert "no such symbol" not in said.err
        assert home in said.err
    shown = patchkit("config", "show", *here, *other)
    assert "warning" not in shown.err
    assert "another Kconfig" not in shown.err
    assert "layer 1 own/vllm/0.6.3 has symbols of its own: --patches" in shown.err
    document = patchkit("config", "show", *here, *other, "--json").document
    assert document["unnamed"]["SCALE_VALUE"] == "layer 1 own/vllm/0.6.3"
    assert (document["stale"], document["warnings"]) == (False, [])
    assert "not named" not in patchkit("config", "set", "CONFIG_MINE=y", *here, *other).err
    (second / "vllm" / "Kconfig").write_text(OTHER_KCONFIG + 'config NEW\n\tbool "New"\n')
    assert "another Kconfig" in patchkit("config", "show", *here, *other).err


def test_a_directory_under_a_new_name_keeps_its_configuration(
    patchkit: Patchkit, site: Path, own: Path, second: Path
) -> None:
    here = ("--root", str(site), "--no-shipped")
    both = ("--patches", str(own), "--patches", str(second))
    settings = ("--set", "CONFIG_SCALE=y", "--set", "CONFIG_SCALE_VALUE=0.5", "--set", "CONFIG_MINE=y")
    assert patchkit("apply", *here, *both, "--unlocked", *settings).status == 0
    renamed = own.rename(own.with_name("ours"))
    name = "ours/vllm/0.6.3"

    shown = patchkit("config", "show", *here, "--patches", renamed)
    assert (shown.status, "not named" in shown.out, "another Kconfig" in shown.err) == (0, False, False)
    assert 'CONFIG_SCALE_VALUE="0.5"  (set before)' in shown.out
    said = patchkit("config", "set", "CONFIG_SCALE_VALUE=2", *here, "--patches", renamed)
    assert said.status == 0, said.err
    assert f"layer 1 own/vllm/0.6.3 is called {name} from now on" in said.err
    layers = patchkit("status", "--root", site, "--json").document["layers"]
    assert [layer["name"] for layer in layers] == [name, "second/vllm/0.6.3"]
    assert json.loads((site / ".patchkit/vllm/manifest.json").read_text())["layers"].keys() == {
        name,
        "second/vllm/0.6.3",
    }
    again = patchkit("apply", *here, "--patches", renamed, "--patches", second, "--unlocked")
    assert again.out.endswith("nothing to do\n")
    assert "is of a series that is not named" in patchkit("config", "set", "CONFIG_SCALE=n", *here, *both[2:]).err


def test_status_tells_what_was_set_from_what_holds(patchkit: Patchkit, site: Path, own: Path, second: Path) -> None:
    here = ("--root", str(site), "--no-shipped")
    both = ("--patches", str(own), "--patches", str(second))
    settings = ("--set", "CONFIG_SCALE=y", "--set", "CONFIG_SCALE_VALUE=0.5", "--set", "CONFIG_KERNEL=y")
    assert patchkit("apply", *here, *both, "--unlocked", *settings, "--set", "CONFIG_MINE=y").status == 0
    assert "CONFIG_SCALE_VALUE=0.5\n" in patchkit("status", "--root", site).out
    assert patchkit("config", "set", "CONFIG_SCALE=n", "CONFIG_MINE=n", *here, *both).status == 0
    said = patchkit("status", "--root", site)
    assert "CONFIG_SCALE_VALUE=0.5 was set; it has no value\n" in said.out
    assert "CONFIG_KERNEL=y was set; it is n\n" in said.out
    assert "CONFIG_SCALE=n\n" in said.out
    document = patchkit("status", "--root", site, "--json").document
    assert (document["configuration"]["KERNEL"], document["values"]["KERNEL"]) == ("y", "n")
    assert patchkit("revert", "--root", site, "--layer", "1").status == 0
    said = patchkit("status", "--root", site)
    assert "CONFIG_SCALE=n was set; own/vllm/0.6.3, which has it, was taken out\n" in said.out
    assert "CONFIG_MINE=n\n" in said.out


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('CONFIG_SCALE_VALUE="%s"' % ("x" * 65537), "expected at most 65,536 characters, found 65,537"),
        (f"CONFIG_SCALE_VALUE={'9' * 65}", "expected at most 64 characters, found 65"),
        (f"CONFIG_SCALE_VALUE=0x{'f' * 63}", "expected at most 64 characters, found 65"),
    ],
    ids=["text", "int", "hex"],
)
def test_value_that_nobody_means_is_refused(
    setting: str, said: str, patchkit: Patchkit, where: tuple[str, ...], site: Path, tmp_path: Path
) -> None:
    (tmp_path / "long.config").write_text(f"CONFIG_SCALE=y\n{setting}\n")
    before = snapshot(site)
    from_file = patchkit("apply", *where, "--unlocked", "--config", tmp_path / "long.config")
    assert (from_file.status, snapshot(site)) == (1, before)
    assert "long.config:2: CONFIG_SCALE_VALUE: the value is too long" in from_file.err
    given = patchkit("apply", *where, "--unlocked", "--set", setting.replace('"', ""))
    assert (given.status, snapshot(site)) == (2, before)
    for err in (from_file.err, given.err):
        assert said in err
        assert len(err) < 1000


@pytest.mark.parametrize(
    ("toggle", "values"),
    [("select", "ny"), ("guard", "ny"), ("guard", "yn")],
    ids=["select, on", "guard, on", "guard, off"],
)
def test_patch_that_needs_the_tree_it_was_cut_against_is_switched_with_it(
    patchkit: Patchkit, where: tuple[str, ...], site: Path, own: Path, tmp_path: Path, toggle: str, values: str
) -> None:
    bare = b"--- a/vllm/kernel.cu\n+++ b/vllm/kernel.cu\n@@ -5,0 +6 @@\n+more\n"
    patch = own / "vllm/0.6.3/0002-kernel.patch"
    patch.write_bytes(header("kernel", Config="KERNEL", Toggle=toggle) + bare)
    base = shutil.copytree(site, tmp_path / "base")
    given = ("--set", "CONFIG_SCALE=y", "--set", f"CONFIG_KERNEL={values[0]}")
    assert patchkit("apply", *where, "--unlocked", "--base", base, *given).status == 0
    before = snapshot(site)
    setting = f"CONFIG_KERNEL={values[1]}"
    said = patchkit("config", "set", setting, *where)
    assert (said.status, snapshot(site)) == (1, before)
    assert "no context: needs --base or a lock" in said.out
    step = "`patchkit config set` takes it with --base DIR: the tree that the series was cut against"
    assert said.out.endswith(f"next: {step}\n")
    assert patchkit("config", "set", setting, *where, "--json").document["next"] == step
    assert patchkit("config", "set", setting, *where, "--base", base).status == 0
    assert "more\n" in (site / "vllm/kernel.cu").read_text()


def test_plan_says_what_apply_does_where_no_file_changes(
    patchkit: Patchkit, where: tuple[str, ...], patched: Path
) -> None:
    asked = (*where, "--unlocked")
    assert patchkit("plan", *asked).out.endswith("nothing to do\n")
    assert patchkit("plan", *asked, "--json").document["changes"] is False
    (patched / ".patchkit/vllm/.config").write_text("# edited\n")
    assert patchkit("plan", *asked, "--json").document["changes"] is True
    planned = patchkit("plan", *asked).out.splitlines()[-1]
    assert planned == "apply would change no file, only the state in .patchkit"
    assert patchkit("apply", *asked).out.splitlines()[-1] == "applied: no file, only the state in .patchkit changed"
    assert patchkit("plan", *asked).out.endswith("nothing to do\n")
    assert patchkit("apply", *asked).out.endswith("nothing to do\n")


@pytest.mark.parametrize("after", ["apply", "config set"])
def test_symbols_of_a_layer_that_was_taken_out_stand_until_the_next_apply(
    after: str, patchkit: Patchkit, site: Path, own: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(own, other)
    (other / "vllm/0.6.3/series").write_text("0001-scale.patch\n")
    patch = other / "vllm/0.6.3/0001-scale.patch"
    patch.write_bytes(header("own", Config="OWN") + changed("vllm/later.py", "line 1\n", "one\n"))
    (other / "vllm/Kconfig").write_text('config OWN\n\tbool "Own"\n')
    here, series = ("--root", str(site), "--no-shipped"), ("--patches", str(other))
    settings = ("--set", "CONFIG_SCALE=y", "--set", "CONFIG_OWN=y")
    assert patchkit("apply", *here, "--patches", own, *series, "--unlocked", *settings).status == 0
    assert patchkit("revert", "--root", site, "--layer", "1").status == 0
    shown = [site / "vllm/_patchkit/autoconf.py", site / ".patchkit/vllm/.config"]
    assert all("CONFIG_SCALE" in path.read_text() for path in shown)
    assert "own/vllm/0.6.3, which has it, was taken out" in patchkit("status", "--root", site).out
    command = ("apply", "--unlocked") if after == "apply" else ("config", "set", "CONFIG_OWN=n")
    assert patchkit(*command, *here, *series).status == 0
    assert not any("CONFIG_SCALE" in path.read_text() for path in shown)
