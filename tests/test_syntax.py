"""The syntax check, by this interpreter and by another one."""

from __future__ import annotations

import ast
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from patchkit import syntax
from patchkit.syntax import check_syntax

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
GOOD, BAD = b"def f():\n    return 1\n", b"def f():\nreturn 1\n"
PYENV = Path.home() / ".pyenv" / "versions"  # of the user: the tests have a home of their own
F, G = PurePosixPath("f.py"), PurePosixPath("g.py")


def other_interpreter() -> tuple[Path, str]:
    """Return an interpreter of another minor version."""
    for place in sorted(PYENV.glob("3.*/bin/python")):
        version = ".".join(place.parent.parent.name.split(".")[:2])
        if version != RUNNING:
            return place, version
    pytest.skip("no interpreter of another version is installed under ~/.pyenv")


@pytest.fixture(params=["running", "other"])
def judge(request: pytest.FixtureRequest) -> dict[str, object]:
    if request.param == "running":
        return {"python": None, "python_version": ""}
    python, version = other_interpreter()
    return {"python": python, "python_version": version}


def test_a_file_that_broke_is_named_with_its_line(judge: dict[str, Any]) -> None:
    broken = check_syntax({F: (GOOD, BAD), G: (GOOD, GOOD + b"x = 1\n")}, **judge)
    assert list(broken) == [F]
    assert broken[F].startswith("line 2: ")


def test_a_file_that_was_broken_before_is_not_our_fault(judge: dict[str, Any]) -> None:
    assert check_syntax({F: (BAD, BAD + b"(\n")}, **judge) == {}


def test_a_new_file_must_compile(judge: dict[str, Any]) -> None:
    assert set(check_syntax({F: (b"", BAD), G: (b"", GOOD)}, **judge)) == {F}


def test_a_statement_outside_its_function_is_seen(judge: dict[str, Any]) -> None:
    assert "outside function" in check_syntax({F: (GOOD, b"def f():\n    pass\nreturn 1\n")}, **judge)[F]


@pytest.mark.parametrize(
    "source",
    [
        b"return 1\n",
        b"yield 1\n",
        b"await x\n",
        b"break\n",
        b"continue\n",
        b"nonlocal x\n",
        b"def f():\n x = 1\n global x\n",
        b"def f(a, a): pass\n",
        b"def f():\n from a import *\n",
        b"try:\n pass\nexcept:\n pass\nexcept E:\n pass\n",
        b"def f():\n async with a: pass\n",
        b"def f():\n async for a in b: pass\n",
        b"def f():\n return [x async for x in y]\n",
        b"a = *b\n",
        b"*a, *b = c\n",
        b"x = 1\nfrom __future__ import annotations\n",
        b"from __future__ import curly\n",
        b"__debug__ = 1\n",
        b"[x := 1 for x in y]\n",
    ],
)
def test_what_the_parser_lets_pass_is_seen(source: bytes) -> None:
    ast.parse(source)
    assert set(check_syntax({F: (GOOD, source)}, python=None, python_version="")) == {F}


def test_bytes_that_are_no_text_are_an_error_not_a_crash(judge: dict[str, Any]) -> None:
    broken = check_syntax({F: (GOOD, b"x = '\xff'\n"), G: (GOOD, b"x = 1\0\n")}, **judge)
    assert set(broken) == {F, G}
    assert all(message and "None" not in message for message in broken.values())


def test_a_declared_encoding_is_obeyed(judge: dict[str, Any]) -> None:
    assert check_syntax({F: (GOOD, b"# coding: latin-1\nx = '\xff'\n")}, **judge) == {}


def test_a_warning_is_no_error(judge: dict[str, Any]) -> None:
    assert check_syntax({F: (GOOD, b"x = '\\d'\nassert (1, 2)\n")}, **judge) == {}


def test_our_own_future_statements_do_not_reach_the_files(judge: dict[str, Any]) -> None:
    assert check_syntax({F: (GOOD, b"def f(x: (y := 1)): pass\n")}, **judge) == {}


def test_many_large_files_fit_through_one_child(judge: dict[str, Any]) -> None:
    large = b"value = [1, 2, 3]\n" * 2_000
    files = {PurePosixPath(f"{number}.py"): (large, large) for number in range(4)}
    assert check_syntax(files | {F: (large, large + b"(")}, **judge).keys() == {F}


def test_the_target_decides_what_is_syntax() -> None:
    python = PYENV / "3.9.18" / "bin" / "python"
    if not python.exists():
        pytest.skip("no Python 3.9 under ~/.pyenv: the oldest is what shows the difference")
    files = {F: (GOOD, b"match 1:\n    case 1:\n        pass\n")}
    assert check_syntax(files, python=None, python_version="3.9") == {}
    assert set(check_syntax(files, python=python, python_version="3.9.18")) == {F}


def test_the_running_version_needs_no_child(tmp_path: Path) -> None:
    nowhere = tmp_path / "no-such-python"
    assert check_syntax({F: (GOOD, GOOD)}, python=nowhere, python_version=RUNNING) == {}
    assert check_syntax({}, python=nowhere, python_version="2.7") == {}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "cannot run"),
        ("#!/bin/sh\ncat > /dev/null\necho '[]'\n", "gave no verdict"),
        ("#!/bin/sh\ncat > /dev/null\necho nonsense\n", "gave no verdict"),
        ("#!/bin/sh\ncat > /dev/null\necho broken >&2\nexit 7\n", "exit status 7"),
        ("#!/bin/sh\nsleep 60\n", "did not end within"),
    ],
    ids=["missing", "too few answers", "no json", "fails", "hangs"],
)
def test_files_that_could_not_be_judged_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, why: str
) -> None:
    monkeypatch.setattr(syntax, "_TIMEOUT", 1)
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    broken = check_syntax({F: (GOOD, GOOD), G: (GOOD, GOOD)}, python=python, python_version="3.1")
    assert set(broken) == {F, G}
    assert all(message.startswith("not judged: ") and why in message for message in broken.values())
