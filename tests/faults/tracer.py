"""A transaction in a child process under strace: which calls it makes, and what if one of them is its last."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

# Every call that can change a file system, and the locks.
WRITING = [
    "openat",
    "open",
    "creat",
    "write",
    "writev",
    "pwrite64",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "symlink",
    "symlinkat",
    "fsync",
    "fdatasync",
    "fchmod",
    "chmod",
    "fchmodat",
    "fchown",
    "chown",
    "fchownat",
    "ftruncate",
    "truncate",
    "utimensat",
    "setxattr",
    "fsetxattr",
    "flock",
]
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)$")
_PATIENCE = 60.0
CLEAN, BROKEN = 0, 99


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The `number`th call of one name."""

    call: str
    number: int


def require_strace() -> None:
    """Skip where processes cannot be traced."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    tried = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"processes cannot be traced here: {tried.stderr.decode().strip()}")


def traced(action: Callable[[], int], *options: str, output: Path | None = None) -> int:
    """Run the action in a fork of this process under strace; return its wait status.

    The child does not begin before strace holds it, so that the first call counts already.
    """
    gate, opener = os.pipe()
    with warnings.catch_warnings():  # pytest-xdist has a thread of its own, which the child does not need
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*multi-threaded")
        child = os.fork()
    if child == 0:
        _become_child(gate, opener, action)
    os.close(gate)
    strace = subprocess.Popen(
        ["strace", "-f", "-o", str(output or os.devnull), *options, "-p", str(child)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _wait_for_attachment(strace)
        os.write(opener, b"go")
        os.close(opener)
        status = _reap(child)
    finally:
        strace.terminate()
        strace.communicate()
    return status


def _become_child(gate: int, opener: int, action: Callable[[], int]) -> None:
    status = BROKEN
    try:
        os.close(opener)
        os.read(gate, 2)
        status = action()
    except BaseException:  # noqa: BLE001 -- the child ends here, whatever it is
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _wait_for_attachment(strace: subprocess.Popen[bytes]) -> None:
    assert strace.stderr is not None
    said, deadline = b"", time.monotonic() + _PATIENCE
    while b"attached" not in said:
        ready, _, _ = select.select([strace.stderr], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(strace.stderr.fileno(), 4096) if ready else b""
        if not piece:
            pytest.skip(f"strace cannot attach here: {said.decode(errors='replace').strip()}")
        said += piece


def _reap(child: int) -> int:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hung")


def record_points(action: Callable[[], int], log: Path) -> list[Point]:
    """Run the action once; return every write-like call it makes, in order."""
    assert traced(action, "-e", f"trace={','.join(_known(WRITING))}", output=log) == CLEAN
    counts: dict[str, int] = {}
    points = []
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        call, arguments = match.groups()
        counts[call] = counts.get(call, 0) + 1
        if not call.startswith("open") or "O_CREAT" in arguments:
            points.append(Point(call=call, number=counts[call]))
    return points


def _known(names: list[str]) -> list[str]:
    """Leave the calls to strace that this machine has: some have no `open` or `rename`."""
    return [f"?{name}" for name in names]


def inject(point: Point, what: str, *, onwards: bool = False) -> tuple[str, ...]:
    """Return the options that make one call (and, `onwards`, all later ones of its name) fail or kill."""
    when = f"{point.number}{'+' if onwards else ''}"
    return ("-e", f"trace={point.call}", "-e", f"inject={point.call}:{what}:when={when}")
