"""Imports and includes that authors left to patchkit stand where the language allows them."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from patchkit.config.supply import named_symbols, supply_import, supply_include

LINE = b"from vllm._patchkit.autoconf import CONFIG_A"


def supplied(source: bytes, *symbols: str) -> bytes:
    return supply_import(source, "vllm._patchkit.autoconf", symbols or ("A", "B"))


@pytest.mark.parametrize(
    ("source", "behind"),
    [
        (b"if CONFIG_A:\n    pass\n", b""),
        (b'"""Doc."""\nif CONFIG_A:\n    pass\n', b'"""Doc."""\n'),
        (b'"""Doc\n\nlong."""\n\nfrom __future__ import annotations\nx = CONFIG_A\n', b"annotations\n"),
        (b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\n# \xe9\nimport os\nx = CONFIG_A\n", b"# \xe9\n"),
        (b"\xef\xbb\xbfx = CONFIG_A\n", b"\xef\xbb\xbf"),
        (b"@CONFIG_A\ndef f(): ...\n", b""),
        (b"# licence\n\n@other\n@CONFIG_A\nclass C: ...\n", b"# licence\n\n"),
        (b"x = CONFIG_A", b""),
        (b'"""Doc."""; from __future__ import annotations\nx = CONFIG_A', b"annotations\n"),
    ],
)
def test_the_import_stands_in_the_first_valid_place(source: bytes, behind: bytes) -> None:
    made = supplied(source)
    assert made.replace(LINE + b"\n", b"") == source
    assert made.partition(LINE)[0].endswith(behind)
    compile(made, "x.py", "exec")
    tree = ast.parse(made)
    assert ast.get_docstring(tree) == ast.get_docstring(ast.parse(source))
    assert supplied(made) == made, "a second time there is nothing to supply"


def test_line_ends_are_the_files_own() -> None:
    assert supplied(b"import os\r\nx = CONFIG_A\r\n").startswith(LINE + b"\r\n")


@pytest.mark.parametrize(
    "source",
    [
        b"from vllm._patchkit.autoconf import CONFIG_A\nx = CONFIG_A\n",
        b"CONFIG_A = {}\nx = CONFIG_A\n",
        b"from transformers import CONFIG_A\nx = CONFIG_A\n",
        b"x = CONFIG_MAPPING\n",
        b"x = 'CONFIG_A'  # CONFIG_A\n",
        b"def f(CONFIG_A): return CONFIG_A\n",
        b"x = other.CONFIG_A\n",
        b"for CONFIG_A in []: CONFIG_A\n",
    ],
)
def test_names_that_have_a_meaning_of_their_own_are_left_alone(source: bytes) -> None:
    assert supplied(source) == source


def test_several_names_come_in_one_line() -> None:
    made = supplied(b"def f():\n    return CONFIG_B or CONFIG_A\n")
    assert made.splitlines()[0] == LINE + b", CONFIG_B"


def test_a_file_that_does_not_parse_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        supplied(b"if CONFIG_A\n")


@pytest.mark.parametrize("first", [b'"""Doc."""; ', b"from __future__ import annotations; "])
def test_no_import_is_put_behind_a_line_that_reads_the_name(first: bytes) -> None:
    with pytest.raises(ValueError, match=r"two statements stand on line \d"):
        supplied(first + b"x = CONFIG_A\n")


def test_the_include_is_supplied_once_and_compiles(tmp_path: Path) -> None:
    source = b"#if CONFIG_A\nint a;\n#endif\n"
    made = supply_include(source, "sub/autoconf.h", {"A"})
    assert made == b'#include "sub/autoconf.h"\n' + source
    assert supply_include(made, "sub/autoconf.h", {"A"}) == made
    assert supply_include(source, "sub/autoconf.h", {"B"}) == source
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/autoconf.h").write_text("#define CONFIG_A 1\n")
    (tmp_path / "a.c").write_bytes(made)
    shown = subprocess.run(["cc", "-E", "-P", "a.c"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "int a;" in shown.stdout


def test_names_are_found_whole() -> None:
    assert named_symbols(b"CONFIG_A MY_CONFIG_B IS_ENABLED(CONFIG_C) config_d CONFIG_") == {"A", "C"}
