"""How a tree stands, compared with its receipt: unpatched, patched, drifted, replaced, interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from patchkit.asking import Request
from patchkit.errors import PatchkitError, TreeChangedError, UnsafePathError
from patchkit.session import Condition, Standing, open_session
from patchkit.target import TargetTree, find_targets, plain_target
from patchkit.wanted import Terms
from patchkit.workflow import apply_request
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, wheel_tree, write_tree

NOW = "2026-01-01T00:00:00Z"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "site", wheel_tree("vllm", "0.6.3", engine()))


def tree_of(root: Path) -> TargetTree:
    [tree] = find_targets(root=root)
    return tree


def patched(root: Path, raw: str = DIFF + NEW_FILE) -> Path:
    request = Request(shipped=None, directories=(), patches=((Path("one.diff"), raw.encode()),), terms=Terms())
    with open_session(tree_of(root), write=True) as session:
        assert apply_request(session, request, now=NOW, epoch=None).changed
    return root


def condition_of(tree: TargetTree) -> Condition:
    with open_session(tree, write=False) as session:
        return session.condition


def standing(root: Path) -> Standing:
    return condition_of(tree_of(root)).standing


def test_tree_without_a_receipt_is_not_patched(root: Path) -> None:
    assert standing(root) is Standing.UNPATCHED
    assert not (root / ".patchkit").exists(), "a reader makes nothing"


def test_tree_as_patchkit_left_it_is_patched(root: Path) -> None:
    assert standing(patched(root)) is Standing.PATCHED


def edit(root: Path) -> None:
    (root / "vllm/engine.py").write_bytes(CHANGED + b"# by hand\n")


def remove(root: Path) -> None:
    (root / "vllm/engine.py").unlink()


def remove_new(root: Path) -> None:
    (root / "vllm/extra.py").unlink()


def swap_for_link(root: Path) -> None:
    (root / "vllm/engine.py").unlink()
    (root / "vllm/engine.py").symlink_to("extra.py")


def make_executable(root: Path) -> None:
    (root / "vllm/engine.py").chmod(0o755)


@pytest.mark.parametrize("act", [edit, remove, remove_new, swap_for_link, make_executable])
def test_touched_file_that_is_not_as_it_was_left_is_drift(root: Path, act: Callable[[Path], None]) -> None:
    act(patched(root))
    condition = condition_of(tree_of(root))
    assert condition.standing is Standing.DRIFTED
    assert [str(path) for path in condition.files] == ["vllm/extra.py" if act is remove_new else "vllm/engine.py"]


def test_group_and_world_bits_that_a_copy_changes_are_no_drift(root: Path) -> None:
    patched(root)
    (root / "vllm/engine.py").chmod(0o600)
    assert standing(root) is Standing.PATCHED


def test_tree_that_was_copied_is_still_patched(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(patched(root), copy, symlinks=True)
    assert standing(copy) is Standing.PATCHED


def test_other_version_is_a_reinstall(root: Path) -> None:
    patched(root)
    shutil.rmtree(root / "vllm-0.6.3.dist-info")
    write_tree(root, wheel_tree("vllm", "0.6.4", engine(version="0.6.4")))
    condition = condition_of(tree_of(root))
    assert condition.standing is Standing.REPLACED
    assert "vllm-0.6.3.dist-info, now vllm-0.6.4.dist-info" in condition.reason


def test_same_version_installed_anew_is_a_reinstall(root: Path) -> None:
    patched(root)
    (root / "vllm/extra.py").unlink()
    write_tree(root, wheel_tree("vllm", "0.6.3", engine()))
    assert standing(root) is Standing.REPLACED


def test_installer_that_writes_another_record_is_a_reinstall(root: Path) -> None:
    """uv lists REQUESTED and sorts; the files are the distribution's, the new one is left over."""
    patched(root)
    files = wheel_tree("vllm", "0.6.3", engine(), installer="uv")
    write_tree(root, files)
    assert standing(root) is Standing.REPLACED


def test_record_alone_rewritten_is_drift(root: Path) -> None:
    patched(root)
    record = root / "vllm-0.6.3.dist-info/RECORD"
    record.write_bytes(record.read_bytes() + b"vllm/more.py,,\n")
    assert standing(root) is Standing.DRIFTED


