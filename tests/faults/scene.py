"""A tree of over 40 files, a stack of patches on it, and the two transactions between them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from patchkit.kept_patches import files_to_keep
from patchkit.plan import FileEdit
from patchkit.receipt import AppliedLayer, AppliedPatch, Origin, Receipt, TouchedFile
from patchkit.state import StateDirectory, open_state, pristine_name
from patchkit.transaction import commit, pending, recover
from patchkit.tree import FileState, Kind, TreeEntry

Tree = dict[str, TreeEntry]
ENGINE = "tree"


def file(content: bytes | str, mode: int = 0o644) -> TreeEntry:
    return TreeEntry(kind=Kind.FILE, mode=mode, content=content.encode() if isinstance(content, str) else content)


def link(target: str) -> TreeEntry:
    return TreeEntry(kind=Kind.SYMLINK, mode=0o777, content=target.encode())


def folder(mode: int = 0o755) -> TreeEntry:
    return TreeEntry(kind=Kind.DIRECTORY, mode=mode, content=b"")


def plant(root: Path, tree: Tree) -> None:
    """Write a tree; directories that only files need are made too."""
    root.mkdir(parents=True, exist_ok=True)
    for path, entry in sorted(tree.items()):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind is Kind.DIRECTORY:
            place.mkdir(exist_ok=True)
        elif entry.kind is Kind.SYMLINK:
            place.symlink_to(os.fsdecode(entry.content))
        else:
            place.write_bytes(entry.content)
        if entry.kind is not Kind.SYMLINK:
            place.chmod(entry.mode)


def snapshot(root: Path) -> Tree:
    """Read everything in a tree but patchkit's own state, directories and modes included."""
    tree: Tree = {}
    for above, directories, files in os.walk(root):
        if above == str(root) and ".patchkit" in directories:
            directories.remove(".patchkit")
        for name in (*directories, *files):
            place = Path(above, name)
            path = str(place.relative_to(root))
            mode = place.lstat().st_mode & 0o7777
            if place.is_symlink():
                tree[path] = link(str(place.readlink()))
            elif place.is_dir():
                tree[path] = folder(mode)
            else:
                tree[path] = file(place.read_bytes(), mode)
    return tree


def state_of(entry: TreeEntry | None) -> FileState | None:
    return None if entry is None or entry.kind is Kind.DIRECTORY else entry.state


def edits_between(old: Tree, new: Tree) -> list[FileEdit]:
    """Return the edits from one tree to another; .pyc files and directories are no edits."""
    edits = []
    for path in sorted({*old, *new}):
        before, after = state_of(old.get(path)), state_of(new.get(path))
        if before != after and not path.endswith(".pyc"):
            content = new[path].content if after is not None else None
            edits.append(FileEdit(path=PurePosixPath(path), before=before, after=after, content=content))
    return edits


def receipt_between(old: Tree, new: Tree, patches: Mapping[str, bytes] | None = None) -> Receipt:
    applied = tuple(
        AppliedPatch(
            name=f"{number}.patch",
            sha256=sha256,
            mapping="as written",
            paths=(),
            lines=(),
            reverse=False,
            config="",
            enabled=True,
            reason="",
        )
        for number, sha256 in enumerate(patches or {})
    )
    layer = AppliedLayer(number=1, origin=Origin.AD_HOC, name="a", patches=applied, locked=False, applied_at="")
    touched = [
        TouchedFile(path=edit.path, pristine=edit.before, current=edit.after) for edit in edits_between(old, new)
    ]
    made = [path for path, entry in new.items() if entry.kind is Kind.DIRECTORY and path not in old]
    return Receipt(
        engine=ENGINE,
        version="1",
        distribution="",
        record_sha256="",
        layers=(layer,),
        configuration=(),
        files=tuple(touched),
        directories=tuple(PurePosixPath(path) for path in sorted(made)),
        plan_sha256="",
        tool_version="0",
    )


CONFIGURATION = {".config": b"CONFIG_A=y\n", "autoconf.h": b"#define CONFIG_A 1\n"}
"""Files of the state directory that show a configuration: they come and go with the receipt."""


