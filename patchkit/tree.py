"""A tree of files seen as a mapping from path to entry, read without following a symlink."""

from __future__ import annotations

import enum
import errno
import hashlib
import os
import stat
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from patchkit.errors import RefusedError, TargetError, UnsafePathError
from patchkit.record import dataclass

LARGEST_FILE = 1 << 30
_OPEN_DIRECTORIES = 128
# O_PATH: a directory on the way needs to be passable, not listable. Only Linux has it.
_DIRECTORY_FLAGS = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_DEEPEST = 256  # a path is walked part by part, each in a call of its own
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NOT_A_DIRECTORY = frozenset({errno.ENOTDIR, errno.ELOOP})


class Kind(enum.Enum):
    """What stands at a path."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEntry:
    """What stands at a path: `mode` is the permission bits (0o644), `content` the bytes or the link's target."""

    kind: Kind
    mode: int
    content: bytes

    @property
    def state(self) -> FileState:
        """Return the entry's digest form."""
        return FileState(kind=self.kind, mode=self.mode, sha256=sha256_of(self.content))


@dataclass(frozen=True, kw_only=True, slots=True)
class FileState:
    """A file or a symlink by digest. Absence is None, never a FileState."""

    kind: Kind
    mode: int
    sha256: str


_MOST_DIGESTS = 1 << 12
# Found by identity, as to compare contents would cost as much; they are held, so that no others get their identity.
_digests: dict[int, tuple[bytes, str]] = {}


def sha256_of(content: bytes) -> str:
    """Return the digest of an entry's content, in hex: of the same object made once, however many ask for it."""
    known = _digests.get(id(content))
    if known is not None:
        return known[1]
    if len(_digests) >= _MOST_DIGESTS:
        _digests.clear()
    digest = hashlib.sha256(content).hexdigest()
    _digests[id(content)] = content, digest
    return digest


def file_sha256(entry: TreeEntry | None) -> str | None:
    """Return the digest of a file or a link; None where there is none, also where a directory stands."""
    return None if entry is None or entry.kind is Kind.DIRECTORY else sha256_of(entry.content)


@lru_cache(maxsize=1 << 16)
def path_of(text: str) -> PurePosixPath:
    """Return the path of a text; the same object each time, which keeps its parts and its hash."""
    return PurePosixPath(text)


Entries = Mapping[PurePosixPath, TreeEntry]
"""What `plan` reads a tree through: KeyError when nothing stands at the path, UnsafePathError beyond a symlink."""


def open_entries(root: Path) -> Entries:
    """Return the tree below `root` as a mapping, read when asked and never cached but for its directories.

    One thread at a time; open it anew after directories were replaced.
    """
    return _DiskEntries(root)


