"""Scopes by syntax tree, and section headings as git writes them."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from patchkit.diff import scope
from patchkit.diff.image import split_lines
from patchkit.diff.parse import parse_patch
from patchkit.diff.scope import Headings, c_rule, default_rule, heading_at, python_rule, python_scopes

SOURCE = b'''\
import os

@decorator(
    1,
)
class Engine:
    limit = 3

    @property
    def size(self):
        def inner():
            return 1
            # inner's
        # size's
        return inner

    # the class's
    async def run(self):
        text = """
def not_here() -> None:
"""
        return text


# the module's
if os.name == "posix":
    def only_here():
        pass
else:
    try:
        pass
    finally:
        def last():
            pass
'''
EXPECTED = {
    1: "",
    3: "Engine",
    5: "Engine",
    6: "Engine",
    7: "Engine",
    8: "Engine",
    9: "Engine.size",
    10: "Engine.size",
    11: "Engine.size.inner",
    13: "Engine.size.inner",
    14: "Engine.size",
    15: "Engine.size",
    16: "Engine.size",
    17: "Engine",
    18: "Engine.run",
    20: "Engine.run",
    22: "Engine.run",
    24: "Engine.run",
    25: "",
    26: "",
    27: "only_here",
    28: "only_here",
    29: "",
    33: "last",
    34: "last",
    900: "",
}


@pytest.mark.parametrize(("line", "name"), EXPECTED.items())
def test_a_line_belongs_to_the_innermost_definition(line: int, name: str) -> None:
    scopes = python_scopes(SOURCE)
    assert scopes is not None
    assert scopes.at(line) == name


@pytest.mark.parametrize("content", [b"def f(:\n", b"a = '\0'\n", b"\xff\n", b"(" * 500], ids=range(4))
def test_a_file_that_does_not_parse_has_no_scopes(content: bytes) -> None:
    assert python_scopes(content) is None


def test_a_lone_carriage_return_does_not_shift_the_lines() -> None:
    scopes = python_scopes(b"x = 1 \r\n# a\rb\ndef f():\n    pass\n")
    assert scopes is not None
    assert [scopes.at(line) for line in (1, 2, 3, 4)] == ["", "", "f", "f"]


def test_a_doubtful_escape_warns_nobody() -> None:
    assert python_scopes(b"def f():\n    return '\\d'\n") is not None


def test_every_definition_of_a_real_module_is_found() -> None:
    content = Path(ast.__file__).read_bytes()
    scopes = python_scopes(content)
    assert scopes is not None
    tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert scopes.at(node.lineno).rpartition(".")[2] == node.name
            assert scopes.at(node.end_lineno or 0).split(".")[: 1 + scopes.at(node.lineno).count(".")] == scopes.at(
                node.lineno
            ).split(".")


C = b"""\
namespace x {
class Engine {
public:
  int run() {
    a;
    b;
    c;
    d;
  }
"""


def test_the_three_rules_give_three_headings() -> None:
    lines = split_lines(C)
    assert Headings(lines).above(6, default_rule) == b"public:"
    assert Headings(lines).above(6, c_rule) == b"class Engine {"
    lines = split_lines(b"class A:\n    async def f(self):\n        x\n        y\n")
    assert Headings(lines).above(4, python_rule) == b"async def f(self):"
    assert heading_at(lines, 4) == (b"class A:", b"async def f(self):")
    assert heading_at(lines, 1) == ()


def test_a_heading_is_cut_to_80_bytes() -> None:
    assert Headings([b"f" * 100 + b"\n", b"x\n"]).above(2, default_rule) == b"f" * 80
    assert Headings([b"f" * 70 + b" " * 30 + b"g\n", b"x\n"]).above(2, default_rule) == b"f" * 70


@pytest.mark.parametrize("driver", ["", "python", "cpp"])
def test_headings_are_those_that_git_writes(tmp_path: Path, driver: str) -> None:
    content = Path(ast.__file__).read_bytes() if driver != "cpp" else C * 30
    lines = split_lines(content)
    changed = [line if number % 97 else line.rstrip(b"\n") + b" \n" for number, line in enumerate(lines)]
    (tmp_path / ".gitattributes").write_text(f"f diff={driver}\n" if driver else "")
    (tmp_path / "f").write_bytes(content)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "f").write_bytes(b"".join(changed))
    diff = subprocess.run(["git", "diff"], cwd=tmp_path, check=True, capture_output=True).stdout
    rule = {"": default_rule, "python": python_rule, "cpp": c_rule}[driver]
    headings = Headings(lines)
    hunks = parse_patch(diff, source="x").files[0].hunks
    assert len(hunks) > 2
    assert [headings.above(hunk.old_start, rule) for hunk in hunks] == [hunk.section.strip() for hunk in hunks]
    assert all(scope.is_heading(hunk.section.strip()) for hunk in hunks if hunk.section.strip())
