"""Writing a tree: everything or nothing, new inodes, what a file is besides its content, what is refused."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from patchkit.errors import PatchkitError, RefusedError, TreeChangedError, UnsafePathError
from patchkit.kept_patches import files_to_keep
from patchkit.receipt import read_receipt
from patchkit.state import open_state, pristine_name
from patchkit.transaction import CommitReport, commit, pending, recover
from tests.faults.scene import (
    AFTER,
    BEFORE,
    ENGINE,
    PATCHES,
    Scene,
    Tree,
    applying,
    file,
    folder,
    kept,
    kept_when_applied,
    link,
    plant,
    receipt_between,
    reverting,
    snapshot,
    with_bytecode,
    without_bytecode,
)

# pytest-xdist has a thread of its own, which a fork does not need.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
ROOT_USER = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT_USER, reason="needs root")
CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def write(root: Path, arguments: dict[str, Any], **others: Any) -> CommitReport:
    with open_state(root, ENGINE, write=True) as state:
        return commit(state, **arguments, **others)


def refused(root: Path, arguments: dict[str, Any], kind: type[PatchkitError]) -> str:
    """Require that the transaction is refused and leaves everything as it was; return the message."""
    before = snapshot(root)
    with pytest.raises(kind) as raised:
        write(root, arguments)
    assert type(raised.value) is kind
    assert snapshot(root) == before
    assert not (root / ".patchkit").exists(), "no litter after a refusal"
    return str(raised.value)


# ---- there and back


def test_apply_then_revert_gives_the_same_tree(root: Path) -> None:
    plant(root, BEFORE)
    before = snapshot(root)
    report = write(root, applying(BEFORE, AFTER, PATCHES))
    assert snapshot(root) == AFTER
    assert report.warnings == ()
    assert report.receipt == read_receipt(root / ".patchkit/tree/receipt.json")
    write(root, reverting(BEFORE, AFTER))
    assert snapshot(root) == before
    assert not (root / ".patchkit").exists()


def test_pristine_copies_and_patches_are_kept(root: Path) -> None:
    plant(root, BEFORE)
    with open_state(root, ENGINE, write=True) as state:
        commit(state, **applying(BEFORE, AFTER, PATCHES))
        assert kept(state) == kept_when_applied()
        assert not state.stage.exists()
        assert not state.backup.exists()


def test_what_the_new_receipt_does_not_name_is_dropped(root: Path) -> None:
    old = {"a": file("a\n"), "b": file("b\n")}
    both, one = {"a": file("A\n"), "b": file("B\n")}, {"a": file("A\n"), "b": file("b\n")}
    plant(root, old)
    write(root, applying(old, both, PATCHES))
    kept_patch = dict(list(PATCHES.items())[:1])
    arguments = {**applying(old, one, kept_patch), "edits": reverting(one, both)["edits"], "pristine": {}}
    arguments["generated"] = {}
    with open_state(root, ENGINE, write=True) as state:
        commit(state, **arguments)
        pack = {f"patches/{name}": content for name, content in files_to_keep(PATCHES)}  # goes with its last patch
        assert kept(state) == {"pristine/a": b"a\n", **pack}
        other = {"0" * 64: b"other\n"}
        commit(state, **{**arguments, "edits": (), "receipt": receipt_between(old, one, other), "patches": other})
        assert kept(state) == {"pristine/a": b"a\n", f"patches/{'0' * 64}": b"other\n"}


def test_files_whose_paths_are_too_long_for_a_name_come_back(root: Path) -> None:
    long = f"{'d' * 200}/{'e' * 200}"
    old, new = {long: file("old"), "a/b": file("1"), "a%2Fb": file("2")}, {long: file("new"), "a/b": file("3")}
    plant(root, old)
    before = snapshot(root)
    write(root, applying(old, new))
    names = sorted(path.name for path in (root / ".patchkit/tree/pristine").iterdir())
    assert names == [pristine_name(long), "a%252Fb", "a%2Fb"]
    write(root, reverting(old, new))
    assert snapshot(root) == before


def test_pristine_directory_is_there_though_only_new_files_came(root: Path) -> None:
    write(root, applying({}, {"new": file("new")}))
    assert (root / ".patchkit/tree/pristine").is_dir()


def test_edit_without_a_change_touches_nothing(root: Path) -> None:
    tree = {"a": file("a\n")}
    plant(root, tree)
    inode = (root / "a").stat().st_ino
    edit = applying({"a": file("a\n")}, {"a": file("b\n")})["edits"][0]
    same = type(edit)(path=edit.path, before=edit.before, after=edit.before, content=b"a\n")
    write(root, {**applying(tree, tree), "edits": [same]})
    assert (root / "a").stat().st_ino == inode


def test_directory_that_becomes_empty_goes_and_comes_back_with_its_mode(root: Path) -> None:
    """As git apply does."""
    old = {"a": folder(0o750), "a/b": folder(0o2711), "a/b/only": file("x"), "top": file("t")}
    new = {"top": file("t")}
    plant(root, old)
    report = write(root, applying(old, new))
    assert snapshot(root) == new
    assert report.emptied == (PurePosixPath("a/b"), PurePosixPath("a"))
    write(root, reverting(old, new))
    assert snapshot(root) == old


def test_directory_with_a_users_file_stays(root: Path) -> None:
    old, new = {"top": file("t")}, {"top": file("t"), "new/x": file("x")}
    plant(root, old)
    write(root, applying(old, new))
    (root / "new/mine").write_text("mine")
    write(root, reverting(old, new))
    assert snapshot(root) == {**old, "new": folder(), "new/mine": file("mine")}


@needs_root
def test_emptied_directory_that_cannot_be_removed_stays(root: Path) -> None:
    plant(root, {"up": folder(0o555), "up/d": folder(), "up/d/x": file("x")})
    for place in (root, *root.rglob("*")):
        os.chown(place, 65534, 65534)
    assert not _as_nobody(root, "applying({'up/d/x': file('x')}, {})")
    assert snapshot(root) == {"up": folder(0o555), "up/d": folder()}
    assert not _as_nobody(root, "reverting({'up/d/x': file('x')}, {})")
    assert snapshot(root) == {"up": folder(0o555), "up/d": folder(), "up/d/x": file("x")}


def test_empty_directory_of_the_user_stays_when_our_file_in_it_goes(root: Path) -> None:
    old = {"empty": folder()}
    new = {"empty": folder(), "empty/x": file("x")}
    plant(root, old)
    write(root, applying(old, new))
    write(root, reverting(old, new))
    assert snapshot(root) == old


def test_upper_layer_in_an_emptied_directory_leaves_it_as_the_lower_layer_did(root: Path) -> None:
    pristine = {"a": folder(0o750), "a/old": file("old"), "top": file("t")}
    lower: Tree = {"top": file("t")}
    upper: Tree = {"a": folder(0o750), "a/new": file("new"), "top": file("t")}
    plant(root, pristine)
    write(root, applying(pristine, lower))
    write(root, {**applying(lower, upper), "receipt": applying(pristine, upper)["receipt"]})
    assert snapshot(root) == upper
    write(root, {**reverting(lower, upper), "receipt": applying(pristine, lower)["receipt"]})
    assert snapshot(root) == lower
    write(root, reverting(pristine, lower))
    assert snapshot(root) == pristine


def test_odd_names_are_written(root: Path) -> None:
    names = ["a b", "ü", "\udcff", "new\nline", "-rf", "#", "'\"\\", "a.py.orig"]
    old = {name: file(name.encode("utf-8", "surrogateescape")) for name in names}
    new = {name: file(b"new") for name in names}
    plant(root, old)
    write(root, applying(old, new))
    assert snapshot(root) == new
    write(root, reverting(old, new))
    assert snapshot(root) == old


def test_large_and_empty_files_are_written(root: Path) -> None:
    old = {"large": file(b"0123456789" * 1_000_000), "empty": file(b"")}
    new = {"large": file(b""), "empty": file(b"abcdefgh" * 1_000_000)}
    plant(root, old)
    write(root, applying(old, new))
    assert snapshot(root) == new


# ---- what a file is besides its content


def test_hard_linked_file_keeps_its_old_bytes_under_the_other_name(root: Path, tmp_path: Path) -> None:
    old, new = {"a.py": file("old\n")}, {"a.py": file("new\n")}
    plant(root, old)
    cached = tmp_path / "cached.py"
    cached.hardlink_to(root / "a.py")
    write(root, applying(old, new))
    assert cached.read_bytes() == b"old\n"
    pristine = root / ".patchkit/tree/pristine/a.py"
    assert pristine.read_bytes() == b"old\n"
    cached.write_bytes(b"in place\n")
    assert pristine.read_bytes() == b"old\n", "the copy shares nothing with the cache"
    assert (root / "a.py").read_bytes() == b"new\n"


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o4755, 0o2711, 0o444])
def test_mode_is_kept(mode: int, root: Path) -> None:
    if mode == 0o444 and not ROOT_USER:
        pytest.skip("a read-only file is refused for others than root")
    old, new = {"a": file("old", mode)}, {"a": file("new", mode)}
    plant(root, old)
    write(root, applying(old, new))
    assert snapshot(root) == new


def test_mode_changed_after_the_plan_is_kept(root: Path) -> None:
    old, new = {"a": file("old", 0o644)}, {"a": file("new", 0o644)}
    plant(root, old)
    (root / "a").chmod(0o600)
    write(root, applying(old, new))
    assert snapshot(root) == {"a": file("new", 0o600)}


def test_umask_changes_nothing(root: Path) -> None:
    old, new = {"top": file("t")}, {"top": file("t"), "d": folder(), "d/x": file("x", 0o755)}
    plant(root, old)
    before = os.umask(0o077)
    try:
        write(root, applying(old, new))
    finally:
        os.umask(before)
    assert snapshot(root) == new


@needs_root
def test_owner_and_group_are_kept_and_inherited(root: Path) -> None:
    old = {"d": folder(), "d/a": file("old", 0o4755), "d/l": link("a")}
    new = {"d": folder(), "d/a": file("new", 0o4755), "d/l": link("b"), "d/new": folder(), "d/new/x": file("x")}
    plant(root, old)
    for path in ("d", "d/a", "d/l"):
        os.chown(root / path, 1234, 2345, follow_symlinks=False)
    (root / "d/a").chmod(0o4755)  # chown took the bit away
    write(root, applying(old, new))
    assert snapshot(root) == new
    for path in ("d/a", "d/l", "d/new", "d/new/x"):
        status = (root / path).lstat()
        assert (status.st_uid, status.st_gid) == (1234, 2345), path


def test_extended_attributes_are_kept(root: Path) -> None:
    old, new = {"a": file("old")}, {"a": file("new")}
    plant(root, old)
    try:
        os.setxattr(root / "a", "user.origin", b"wheel")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error.strerror}")
    write(root, applying(old, new))
    assert os.getxattr(root / "a", "user.origin") == b"wheel"


def test_attribute_that_cannot_be_kept_is_refused_by_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = {"a": file("old"), "b": file("old")}, {"a": file("new"), "b": file("new")}
    plant(root, old)
    try:
        os.setxattr(root / "b", "user.origin", b"wheel")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error.strerror}")
    monkeypatch.setattr(os, "setxattr", _not_permitted)
    said = refused(root, applying(old, new), RefusedError)
    assert "b: its attribute user.origin cannot be kept" in said


def test_file_system_without_hard_links_is_served_with_copies(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, with_bytecode(BEFORE))
    monkeypatch.setattr(os, "link", _not_permitted)
    write(root, applying(BEFORE, AFTER, PATCHES))
    assert snapshot(root) == without_bytecode(AFTER)
    assert not (set(kept_when_applied()) - set(_kept(root)))


def test_failure_is_taken_back_from_copies(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, with_bytecode(BEFORE))
    monkeypatch.setattr(os, "link", _not_permitted)
    _fail_at(monkeypatch, "rename", 20)
    refused(root, applying(BEFORE, AFTER, PATCHES), RefusedError)


def test_source_date_epoch_is_the_time_of_new_files(root: Path) -> None:
    old, new = {"a": file("old"), "l": link("a")}, {"a": file("new"), "l": link("b"), "n": file("n")}
    plant(root, old)
    write(root, applying(old, new), record_epoch=1_000_000_000)
    times = {
        path.lstat().st_mtime for path in (root / "a", root / "l", root / "n", root / ".patchkit/tree/receipt.json")
    }
    assert times == {1_000_000_000}


# ---- what is refused, before anything is written


def test_all_refusals_are_told_together(root: Path) -> None:
    old = {name: file("old") for name in ("a", "b", "c", "d")}
    new = {**{name: file("new") for name in ("a", "b", "c", "d")}, "e": file("new")}
    plant(root, {**old, "b": file("edited"), "e": file("mine")})
    (root / "c").unlink()
    said = refused(root, applying(old, new), TreeChangedError)
    assert said.startswith("3 files cannot be written")
    assert "b: it was edited between plan and write" in said
    assert "c: it is gone" in said
    assert "e: something stands there" in said
    assert "  a:" not in said


def test_link_above_a_file_is_refused(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    old, new = {"d/a": file("old"), "d/sub": folder()}, {"d/a": file("new"), "d/sub": folder(), "d/new": file("new")}
    plant(outside, {"a": file("old")})
    (root / "d").symlink_to(outside)
    said = refused(root, applying(old, new), UnsafePathError)
    assert "d is a symlink" in said
    assert snapshot(outside) == {"a": file("old")}


def test_link_in_place_of_a_file_is_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"old")
    (root / "a").symlink_to(outside)
    refused(root, applying({"a": file("old")}, {"a": file("new")}), TreeChangedError)
    assert outside.read_bytes() == b"old"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", ".git/x", "a/.GIT/x", ".patchkit/tree/lock"])
def test_path_that_leads_elsewhere_is_refused(path: str, root: Path) -> None:
    arguments = applying({}, {"x": file("x")})
    edit = arguments["edits"][0]
    arguments["edits"] = [type(edit)(path=PurePosixPath(path), before=None, after=edit.after, content=b"x")]
    refused(root, arguments, UnsafePathError)


def test_file_in_the_way_of_a_directory_is_named(root: Path) -> None:
    plant(root, {"a": file("file")})
    said = refused(root, applying({"a": file("file")}, {"a": file("file"), "a/b": file("b")}), RefusedError)
    assert "a is in the way: it is not a directory" in said


def test_directory_in_the_way_of_a_file_is_named(root: Path) -> None:
    plant(root, {"a": folder(), "a/mine": file("mine")})
    said = refused(root, applying({}, {"a": file("a")}), RefusedError)
    assert "a: a directory stands there" in said


def test_fifo_in_place_of_a_file_does_not_hold_us(root: Path) -> None:
    os.mkfifo(root / "a")
    with pytest.raises(TreeChangedError):
        write(root, applying({"a": file("old")}, {"a": file("new")}))


def test_read_only_file_system_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, {"d/a": file("old")})
    real = os.fstatvfs

    def read_only(descriptor: int) -> Any:
        status = list(real(descriptor))
        status[8] |= os.ST_RDONLY
        return os.statvfs_result(status)

    monkeypatch.setattr(os, "fstatvfs", read_only)
    said = refused(root, applying({"d/a": file("old")}, {"d/a": file("new")}), RefusedError)
    assert "d is on a read-only file system" in said


@needs_root
@pytest.mark.parametrize("what", ["file", "directory"])
def test_read_only_place_is_refused_for_its_owner(what: str, root: Path) -> None:
    plant(root, {"d/a": file("old"), "b": file("old")})
    for place in (root, *root.rglob("*")):
        os.chown(place, 65534, 65534)
    (root / "d/a" if what == "file" else root / "d").chmod(0o444 if what == "file" else 0o555)
    before = snapshot(root)
    said = _as_nobody(root, "applying({'d/a': file('old'), 'b': file('old')}, {'d/a': file('new'), 'b': file('new')})")
    assert said.startswith("RefusedError: cannot write d/a")
    assert ("it is read-only for you" if what == "file" else "d is not writable for you") in said
    assert snapshot(root) == before
    assert not (root / ".patchkit").exists()


@needs_root
def test_ordinary_user_writes_their_own_tree(root: Path) -> None:
    plant(root, with_bytecode(BEFORE))
    for place in (root, *root.rglob("*")):
        os.chown(place, 65534, 65534, follow_symlinks=False)
    assert not _as_nobody(root, "applying(BEFORE, AFTER, PATCHES)")
    assert snapshot(root) == without_bytecode(AFTER)
    assert {place.lstat().st_uid for place in root.rglob("*")} == {65534}
    assert not _as_nobody(root, "reverting(BEFORE, AFTER)")
    assert snapshot(root) == without_bytecode(BEFORE)


@needs_root
def test_file_of_another_owner_is_refused(root: Path) -> None:
    plant(root, {"a": file("old", 0o666), "b": file("old")})
    for place in (root, root / "b"):
        os.chown(place, 65534, 65534)
    said = _as_nobody(root, "applying({'a': file('old', 0o666)}, {'a': file('new', 0o666)})")
    assert "a: owner cannot be kept" in said
    assert (root / "a").read_bytes() == b"old"


@needs_root
def test_immutable_file_is_refused_before_anything_is_written(root: Path) -> None:
    old, new = {"a": file("old"), "b": file("old")}, {"a": file("new"), "b": file("new")}
    plant(root, old)
    _chattr("+i", root / "b")
    try:
        assert "b: it is read-only for you" in refused(root, applying(old, new), RefusedError)
    finally:
        _chattr("-i", root / "b")


@needs_root
def test_file_that_may_only_grow_is_taken_back(root: Path) -> None:
    """The append-only flag shows only when the rename is tried."""
    old, new = {"a": file("old"), "b": file("old")}, {"a": file("new"), "b": file("new")}
    plant(root, old)
    _chattr("+a", root / "b")
    try:
        assert "Operation not permitted" in refused(root, applying(old, new), RefusedError)
    finally:
        _chattr("-a", root / "b")


@needs_root
@pytest.mark.parametrize("what", ["d/a", "d"])
def test_bind_mount_is_refused_by_name(what: str, root: Path, tmp_path: Path) -> None:
    old = {"d/a": file("old"), "b": file("old")}
    plant(root, old)
    plant(tmp_path / "other", old)
    script = f"mount --bind '{tmp_path}/other/{what}' '{root}/{what}' && exec \"$@\""
    code = "applying({'d/a': file('old'), 'b': file('old')}, {'d/a': file('new'), 'b': file('new')})"
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *_attempt(root, code)], capture_output=True, text=True, check=False
    )
    if "unshare" in ended.stderr or "mount:" in ended.stderr:
        pytest.skip(f"nothing can be mounted here: {ended.stderr.strip()}")
    assert ended.stdout.startswith("RefusedError: cannot write d/a"), ended.stderr
    assert "mount point" in ended.stdout
    assert (root / "b").read_bytes() == b"old"
    assert not (root / ".patchkit").exists()


# ---- what changes while we work


def test_file_edited_between_preflight_and_write_is_seen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = {"a": file("old"), "b": file("old")}, {"a": file("new"), "b": file("new")}
    plant(root, old)
    _before_steps(monkeypatch, lambda: (root / "b").write_bytes(b"mine"))
    with pytest.raises(TreeChangedError, match="b was edited meanwhile"):
        write(root, applying(old, new))
    assert snapshot(root) == {"a": file("old"), "b": file("mine")}
    assert not (root / ".patchkit").exists()


def test_file_created_between_preflight_and_write_is_not_overwritten(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = {"a": file("old")}, {"a": file("new"), "b": file("new")}
    plant(root, old)
    _before_steps(monkeypatch, lambda: (root / "b").write_bytes(b"mine"))
    with pytest.raises(TreeChangedError, match="b was edited meanwhile"):
        write(root, applying(old, new))
    assert snapshot(root) == {"a": file("old"), "b": file("mine")}


def test_directory_swapped_for_a_link_before_the_write_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = {"d/a": file("old"), "b": file("old")}, {"d/a": file("new"), "b": file("new")}
    plant(root, old)
    outside = tmp_path / "outside"
    plant(outside, {"a": file("old")})

    def swap() -> None:
        (root / "d").rename(tmp_path / "moved")
        (root / "d").symlink_to(outside)

    _before_steps(monkeypatch, swap)
    with pytest.raises(TreeChangedError, match="d was replaced or moved"):
        write(root, applying(old, new))
    assert snapshot(outside) == {"a": file("old")}
    assert snapshot(tmp_path / "moved") == {"a": file("old")}
    assert (root / "b").read_bytes() == b"old"


@pytest.mark.parametrize("number", [1, 2, 7, 20, 33])
def test_step_that_fails_is_taken_back(number: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, with_bytecode(BEFORE))
    _fail_at(monkeypatch, "rename", number)
    assert "the tree is as it was" in refused(root, applying(BEFORE, AFTER, PATCHES), RefusedError)


def test_interrupt_from_the_keyboard_is_taken_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, BEFORE)
    before = snapshot(root)
    _fail_at(monkeypatch, "rename", 9, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write(root, applying(BEFORE, AFTER, PATCHES))
    assert snapshot(root) == before
    assert not (root / ".patchkit").exists()


def test_taking_back_that_fails_leaves_the_journal_to_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("apply")
    scene.prepare(root)
    with monkeypatch.context() as patched:
        _fail_at(patched, "rename", 20, onwards=True)
        with pytest.raises(TreeChangedError, match="cannot take the change back"):
            write(root, applying(BEFORE, AFTER, PATCHES))
    with open_state(root, ENGINE, write=False) as state:
        assert pending(state)
    scene.check_whole(root)


# ---- two at once


def test_second_of_two_writers_finds_the_tree_changed(root: Path) -> None:
    old = {"a": file("old")}
    plant(root, old)
    first, second = applying(old, {"a": file("first")}), applying(old, {"a": file("second")})
    assert _race(root, [first, second]) == ["TreeChangedError", "done"]
    assert snapshot(root)["a"] in (file("first"), file("second"))


def test_two_writers_of_different_files_both_succeed(root: Path) -> None:
    old = {"a": file("old"), "b": file("old")}
    plant(root, old)
    arguments = [applying(old, {**old, name: file("new")}) for name in ("a", "b")]
    assert _race(root, arguments) == ["done", "done"]
    assert snapshot(root) == {"a": file("new"), "b": file("new")}


def test_two_engines_in_one_root_do_not_meet(root: Path) -> None:
    old, new = {"a": file("old"), "b": file("old")}, {"a": file("new"), "b": file("new")}
    plant(root, old)
    for engine, name in (("vllm", "a"), ("sglang", "b")):
        with open_state(root, engine, write=True) as state:
            commit(state, **applying({name: old[name]}, {name: new[name]}))
    assert snapshot(root) == new
    for engine, name in (("vllm", "a"), ("sglang", "b")):
        with open_state(root, engine, write=True) as state:
            commit(state, **reverting({name: old[name]}, {name: new[name]}))
    assert snapshot(root) == old
    assert not (root / ".patchkit").exists()


def test_patched_tree_copied_elsewhere_is_reverted_there(root: Path, tmp_path: Path) -> None:
    plant(root, BEFORE)
    write(root, applying(BEFORE, AFTER, PATCHES))
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    shutil.rmtree(root)
    write(copy, reverting(BEFORE, AFTER))
    assert snapshot(copy) == BEFORE


# ---- helpers


def _kept(root: Path) -> dict[str, bytes]:
    with open_state(root, ENGINE, write=False) as state:
        return kept(state)


def _not_permitted(*_: Any, **__: Any) -> None:
    raise PermissionError(1, "Operation not permitted")


def _fail_at(
    patched: pytest.MonkeyPatch, name: str, number: int, error: BaseException | None = None, *, onwards: bool = False
) -> None:
    """Let the nth call of a function of `os` fail."""
    real, count = getattr(os, name), 0

    def fail(*arguments: Any, **keywords: Any) -> Any:
        nonlocal count
        count += 1
        if count == number or (onwards and count > number):
            raise error or OSError(5, "Input/output error")
        return real(*arguments, **keywords)

    patched.setattr(os, name, fail)


def _before_steps(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], object]) -> None:
    """Let something happen when all is staged and the journal's place is taken: at the first rename."""
    real = os.rename
    done: list[bool] = []

    def rename(*arguments: Any, **keywords: Any) -> None:
        if not done:
            done.append(True)
            happen()
        real(*arguments, **keywords)

    monkeypatch.setattr(os, "rename", rename)