def test_checkout_whose_version_moves_on_is_still_patched(tmp_path: Path) -> None:
    """A commit or a tag gives a checkout another version; the files tell that nothing was replaced."""
    root = write_tree(tmp_path / "checkout", {**engine(), "pyproject.toml": b"[project]\nname = 'vllm'\n"})
    patched(root)
    (root / "vllm/version.py").write_text('__version__ = "0.7.0"\n')
    assert standing(root) is Standing.PATCHED


def test_plain_tree_with_new_files_only_can_be_read(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "plain", {"a": b"a\n"})
    raw = b"diff --git a/b b/b\nnew file mode 100644\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+b\n"
    request = Request(shipped=None, directories=(), patches=((Path("one.diff"), raw),), terms=Terms())
    with open_session(plain_target(root), write=True) as session:
        apply_request(session, request, now=NOW, epoch=None)
    condition = condition_of(plain_target(root))
    assert condition.standing is Standing.PATCHED


def test_journal_is_reported_by_a_reader_and_left(root: Path) -> None:
    journal = patched(root) / ".patchkit/vllm/journal.json"
    journal.write_text("{}")
    assert standing(root) is Standing.PENDING
    assert journal.exists()


DAMAGE = {
    "not JSON": "{",
    "a list": "[]",
    "another schema": '{"schema": 2}',
    "no layers": '{"schema": 2}',
    "empty": "",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", DAMAGE.values(), ids=DAMAGE)
def test_damaged_receipt_is_named(root: Path, text: str) -> None:
    receipt = patched(root) / ".patchkit/vllm/receipt.json"
    receipt.write_text(text)
    with pytest.raises(TreeChangedError, match=r"receipt\.json is damaged"):
        standing(root)


def test_receipt_that_is_a_directory_is_an_error(root: Path) -> None:
    receipt = patched(root) / ".patchkit/vllm/receipt.json"
    receipt.unlink()
    receipt.mkdir()
    with pytest.raises(TreeChangedError, match="is not a file"):
        standing(root)


def test_receipt_with_a_hostile_path_is_refused(root: Path) -> None:
    receipt = patched(root) / ".patchkit/vllm/receipt.json"
    document = json.loads(receipt.read_text())
    document["files"][0][0] = "../../etc/passwd"
    receipt.write_text(json.dumps(document))
    with pytest.raises(TreeChangedError, match="damaged"):
        standing(root)


@pytest.mark.parametrize("damage", ["gone", "changed", "a directory", "the directory is gone"])
def test_damaged_pristine_copy_is_named(root: Path, damage: str) -> None:
    copy = patched(root) / ".patchkit/vllm/pristine/vllm%2Fengine.py"
    copy.unlink()
    if damage == "changed":
        copy.write_bytes(MODULE + b"#\n")
    elif damage == "a directory":
        copy.mkdir()
    elif damage == "the directory is gone":
        shutil.rmtree(root / ".patchkit/vllm/pristine")
    with pytest.raises(PatchkitError) as raised, open_session(tree_of(root), write=False) as session:
        session.situation.pristine.get(PurePosixPath("vllm/engine.py"))
    assert raised.value.status == 5
    assert "reinstall" in raised.value.hint


@pytest.mark.parametrize("part", [".patchkit", ".patchkit/vllm"])
@pytest.mark.parametrize("write", [False, True])
def test_state_directory_that_is_a_symlink_is_refused(root: Path, tmp_path: Path, part: str, write: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    patched(root)
    (root / part).rename(elsewhere)
    (root / part).symlink_to(elsewhere)
    with pytest.raises(UnsafePathError, match="symlink"), open_session(tree_of(root), write=write):
        pass


def test_pristine_file_is_the_kept_copy_and_the_rest_is_the_tree(root: Path) -> None:
    with open_session(tree_of(patched(root)), write=False) as session:
        pristine = session.situation.pristine
        assert pristine[PurePosixPath("vllm/engine.py")].content == MODULE
        assert PurePosixPath("vllm/extra.py") not in pristine
        assert PurePosixPath("vllm/__init__.py") in pristine
        paths = set(pristine)
    assert PurePosixPath("vllm/engine.py") in paths
    assert PurePosixPath("vllm/extra.py") not in paths
