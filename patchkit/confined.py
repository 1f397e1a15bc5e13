"""Files below a directory by hostile names: whatever `..` or a symlink says, nothing outside is read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from patchkit.errors import SeriesError
from patchkit.held import read_all


def read_below(directory: Path, name: str, *, limit: int, place: str) -> bytes:
    """Read a file below a directory, whatever links are on the way; SeriesError, with `place`, when it is none."""
    path = f"{directory}/{name}"
    if "/" in name or os.path.islink(path):  # noqa: PTH114 -- a Path for each of hundreds of patches costs more
        path = str(confine(directory, name, place=place))
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SeriesError(f"{place}: {name} cannot be read", why=f"{path}: {error.strerror}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise SeriesError(f"{place}: {name} is not a file", why=f"{path} is something else")
        if status.st_size > limit:
            raise SeriesError(f"{place}: {name} is larger than {limit >> 20} MiB", why=f"it has {status.st_size} bytes")
        return read_all(handle, status.st_size)[:limit]
    finally:
        os.close(handle)


def confine(directory: Path, name: str, *, place: str) -> Path:
    """Return the real path of a file below the directory; a link may stay inside (a ConfigMap's do), never leave."""
    try:
        root = directory.resolve(strict=True)
        path = (root / name).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "a loop of symlinks"
        raise SeriesError(f"{place}: {name} cannot be read", why=f"{directory / name}: {reason}") from error
    if not path.is_relative_to(root):
        raise SeriesError(f"{place}: {name} leaves the series through a symlink", why=f"it leads to {path}")
    return path