def _race(root: Path, several: list[dict[str, Any]]) -> list[str]:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    writers = [context.Process(target=_write_and_tell, args=(root, arguments, answers.put)) for arguments in several]
    for writer in writers:
        writer.start()
    told = sorted(answers.get(timeout=60) for _ in writers)
    for writer in writers:
        writer.join(60)
    return told


def _write_and_tell(root: Path, arguments: dict[str, Any], tell: Callable[[str], None]) -> None:
    try:
        with open_state(root, ENGINE, write=True) as state:
            recover(state)
            commit(state, **arguments)
    except PatchkitError as error:
        tell(type(error).__name__)
    else:
        tell("done")


def _attempt(root: Path, code: str, *, before: str = "") -> list[str]:
    """Return the command that tries a transaction and prints the error."""
    script = f"""
import os, sys, threading  # all that is imported late: nobody may not read our interpreter
sys.path.insert(0, {str(CHECKOUT)!r})
from pathlib import Path
from patchkit.errors import PatchkitError
from patchkit.state import open_state
from patchkit.transaction import commit
from tests.faults.scene import *
root = Path({str(root)!r})
{before}
try:
    with open_state(root, ENGINE, write=True) as state:
        commit(state, **{code})
except PatchkitError as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""
    return [sys.executable, "-c", script]


def _as_nobody(root: Path, code: str) -> str:
    down = "os.chdir(root); root = Path('.'); os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    ended = subprocess.run(_attempt(root, code, before=down), capture_output=True, text=True, check=False)
    assert not ended.returncode, ended.stderr
    return ended.stdout


def _chattr(flag: str, place: Path) -> None:
    program = shutil.which("chattr")
    if program is None:
        pytest.skip("chattr is not installed")
    ended = subprocess.run([program, flag, str(place)], capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip(f"no such flag on this file system: {ended.stderr.strip()}")
