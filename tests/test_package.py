"""The built wheel in an empty environment: it brings the patches along and applies them from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from patchkit.version import VERSION

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("wheel")]

PATCH = """\
--- a/engine/core.py
+++ b/engine/core.py
@@ -1,3 +1,3 @@
 import sys
-limit = 1
+limit = 2
 print(limit)
"""


def _run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    """Run a command away from the checkout and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    run = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == status, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as `make wheel` does."""
    out = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, checkout, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command of an environment that holds the wheel and its dependencies, nothing else."""
    home = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", home / "venv", cwd=home)
    python = home / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=home)
    return home / "venv" / "bin" / "patchkit"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree outside the checkout, with a patch for it beside it."""
    root = tmp_path / "root"
    (root / "engine").mkdir(parents=True)
    (root / "engine" / "core.py").write_text("import sys\nlimit = 1\nprint(limit)\n")
    (tmp_path / "limit.patch").write_text(PATCH)
    return root


def test_the_wheel_holds_the_package_the_patches_and_the_native_sources(wheel: Path, checkout: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "patchkit/cli/main.py" in names
    assert "patchkit/py.typed" in names
    assert "patchkit/_resources/native/README.md" in names
    shipped = {path.relative_to(checkout).as_posix() for path in (checkout / "patches").rglob("*") if path.is_file()}
    assert {f"patchkit/_resources/{name}" for name in shipped} <= names
    assert any(name.endswith("/series") for name in shipped)
    assert {name.split("/")[0] for name in names} == {"patchkit", f"{wheel.name.split('-py3')[0]}.dist-info"}


def test_the_licence_and_the_notice_travel_along(wheel: Path) -> None:
    names = {name.rsplit("/", 1)[-1] for name in zipfile.ZipFile(wheel).namelist()}
    assert {"LICENSE", "NOTICE"} <= names


def test_the_installed_command_says_its_version(command: Path, tmp_path: Path) -> None:
    assert _run(command, "--version", cwd=tmp_path) == f"patchkit, version {VERSION}\n"


def test_the_shipped_series_are_found_inside_the_installed_package(command: Path, tmp_path: Path) -> None:
    listed = _run(command, "series", "list", cwd=tmp_path)
    for series in ("vllm/0.6.3", "vllm/0.32.0", "sglang/0.5.1"):
        engine, version = series.split("/")
        assert any(engine in line and version in line for line in listed.splitlines()), listed


def test_the_facts_about_released_wheels_travel_along(command: Path, tmp_path: Path) -> None:
    said = _run(command, "abi", "explain", "_ZN3c104cuda9SetDeviceEab", cwd=tmp_path)
    assert "in torch 2.8.0 to" in said
    assert "vllm==0.6.3  fits, of these: 2.4.0" in _run(command, "abi", "matrix", "--torch", "2.4.0", cwd=tmp_path)


def test_the_installed_command_applies_a_patch_and_takes_it_out_again(command: Path, tree: Path) -> None:
    patch = tree.parent / "limit.patch"
    changed = tree / "engine" / "core.py"
    before = changed.read_bytes()
    _run(command, "apply", "--root", tree, "--patch", patch, cwd=tree.parent)
    assert changed.read_text() == "import sys\nlimit = 2\nprint(limit)\n"
    _run(command, "revert", "--root", tree, cwd=tree.parent)
    assert changed.read_bytes() == before
