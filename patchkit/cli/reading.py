"""The files that a user names to be read whole: regular files and pipes, up to a size, never a device."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from patchkit.diff.text import MAX_RAW
from patchkit.errors import UsageError

MAX_TEXT = 16 << 20
"""The longest .config file that is read, in bytes."""


def read_patch(path: Path) -> tuple[Path, bytes]:
    """Return the name of a patch, `stdin` for `-`, and its bytes."""
    if str(path) == "-":
        return Path("stdin"), _read_at_most(MAX_RAW, sys.stdin.fileno(), "stdin")
    return path, _read(path, MAX_RAW)


def read_text(path: Path) -> str:
    """Return a file of settings, without a byte order mark; bytes that are no UTF-8 are kept as surrogates."""
    return _read(path, MAX_TEXT).decode("utf-8-sig", errors="surrogateescape")


def require_file(path: Path) -> Path:
    """Return the path of a file that is opened elsewhere; UsageError when there is none."""
    if path.is_file():
        return path
    why = "it is no file" if path.exists() else "there is no such file"
    raise UsageError(f"{path}: cannot be read", why=why, hint="check the path")


def _read(path: Path, largest: int) -> bytes:
    try:
        kind = path.stat().st_mode  # before it is opened: a device may act on that
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or path.samefile(os.devnull)):
            why = "it is a directory" if stat.S_ISDIR(kind) else "it is a device or a socket"
            raise UsageError(f"{path}: not a file", why=why, hint="name a file, or - for stdin")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from error
    try:
        return _read_at_most(largest, descriptor, str(path))
    finally:
        os.close(descriptor)


def _read_at_most(largest: int, descriptor: int, name: str) -> bytes:
    """Read to the end, but no more than a byte beyond `largest`."""
    try:
        with open(descriptor, "rb", closefd=False) as stream:
            raw = stream.read(largest + 1)
    except OSError as error:
        raise _unreadable(name, error) from error
    if len(raw) > largest:
        raise UsageError(f"{name}: larger than {largest:,} bytes", why="more is not read", hint="split it")
    return raw


def _unreadable(name: str, error: OSError | ValueError) -> UsageError:
    return UsageError(f"{name}: cannot be read", why=getattr(error, "strerror", None) or str(error))
