"""The command's own way to import click: lighter, and the same click."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.cli.start import clean

POSTPONED = ("ast", "datetime", "inspect", "platform", "uuid")

# In a process of its own: what is loaded here would be found.
_LIGHTLY = (
    'from patchkit.cli.start import import_lightly; import_lightly("pathlib", "click"); import click, json, sys\n'
)


def _run(checkout: Path, code: str) -> Any:
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{_LIGHTLY}{code}"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_what_click_hardly_uses_is_not_loaded(checkout: Path) -> None:
    assert _run(checkout, f"print(json.dumps([name for name in {POSTPONED!r} if name in sys.modules]))") == []


@pytest.mark.parametrize("module", ["patchkit", "patchkit.cli.start", "patchkit.cli.main"])
def test_every_module_that_may_be_taken_for_the_command_is_it(checkout: Path, module: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("patchkit, version ")


def test_a_start_of_the_command_loads_none_of_it(checkout: Path) -> None:
    code = """
import atexit
atexit.register(lambda: print(json.dumps(sorted(sys.modules))))
sys.argv = ["patchkit", "--version"]
from patchkit.cli.start import main
main()
"""
    command = [sys.executable, "-S", "-c", f"import json, sys; sys.path[:0] = {sys.path!r}{code}"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    version, _, loaded = run.stdout.partition("\n")
    assert version.startswith("patchkit, version ")
    assert not set(json.loads(loaded)) & set(POSTPONED)


@pytest.mark.parametrize("name", ["inspect", "datetime", "uuid", "urllib.parse"])
def test_an_import_afterwards_finds_the_module_itself(checkout: Path, name: str) -> None:
    code = f"import importlib; print(json.dumps(bool(importlib.import_module({name!r}).__file__)))"
    assert _run(checkout, code) is True


def test_click_gets_from_a_postponed_module_whatever_it_asks_for(checkout: Path) -> None:
    code = """
import click.core
assert "inspect" not in sys.modules
asked = click.core.inspect.isfunction(len), click.core.inspect.isfunction(click.core.inspect.getsource)
import inspect
print(json.dumps([*asked, click.core.inspect.signature is inspect.signature]))
"""
    assert _run(checkout, code) == [False, True, True]


def test_parameters_of_the_postponed_kinds_work(checkout: Path) -> None:
    code = """
when = click.DateTime().convert("2024-05-06", None, None)
who = click.UUID.convert("12345678123456781234567812345678", None, None)
again = click.DateTime().convert(when, None, None) is when and click.UUID.convert(who, None, None) is who
import datetime, pathlib, uuid
print(json.dumps([type(when) is datetime.datetime, when.isoformat(), type(who) is uuid.UUID, str(who), again,
                  pathlib.Path("/a b").as_uri()]))
"""
    assert _run(checkout, code) == [
        True,
        "2024-05-06T00:00:00",
        True,
        "12345678-1234-5678-1234-567812345678",
        True,
        "file:///a%20b",
    ]


def test_a_module_that_is_loaded_already_is_the_one_that_click_gets(checkout: Path) -> None:
    command = [
        sys.executable,
        "-c",
        f"import inspect\n{_LIGHTLY}import click.core; print(click.core.inspect is inspect is sys.modules['inspect'])",
    ]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"


def test_ctrl_c_is_awaited_before_anything_else_is_loaded(checkout: Path) -> None:
    """What is loaded before `main` runs is loaded while Ctrl-C is answered by a traceback."""
    code = "before = {*sys.modules}; import patchkit.cli.start; print(*{*sys.modules} - before)"
    command = [sys.executable, "-c", f"import os, sys; sys.path[:0] = {sys.path!r}; {code}"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    assert {*run.stdout.split()} <= {"patchkit", "patchkit.cli", "patchkit.cli.start", "__future__", "gc"}


@pytest.mark.parametrize("json_wanted", [False, True])
def test_ctrl_c_before_click_is_loaded_is_an_interruption_like_any_other(
    checkout: Path, tmp_path: Path, json_wanted: bool
) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "patchkit", "status", *(["--json"] if json_wanted else [])]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{checkout}"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (130, "interrupted\n")
    assert (json.loads(run.stdout)["status"] == 130) if json_wanted else not run.stdout


# Blanks, tabs and lines: of other white space inspect thinks otherwise from Python 3.13 on.
@given(st.text(alphabet=" \t\nab", max_size=60))
def test_texts_are_cleaned_as_inspect_does(text: str) -> None:
    assert clean(text) == inspect.cleandoc(text)
