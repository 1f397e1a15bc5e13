"""Files of a series, written beside their place, synced and renamed over it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Keep other writers of the series out; the lock is the directory's and leaves nothing behind."""
    import fcntl

    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old bytes or the new ones; its mode stays. The caller holds the lock."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(handle, "wb") as stream:  # noqa: PTH123  a descriptor, not a path
            stream.write(content)
            if path.exists():
                os.fchmod(handle, path.stat().st_mode & 0o777)
            stream.flush()
            os.fsync(handle)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
