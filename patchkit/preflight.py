"""Whether a set of edits can be written: everything that can be known beforehand is looked at, and told together."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from patchkit.bytecode import CACHE, find_bytecode
from patchkit.errors import PatchkitError, RefusedError, TreeChangedError, UnsafePathError
from patchkit.held import Directories, Seen, parents
from patchkit.pattern import compile_lazily
from patchkit.receipt import Receipt, parse_path
from patchkit.record import dataclass, replace
from patchkit.state import StateDirectory
from patchkit.tree import Kind

if TYPE_CHECKING:
    from patchkit.plan import FileEdit

_HINTS: dict[type, str] = {
    TreeChangedError: "run the command again: the plan is made anew from the tree as it is now",
    RefusedError: "run as the owner of the tree, or make the files writable",
    UnsafePathError: "replace the link by the directory itself",
}
_OCTAL = compile_lazily(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Checked:
    """An edit that can be made: what stands there now, and whether that is also the pristine copy to keep."""

    edit: FileEdit
    path: str
    seen: Seen | None
    is_pristine: bool


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory to make or to remove, with its mode and owner."""

    path: str
    mode: int
    owner: tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Preflight:
    """What was found. `made` has parents first, `emptied` parents last; `bytecode` are the .pyc files to drop."""

    checked: tuple[Checked, ...]
    made: tuple[Folder, ...]
    emptied: tuple[Folder, ...]
    bytecode: tuple[str, ...]


def check_edits(
    state: StateDirectory,
    directories: Directories,
    edits: Sequence[FileEdit],
    *,
    stored: Receipt | None,
    removals: Iterable[PurePosixPath],
    pristine: Mapping[PurePosixPath, bytes],
) -> Preflight:
    """Look at every place that the edits touch. Raises one error that names all that cannot be written, and why.

    `stored` is the receipt of the stack as it is, `removals` are directories that patchkit made and that may go when
    they are empty.
    """
    device = os.fstat(directories.descriptor(state.relative)).st_dev
    inspector = _Inspector(state.root, directories, edits, device)
    ours = set(removals)
    if stored is not None:
        ours.update(stored.directories, (path for path, _ in stored.emptied))
    return inspector.inspect(pristine, stored, frozenset(map(str, ours)))


def foresee_refusals(
    state: StateDirectory,
    edits: Sequence[FileEdit],
    *,
    stored: Receipt | None,
    removals: Iterable[PurePosixPath],
    pristine: Mapping[PurePosixPath, bytes],
) -> tuple[str, ...]:
    """Return what `check_edits` would refuse, in words, without the lock and without making the state directory."""
    there = state.directory.is_dir()
    place = state.directory if there else state.directory.parent if state.directory.parent.is_dir() else state.root
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return (f"{place}: not writable",)
    with Directories(state.root) as directories:
        inspector = _Inspector(state.root, directories, edits, place.stat().st_dev)
        ours = {
            *removals,
            *((*stored.directories, *(path for path, _ in stored.emptied)) if stored is not None else ()),
        }
        try:
            inspector.inspect(pristine, stored, frozenset(map(str, ours)))
        except PatchkitError as error:
            return (error.what, *(line.strip() for line in error.why.splitlines()))
    return ()


