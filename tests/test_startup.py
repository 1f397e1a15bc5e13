"""What a start of the command does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Each costs milliseconds, torch seconds; `patchkit --help` needs none of them.
HEAVY = (
    "asyncio",
    "cffi",
    "difflib",
    "elftools",
    "importlib.metadata",
    "kconfiglib",
    "packaging",
    "rich",
    "subprocess",
    "tempfile",
    "torch",
    "triton",
    "unidiff",
    "urllib.request",
)

_PROBE = """
import json, sys
from patchkit.cli.main import main
sys.argv = ["patchkit", *sys.argv[1:]]
try:
    status = main()
except SystemExit as leaving:
    status = leaving.code
print()
print(json.dumps([status or 0, sorted(sys.modules)]))
"""


def _modules_after(checkout: Path, *arguments: str) -> set[str]:
    """Return what is loaded when the command has ended, less what the interpreter loads by itself."""
    loaded = _last_line(checkout, _PROBE, *arguments)
    assert loaded[0] == 0
    return set(loaded[1]) - _modules_without_us(checkout)


def _modules_without_us(checkout: Path) -> set[str]:
    """Return what a start loads without us: click, and the .pth files of an environment, may import anything."""
    return set(_last_line(checkout, "import click, json, sys; print(json.dumps(sorted(sys.modules)))"))


def _last_line(checkout: Path, code: str, *arguments: str) -> list[Any]:
    command = [sys.executable, "-c", code, *arguments]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: list[Any] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("plan", "--help"), ("series", "--help"), ("native", "--help")],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(checkout: Path, arguments: tuple[str, ...]) -> None:
    loaded = _modules_after(checkout, *arguments)
    assert "patchkit.cli.main" in loaded, "the probe ran the command"
    assert sorted(loaded & set(HEAVY)) == []
