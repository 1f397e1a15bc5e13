"""New files on their way into a tree, and copies of old ones, written beside it with everything that makes a file."""

from __future__ import annotations

import errno
import os

from patchkit.errors import RefusedError
from patchkit.held import Seen, see
from patchkit.record import dataclass
from patchkit.tree import Kind

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINK = frozenset({errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS})
_LABEL = "security.selinux"  # given by policy where it cannot be set


@dataclass(frozen=True, slots=True)
class Dress:
    """What a file is besides its content. `owner` is None where a new file gets the right one by itself.

    `seconds` is the time of its last change, None for now.
    """

    mode: int
    owner: tuple[int, int] | None = None
    attributes: tuple[tuple[str, bytes], ...] = ()
    seconds: int | None = None


def write_synced(directory: int, name: str, content: bytes, dress: Dress) -> None:
    """Make a new file and sync it."""
    descriptor = write_file(directory, name, content, dress)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(directory: int, name: str, content: bytes, dress: Dress) -> int:
    """Make a new file and return it open: it still has to be synced and closed."""
    descriptor = os.open(name, _CREATE, 0o600, dir_fd=directory)
    try:
        written = os.write(descriptor, content)
        while written < len(content):
            written += os.write(descriptor, memoryview(content)[written:])
        if dress.owner is not None:
            os.fchown(descriptor, *dress.owner)  # before the mode: it clears the set-id bits
        for attribute, value in dress.attributes:
            _set_attribute(descriptor, attribute, value)
        os.fchmod(descriptor, dress.mode)
        if dress.seconds is not None:
            os.utime(descriptor, (dress.seconds, dress.seconds))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_link(directory: int, name: str, target: bytes, dress: Dress) -> None:
    """Make a new symlink; it becomes durable with its directory."""
    os.symlink(target, os.fsencode(name), dir_fd=directory)
    if dress.owner is not None:
        os.chown(name, *dress.owner, dir_fd=directory, follow_symlinks=False)
    if dress.seconds is not None:
        os.utime(name, (dress.seconds, dress.seconds), dir_fd=directory, follow_symlinks=False)


def keep_entry(source: tuple[int, str], goal: tuple[int, str], seen: Seen) -> None:
    """Give what was seen a second name; where there are no hard links, a copy. What changed meanwhile is not kept."""
    directory, name = source
    try:
        os.link(name, goal[1], src_dir_fd=directory, dst_dir_fd=goal[0], follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        status = seen.status
        owner = None if (status.st_uid, status.st_gid) == ourselves(goal[0]) else (status.st_uid, status.st_gid)
        write = write_link if seen.kind is Kind.SYMLINK else write_synced
        write(*goal, seen.content, Dress(seen.mode, owner, seen.attributes, int(status.st_mtime)))


def ourselves(directory: int) -> tuple[int, int]:
    """Return the owner that a file made in this directory gets by itself."""
    status = os.fstat(directory)
    return os.geteuid(), status.st_gid if status.st_mode & 0o2000 else os.getegid()


def is_same(directory: int, name: str, seen: Seen) -> bool:
    """Tell whether what was seen still stands there; what looks different is read again."""
    try:
        now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    then = seen.status
    if (now.st_ino, now.st_size, now.st_mtime_ns) == (then.st_ino, then.st_size, then.st_mtime_ns):
        return True
    # An overlay file system may change a file's number when it is copied up.
    again = see(directory, name)
    return again is not None and again.kind is seen.kind and again.content == seen.content


def _set_attribute(descriptor: int, name: str, value: bytes) -> None:
    try:
        os.setxattr(descriptor, name, value)
    except OSError as error:
        if name == _LABEL:
            return
        raise RefusedError(f"its attribute {name} cannot be kept ({error.strerror})") from error
