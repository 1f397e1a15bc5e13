"""The .config language: what the kernel's own tool writes is read, everything else is refused with its place."""

from __future__ import annotations

from pathlib import Path

import kconfiglib
import pytest

from patchkit.config.dotconfig import Assignment, ValueKind, is_enabled, merge, parse_dotconfig, parse_setting
from patchkit.errors import UsageError

KCONFIG = """\
config ON
    bool "on"
    default y
config OFF
    bool "off"
config TEXT
    string "text"
    default "plain"
config COUNT
    int "count"
    default -3
config MASK
    hex "mask"
    default 0x1F
"""


@pytest.mark.parametrize("text", ["plain", "", 'say "hi"', "back\\slash", "tail\\", '\\"', "a=b # c", "ünïcode"])
def test_file_that_kconfiglib_writes_reads_back(text: str, tmp_path: Path) -> None:
    (tmp_path / "Kconfig").write_text(KCONFIG)
    kconfig = kconfiglib.Kconfig(str(tmp_path / "Kconfig"))
    kconfig.syms["TEXT"].set_value(text)
    kconfig.write_config(str(tmp_path / ".config"))

    values = merge(parse_dotconfig((tmp_path / ".config").read_text(), ".config").assignments)

    assert {name: (found.value, found.kind) for name, found in values.items()} == {
        "ON": ("y", ValueKind.BOOL),
        "OFF": ("n", ValueKind.BOOL),
        "TEXT": (text, ValueKind.STRING),
        "COUNT": ("-3", ValueKind.INT),
        "MASK": ("0x1F", ValueKind.HEX),
    }


def test_every_assignment_knows_its_line() -> None:
    found = parse_dotconfig(
        "\n# a comment\nCONFIG_A=y\r\n# CONFIG_B is not set\nCONFIG_A=n  \n", "x/.config"
    ).assignments

    assert [(one.symbol, one.value, one.origin) for one in found] == [
        ("A", "y", "x/.config:3"),
        ("B", "n", "x/.config:4"),
        ("A", "n", "x/.config:5"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "CONFIG_A",
        "CONFIG_A = y",
        " CONFIG_A=y",
        "CONFIG_A-B=y",
        "A=y",
        "export CONFIG_A=y",
        "#CONFIG_A is not set",
        "#  CONFIG_A is not set",
        "# CONFIG_A is not set.",
        "# config_A is  not set",
    ],
    ids=ascii,
)
def test_line_that_is_no_setting_is_a_fault_with_its_place(line: str) -> None:
    found = parse_dotconfig(f"CONFIG_B=y\n{line}\nCONFIG_C=y\n", ".config")
    assert [one.symbol for one in found.assignments] == ["B", "C"]
    assert [(fault.place, fault.what) for fault in found.faults] == [(".config:2", "not a setting")]
    assert found.faults[0].why.startswith(f"  2 | {line}\nexpected a line as in `CONFIG_X=y`")


def test_a_line_that_is_shown_does_not_steer_the_terminal() -> None:
    (fault,) = parse_dotconfig("\x1b[2J\udcff" + "x" * 1000, ".config").faults
    assert fault.why.split("\n")[0] == "  1 | \\x1b[2J\\xff" + "x" * 115


def test_a_file_that_is_none_is_not_read_to_its_end() -> None:
    found = parse_dotconfig("CONFIG_A=y\n" + "what\n" * 20 + "CONFIG_B=y\n" + "what\n" * 100, "x")
    assert [one.symbol for one in found.assignments] == ["A", "B"]
    assert len(found.faults) == 21
    assert (found.faults[-1].place, found.faults[-1].what) == ("x:23", "nothing is read from here on")
    assert len(parse_dotconfig("what\n" * 20, "x").faults) == 20


@pytest.mark.parametrize(
    "value",
    ["", "m", "Y", "text", '"open', '"a" b', '"a\\"', "y # comment", "0x", "0.5", "١", "\udcff"],
    ids=ascii,
)
def test_value_that_is_written_as_none_is_left_to_its_symbol(value: str) -> None:
    (one,) = parse_dotconfig(f"CONFIG_A={value}\n", ".config").assignments
    assert (one.value, one.kind, one.origin) == (value, ValueKind.UNQUOTED, ".config:1")


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("CONFIG_X=y", "y", ValueKind.BOOL),
        ("CONFIG_X=n", "n", ValueKind.BOOL),
        ("CONFIG_X=0x1f", "0x1f", ValueKind.HEX),
        ("CONFIG_X=-12", "-12", ValueKind.INT),
        ('CONFIG_X="y"', "y", ValueKind.STRING),
        ("CONFIG_X=a b=c", "a b=c", ValueKind.STRING),
        ("CONFIG_X=", "", ValueKind.STRING),
    ],
)
def test_setting_of_a_command_line(text: str, value: str, kind: ValueKind) -> None:
    assert parse_setting(text) == Assignment(symbol="X", value=value, kind=kind, origin="--set")


@pytest.mark.parametrize("text", ["X=y", "CONFIG_X", "CONFIG_=y", "", "CONFIG_X-Y=y", "CONFIG_X=a\nb"])
def test_argument_that_is_no_setting_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not a setting") as refused:
        parse_setting(text)
    assert refused.value.hint == ("did you mean CONFIG_X=y?" if text in ("X=y", "CONFIG_X") else "")


def test_last_layer_wins_and_keeps_its_origin() -> None:
    base, user = (
        parse_dotconfig(text, name) for text, name in (("CONFIG_B=y\nCONFIG_A=y\n", "base"), ("CONFIG_A=n\n", "user"))
    )
    merged = merge(base.assignments, user.assignments, ())

    assert list(merged) == ["A", "B"]
    assert (merged["A"].value, merged["A"].origin) == ("n", "user:1")
    assert (merged["B"].value, merged["B"].origin) == ("y", "base:1")


@pytest.mark.parametrize(
    ("setting", "enabled"),
    [
        ("CONFIG_X=y", True),
        ("CONFIG_X=n", False),
        ('CONFIG_X="y"', False),
        ("CONFIG_X=1", False),
        ("CONFIG_Y=y", False),
    ],
)
def test_only_y_opens_a_gate(setting: str, enabled: bool) -> None:
    assert is_enabled("X", merge([parse_setting(setting)])) is enabled


def test_patch_without_a_gate_is_always_enabled() -> None:
    assert is_enabled("", {})