class _Inspector:
    """The looking itself; refusals are collected as it goes."""

    def __init__(self, root: Path, directories: Directories, edits: Sequence[FileEdit], device: int) -> None:
        self._directories = directories
        self._device = device
        self._mounts = _mount_points(root)
        self._edits = [(str(edit.path), edit) for edit in map(_plain, edits) if edit.before != edit.after]
        self._gone = {path for path, edit in self._edits if edit.after is None}
        self._placed = {path for path, edit in self._edits if edit.after is not None}
        self._made: dict[str, None] = {}
        self._folders: dict[str, str] = {}
        self._refusals: list[tuple[str, PatchkitError]] = []

    def inspect(
        self, pristine: Mapping[PurePosixPath, bytes], stored: Receipt | None, ours: frozenset[str]
    ) -> Preflight:
        """Look at everything, then answer or refuse."""
        bytecode = tuple(find_bytecode(self._directories, [path for path, _ in self._edits if path.endswith(".py")]))
        for path in bytecode:
            with self._collecting(path):
                self._require_writable(_above(path))
        emptied = self._emptied(bytecode, stored, ours)
        removed = {folder.path for folder in emptied}
        checked = []
        for path, edit in self._edits:
            with self._collecting(path):
                checked.append(self._look(path, edit, removed, pristine.get(edit.path)))
        self._raise()
        modes = {} if stored is None else {str(path): mode for path, mode in stored.emptied}
        return Preflight(
            checked=tuple(checked), made=self._new_folders(modes), emptied=tuple(emptied), bytecode=bytecode
        )

    @contextmanager
    def _collecting(self, path: str) -> Iterator[None]:
        try:
            yield
        except PatchkitError as error:
            self._refusals.append((path, error))
        except OSError as error:
            self._refusals.append((path, RefusedError(error.strerror or str(error))))

    def _raise(self) -> None:
        """Raise all refusals as one error: of their class when they agree, else RefusedError."""
        if not self._refusals:
            return
        classes = {type(error) for _, error in self._refusals}
        count, (first, _) = len(self._refusals), self._refusals[0]
        what = f"cannot write {first}" if count == 1 else f"{count} files cannot be written"
        why = "\n".join(f"  {path}: {error.what}" for path, error in self._refusals)
        kind = classes.pop() if len(classes) == 1 else RefusedError
        raise kind(what, why=f"{why}\n  the tree is as it was", hint=_HINTS.get(kind, ""))

    def _look(self, path: str, edit: FileEdit, removed: set[str], pristine: bytes | None) -> Checked:
        parse_path(path)
        above = _above(path)
        if not self._reach(above):
            seen = None
        else:
            self._require_writable(above)
            seen = self._directories.see(path)
        if edit.before is None:
            if seen is None or (seen.kind is Kind.DIRECTORY and path in removed):
                return Checked(edit, path, None, is_pristine=False)
            if seen.kind is Kind.DIRECTORY:
                raise RefusedError("a directory stands there")
            raise TreeChangedError("something stands there that was not there when the plan was made")
        if seen is None:
            raise TreeChangedError("it is gone since the plan was made")
        # Comparing with the bytes that the plan saw is as good as hashing, and cheaper.
        same = pristine is not None and seen.content == pristine
        if not (same and seen.kind is edit.before.kind) and not seen.has(edit.before):
            raise TreeChangedError("it was edited between plan and write")
        self._require_replaceable(path, seen)
        if same and pristine is not None:  # one copy of the bytes is held, and the room of the other is used again
            seen = replace(seen, content=pristine)
        return Checked(edit, path, seen, same)

    def _require_replaceable(self, path: str, seen: Seen) -> None:
        if path in self._mounts:
            raise RefusedError("it is a mount point (bind-mounted): replacing it would not reach what is mounted")
        directory, name = self._directories.place(path)
        # An immutable file is not writable either, even for root.
        if seen.kind is Kind.FILE and not os.access(name, os.W_OK, dir_fd=directory, effective_ids=True):
            raise RefusedError("it is read-only for you (mode, owner or immutable flag)")

    def _reach(self, above: str) -> bool:
        """Tell whether the directory is there now; note it as one to make when it is not."""
        if above in self._made:
            return False
        try:
            self._directories.descriptor(above)
        except FileNotFoundError:
            return self._shall_be_made(above)
        except NotADirectoryError:
            blocker = self._blocker(above)
            if blocker in self._gone:
                return self._shall_be_made(above)
            raise RefusedError(f"{blocker} is in the way: it is not a directory") from None
        except UnsafePathError:
            blocker = self._blocker(above)
            if blocker in self._gone:
                return self._shall_be_made(above)
            raise UnsafePathError(f"{blocker} is a symlink: patchkit follows none inside a tree") from None
        return True

    def _shall_be_made(self, path: str) -> bool:
        if path in self._placed:
            raise RefusedError(f"{path} would have to be a file and a directory")
        above = _above(path)
        if self._reach(above):
            self._require_writable(above)
        self._made[path] = None
        return False

    def _blocker(self, path: str) -> str:
        """Return the topmost part of the path that is not a directory."""
        parts = path.split("/")
        for end in range(1, len(parts)):
            seen = self._directories.see("/".join(parts[:end]))
            if seen is None or seen.kind is not Kind.DIRECTORY:
                return "/".join(parts[:end])
        return path

    def _require_writable(self, above: str) -> None:
        reason = self._folders.get(above)
        if reason is None:
            reason = self._folders[above] = self._unwritable(above)
        if reason:
            raise RefusedError(reason)

    def _unwritable(self, above: str) -> str:
        """Say why nothing can be renamed in a directory, "" when it can."""
        directory = self._directories.descriptor(above)
        shown = above or "the root of the tree"
        if os.fstatvfs(directory).f_flag & os.ST_RDONLY:
            return f"{shown} is on a read-only file system"
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=directory, effective_ids=True):
            return f"{shown} is not writable for you"
        for mount in self._mounts:
            if above == mount or above.startswith(f"{mount}/"):
                return f"{mount} is a mount point: nothing can be renamed into it"
        if os.fstat(directory).st_dev != self._device:
            return f"{shown} is on another file system than .patchkit"
        return ""

    def _emptied(self, bytecode: Iterable[str], stored: Receipt | None, ours: frozenset[str]) -> list[Folder]:
        """Return the directories in which nothing will be left, deepest first.

        As git does, a deletion takes its empty directory along, and that one's parent; but where only a file goes that
        patchkit itself made, only directories that patchkit made go with it.
        """
        created = {str(file.path) for file in stored.files if file.pristine is None} if stored is not None else set()
        as_git = {_above(path) for path in self._gone if path not in created}
        busy = {parent for path in self._placed for parent in parents(path)}
        leaving = self._gone.union(bytecode)
        emptied: list[Folder] = []
        waiting = (as_git | ours) - busy
        while waiting:
            path = max(waiting, key=lambda path: (path.count("/"), path))
            waiting.discard(path)
            found = self._folders_if_empty(path, leaving) if path and self._may_go(path) else []
            emptied += found
            leaving.update(folder.path for folder in found)
            if found and path in as_git:
                as_git.add(_above(path))
                waiting |= {_above(path)} - busy
        return emptied

    def _may_go(self, path: str) -> bool:
        """Tell whether a directory can be removed at all; one that cannot stays, empty, as git leaves it."""
        try:
            return path not in self._mounts and not self._unwritable(_above(path))
        except (FileNotFoundError, NotADirectoryError, UnsafePathError):
            return False

    def _folders_if_empty(self, path: str, leaving: set[str]) -> list[Folder]:
        """Return the directory, and its __pycache__ before it, if nothing is left in it."""
        seen = self._directories.see(path)
        if seen is None or seen.kind is not Kind.DIRECTORY:
            return []
        cache = f"{path}/{CACHE}"
        left = {f"{path}/{name}" for name in self._directories.names(path)} - leaving
        folders = [_folder(path, seen)]
        if left == {cache}:
            inside = self._directories.see(cache)
            if inside is None or {f"{cache}/{name}" for name in self._directories.names(cache)} - leaving:
                return []
            return [_folder(cache, inside), *folders]
        return [] if left else folders

    def _new_folders(self, modes: Mapping[str, int]) -> tuple[Folder, ...]:
        made: dict[str, Folder] = {}
        for path in sorted(self._made):
            above = _above(path)
            if above in made:
                parent = made[above]
            else:
                status = os.fstat(self._directories.descriptor(above))
                parent = Folder(above, status.st_mode & 0o7777, heir(status))
            mode = modes.get(path, parent.mode & 0o2775 | 0o700)
            made[path] = Folder(path, mode, parent.owner)
        return tuple(made.values())


def heir(above: os.stat_result) -> tuple[int, int]:
    """Return who owns what is made in a directory: as root its owner, else we, with its group if it hands that down."""
    user = os.geteuid()
    if user == 0:
        return above.st_uid, above.st_gid
    return user, above.st_gid if above.st_mode & stat.S_ISGID else os.getegid()


def _folder(path: str, seen: Seen) -> Folder:
    return Folder(path, seen.mode, (seen.status.st_uid, seen.status.st_gid))


def _plain(edit: FileEdit) -> FileEdit:
    """Return the edit with a directory that stands at its path taken for nothing: it goes when it is emptied."""
    if edit.before is not None and edit.before.kind is Kind.DIRECTORY:
        return replace(edit, before=None)
    return edit


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _mount_points(root: Path) -> tuple[str, ...]:
    """Return the mount points below the root, relative to it."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return ()
    real = os.fsencode(os.path.realpath(root)).rstrip(b"/") + b"/"
    places = (line.split(b" ", 5)[4] for line in lines)
    whole = (_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), one) if b"\\" in one else one for one in places)
    return tuple(os.fsdecode(one.removeprefix(real)) for one in whole if one.startswith(real))