def applying(old: Tree, new: Tree, patches: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """Return commit's arguments for the first patches on a tree."""
    edits = edits_between(old, new)
    return {
        "edits": edits,
        "receipt": receipt_between(old, new, patches),
        "pristine": {edit.path: old[str(edit.path)].content for edit in edits if edit.before is not None},
        "patches": patches or {},
        "generated": CONFIGURATION if patches else {},
    }


def reverting(old: Tree, new: Tree) -> dict[str, Any]:
    """Return commit's arguments for taking the last patches out."""
    return {"edits": edits_between(new, old), "receipt": None, "pristine": {}, "patches": {}}


def _patches() -> dict[str, bytes]:
    return {hashlib.sha256(raw).hexdigest(): raw for raw in (b"first patch\n" * 9, b"second patch\n" * 9)}


def _many() -> tuple[Tree, Tree]:
    old: Tree = {"pkg": folder(), "pkg/empty": folder()}
    new: Tree = {"pkg": folder(), "pkg/empty": folder()}
    for number in range(30):
        above = f"pkg/part{number % 5}"
        old[above] = new[above] = folder()
        old[f"{above}/m{number}.py"] = file(f"x = {number}\n")
        new[f"{above}/m{number}.py"] = file(f"x = {number}\ny = 1\n")
    for path in ("pkg/part0/__pycache__", "pkg/part1/__pycache__"):
        old[path] = new[path] = folder()
    return old, new


def _changes() -> tuple[Tree, Tree]:
    """Return one of each kind of change: what was, and what it becomes."""
    old: Tree = {
        "pkg/run.sh": file("#!/bin/sh\n", 0o644),
        "pkg/gone.py": file("gone = 1\n"),
        "pkg/__pycache__": folder(),
        "pkg/last": folder(0o750),
        "pkg/last/only.py": file("only = 1\n", 0o640),
        "pkg/here": link("run.sh"),
        "pkg/target": link("part0/m0.py"),
        "pkg/becomes_link": file("text\n"),
        "pkg/becomes_directory": file("text\n"),
        "pkg/becomes_file": folder(),
        "pkg/becomes_file/inside": file("inside\n"),
        "pkg/replaced": link("part0"),
        "RECORD": file("rows\n"),
        "other.txt": file("untouched\n"),
    }
    new: Tree = {
        "pkg/run.sh": file("#!/bin/sh\n", 0o755),
        "pkg/__pycache__": folder(),
        "pkg/target": link("part1/m1.py"),
        "pkg/becomes_link": link("run.sh"),
        "pkg/becomes_directory": folder(),
        "pkg/becomes_directory/inside": file("inside\n"),
        "pkg/becomes_file": file("now a file\n"),
        "pkg/replaced": folder(),
        "pkg/replaced/below.py": file("below = 1\n"),
        "pkg/new.py": file("new = 1\n"),
        "pkg/fresh": folder(),
        "pkg/fresh/deep": folder(),
        "pkg/fresh/deep/a.py": file("a = 1\n"),
        "pkg/fresh/deep/b.sh": file("b\n", 0o755),
        "pkg/fresh/link": link("deep/a.py"),
        "RECORD": file("rows\nmore rows\n"),
        "other.txt": file("untouched\n"),
    }
    return old, new


_MANY, _CHANGES = _many(), _changes()
BEFORE: Tree = {**_MANY[0], **_CHANGES[0]}
AFTER: Tree = {**_MANY[1], **_CHANGES[1]}
PATCHES = _patches()
_BYTECODE = ("pkg/part0/__pycache__/m0.cpython-311.pyc", "pkg/part1/__pycache__/m1.cpython-311.opt-1.pyc")
_KEPT_BYTECODE = "pkg/part0/__pycache__/other.cpython-311.pyc"


def with_bytecode(tree: Tree) -> Tree:
    """Return the tree with .pyc files: two that go with their modules, one that stays."""
    return {**tree, **{path: file(b"code of " + path.encode()) for path in (*_BYTECODE, _KEPT_BYTECODE)}}


def without_bytecode(tree: Tree) -> Tree:
    """Return the tree as a transaction leaves it: only the .pyc of an untouched module stays."""
    return {**tree, _KEPT_BYTECODE: with_bytecode({})[_KEPT_BYTECODE]}


class Scene:
    """One of the two transactions: from `start` to `goal`, and the way on from either."""

    def __init__(self, name: str) -> None:
        self.name = name
        old, new = (BEFORE, AFTER) if name == "apply" else (AFTER, BEFORE)
        self.start, self.goal = with_bytecode(old), without_bytecode(new)

    def prepare(self, root: Path) -> None:
        """Make the tree as it is before the transaction."""
        shutil.rmtree(root, ignore_errors=True)
        if self.name == "apply":
            plant(root, self.start)
            return
        plant(root, without_bytecode(BEFORE))
        with open_state(root, ENGINE, write=True) as state:
            commit(state, **applying(BEFORE, AFTER, PATCHES))
        for path, entry in self.start.items():
            if path.endswith(".pyc"):
                (root / path).write_bytes(entry.content)

    def run(self, state: StateDirectory) -> None:
        """Run the transaction."""
        commit(state, **(applying(BEFORE, AFTER, PATCHES) if self.name == "apply" else reverting(BEFORE, AFTER)))

    def check_whole(self, root: Path) -> str:
        """Recover, require that the tree is wholly one of the two, and that the next transaction works on it."""
        with open_state(root, ENGINE, write=True) as state:
            recover(state)
            assert not pending(state)
            assert recover(state) is None, "recovering twice does nothing"
        standing = snapshot(root)
        where = "start" if standing == self.start else "goal" if standing == self.goal else "half"
        assert where != "half", _difference(standing, self.start, self.goal)
        applied = (where == "goal") == (self.name == "apply")
        assert (root / ".patchkit").exists() == applied, "a receipt is there exactly when the tree is patched"
        with open_state(root, ENGINE, write=True) as state:
            if applied:
                assert kept(state) == kept_when_applied()
            commit(state, **(reverting(BEFORE, AFTER) if applied else applying(BEFORE, AFTER, PATCHES)))
        assert snapshot(root) == without_bytecode(BEFORE if applied else AFTER)
        return where


def kept(state: StateDirectory) -> dict[str, bytes]:
    """Return all that is kept below the state directory, but for the receipt and the lock."""
    files = (path for path in state.directory.rglob("*") if path.is_file() or path.is_symlink())
    kept = {str(path.relative_to(state.directory)): path.read_bytes() for path in files}
    return {path: content for path, content in kept.items() if path not in ("receipt.json", "lock")}


def kept_when_applied() -> dict[str, bytes]:
    copies = {
        f"pristine/{pristine_name(str(path))}": content for path, content in applying(BEFORE, AFTER)["pristine"].items()
    }
    return {**copies, **{f"patches/{name}": content for name, content in files_to_keep(PATCHES)}, **CONFIGURATION}


def _difference(standing: Tree, *wanted: Tree) -> str:
    return "\n".join(
        f"{path}: {standing.get(path)} not {tree.get(path)}"
        for tree in wanted
        for path in sorted({*standing, *tree})
        if standing.get(path) != tree.get(path)
    )
