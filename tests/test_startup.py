"""What a start of the command does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.wheels import DIFF, engine, wheel_tree, write_tree

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
from patchkit.cli.main import run
status = run(sys.argv[1:])
print()
print(json.dumps([status, sorted(sys.modules)]))
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
    [
        ("--help",),
        ("--version",),
        ("plan", "--help"),
        ("series", "--help"),
        ("abi", "--help"),
        ("abi", "check", "--help"),
        ("native", "--help"),
    ],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(checkout: Path, arguments: tuple[str, ...]) -> None:
    loaded = _modules_after(checkout, *arguments)
    assert "patchkit.cli.main" in loaded, "the probe ran the command"
    assert sorted(loaded & set(HEAVY)) == []


def test_the_list_of_commands_needs_no_paths_and_no_records(checkout: Path) -> None:
    loaded = _modules_after(checkout, "--help")
    assert not loaded & {"bz2", "dataclasses", "lzma", "pathlib", "shutil", "urllib.parse", "zlib"}


@pytest.mark.parametrize("settings", [(), ("--set", "CONFIG_X=n")], ids=["no gate", "settings without Kconfig"])
def test_a_series_without_toggles_loads_no_kconfig(checkout: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    root = write_tree(tmp_path / "site", wheel_tree("vllm", "0.6.3", engine()))
    own = tmp_path / "own"
    own.mkdir()
    gate = "Config: X\n" if settings else ""
    header = f"From: Somebody <somebody@example.com>\nSubject: [PATCH] first\n\n{gate}---\n\n"
    (own / "first.patch").write_text(header + DIFF)
    (own / "series").write_text("first.patch\n")
    if not settings:
        (own / "Kconfig").write_text('config X\n\tbool "X"\n')
    where = ("--root", str(root), "--patches", str(own), "--no-shipped", "--unlocked")
    loaded = _modules_after(checkout, "apply", *where, *settings)
    assert "patchkit.toggles" in loaded
    assert not loaded & {"kconfiglib", "menuconfig", "patchkit.config.kconfig", "ast"}


def test_a_series_is_restated_only_where_a_patch_stands_on_one_that_is_switched_off(
    checkout: Path, tmp_path: Path
) -> None:
    root = write_tree(tmp_path / "site", wheel_tree("vllm", "0.6.3", engine()))
    own = tmp_path / "own"
    own.mkdir()
    other = DIFF.replace("engine.py", "layers/attention.py")
    again = "--- a/vllm/layers/attention.py\n+++ b/vllm/layers/attention.py\n@@ -8,2 +8,3 @@\n \n+\n def rate():\n"
    texts = {"first": f"Subject: first\n\nConfig: X\n---\n\n{DIFF}", "second": other, "third": again}
    for name, text in texts.items():
        (own / f"{name}.patch").write_text(text)
    (own / "series").write_text("first.patch\nsecond.patch\n")
    where = ("--root", str(root), "--patches", str(own), "--no-shipped", "--unlocked")
    assert "patchkit.restating" not in _modules_after(checkout, "plan", *where)
    (own / "second.patch").write_text(texts["first"].replace("engine.py", "layers/attention.py"))
    (own / "series").write_text("first.patch\nsecond.patch\nthird.patch\n")
    assert "patchkit.restating" in _modules_after(checkout, "plan", *where)
    assert "patchkit.restating" not in _modules_after(checkout, "plan", *where, "--set", "CONFIG_X=y")


def test_no_source_needs_another_module_to_be_compiled(checkout: Path) -> None:
    """A `\\N{NAME}` loads unicodedata while it is compiled: Ctrl-C in there became a SyntaxError, with status 3."""
    sources = [path for path in (checkout / "patchkit").rglob("*.py") if b"\\N{" in path.read_bytes()]
    assert sources == []
