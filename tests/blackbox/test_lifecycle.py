"""What happens to trees while and after they are patched: other writers, odd files, copies, layers, interruptions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.blackbox.command import CHECKOUT, PATCHKIT, Ended, difference, patchkit, run, snapshot
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, record_of, recorded, wheel_tree, write_tree

OTHER = DIFF.replace("vllm/engine.py", "vllm/layers/attention.py")
ABOVE = DIFF.replace("-RATE = 1", "-RATE = 2").replace("+RATE = 2", "+RATE = 5")
MANY = 40

# Stops itself at the n-th fsync, that is after the plan, at a place between its beginning and its end.
_STOPPING = """
import os, signal
real, left = os.fsync, [{count}]
def fsync(descriptor):
    real(descriptor)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
os.fsync = fsync
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An unpacked wheel of a made-up vllm 0.1.0 with forty modules more than usual."""
    modules = {f"part.module_{number}": MODULE for number in range(MANY)}
    return write_tree(tmp_path / "tree", wheel_tree("vllm", "0.1.0", engine("vllm", "0.1.0", **modules)))


@pytest.fixture
def diff(tmp_path: Path) -> Path:
    return _write(tmp_path / "change.diff", DIFF + NEW_FILE)


@pytest.fixture
def big_diff(tmp_path: Path) -> Path:
    """A diff of all forty modules."""
    parts = [DIFF.replace("vllm/engine.py", f"vllm/part/module_{number}.py") for number in range(MANY)]
    return _write(tmp_path / "big.diff", "".join(parts))


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _apply(root: Path, patch: Path, *options: object, **environment: str) -> Ended:
    return patchkit("apply", "--root", root, "--patch", patch, *options, cwd=None, seconds=120, **environment)


def _revert(root: Path, *options: object) -> Ended:
    return patchkit("revert", "--root", root, *options)


def _standing(root: Path) -> str:
    return str(patchkit("status", "--root", root, "--json").report["standing"])


# Others at the same time


def test_two_applies_of_one_diff_at_once_leave_one_layer(root: Path, big_diff: Path) -> None:
    command = [*PATCHKIT, "apply", "--root", str(root), "--patch", str(big_diff)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0, 0], said
    assert len(patchkit("status", "--root", root, "--json").report["layers"]) == 1
    assert (root / "vllm/part/module_7.py").read_bytes() == CHANGED
    assert record_of(root) == recorded(root)


def test_two_applies_of_two_diffs_at_once_leave_both(root: Path, diff: Path, tmp_path: Path) -> None:
    pristine = snapshot(root)
    other = _write(tmp_path / "other.diff", OTHER)
    both = [
        subprocess.Popen([*PATCHKIT, "apply", "--root", str(root), "--patch", str(patch)], stdout=subprocess.DEVNULL)
        for patch in (diff, other)
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert (root / "vllm/engine.py").read_bytes() == CHANGED
    assert (root / "vllm/layers/attention.py").read_bytes() == CHANGED
    assert record_of(root) == recorded(root)
    assert _revert(root).status == 0
    assert difference(snapshot(root), pristine) == []


def test_a_file_edited_between_plan_and_write_is_kept_and_all_others_are_as_before(root: Path, big_diff: Path) -> None:
    before = snapshot(root)
    edited = root / "vllm/part/module_20.py"
    with stopped("apply", root, big_diff, at=1) as process:
        edited.write_bytes(b"mine = 1\n")
    assert process.returncode in (1, 5)
    assert edited.read_bytes() == b"mine = 1\n"
    assert difference(snapshot(root), before) == ["vllm/part/module_20.py"]
    assert _standing(root) == "not patched"


def test_a_directory_swapped_for_a_symlink_lets_nothing_out(root: Path, big_diff: Path, tmp_path: Path) -> None:
    before = snapshot(root)
    outside = tmp_path / "outside"
    shutil.copytree(root / "vllm/part", outside)
    untouched = snapshot(outside)
    with stopped("apply", root, big_diff, at=1) as process:
        (root / "vllm/part").rename(tmp_path / "aside")
        (root / "vllm/part").symlink_to(outside)
    assert process.returncode in (1, 5)
    assert snapshot(outside, own=True) == untouched
    (root / "vllm/part").unlink()
    (tmp_path / "aside").rename(root / "vllm/part")
    assert difference(snapshot(root), before) == []
    assert _standing(root) == "not patched"


@pytest.mark.parametrize("act", ["apply", "revert"])
@pytest.mark.parametrize("at", [1, 10, 25, 40])
def test_interrupted_by_the_keyboard_the_tree_is_whole(act: str, at: int, root: Path, big_diff: Path) -> None:
    pristine = snapshot(root)
    if act == "revert":
        assert _apply(root, big_diff).status == 0
    before = snapshot(root)
    with stopped(act, root, big_diff, at=at) as process:
        os.kill(process.pid, signal.SIGINT)
    assert process.returncode in (130, 0), "interrupted, or done before it came to that"
    assert process.returncode == 130 or at > 1
    now = snapshot(root)
    changed = [path for path in difference(now, before) if not path.endswith("/RECORD")]
    assert len(changed) in (0, MANY)
    assert patchkit("status", "--root", root).status == 0
    assert _apply(root, big_diff).status == 0
    assert _revert(root).status == 0
    assert difference(snapshot(root), pristine) == []


@contextmanager
def stopped(act: str, root: Path, patch: Path, *, at: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until its n-th fsync; what the block does happens while it stands still. Then let it end."""
    main = f"import sys; sys.path[0] = {str(CHECKOUT)!r}; from patchkit.cli.start import main; main()"
    arguments = [act, "--root", str(root), *(["--patch", str(patch)] if act == "apply" else [])]
    command = [sys.executable, "-c", _STOPPING.format(count=at) + main, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid, status = os.waitpid(process.pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        try:
            yield process
        finally:
            os.kill(pid, signal.SIGCONT)
            process.wait(timeout=60)
    else:
        process.returncode = os.waitstatus_to_exitcode(status)
        pytest.skip(f"there are fewer than {at} calls of fsync")


# Odd files and places


def test_a_read_only_file_is_refused_by_name(root: Path, diff: Path) -> None:
    (root / "vllm/engine.py").chmod(0o444)
    before = snapshot(root)
    refused = run([*_as_ordinary_user(), *PATCHKIT, "apply", "--root", str(root), "--patch", str(diff)])
    assert refused.status == 1, refused.said
    assert "vllm/engine.py" in refused.said
    assert difference(snapshot(root), before) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write a read-only file")
def test_a_read_only_file_that_root_patches_stays_read_only(root: Path, diff: Path) -> None:
    (root / "vllm/engine.py").chmod(0o444)
    before = snapshot(root)
    assert _apply(root, diff).status == 0
    assert snapshot(root)["vllm/engine.py"] == ("file", 0o444, CHANGED)
    assert _revert(root).status == 0
    assert difference(snapshot(root), before) == []


def test_a_read_only_tree_is_planned_and_its_status_told_without_a_write(root: Path, diff: Path) -> None:
    directories = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for path in directories:
        path.chmod(0o555)
    before = snapshot(root, own=True)
    ordinary = [*_as_ordinary_user(), *PATCHKIT]
    place = ["--root", str(root)]
    try:
        planned = run([*ordinary, "plan", *place, "--patch", str(diff)])
        status = run([*ordinary, "status", *place])
        applied = run([*ordinary, "apply", *place, "--patch", str(diff)])
    finally:
        for path in directories:
            path.chmod(0o755)
    assert planned.status == 1, planned.said
    assert "not writable" in planned.said
    assert status.status == 0, status.said
    assert applied.status == 1, applied.said
    assert str(root) in applied.said
    assert snapshot(root, own=True) == before


def _as_ordinary_user() -> list[str]:
    """Return what takes root's power over permissions away; nothing is needed by others."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed, and root may write everywhere")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"]


def test_hard_linked_files_keep_the_old_bytes_under_the_other_name(root: Path, diff: Path, tmp_path: Path) -> None:
    cache = shutil.copytree(root, tmp_path / "cache", copy_function=os.link)
    before = snapshot(cache)
    assert _apply(root, diff).status == 0
    assert (root / "vllm/engine.py").read_bytes() == CHANGED
    assert difference(snapshot(cache), before) == []
    assert _revert(root).status == 0
    assert difference(snapshot(root), before) == []
    assert difference(snapshot(cache), before) == []


def test_a_tree_inside_a_git_repository_is_patched_all_the_same(root: Path, diff: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root.parent)], check=True)
    subprocess.run(["git", "-C", str(root.parent), "add", "."], check=True)
    subprocess.run(["git", "-C", str(root.parent), "commit", "-qm", "All"], check=True)
    assert _apply(root, diff).status == 0
    assert (root / "vllm/engine.py").read_bytes() == CHANGED
    listed = subprocess.run(
        ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=all", "."],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "tree/vllm/engine.py" in listed
    assert not [path for path in listed if ".patchkit" in path], "our state ignores itself"


# Layers


def test_a_diff_under_another_is_taken_out_first(root: Path, diff: Path, tmp_path: Path) -> None:
    pristine = snapshot(root)
    assert _apply(root, diff).status == 0
    assert _apply(root, _write(tmp_path / "other.diff", OTHER)).status == 0
    taken = _revert(root, diff.name)
    assert taken.status == 0, taken.said
    assert (root / "vllm/engine.py").read_bytes() == MODULE
    assert not (root / "vllm/extra.py").exists()
    assert (root / "vllm/layers/attention.py").read_bytes() == CHANGED
    assert record_of(root) == recorded(root)
    assert _revert(root, "other.diff").status == 0
    assert difference(snapshot(root), pristine) == []


def test_a_diff_that_another_stands_on_is_not_taken_out(root: Path, diff: Path, tmp_path: Path) -> None:
    assert _apply(root, diff).status == 0
    assert _apply(root, _write(tmp_path / "above.diff", ABOVE)).status == 0
    before = snapshot(root)
    refused = _revert(root, "--layer", "1")
    assert refused.status == 1
    assert "above.diff" in refused.said
    assert "vllm/engine.py" in refused.said
    assert difference(snapshot(root), before) == []


@pytest.mark.parametrize(
    "order", [("under", "series", "over"), ("series", "over", "under"), ("over", "under", "series")]
)
def test_diffs_under_and_over_a_series_are_taken_out_in_any_order(
    order: tuple[str, ...], root: Path, tmp_path: Path
) -> None:
    pristine = snapshot(root)
    numbers = {"under": 1, "series": 2, "over": 3}
    series = tmp_path / "patches" / "vllm" / "0.1.0"
    series.mkdir(parents=True)
    (series / "series").write_text("0001-other.patch\n")
    (series / "0001-other.patch").write_text(OTHER)
    third = DIFF.replace("vllm/engine.py", "vllm/part/module_3.py")
    assert _apply(root, _write(tmp_path / "under.diff", DIFF + NEW_FILE)).status == 0
    put = patchkit("apply", "--root", root, "--patches", tmp_path / "patches", "--unlocked")
    assert put.status == 0, put.said
    assert _apply(root, _write(tmp_path / "over.diff", third)).status == 0
    for name in order:
        taken = _revert(root, "--layer", numbers[name])
        assert taken.status == 0, taken.said
        assert record_of(root) == recorded(root)
    assert difference(snapshot(root), pristine) == []


def test_two_engines_of_one_environment_do_not_meet(root: Path, diff: Path, tmp_path: Path) -> None:
    write_tree(root, wheel_tree("sglang", "0.1.3", engine("sglang", "0.1.3")))
    pristine = snapshot(root)
    theirs = _write(tmp_path / "theirs.diff", (DIFF + NEW_FILE).replace("vllm/", "sglang/"))
    assert patchkit("apply", "--root", root, "--patch", diff, "--target", "vllm").status == 0
    assert patchkit("apply", "--root", root, "--patch", theirs, "--target", "sglang").status == 0
    assert (root / "sglang/engine.py").read_bytes() == CHANGED
    assert patchkit("revert", "--root", root, "--target", "vllm").status == 0
    now = snapshot(root)
    assert {path for path in difference(now, pristine) if path.startswith("vllm")} == set()
    assert now["sglang/engine.py"][2] == CHANGED
    assert patchkit("revert", "--root", root, "--target", "sglang").status == 0
    assert difference(snapshot(root), pristine) == []


# Copies


def test_a_copied_tree_is_whole_and_reverted_where_it_is(root: Path, diff: Path, tmp_path: Path) -> None:
    pristine = snapshot(root)
    assert _apply(root, diff).status == 0
    patched = snapshot(root, own=True)
    copy = tmp_path / "elsewhere" / "site-packages"
    copy.parent.mkdir()
    subprocess.run(["cp", "-a", str(root), str(copy)], check=True)
    shutil.move(root, tmp_path / "moved-away")
    assert _standing(copy) == "patched"
    assert _apply(copy, diff).status == 0
    assert _revert(copy).status == 0
    assert difference(snapshot(copy), pristine) == []
    assert snapshot(tmp_path / "moved-away", own=True) == patched


def test_with_a_source_date_two_patched_trees_are_the_same_to_the_byte(root: Path, diff: Path, tmp_path: Path) -> None:
    second = shutil.copytree(root, tmp_path / "second" / "deeper")
    for place in (root, second):
        assert _apply(place, diff, SOURCE_DATE_EPOCH="1700000000").status == 0
        time.sleep(1.1)
    assert difference(snapshot(root, own=True), snapshot(second, own=True)) == []
    assert (root / "vllm/engine.py").stat().st_mtime == (second / "vllm/engine.py").stat().st_mtime == 1700000000
