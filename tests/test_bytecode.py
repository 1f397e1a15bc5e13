"""The .pyc files of touched modules: found, dropped with the transaction, made anew by their interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from patchkit import process
from patchkit.bytecode import find_bytecode, recompile
from patchkit.held import Directories
from patchkit.state import open_state
from patchkit.transaction import CommitReport, commit
from tests.faults.scene import ENGINE, applying, file, plant

TAG = sys.implementation.cache_tag
OLD, NEW = {"pkg/a.py": file("x = 1\n")}, {"pkg/a.py": file("x = 2\n")}


def _touch(root: Path, names: Sequence[str]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"code")


def _apply(root: Path) -> CommitReport:
    with open_state(root, ENGINE, write=True) as state:
        return commit(state, **applying(OLD, NEW))


def test_bytecode_of_all_interpreters_is_found_and_no_other(tmp_path: Path) -> None:
    mine = [
        "pkg/__pycache__/a.cpython-310.pyc",
        "pkg/__pycache__/a.cpython-311.opt-1.pyc",
        "pkg/__pycache__/a.cpython-311.opt-2.pyc",
        "pkg/__pycache__/a.pypy39.pyc",
        "pkg/a.pyc",
    ]
    others = ["pkg/__pycache__/ab.cpython-310.pyc", "pkg/__pycache__/a.b.cpython-310.pyc", "pkg/b.pyc", "a.pyc"]
    _touch(tmp_path, [*mine, *others])
    with Directories(tmp_path) as directories:
        assert find_bytecode(directories, ["pkg/a.py", "gone/c.py"]) == mine


def test_cache_behind_a_link_is_not_looked_at(tmp_path: Path) -> None:
    _touch(tmp_path, ["outside/a.cpython-311.pyc", "pkg/a.py"])
    (tmp_path / "pkg/__pycache__").symlink_to(tmp_path / "outside")
    with Directories(tmp_path) as directories:
        assert find_bytecode(directories, ["pkg/a.py"]) == []


def test_bytecode_is_dropped_with_the_change(tmp_path: Path) -> None:
    plant(tmp_path, OLD)
    _touch(tmp_path, ["pkg/__pycache__/a.cpython-311.pyc", "pkg/__pycache__/b.cpython-311.pyc", "pkg/a.pyc"])
    report = _apply(tmp_path)
    assert report.bytecode == (PurePosixPath("pkg/__pycache__/a.cpython-311.pyc"), PurePosixPath("pkg/a.pyc"))
    assert sorted(path.name for path in tmp_path.rglob("*.pyc")) == ["b.cpython-311.pyc"]


def test_bytecode_is_made_anew_by_the_interpreter_it_belongs_to(tmp_path: Path) -> None:
    plant(tmp_path, OLD)
    own = [f"pkg/__pycache__/a.{TAG}.pyc", f"pkg/__pycache__/a.{TAG}.opt-2.pyc"]
    odd = f"pkg/__pycache__/a.{TAG}.opt-\N{SUPERSCRIPT TWO}.pyc"
    _touch(tmp_path, [*own, odd, "pkg/__pycache__/a.cpython-36.pyc"])
    report = _apply(tmp_path)
    assert recompile(tmp_path, report.bytecode, python=Path(sys.executable), environment=_environment()) == ()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.pyc")) == sorted(own)
    shown = "import sys; sys.path.insert(0, sys.argv[1]); import pkg.a; print(pkg.a.x, pkg.a.__cached__)"
    ended = subprocess.run(
        [sys.executable, "-B", "-W", "ignore", "-c", shown, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split()[0] == "2"


def test_source_date_epoch_makes_bytecode_that_knows_its_source_by_hash(tmp_path: Path) -> None:
    plant(tmp_path, NEW)
    environment = {**_environment(), "SOURCE_DATE_EPOCH": "1000000000"}
    path = PurePosixPath(f"pkg/__pycache__/a.{TAG}.pyc")
    assert recompile(tmp_path, [path], python=Path(sys.executable), environment=environment) == ()
    raw = (tmp_path / path).read_bytes()
    assert raw[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(raw[4:8], "little") == 0b11
    assert raw[8:16] == importlib.util.source_hash(b"x = 2\n")


@pytest.mark.parametrize("case", ["no bytecode", "no interpreter", "source gone"])
def test_no_child_is_started_when_there_is_nothing_to_do(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "run_child", None)
    plant(tmp_path, NEW)
    path = PurePosixPath(f"pkg/__pycache__/{'b' if case == 'source gone' else 'a'}.{TAG}.pyc")
    python = None if case == "no interpreter" else Path(sys.executable)
    assert recompile(tmp_path, [] if case == "no bytecode" else [path], python=python, environment={}) == ()


def test_module_that_does_not_compile_is_a_warning(tmp_path: Path) -> None:
    plant(tmp_path, {"pkg/a.py": file("x = (\n"), "pkg/b.py": file("y = 1\n")})
    paths = [PurePosixPath(f"pkg/__pycache__/{name}.{TAG}.pyc") for name in "ab"]
    (warning,) = recompile(tmp_path, paths, python=Path(sys.executable), environment=_environment())
    assert "pkg/a.py" in warning
    assert (tmp_path / paths[1]).is_file()


def test_interpreter_that_is_gone_is_a_warning(tmp_path: Path) -> None:
    plant(tmp_path, NEW)
    path = PurePosixPath(f"pkg/__pycache__/a.{TAG}.pyc")
    (warning,) = recompile(tmp_path, [path], python=tmp_path / "python", environment=_environment())
    assert "cannot run" in warning


def _environment() -> dict[str, str]:
    return dict(os.environ)