class _DiskEntries(Mapping[PurePosixPath, TreeEntry]):
    """A directory tree, walked component by component.

    Each directory is opened relative to its parent with O_NOFOLLOW and kept open (the last few used ones), so that
    a directory swapped for a symlink cannot lead out of the tree.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            self._root_fd = os.open(root, _DIRECTORY_FLAGS)
        except (OSError, ValueError) as error:
            raise TargetError(f"cannot open {root}", why=f"  {_reason(error)}", hint="give a directory") from error
        self._opened: OrderedDict[tuple[str, ...], int] = OrderedDict()
        self._close = weakref.finalize(self, _close_all, self._root_fd, self._opened)

    def __getitem__(self, path: PurePosixPath) -> TreeEntry:
        parts = _checked_parts(path)
        try:
            directory, status = self._status(path, parts)
            return self._read(path, parts, directory, status)
        except OSError as error:
            if error.errno in _ABSENT:
                raise KeyError(path) from None
            raise _unreadable(self._root / path, error) from error

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, PurePosixPath):
            return False
        try:
            self._status(path, _checked_parts(path))
        except KeyError:
            return False
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise _unreadable(self._root / path, error) from error
        return True

    def __iter__(self) -> Iterator[PurePosixPath]:
        """Yield every path below the root, parents first, sorted within a directory."""
        waiting = [PurePosixPath()]
        while waiting:
            directory = waiting.pop()
            below = []
            for name, is_directory in self._list(directory):
                yield directory / name
                if is_directory:
                    below.append(directory / name)
            waiting.extend(reversed(below))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _list(self, path: PurePosixPath) -> list[tuple[str, bool]]:
        try:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory(path, path.parts))
            try:
                with os.scandir(fd) as found:
                    return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
            finally:
                os.close(fd)
        except OSError as error:
            raise _unreadable(self._root / path, error) from error

    def _status(self, path: PurePosixPath, parts: tuple[str, ...]) -> tuple[int, os.stat_result]:
        if not parts:
            return self._root_fd, os.fstat(self._root_fd)
        directory = self._directory(path, parts[:-1])
        return directory, os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)

    def _read(self, path: PurePosixPath, parts: tuple[str, ...], directory: int, status: os.stat_result) -> TreeEntry:
        content = b""
        kind = _kind(status.st_mode)
        if kind is Kind.SYMLINK:
            content = os.fsencode(os.readlink(parts[-1], dir_fd=directory))
        elif kind is Kind.FILE:
            # O_NONBLOCK: what became a fifo since it was looked at must not hold us.
            fd = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            try:
                status = os.fstat(fd)
                kind = _kind(status.st_mode)
                content = _read_capped(fd, status, self._root, path) if kind is Kind.FILE else b""
            finally:
                os.close(fd)
        return TreeEntry(kind=kind, mode=stat.S_IMODE(status.st_mode), content=content)

    def _directory(self, path: PurePosixPath, parts: tuple[str, ...]) -> int:
        """Return a descriptor of a directory below the root; KeyError when it is absent or is not a directory."""
        if not parts:
            return self._root_fd
        if parts in self._opened:
            self._opened.move_to_end(parts)
            return self._opened[parts]
        above = self._directory(path, parts[:-1])
        try:
            fd = os.open(parts[-1], _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            if error.errno not in _NOT_A_DIRECTORY:
                raise
            if stat.S_ISLNK(os.stat(parts[-1], dir_fd=above, follow_symlinks=False).st_mode):
                raise UnsafePathError(
                    f"{path} passes through a symlink",
                    why=f"  {self._root.joinpath(*parts)} is a symlink; patchkit follows none inside a tree",
                    hint="replace the link by the directory itself, or give the directory it leads to as --root",
                ) from None
            raise KeyError(path) from None
        self._opened[parts] = fd
        if len(self._opened) > _OPEN_DIRECTORIES:
            os.close(self._opened.popitem(last=False)[1])
        return fd


def _checked_parts(path: PurePosixPath) -> tuple[str, ...]:
    parts = path.parts
    if path.is_absolute() or ".." in parts:
        raise UnsafePathError(f"{path} leaves the tree", hint="names in a patch are relative to the root of the tree")
    if len(parts) > _DEEPEST:
        what = f"{str(path)[:40]}... is not a file name"
        raise UnsafePathError(what, why=f"  it has {len(parts)} parts, and {_DEEPEST} is the most")
    try:
        if "\0" in str(path):
            raise UnsafePathError(f"{str(path)!r} is not a file name", why="  it contains a NUL byte")
        os.fsencode(path)
    except UnicodeEncodeError:
        raise UnsafePathError(f"{str(path)!r} is not a file name", why="  it cannot be encoded") from None
    return parts


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISLNK(mode):
        return Kind.SYMLINK
    return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.OTHER


def _read_capped(fd: int, status: os.stat_result, root: Path, path: PurePosixPath) -> bytes:
    """Read to the end of the file, wherever that is by now."""
    size = min(status.st_size, LARGEST_FILE) + 1
    first = os.read(fd, size) if status.st_size <= LARGEST_FILE else b""
    if len(first) == status.st_size:
        return first
    chunks = [first]
    left = LARGEST_FILE + 1 - len(first)
    while chunk := os.read(fd, min(size, left)) if status.st_size <= LARGEST_FILE and left else b"":
        chunks.append(chunk)
        left -= len(chunk)
    if status.st_size > LARGEST_FILE or not left:
        place = root / path
        raise RefusedError(f"{place} is larger than {LARGEST_FILE:,} bytes", hint="patchkit changes source files only")
    return b"".join(chunks)


def _unreadable(place: Path, error: OSError) -> RefusedError:
    return RefusedError(f"cannot read {place}", why=f"  {_reason(error)}", hint="run as the owner of the tree")


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _close_all(root_fd: int, opened: OrderedDict[tuple[str, ...], int]) -> None:
    for fd in (root_fd, *opened.values()):
        os.close(fd)
