"""What pip and uv do to a patched environment, and what patchkit then says and does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.blackbox.command import Ended, difference, directories, patchkit, run, snapshot
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, record_of, recorded, wheel_file


class Environment:
    """A real environment with one of two wheels of a made-up vllm in it, installed by pip or by uv."""

    def __init__(self, home: Path, installer: str) -> None:
        venv.create(home / "env", with_pip=False, symlinks=True)
        self.python = home / "env" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = home / "env" / "lib" / version / "site-packages"
        self.wheels = home / "wheels"
        self._installer = installer
        self._cache = home / "cache"
        wheel_file(self.wheels, "vllm", "0.1.0", engine())
        wheel_file(self.wheels, "vllm", "0.1.1", engine(version="0.1.1", later=MODULE))
        self.diff = home / "change.diff"
        self.diff.write_text(DIFF + NEW_FILE)
        self.install("vllm==0.1.0")

    def install(self, *arguments: str) -> None:
        self._run("install", "--no-index", "--no-deps", "--find-links", str(self.wheels), *arguments)

    def uninstall(self) -> None:
        self._run("uninstall", *(["--yes"] if self._installer == "pip" else []), "vllm")

    def _run(self, *arguments: str) -> None:
        if self._installer == "pip":
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python)]
        else:
            command = [_uv(), "pip"]
            arguments = (*arguments, "--python", str(self.python))
        done = run([*command, *arguments], UV_CACHE_DIR=str(self._cache), UV_LINK_MODE="hardlink", PIP_NO_CACHE_DIR="1")
        assert done.status == 0, done.said

    def patchkit(self, act: str, *arguments: object) -> Ended:
        return patchkit(act, "--target", "vllm", "--python", self.python, *arguments)

    def apply(self) -> Ended:
        return self.patchkit("apply", "--patch", self.diff)

    def imported(self, expression: str) -> str:
        """Evaluate an expression in the environment, with vllm.engine imported."""
        code = f"import vllm.engine as engine; print({expression})"
        return subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("uv is not installed")
    return found


@pytest.fixture(params=["pip", "uv"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Environment:
    if request.param == "uv":
        _uv()
    return Environment(tmp_path, request.param)


def test_an_installed_engine_is_patched_and_reverted(environment: Environment) -> None:
    pristine = snapshot(environment.site)
    assert environment.imported("engine.rate()") == "3"
    applied = environment.apply()
    assert applied.status == 0, applied.said
    assert environment.imported("engine.rate()") == "6", "the old bytecode is not used"
    assert _vllm_record(environment) == _vllm_recorded(environment)
    assert environment.patchkit("status", "--require-applied", "--patch", environment.diff).status == 0
    assert environment.patchkit("revert").status == 0
    assert environment.imported("engine.rate()") == "3"
    assert difference(snapshot(environment.site), pristine) == []


def test_an_upgrade_is_seen_and_the_new_version_patched_afresh(environment: Environment) -> None:
    assert environment.apply().status == 0
    environment.install("--upgrade", "vllm==0.1.1")
    assert not (environment.site / "vllm/extra.py").exists(), "RECORD named the new file"
    pristine = snapshot(environment.site)

    _assert_replaced(environment)
    applied = environment.apply()
    assert applied.status == 0, applied.said
    assert (environment.site / "vllm/engine.py").read_bytes() == CHANGED
    assert len(environment.patchkit("status", "--json").report["layers"]) == 1
    assert environment.patchkit("revert").status == 0
    assert difference(snapshot(environment.site), pristine) == []


def test_a_reinstall_of_the_same_version_is_seen(environment: Environment) -> None:
    assert environment.apply().status == 0
    environment.install("--force-reinstall", "vllm==0.1.0")
    assert (environment.site / "vllm/engine.py").read_bytes() == MODULE
    _assert_replaced(environment)
    assert environment.apply().status == 0
    assert (environment.site / "vllm/engine.py").read_bytes() == CHANGED


def test_an_uninstall_takes_everything_but_our_state(environment: Environment) -> None:
    before = directories(environment.site)
    assert environment.apply().status == 0
    environment.uninstall()
    assert not [path for path in snapshot(environment.site) if path.startswith("vllm")]
    assert not {path for path in directories(environment.site) if path.startswith("vllm")}
    gone = environment.patchkit("status")
    assert gone.status == 5, gone.said
    assert "replaced by reinstall" in gone.said
    environment.install("vllm==0.1.0")
    _assert_replaced(environment)
    assert environment.apply().status == 0
    assert environment.patchkit("revert").status == 0
    assert directories(environment.site) == before


def test_the_cache_of_uv_keeps_the_old_bytes(tmp_path: Path) -> None:
    _uv()
    environment = Environment(tmp_path, "uv")
    module = environment.site / "vllm/engine.py"
    if module.stat().st_nlink == 1:
        pytest.skip("uv did not hard-link: cache and environment are on different file systems")
    assert environment.apply().status == 0
    environment.install("--reinstall", "vllm==0.1.0")
    assert module.read_bytes() == MODULE


def _assert_replaced(environment: Environment) -> None:
    """The tree is not ours any more: said, not mended, not undone."""
    before = snapshot(environment.site)
    told = environment.patchkit("status", "--json")
    assert told.report["standing"] == "replaced by reinstall"
    wanted = environment.patchkit("status", "--require-applied", "--patch", environment.diff)
    assert wanted.status != 0
    refused = environment.patchkit("revert")
    assert refused.status == 5, refused.said
    assert "reinstall" in refused.said
    assert difference(snapshot(environment.site), before) == []


def _vllm_record(environment: Environment) -> dict[str, str]:
    return {path: row for path, row in record_of(environment.site, "vllm").items() if path.endswith(".py")}


def _vllm_recorded(environment: Environment) -> dict[str, str]:
    return {path: row for path, row in recorded(environment.site, "vllm").items() if path.endswith(".py")}
