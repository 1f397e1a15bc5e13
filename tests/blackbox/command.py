"""The command as a user runs it, and what a tree is made of, to the byte."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
_MAIN = f"import sys; sys.path[0] = {str(CHECKOUT)!r}; from patchkit.cli.start import main; sys.exit(main())"
PATCHKIT = [sys.executable, "-c", _MAIN]
"""Starts the command of this checkout from any directory, whatever modules lie there."""

Snapshot = dict[str, tuple[str, int, bytes]]
"""Path to (kind, permission bits, content)."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended. `report` is its JSON."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


def patchkit(*arguments: object, cwd: Path | None = None, seconds: float = 120, **environment: str) -> Ended:
    """Run the command to its end; no traceback is ever an answer."""
    return run([*PATCHKIT, *map(str, arguments)], cwd=cwd, seconds=seconds, **environment)


def run(command: list[str], *, cwd: Path | None = None, seconds: float = 120, **environment: str) -> Ended:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert "Traceback (most recent call last)" not in out + err, out + err
    return Ended(status=done.returncode, out=out, err=err)


def snapshot(root: Path, *, own: bool = False) -> Snapshot:
    """Return every file and link below a directory; patchkit's own state and bytecode only when asked for."""
    found: Snapshot = {}
    for base, directories, files in os.walk(root):
        if not own:
            directories[:] = [name for name in directories if name not in (".patchkit", "__pycache__")]
        links = [name for name in directories if Path(base, name).is_symlink()]
        for name in [*files, *links]:
            path = Path(base, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                entry = ("link", 0, os.fsencode(path.readlink()))
            else:
                entry = ("file", stat.S_IMODE(mode), path.read_bytes() if stat.S_ISREG(mode) else b"")
            found[path.relative_to(root).as_posix()] = entry
    return found


def stamps(root: Path) -> dict[str, tuple[int, ...]]:
    """Return what changes when anything is written to a file below a directory; much cheaper than its content."""
    found: dict[str, tuple[int, ...]] = {}
    for path in root.rglob("*"):
        told = path.lstat()
        if not stat.S_ISDIR(told.st_mode):
            found[path.relative_to(root).as_posix()] = (told.st_ino, told.st_mode, told.st_size, told.st_ctime_ns)
    return found


def directories(root: Path) -> set[str]:
    """Return the directories below a directory but for patchkit's own."""
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir() and not path.is_symlink()}
    return {path for path in found if not {".patchkit", "__pycache__"} & set(path.split("/"))}


def difference(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """Name the paths in which two snapshots differ."""
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))
