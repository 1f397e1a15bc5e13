"""A series of one's own from outside: locked against a release, and what happens on a tree that is another one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.blackbox.command import difference, patchkit, snapshot
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, wheel_tree, write_tree

FIRST = DIFF + NEW_FILE
SECOND = DIFF.replace("vllm/engine.py", "vllm/layers/attention.py")
ZERO_CONTEXT = """\
diff --git a/vllm/layers/__init__.py b/vllm/layers/__init__.py
--- a/vllm/layers/__init__.py
+++ b/vllm/layers/__init__.py
@@ -0,0 +1 @@
+LAYERS = 1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree", wheel_tree("vllm", "0.1.0", engine()))


@pytest.fixture
def patches(tmp_path: Path, root: Path) -> Path:
    """A directory with a series of three patches, locked against the tree."""
    directory = tmp_path / "patches" / "vllm" / "0.1.0"
    directory.mkdir(parents=True)
    texts = {"0001-first.patch": FIRST, "0002-second.patch": SECOND, "0003-third.patch": ZERO_CONTEXT}
    for name, text in texts.items():
        (directory / name).write_text(
            f"From: Somebody <somebody@example.com>\nSubject: [PATCH] {name}\n\n---\n\n{text}"
        )
    (directory / "series").write_text("# ours\n" + "".join(f"{name}\n" for name in texts))
    locked = patchkit("series", "lock", "--patches", tmp_path / "patches", "--root", root)
    assert locked.status == 0, locked.said
    assert (directory / "series.lock").is_file()
    return tmp_path / "patches"


def test_a_locked_series_applies_and_reverts(root: Path, patches: Path) -> None:
    pristine = snapshot(root)
    assert patchkit("plan", "--root", root, "--patches", patches).status == 0
    wanted = ["status", "--root", root, "--patches", patches, "--require-applied"]
    assert patchkit(*wanted).status == 1
    applied = patchkit("apply", "--root", root, "--patches", patches)
    assert applied.status == 0, applied.said
    assert (root / "vllm/engine.py").read_bytes() == CHANGED
    assert (root / "vllm/layers/attention.py").read_bytes() == CHANGED
    assert (root / "vllm/layers/__init__.py").read_bytes() == b"LAYERS = 1\n"
    assert patchkit(*wanted).status == 0
    again = patchkit("apply", "--root", root, "--patches", patches)
    assert (again.status, "nothing to do" in again.said) == (0, True), again.said
    assert patchkit("revert", "--root", root).status == 0
    assert difference(snapshot(root), pristine) == []


def test_files_that_the_lock_does_not_name_so_end_with_status_4_by_name(root: Path, patches: Path) -> None:
    for name in ("vllm/engine.py", "vllm/layers/attention.py"):
        (root / name).write_bytes(MODULE + b"\n\nNIGHTLY = 1\n")  # far from every hunk: all of them would place
    before = snapshot(root, own=True)
    for act in ("plan", "apply"):
        ended = patchkit(act, "--root", root, "--patches", patches)
        assert ended.status == 4, ended.said
        assert "vllm/engine.py" in ended.said
        assert "vllm/layers/attention.py" in ended.said
        assert "vllm/layers/__init__.py" not in ended.said
        assert difference(snapshot(root), before) == []


def test_a_file_that_the_lock_names_and_the_tree_lacks_ends_with_status_4(root: Path, patches: Path) -> None:
    (root / "vllm/layers/attention.py").unlink()
    before = snapshot(root)
    ended = patchkit("apply", "--root", root, "--patches", patches)
    assert ended.status == 4, ended.said
    assert "vllm/layers/attention.py" in ended.said
    assert difference(snapshot(root), before) == []


def test_an_unlocked_series_needs_a_proof_for_every_hunk(root: Path, patches: Path) -> None:
    (root / "vllm/engine.py").write_bytes(MODULE + b"\n\nNIGHTLY = 1\n")
    (root / "vllm/layers/__init__.py").write_bytes(b"NIGHTLY = 1\n")
    refused = patchkit("apply", "--root", root, "--patches", patches, "--unlocked")
    assert refused.status == 1, refused.said
    assert "vllm/layers/__init__.py" in refused.said, "the hunk without context has none"
    series = patches / "vllm" / "0.1.0" / "series"
    series.write_text("0001-first.patch\n0002-second.patch\n")
    applied = patchkit("apply", "--root", root, "--patches", patches, "--unlocked")
    assert applied.status == 0, applied.said
    assert (root / "vllm/engine.py").read_bytes() == CHANGED + b"\n\nNIGHTLY = 1\n"


def test_an_edited_patch_does_not_pass_under_the_old_lock(root: Path, patches: Path) -> None:
    patch = patches / "vllm" / "0.1.0" / "0001-first.patch"
    patch.write_text(patch.read_text().replace("+RATE = 2", "+RATE = 7"))
    before = snapshot(root)
    ended = patchkit("apply", "--root", root, "--patches", patches)
    assert ended.status in (1, 4), ended.said
    assert "0001-first.patch" in ended.said
    assert difference(snapshot(root), before) == []


def test_quilt_pushes_the_same_series_to_the_same_tree(root: Path, patches: Path, tmp_path: Path) -> None:
    series = patches / "vllm" / "0.1.0"
    theirs = write_tree(tmp_path / "theirs", wheel_tree("vllm", "0.1.0", engine()))
    try:
        pushed = subprocess.run(
            ["quilt", "push", "-a", "-q"], cwd=theirs, env={"PATH": "/usr/bin:/bin", "QUILT_PATCHES": str(series)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("quilt is not installed")
    assert pushed.returncode == 0, pushed.stdout + pushed.stderr
    assert patchkit("apply", "--root", root, "--patches", patches).status == 0
    ours, other = snapshot(root / "vllm"), snapshot(theirs / "vllm")
    assert difference(ours, other) == []
