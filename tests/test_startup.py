"""What a start of the command does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    """Return what is loaded when the command has ended."""
    run = subprocess.run(
        [sys.executable, "-c", _PROBE, *arguments], cwd=checkout, capture_output=True, text=True, check=True
    )
    status, modules = json.loads(run.stdout.splitlines()[-1])
    assert status == 0
    return set(modules) - _modules_without_us()


def _modules_without_us() -> set[str]:
    """Return what the interpreter loads by itself: .pth files of an environment may import anything."""
    run = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("plan", "--help"), ("series", "--help")], ids=" ".join
)
def test_help_loads_nothing_heavy(checkout: Path, arguments: tuple[str, ...]) -> None:
    loaded = _modules_after(checkout, *arguments)
    assert "click" in loaded, "the probe ran the command"
    assert sorted(loaded & set(HEAVY)) == []
