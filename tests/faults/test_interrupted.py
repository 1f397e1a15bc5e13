"""Killed, or refused by the system, at every write-like call of an apply and of a revert: no tree is left half."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit import durable
from patchkit.errors import PatchkitError, RefusedError, TreeChangedError
from patchkit.state import open_state
from patchkit.transaction import Direction, pending, recover
from tests.faults.conftest import Sample
from tests.faults.scene import AFTER, BEFORE, ENGINE, Scene, edits_between, snapshot
from tests.faults.tracer import CLEAN, Point, inject, record_points, require_strace, traced

REFUSED, PENDING = 1, 5
SCENES = pytest.mark.parametrize("name", ["apply", "revert"])


@pytest.fixture(autouse=True)
def _traceable() -> None:
    require_strace()


def acting(scene: Scene, root: Path, *, threads: int = 1) -> Callable[[], int]:
    def act() -> int:
        durable.THREADS = threads
        try:
            with open_state(root, ENGINE, write=True) as state:
                recover(state)
                scene.run(state)
        except PatchkitError as error:
            return int(error.status)
        return CLEAN

    return act


def points_of(scene: Scene, root: Path) -> list[Point]:
    scene.prepare(root)
    return record_points(acting(scene, root), root.parent / "calls")


@SCENES
def test_killed_at_a_call_the_tree_is_whole_after_the_next_writer(
    name: str, scratch: Path, sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, root = Scene(name), scratch / "tree"
    points = points_of(scene, root)
    assert len(points) > 300
    chosen = sample(points, 22)
    ended: Counter[str] = Counter()
    for point in chosen:
        scene.prepare(root)
        assert traced(acting(scene, root), *inject(point, "signal=KILL")) == -signal.SIGKILL, point
        ended[scene.check_whole(root)] += 1
    tell(capsys, f"{name}: killed at {len(chosen)} of {len(points)} calls, 0 half, {dict(ended)}")


@SCENES
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EACCES"])
def test_call_that_fails_ends_in_an_answer_and_a_whole_tree(
    name: str, error: str, scratch: Path, sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, root = Scene(name), scratch / "tree"
    points = points_of(scene, root)
    chosen = sample(points, 5)
    ended: Counter[int] = Counter()
    for point in chosen:
        scene.prepare(root)
        status = traced(acting(scene, root), *inject(point, f"error={error}"))
        assert status in (CLEAN, REFUSED, PENDING), point
        if status != PENDING:
            assert snapshot(root) == (scene.start if status == REFUSED else scene.goal), point
        ended[status] += 1
        scene.check_whole(root)
    tell(capsys, f"{name}: {error} at {len(chosen)} of {len(points)} calls, 0 half, statuses {dict(ended)}")


@SCENES
def test_calls_that_fail_from_some_point_on_leave_a_tree_that_can_be_finished(
    name: str, scratch: Path, sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk and a dying one: taking back fails as well."""
    scene, root = Scene(name), scratch / "tree"
    points = points_of(scene, root)
    chosen = [(point, error) for point in sample(points, 4) for error in ("ENOSPC", "EIO")]
    ended: Counter[int] = Counter()
    for point, error in chosen:
        scene.prepare(root)
        status = traced(acting(scene, root), *inject(point, f"error={error}", onwards=True))
        assert status in (CLEAN, REFUSED, PENDING), point
        if status == REFUSED:
            assert snapshot(root) == scene.start, point
        ended[status] += 1
        scene.check_whole(root)
    tell(capsys, f"{name}: failing from {len(chosen)} points on, 0 half, statuses {dict(ended)}")


