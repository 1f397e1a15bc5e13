"""Directories of a tree held open by descriptor, and what stands in them: below the root no symlink is followed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.durable import sync_all
from patchkit.errors import UnsafePathError
from patchkit.record import dataclass
from patchkit.tree import FileState, Kind

if TYPE_CHECKING:
    from typing_extensions import Self  # of the type checker itself

PERMISSIONS = 0o7777
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: what became a fifo since it was looked at must not hold us.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_A_DIRECTORY = frozenset({errno.ENOTDIR, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class Seen:
    """What stood at a path when it was looked at; `content` is empty for directories and devices.

    `attributes` are a file's extended attributes.
    """

    kind: Kind
    status: os.stat_result
    content: bytes
    attributes: tuple[tuple[str, bytes], ...] = ()

    @property
    def mode(self) -> int:
        """The permission bits, set-id bits included."""
        return self.status.st_mode & PERMISSIONS

    @property
    def sha256(self) -> str:
        """The digest of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def has(self, state: FileState | None) -> bool:
        """Tell whether this is that file or link, whatever its mode."""
        return state is not None and self.kind is state.kind and self.sha256 == state.sha256


class Directories:
    """The directories of a tree by path relative to its root, each opened once and held until the end."""

    def __init__(self, root: Path) -> None:
        self._held = {"": os.open(root, _DIRECTORY)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def descriptor(self, path: str) -> int:
        """Return the directory's descriptor. Raises UnsafePathError at a symlink, NotADirectoryError at a file."""
        held = self._held.get(path)
        if held is not None:
            return held
        above, _, name = path.rpartition("/")
        directory = self.descriptor(above)
        try:
            held = _open_directory(name, directory)
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY and _is_link(name, directory):
                raise UnsafePathError(f"{path} is a symlink", why="  patchkit follows none inside a tree") from None
            raise
        self._held[path] = held
        return held

    def place(self, path: str) -> tuple[int, str]:
        """Return the descriptor of the directory that holds the path, and the last part of its name."""
        above, _, name = path.rpartition("/")
        held = self._held.get(above)
        return (self.descriptor(above) if held is None else held), name

    def make(self, path: str, *, mode: int, owner: tuple[int, int] | None) -> None:
        """Make a directory with exactly this mode; `owner` is set where it differs, None for whom it gets by itself."""
        directory, name = self.place(path)
        os.mkdir(name, mode & 0o777, dir_fd=directory)
        held = self.descriptor(path)
        status = os.fstat(held)
        if owner is not None and (status.st_uid, status.st_gid) != owner:
            os.fchown(held, *owner)
        if status.st_mode & PERMISSIONS != mode:
            os.fchmod(held, mode)

    def remove(self, path: str) -> None:
        """Remove an empty directory."""
        directory, name = self.place(path)
        os.rmdir(name, dir_fd=directory)
        held = self._held.pop(path, None)
        if held is not None:
            os.close(held)

    def names(self, path: str) -> list[str]:
        """List a directory; empty when it is not there or is not one."""
        try:
            return os.listdir(self.descriptor(path))  # noqa: PTH208 -- a descriptor
        except (FileNotFoundError, NotADirectoryError, UnsafePathError):
            return []

    def see(self, path: str) -> Seen | None:
        """Return what stands at the path, None for nothing. Raises UnsafePathError beyond a symlink."""
        try:
            directory, name = self.place(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return see(directory, name)

    def sync(self, paths: Iterable[str]) -> None:
        """Make the entries of these directories durable; those that are gone have nothing to keep."""
        descriptors = []
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError, UnsafePathError):
                descriptors.append(self.descriptor(path))
        sync_all(descriptors)

    def swapped(self) -> str | None:
        """Return a held directory that no longer stands at its path, None when all do."""
        for path, held in self._held.items():
            if not path:
                continue
            above, _, name = path.rpartition("/")
            now = _status(name, self._held[above])
            then = os.fstat(held)
            if now is None or (now.st_ino, now.st_dev) != (then.st_ino, then.st_dev):
                return path
        return None


def parents(path: str) -> Iterator[str]:
    """Yield the directories above a path, the nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def see(directory: int, name: str) -> Seen | None:
    """Return what stands at a name in a directory, None for nothing."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        return _see_unopened(directory, name)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = Kind.DIRECTORY if stat.S_ISDIR(status.st_mode) else Kind.OTHER
            return Seen(kind, status, b"")
        content = read_all(descriptor, status.st_size)
        attributes = _attributes(descriptor)
    finally:
        os.close(descriptor)
    return Seen(Kind.FILE, status, content, attributes)


def read_all(descriptor: int, size: int) -> bytes:
    """Read an open file to its end; `size` is what it is likely to have."""
    content = os.read(descriptor, size + 1)
    if len(content) == size:
        return content
    chunks = [content]
    while chunk := os.read(descriptor, 1 << 20):
        chunks.append(chunk)
    return b"".join(chunks)


def remove_tree(above: int, name: str) -> None:
    """Remove a directory of ours with all that is in it; a symlink is removed, not followed."""
    try:
        directory = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(name, dir_fd=above)
        return
    try:
        names = os.listdir(directory)  # noqa: PTH208 -- a descriptor
        for below in sorted(names, key=lambda below: below == "lock"):  # the lock goes last
            _remove(directory, below)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=above)


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except (IsADirectoryError, PermissionError):
        remove_tree(directory, name)


def _see_unopened(directory: int, name: str) -> Seen | None:
    status = _status(name, directory)
    if status is None:
        return None
    if not stat.S_ISLNK(status.st_mode):
        return Seen(Kind.OTHER, status, b"")
    content = os.fsencode(os.readlink(name, dir_fd=directory))
    return Seen(Kind.SYMLINK, status, content)


def _attributes(descriptor: int) -> tuple[tuple[str, bytes], ...]:
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return ()
    return tuple((name, os.getxattr(descriptor, name)) for name in names)


def _open_directory(name: str, above: int) -> int:
    flags = _DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=above)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return os.open(name, flags, dir_fd=above)


def _is_link(name: str, above: int) -> bool:
    status = _status(name, above)
    return status is not None and stat.S_ISLNK(status.st_mode)


def _status(name: str, above: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=above, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
