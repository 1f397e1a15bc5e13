"""The power fails after any call of an apply, revert, rollback or recovery: what was not synced may be lost."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.store import NEW_JOURNAL
from tests.faults.conftest import Sample
from tests.faults.machine import Call, Machine, read_calls, survivals
from tests.faults.scene import Scene
from tests.faults.test_interrupted import SCENES, acting, interrupt, middle, points_of, recovering, tell
from tests.faults.tracer import Point, inject, require_strace, traced

_MODELLED = (
    "openat,write,pwrite64,fchmod,fsync,mkdir,mkdirat,symlinkat,link,linkat,rename,renameat,renameat2,unlink,unlinkat,"
    "rmdir,fchown,flock,symlink,fdatasync,ftruncate,fchmodat,chmod,creat,utimensat"
)


# As strace shows it: where the journal gets its name, each thing it counts on must be there already.
_NEW_JOURNAL = '"' + "".join(f"\\x{byte:02x}" for byte in NEW_JOURNAL.encode()) + '"'


@pytest.fixture(autouse=True)
def _traceable() -> None:
    require_strace()


@SCENES
def test_power_lost_in_a_transaction_leaves_a_tree_that_becomes_whole(
    name: str, scratch: Path, sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, root = Scene(name), scratch / "tree"
    scene.prepare(root)
    machine = Machine(root)
    calls = _record(acting(scene, root), root)
    _lose_power(f"{name}: power lost", scene, root, machine, calls, sample, capsys)


@SCENES
def test_power_lost_while_a_failed_transaction_is_taken_back(
    name: str, scratch: Path, sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, root = Scene(name), scratch / "tree"
    late = [point for point in points_of(scene, root) if point.call in ("rename", "renameat")][-1]
    scene.prepare(root)
    machine = Machine(root)
    calls = _record(acting(scene, root), root, failing=late)
    _lose_power(f"{name}: power lost in a rollback", scene, root, machine, calls, sample, capsys)


@SCENES
def test_power_lost_in_a_recovery(name: str, scratch: Path, sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    scene, root = Scene(name), scratch / "tree"
    interrupt(scene, root, middle(points_of(scene, root)))
    machine = Machine(root)
    calls = _record(recovering(root), root)
    _lose_power(f"{name}: power lost in a recovery", scene, root, machine, calls, sample, capsys)


def _record(action: Callable[[], int], root: Path, *, failing: Point | None = None) -> list[Call]:
    log = root.parent / "calls"
    trace = ",".join(f"?{call}" for call in _MODELLED.split(","))
    options = ["-e", f"trace={trace}", "-y", "-xx", "-s", "10000000"]
    if failing is not None:
        options += inject(failing, "error=EIO")[2:]
    assert traced(action, *options, output=log) == (0 if failing is None else 1)
    calls = read_calls(log)
    assert len(calls) > 100
    return calls


def _lose_power(
    what: str,
    scene: Scene,
    root: Path,
    machine: Machine,
    calls: list[Call],
    sample: Sample,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = {id(call) for call in sample(calls, 4)}
    chance, ended = random.Random(0), Counter[str]()  # noqa: S311 -- the same in every run
    for call in calls:
        machine.play(call)
        journal = call.name.startswith("rename") and _NEW_JOURNAL in call.arguments
        if id(call) not in chosen and not journal:
            continue
        doubts = machine.doubts()
        for kept in survivals(doubts, chance, singles=len(doubts) if journal else 2, mixtures=1):
            shutil.rmtree(root, ignore_errors=True)
            machine.write_out(root, kept)
            ended[scene.check_whole(root)] += 1
    assert ended.total() > len(chosen)
    tell(capsys, f"{what} after {len(chosen)} of {len(calls)} calls, {ended.total()} survivals, 0 half, {dict(ended)}")
