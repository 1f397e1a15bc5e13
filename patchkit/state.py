"""`.patchkit/<engine>/` at the root of a tree: where everything lies that patchkit keeps, and who may write it now."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from patchkit.errors import PatchkitError, RefusedError, TreeChangedError, UnsafePathError
from patchkit.held import remove_tree
from patchkit.ownership import give_to_owner
from patchkit.record import dataclass

HOME = ".patchkit"
PATIENCE_SECONDS = 600.0
GENERATED = (".config", "auto.conf", "autoconf.h", "manifest.json")
"""Files of the state directory that show the configuration; a transaction writes them with all else."""
_POLL_SECONDS = 0.05
_LONGEST_NAME = 255
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IGNORE = ".gitignore"
_CANNOT_LOCK = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOLCK, errno.EOPNOTSUPP})


@dataclass(frozen=True, kw_only=True, slots=True)
class StateDirectory:
    """The state of one engine in one tree. A plain tree's engine is called `tree`."""

    root: Path
    engine: str

    @property
    def relative(self) -> str:
        """The directory's path below the root."""
        return f"{HOME}/{self.engine}"

    @property
    def directory(self) -> Path:
        """Where all of it lies."""
        return self.root / HOME / self.engine

    @property
    def receipt(self) -> Path:
        """What was applied; there exactly when the tree is patched."""
        return self.directory / "receipt.json"

    @property
    def pristine(self) -> Path:
        """Copies of the files as they were before, by their `pristine_name`. A symlink's is a file with its target."""
        return self.directory / "pristine"

    @property
    def patches(self) -> Path:
        """The bytes of the applied patches, by SHA-256."""
        return self.directory / "patches"

    @property
    def stage(self) -> Path:
        """New contents on their way into the tree, numbered."""
        return self.directory / "stage"

    @property
    def backup(self) -> Path:
        """Old files, numbered, until a transaction is through."""
        return self.directory / "backup"

    @property
    def journal(self) -> Path:
        """What a transaction is about to do; there only while it does it."""
        return self.directory / "journal.json"

    @property
    def journal_back(self) -> Path:
        """The journal of a transaction that is being taken back."""
        return self.directory / "journal-back.json"

    @property
    def lock(self) -> Path:
        """The file that writers lock exclusively and readers lock shared."""
        return self.directory / "lock"

    @property
    def archive(self) -> Path:
        """States of earlier installations, kept when a reinstall replaced a patched tree."""
        return self.directory / "archive"

    def pristine_copy(self, path: PurePosixPath) -> Path:
        """Return where the pristine copy of a file lies."""
        return self.pristine / pristine_name(str(path))


def pristine_name(path: str) -> str:
    """Return the name of a file's pristine copy: `vllm%2Fengine.py`, where that is not too long for a name.

    All copies lie in one directory: to make, sync and sweep a tree of directories costs half as much as the copies.
    """
    name = path.replace("%", "%25").replace("/", "%2F")
    if len(os.fsencode(name)) <= _LONGEST_NAME:
        return name
    return f"%%{hashlib.sha256(os.fsencode(path)).hexdigest()}"


@contextmanager
def open_state(
    root: Path, engine: str, *, write: bool, waiting: Callable[[str], None] | None = None
) -> Iterator[StateDirectory]:
    """Lock the state of an engine in a tree, for writing or for reading, and unlock it at the end.

    A writer makes the directory, and takes it away again when nothing was stored. A reader makes nothing, and goes
    without a lock where there is no state or none can be had. Who has to wait for another process calls `waiting` once
    with a sentence, and is refused after ten minutes.
    """
    if not engine or engine.startswith(".") or "/" in engine or "\0" in engine:
        raise UnsafePathError(f"{engine!r} is not the name of an engine")
    state = StateDirectory(root=root, engine=engine)
    try:
        lock = _lock_for_writing(state, waiting) if write else _lock_for_reading(state, waiting)
    except PatchkitError:
        if write:
            _remove_if_empty(state)
        raise
    try:
        yield state
    finally:
        if write:
            _leave_no_litter(state)
            give_to_owner(state.root, HOME)
        if lock is not None:
            if write:
                with suppress(OSError):
                    os.ftruncate(lock, 0)  # two trees that were patched alike are alike
            os.close(lock)


def discard_state(state: StateDirectory) -> None:
    """Remove everything that is kept for the engine, and `.patchkit` itself when no other engine is there."""
    home = _open_chain(state.root, HOME)
    if home is None:
        return
    try:
        remove_tree(home, state.engine)
        _remove_home(state, home)
    finally:
        os.close(home)


def _remove_home(state: StateDirectory, home: int) -> None:
    """Remove `.patchkit` when there is nothing in it but its .gitignore."""
    if os.listdir(home) not in ([], [_IGNORE]):
        return
    with suppress(FileNotFoundError):
        os.unlink(_IGNORE, dir_fd=home)
    try:
        (state.root / HOME).rmdir()
    except OSError:  # another engine's writer came in between
        _write_ignore(home)


def _remove_if_empty(state: StateDirectory) -> None:
    """Take away what was made for a lock that could not be had; safe without it, as only empty directories go."""
    with suppress(OSError, PatchkitError):
        home = _open_chain(state.root, HOME)
        if home is None:
            return
        try:
            with suppress(FileNotFoundError):
                os.rmdir(state.engine, dir_fd=home)
            _remove_home(state, home)
        finally:
            os.close(home)


