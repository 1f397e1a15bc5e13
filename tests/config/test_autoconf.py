"""The generated files mean to Python, to a C compiler and to a shell what the configuration says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchkit.config.autoconf import python_value, render_header, render_make, render_python
from patchkit.config.configuration import Configuration, Value
from patchkit.config.dotconfig import ValueKind

VALUES = (
    Value(symbol="EMPTY", kind=ValueKind.STRING, text=""),
    Value(symbol="HEX", kind=ValueKind.HEX, text="0x1F"),
    Value(symbol="NO_NUMBER", kind=ValueKind.INT, text=""),
    Value(symbol="NUMBER", kind=ValueKind.INT, text="-12"),
    Value(symbol="OFF", kind=ValueKind.BOOL, text="n"),
    Value(symbol="ON", kind=ValueKind.BOOL, text="y"),
    Value(symbol="TEXT", kind=ValueKind.STRING, text='say "\\n" % $(x) ü'),
)
CONFIGURATION = Configuration(values=VALUES, origins=("default",) * len(VALUES))


def test_python_reads_every_value() -> None:
    names: dict[str, object] = {}
    exec(compile(render_python(CONFIGURATION), "autoconf.py", "exec"), names)  # noqa: S102 -- what engines do
    found = {name.removeprefix("CONFIG_"): names[name] for name in names if name.startswith("CONFIG_")}
    assert found == {value.symbol: python_value(value) for value in VALUES}
    assert (found["HEX"], found["NUMBER"], found["NO_NUMBER"], found["OFF"]) == (31, -12, 0, False)


@pytest.mark.parametrize("text", ['"', "\\", "\n", "\x00", "'''", '"""', "\ud800", "🎉", "\x85", "\\U0001"])
def test_no_string_breaks_out_of_its_quotes(text: str) -> None:
    value = Value(symbol="S", kind=ValueKind.STRING, text=text)
    names: dict[str, object] = {}
    exec(render_python(Configuration(values=(value,), origins=("x",))), names)  # noqa: S102
    assert names["CONFIG_S"] == text


def test_the_compiler_reads_every_value(tmp_path: Path) -> None:
    (tmp_path / "autoconf.h").write_bytes(render_header(CONFIGURATION))
    (tmp_path / "a.c").write_text(
        '#include "autoconf.h"\n#include "autoconf.h"\n#include <string.h>\n'
        "#if CONFIG_OFF || IS_ENABLED(CONFIG_OFF) || !CONFIG_ON || !IS_ENABLED(CONFIG_ON) || defined(CONFIG_OFF)\n"
        "#error wrong\n#endif\n"
        "int main(void) { return !(IS_ENABLED(CONFIG_ON) && !IS_ENABLED(CONFIG_OFF) && CONFIG_HEX == 31\n"
        '  && CONFIG_NUMBER == -12 && CONFIG_NO_NUMBER == 0 && !strcmp(CONFIG_TEXT, "say \\"\\\\n\\" % $(x) ü")); }\n'
    )
    for compiler, language in (("cc", "c"), ("c++", "c++")):
        program = str(tmp_path / "a")
        subprocess.run([compiler, "-x", language, "-Wall", "-Werror", "-o", program, f"{program}.c"], check=True)
        subprocess.run([program], check=True)


def test_the_compiler_reads_control_characters_and_trigraphs_as_they_are(tmp_path: Path) -> None:
    value = Value(symbol="S", kind=ValueKind.STRING, text="a\rb\x000\t\x1b\x7f\x0c\n7 ??/ ???= \\")
    (tmp_path / "autoconf.h").write_bytes(render_header(Configuration(values=(value,), origins=("x",))))
    (tmp_path / "a.c").write_text(
        '#include "autoconf.h"\n#include <stdio.h>\n'
        "int main(void) { return fwrite(CONFIG_S, sizeof(CONFIG_S) - 1, 1, stdout) != 1; }\n"
    )
    program = str(tmp_path / "a")
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-o", program, f"{program}.c"], check=True)
    assert subprocess.run([program], capture_output=True, check=True).stdout == value.text.encode()


def test_auto_conf_leaves_out_what_is_off() -> None:
    lines = render_make(CONFIGURATION).decode().splitlines()[1:]
    assert lines == [
        'CONFIG_EMPTY=""',
        "CONFIG_HEX=0x1F",
        "CONFIG_NUMBER=-12",
        "CONFIG_ON=y",
        'CONFIG_TEXT="say \\"\\\\n\\" % $(x) ü"',
    ]


def test_bytes_that_are_no_text_survive() -> None:
    value = Value(symbol="S", kind=ValueKind.STRING, text="\udcff")
    configuration = Configuration(values=(value,), origins=("x",))
    assert b'CONFIG_S "\xff"' in render_header(configuration)
    assert b'CONFIG_S="\xff"' in render_make(configuration)