@SCENES
def test_killed_while_recovering_the_tree_is_whole_after_the_next_writer(
    name: str, scratch: Path, sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, root = Scene(name), scratch / "tree"
    renames = [point for point in points_of(scene, root) if point.call in ("rename", "renameat", "linkat", "unlinkat")]
    tried = 0
    for point in sample(renames[len(renames) // 2 :], 2, most=8):
        recovery = _recovery_points(scene, root, point)
        for second in sample(recovery, 5):
            interrupt(scene, root, point)
            assert traced(recovering(root), *inject(second, "signal=KILL")) == -signal.SIGKILL, (point, second)
            scene.check_whole(root)
            tried += 1
    tell(capsys, f"{name}: recovery killed at {tried} calls, 0 half")


@SCENES
def test_recovery_that_fails_can_be_repeated(name: str, scratch: Path, sample: Sample) -> None:
    scene, root = Scene(name), scratch / "tree"
    points = [point for point in points_of(scene, root) if point.call in ("rename", "renameat", "linkat", "unlinkat")]
    for point in sample(points[len(points) // 2 :], 2, most=3):
        recovery = _recovery_points(scene, root, point)
        for second in sample(recovery, 2):
            interrupt(scene, root, point)
            assert traced(recovering(root), *inject(second, "error=EIO")) in (CLEAN, REFUSED, PENDING), second
            scene.check_whole(root)


@SCENES
def test_killed_while_threads_sync_the_tree_is_whole(name: str, scratch: Path) -> None:
    scene, root = Scene(name), scratch / "tree"
    for number in (1, 2, 3):
        scene.prepare(root)
        action = acting(scene, root, threads=4)
        assert traced(action, *inject(Point(call="fsync", number=number), "signal=KILL")) == -signal.SIGKILL
        assert scene.check_whole(root) in ("start", "goal")


def test_interrupted_transaction_is_seen_by_readers(scratch: Path) -> None:
    scene, root = Scene("apply"), scratch / "tree"
    interrupt(scene, root, middle(points_of(scene, root)))
    with open_state(root, ENGINE, write=False) as state:
        assert pending(state)


def test_file_edited_after_the_crash_is_named_and_nothing_is_lost(scratch: Path) -> None:
    scene, root = Scene("apply"), scratch / "tree"
    interrupt(scene, root, middle(points_of(scene, root)))
    edited = root / "pkg/part2/m2.py"
    edited.write_bytes(b"mine\n")
    half = snapshot(root)
    with open_state(root, ENGINE, write=True) as state, pytest.raises(TreeChangedError, match=r"pkg/part2/m2\.py"):
        recover(state)
    assert snapshot(root) == half
    edited.write_bytes(scene.start["pkg/part2/m2.py"].content)
    assert scene.check_whole(root) == "goal"


def test_recovery_says_which_way_and_about_which_files(scratch: Path) -> None:
    scene, root = Scene("apply"), scratch / "tree"
    interrupt(scene, root, middle(points_of(scene, root)))
    with open_state(root, ENGINE, write=True) as state:
        recovery = recover(state)
    assert recovery is not None
    assert recovery.direction is Direction.FORWARD
    assert {str(path) for path in recovery.files} == {str(edit.path) for edit in edits_between(BEFORE, AFTER)}


def test_archive_survives_an_apply_that_is_taken_back_and_a_revert(scratch: Path) -> None:
    scene, root = Scene("apply"), scratch / "tree"
    interrupt(scene, root, middle(points_of(scene, root)))
    with open_state(root, ENGINE, write=True) as state:
        (state.archive / "old").mkdir(parents=True)
        state.journal.rename(state.journal_back)
        recovery = recover(state)
        assert recovery is not None
        assert recovery.direction is Direction.BACK
    assert (root / ".patchkit/tree/archive/old").is_dir()
    with open_state(root, ENGINE, write=True) as state:
        scene.run(state)
        Scene("revert").run(state)
    assert sorted(path.name for path in (root / ".patchkit/tree").iterdir()) == ["archive", "lock"]


@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
def test_bytecode_compiled_of_the_half_tree_goes(back: bool, scratch: Path) -> None:
    scene, root = Scene("apply"), scratch / "tree"
    interrupt(scene, root, middle(points_of(scene, root)))
    (root / "pkg/__pycache__/new.cpython-311.pyc").write_bytes(b"code of the half tree")
    (root / "pkg/part3/__pycache__").mkdir()
    (root / "pkg/part3/__pycache__/m3.cpython-311.pyc").write_bytes(b"code of the half tree")
    with open_state(root, ENGINE, write=True) as state:
        if back:
            state.journal.rename(state.journal_back)
        recover(state)
    left = {path for path in snapshot(root) if path.endswith(".pyc")}
    assert left == {path for path in (scene.start if back else scene.goal) if path.endswith(".pyc")}


def test_interrupted_transaction_must_be_finished_before_the_next(scratch: Path) -> None:
    scene, root = Scene("apply"), scratch / "tree"
    interrupt(scene, root, middle(points_of(scene, root)))
    with open_state(root, ENGINE, write=True) as state, pytest.raises(TreeChangedError, match="interrupted"):
        scene.run(state)


def middle(points: list[Point]) -> Point:
    renames = [point for point in points if point.call in ("rename", "renameat")]
    return renames[len(renames) // 2]


def interrupt(scene: Scene, root: Path, point: Point) -> None:
    scene.prepare(root)
    assert traced(acting(scene, root), *inject(point, "signal=KILL")) == -signal.SIGKILL


def recovering(root: Path) -> Callable[[], int]:
    def act() -> int:
        durable.THREADS = 1
        try:
            with open_state(root, ENGINE, write=True) as state:
                recover(state)
        except (RefusedError, TreeChangedError) as error:
            return int(error.status)
        return CLEAN

    return act


def _recovery_points(scene: Scene, root: Path, point: Point) -> list[Point]:
    interrupt(scene, root, point)
    return record_points(recovering(root), root.parent / "calls")


def tell(capsys: pytest.CaptureFixture[str], sentence: str) -> None:
    with capsys.disabled():
        print(f"\n  {sentence}", end="")  # noqa: T201 -- how many points were tried is part of the result
