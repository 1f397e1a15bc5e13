"""The files that a user names to be read whole: regular files and pipes, up to a size, never a device."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Timer

from patchkit.diff.text import MAX_RAW
from patchkit.errors import UsageError

Say = Callable[[str], None]
"""Told what is waited for when that takes over a second: a pipe may have no writer yet, or never get one."""

MAX_TEXT = 16 << 20
"""The longest .config file, or text on stdin, that is read, in bytes."""

_PATIENCE_SECONDS = 1.0


def read_patch(path: Path, say: Say) -> tuple[Path, bytes]:
    """Return the name of a patch, `stdin` for `-`, and its bytes."""
    if str(path) == "-":
        return Path("stdin"), _read_stdin(MAX_RAW, say)
    return path, _read_file(path, MAX_RAW, say)


def read_text(path: Path, say: Say) -> str:
    """Return a file of settings, without a byte order mark; bytes that are no UTF-8 are kept as surrogates."""
    return _read_file(path, MAX_TEXT, say).decode("utf-8-sig", errors="surrogateescape")


def read_stdin(say: Say) -> str:
    """Return a text for people from stdin; bytes that are no UTF-8 are made visible."""
    return _read_stdin(MAX_TEXT, say).decode("utf-8", errors="backslashreplace")


def require_file(path: Path) -> Path:
    """Return the path of a file that is opened elsewhere; UsageError when there is none."""
    if path.is_file():
        return path
    why = "it is no file" if path.exists() else "there is no such file"
    raise UsageError(f"{path}: cannot be read", why=why, hint="check the path")


def _read_stdin(largest: int, say: Say) -> bytes:
    with _telling("stdin", say):
        return _read_at_most(largest, sys.stdin.fileno(), "stdin")


@contextmanager
def _telling(name: str, say: Say) -> Iterator[None]:
    timer = Timer(_PATIENCE_SECONDS, say, (f"waiting for {name} to be written and closed; Ctrl-C gives up",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _read_file(path: Path, largest: int, say: Say) -> bytes:
    try:
        kind = path.stat().st_mode  # before it is opened: a device may act on that
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or path.samefile(os.devnull)):
            why = "it is a directory" if stat.S_ISDIR(kind) else "it is a device or a socket"
            raise UsageError(f"{path}: not a file", why=why, hint="name a file or a pipe")
        with _telling(str(path), say) if stat.S_ISFIFO(kind) else nullcontext():
            return _read_opened(path, largest)
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from error


def _read_opened(path: Path, largest: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
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
    why = getattr(error, "strerror", None) or str(error)
    return UsageError(f"{name}: cannot be read", why=why, hint="check the path and its rights")