def _leave_no_litter(state: StateDirectory) -> None:
    kept = (state.receipt, state.journal, state.journal_back, state.archive)
    if any(os.path.lexists(path) for path in kept):
        return
    with suppress(OSError):  # what cannot be removed does no harm: the next writer tries again
        discard_state(state)


def _lock_for_writing(state: StateDirectory, waiting: Callable[[str], None] | None) -> int:
    while True:
        _make_directory(state)
        try:
            lock = _open_lock(state, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unwritable(state.lock, error) from error
        if lock is not None and _take(lock, fcntl.LOCK_EX, state, waiting):
            with suppress(OSError):  # only for the sentence that another process shows
                os.pwrite(lock, b"%-11d\n" % os.getpid(), 0)
            return lock


def _lock_for_reading(state: StateDirectory, waiting: Callable[[str], None] | None) -> int | None:
    while True:
        lock = None
        with suppress(OSError):
            lock = _open_lock(state, os.O_RDONLY)
        if lock is None:
            return None
        try:
            if _take(lock, fcntl.LOCK_SH, state, waiting):
                return lock
        except RefusedError as error:
            if isinstance(error.__cause__, OSError):  # a file system without locks
                return None
            raise


def _open_lock(state: StateDirectory, how: int) -> int | None:
    """Open the lock's file; None when its directory is not there, or not any more."""
    directory = _open_chain(state.root, state.relative)
    if directory is None:
        return None
    try:  # O_NONBLOCK: a fifo in its place must not hold us
        lock = os.open("lock", how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=directory)
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        os.close(lock)
        raise TreeChangedError(f"{state.lock} is not a file", why="  patchkit locks its own there", hint="remove it")
    return lock


def _take(lock: int, how: int, state: StateDirectory, waiting: Callable[[str], None] | None) -> bool:
    """Lock the open file; False when it is no longer the one at the path. Closes it unless it returns True."""
    taken = False
    try:
        _wait_for(lock, how, state, waiting)
        with suppress(FileNotFoundError, NotADirectoryError):
            now = state.lock.lstat()
            taken = os.path.samestat(now, os.fstat(lock))
        return taken
    finally:
        if not taken:
            os.close(lock)


def _wait_for(lock: int, how: int, state: StateDirectory, waiting: Callable[[str], None] | None) -> None:
    import time

    deadline = 0.0
    while True:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError as error:
            raise _unwritable(state.lock, error) from error
        else:
            return
        if not deadline:
            deadline = time.monotonic() + PATIENCE_SECONDS
            if waiting is not None:
                waiting(f"waiting for another patchkit{_holder(lock)} that works on {state.root}")
        elif time.monotonic() > deadline:
            raise RefusedError(
                f"another patchkit{_holder(lock)} works on {state.root}",
                why=f"  it has held {state.lock} for {PATIENCE_SECONDS / 60:g} minutes",
                hint="wait for it, or end it: the next apply or revert finishes what was interrupted",
            )
        time.sleep(_POLL_SECONDS)


def _holder(lock: int) -> str:
    pid = os.pread(lock, 12, 0).strip()
    return f" (process {int(pid)})" if pid.isdigit() else ""


def _make_directory(state: StateDirectory) -> None:
    try:
        with suppress(FileExistsError):
            (state.root / HOME).mkdir(0o755)
        home = _open_chain(state.root, HOME)
        if home is None:
            return
        try:
            with suppress(FileExistsError):
                os.mkdir(state.engine, 0o755, dir_fd=home)
            _write_ignore(home)
        finally:
            os.close(home)
    except FileNotFoundError:
        if not state.root.is_dir():
            raise RefusedError(f"{state.root} is not a directory") from None
    except PatchkitError:
        raise
    except OSError as error:
        raise _unwritable(state.directory, error) from error


def _write_ignore(home: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError, FileNotFoundError):
        descriptor = os.open(_IGNORE, flags, 0o644, dir_fd=home)
        try:
            os.write(descriptor, b"*\n")
        except OSError:
            os.unlink(_IGNORE, dir_fd=home)
            raise
        finally:
            os.close(descriptor)


def _open_chain(root: Path, relative: str) -> int | None:
    """Open a directory of ours below the root, None when it is not there; refuse links, files and strangers."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    place, owner = root, os.fstat(descriptor).st_uid
    for name in relative.split("/"):
        place = place / name
        above = descriptor
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refusal(place, error) from error
        finally:
            os.close(above)
        if os.fstat(descriptor).st_uid not in (0, os.geteuid(), owner):
            os.close(descriptor)
            raise UnsafePathError(f"{place} belongs to a stranger", why="  not to you, root or the tree's owner")
    return descriptor


def _refusal(place: Path, error: OSError) -> PatchkitError:
    status = os.lstat(place)
    if stat.S_ISLNK(status.st_mode):
        return UnsafePathError(
            f"{place} is a symlink", why="  patchkit keeps its state in a directory of the tree itself"
        )
    if not stat.S_ISDIR(status.st_mode):
        return UnsafePathError(f"{place} is not a directory", why="  patchkit keeps its state there")
    return RefusedError(f"cannot open {place}", why=f"  {error.strerror}", hint="run as the owner of the tree")


def _unwritable(place: Path, error: OSError) -> RefusedError:
    why = "it cannot be locked" if error.errno == errno.ENOLCK else error.strerror
    hint = "run as the owner of the tree" if error.errno in _CANNOT_LOCK else ""
    return RefusedError(f"cannot write {place}", why=f"  {why}; the tree is as it was", hint=hint)
