"""The state directory: who makes it, who takes it away, who waits for whom."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit import state as state_module
from patchkit.errors import RefusedError, UnsafePathError
from patchkit.state import open_state, pristine_name

CHECKOUT = Path(__file__).resolve().parent.parent
# pytest-xdist has a thread of its own, which a fork does not need.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
ROOT_USER = os.geteuid() == 0


def test_reader_makes_nothing(tmp_path: Path) -> None:
    with open_state(tmp_path, "vllm", write=False) as state:
        assert state.receipt == tmp_path / ".patchkit/vllm/receipt.json"
    assert not list(tmp_path.iterdir())


def test_writer_that_stored_nothing_leaves_nothing(tmp_path: Path) -> None:
    with open_state(tmp_path, "vllm", write=True) as state:
        assert state.lock.is_file()
        assert (tmp_path / ".patchkit/.gitignore").read_text() == "*\n"
        (state.directory / "generated").mkdir()
        (state.directory / "generated/x").write_text("x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["receipt.json", "journal.json", "journal-back.json", "archive"])
def test_writer_leaves_what_is_stored(name: str, tmp_path: Path) -> None:
    with open_state(tmp_path, "vllm", write=True) as state:
        (state.directory / name).write_text("{}")
    assert (tmp_path / ".patchkit/vllm" / name).exists()


def test_other_engines_state_stays(tmp_path: Path) -> None:
    with open_state(tmp_path, "sglang", write=True) as state:
        state.receipt.write_text("{}")
    with open_state(tmp_path, "vllm", write=True):
        pass
    assert sorted(path.name for path in (tmp_path / ".patchkit").iterdir()) == [".gitignore", "sglang"]


def test_link_inside_the_state_is_removed_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    root = tmp_path / "root"
    root.mkdir()
    with open_state(root, "vllm", write=True) as state:
        (state.directory / "stage").symlink_to(outside)
    assert (outside / "kept").read_text() == "kept"
    assert not list(root.iterdir())


@pytest.mark.parametrize("name", [".patchkit", ".patchkit/vllm"])
@pytest.mark.parametrize("write", [True, False], ids=["writer", "reader"])
def test_link_in_the_way_is_refused_by_name(name: str, write: bool, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (elsewhere / "vllm").mkdir(parents=True)
    (root / name).parent.mkdir(parents=True)
    (root / name).symlink_to(elsewhere)
    with pytest.raises(UnsafePathError, match=f"{name} is a symlink"), open_state(root, "vllm", write=write):
        pass
    assert [path.name for path in elsewhere.rglob("*")] == ["vllm"]


@pytest.mark.parametrize("name", [".patchkit", ".patchkit/vllm"])
def test_file_in_the_way_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UnsafePathError, match=f"{name} is not a directory"), open_state(tmp_path, "vllm", write=True):
        pass
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.skipif(not ROOT_USER, reason="only root can give a directory to somebody else")
def test_directory_of_a_stranger_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".patchkit").mkdir()
    os.chown(tmp_path / ".patchkit", 4711, 4711)
    with pytest.raises(UnsafePathError, match="stranger"), open_state(tmp_path, "vllm", write=True):
        pass


@pytest.mark.parametrize("engine", ["", ".", "..", "a/b", ".hidden"])
def test_engine_must_be_a_name(engine: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafePathError), open_state(tmp_path, engine, write=True):
        pass


def test_missing_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="not a directory"), open_state(tmp_path / "no", "vllm", write=True):
        pass


@pytest.mark.skipif(not ROOT_USER, reason="another user is needed to be refused")
def test_unwritable_root_is_refused_and_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    script = f"""
import os, sys
sys.path.insert(0, {str(CHECKOUT)!r})
from pathlib import Path
from patchkit.errors import RefusedError
from patchkit.state import open_state
root = os.open({str(tmp_path)!r}, os.O_RDONLY)
os.setgroups([]); os.setgid(65534); os.setuid(65534); os.fchdir(root)
try:
    with open_state(Path("."), "vllm", write=True): pass
except RefusedError as error:
    print(error)
with open_state(Path("."), "vllm", write=False): print("read")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "Permission denied; the tree is as it was" in ended.stdout, ended.stderr
    assert "read" in ended.stdout
    assert not list(tmp_path.iterdir())


def test_second_writer_waits_and_names_the_first(tmp_path: Path) -> None:
    said: list[str] = []
    with _held(tmp_path, 0.4) as holder, open_state(tmp_path, "vllm", write=True, waiting=said.append):
        assert len(said) == 1
        assert f"process {holder}" in said[0]
    assert not list(tmp_path.iterdir())


def test_reader_waits_for_a_writer(tmp_path: Path) -> None:
    said: list[str] = []
    with _held(tmp_path, 0.3), open_state(tmp_path, "vllm", write=False, waiting=said.append):
        assert said
    assert not list(tmp_path.iterdir())


def test_readers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with open_state(tmp_path, "vllm", write=True) as state:
        state.receipt.write_text("{}")
    said: list[str] = []
    with (
        open_state(tmp_path, "vllm", write=False, waiting=said.append),
        open_state(tmp_path, "vllm", write=False, waiting=said.append),
    ):
        assert not said


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "PATIENCE_SECONDS", 0.05)
    with _held(tmp_path, 1.0) as holder, pytest.raises(RefusedError, match=f"process {holder}"):  # noqa: SIM117
        with open_state(tmp_path, "vllm", write=True):
            pass


def test_many_writers_never_meet(tmp_path: Path) -> None:
    """Each makes the directory, holds it, and removes it: the lock file itself comes and goes."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_enter_often, args=(tmp_path, 15)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert not list(tmp_path.iterdir())


def _enter_often(root: Path, times: int) -> None:
    for _ in range(times):
        with open_state(root, "vllm", write=True) as state:
            alone = state.directory / "alone"
            alone.touch(exist_ok=False)
            time.sleep(0.001)
            alone.unlink()


class _held:  # noqa: N801 -- reads as a word in a with statement
    """Another process that holds the state of a tree for a while; gives its number."""

    def __init__(self, root: Path, seconds: float) -> None:
        context = multiprocessing.get_context("fork")
        self._ready = context.Event()
        self._child = context.Process(target=_hold, args=(root, seconds, self._ready.set))

    def __enter__(self) -> int | None:
        self._child.start()
        assert self._ready.wait(30)
        return self._child.pid

    def __exit__(self, *_: object) -> None:
        self._child.join(30)


def _hold(root: Path, seconds: float, ready: Callable[[], None]) -> None:
    with open_state(root, "vllm", write=True):
        ready()
        time.sleep(seconds)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root patches what belongs to another")
def test_state_belongs_to_the_owner_of_the_tree(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with open_state(tmp_path, "vllm", write=True) as state:
        state.receipt.write_text("{}")
        state.pristine.mkdir()
        (state.pristine / "a.py").write_text("")
    owners = {path.lstat().st_uid for path in (tmp_path / ".patchkit").rglob("*")}
    assert owners == {65534}
    assert (tmp_path / ".patchkit").stat().st_uid == 65534


def test_pristine_names_are_names_and_tell_paths_apart() -> None:
    long = f"{'d' * 200}/{'e' * 200}"
    paths = ["a/b.py", "a%2Fb.py", "a%252Fb.py", "a%b.py", "a.py", "ü \udc80/x", "d" * 255, long, "%" * 255]
    names = [pristine_name(path) for path in paths]
    assert len(set(names)) == len(paths)
    assert not any("/" in name or len(os.fsencode(name)) > 255 for name in names)
    assert names[0] == "a%2Fb.py"
    assert names[-1].startswith("%%")
