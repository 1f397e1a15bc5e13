"""Child processes: a list of arguments, a time limit, captured output and an error that shows what the child said."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from patchkit.errors import RefusedError
from patchkit.quoting import typed
from patchkit.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from subprocess import Popen

_LAST_LINES = 8
_TICK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """A child that ended. `status` is its exit status, negative for a signal."""

    arguments: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def ended(self) -> str:
        """How it ended, in words."""
        if self.status >= 0:
            return f"exit status {self.status}"
        return f"signal {-self.status} ({signal.strsignal(-self.status)})"

    @property
    def last_words(self) -> str:
        """The last lines of what the child wrote to stderr (else to stdout), for an error's `why`."""
        text = (self.stderr.strip() or self.stdout.strip()).decode("utf-8", "replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-_LAST_LINES:])


def run_child(
    arguments: Sequence[str],
    *,
    input: bytes = b"",  # noqa: A002 - the word that subprocess uses
    timeout: float,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    on_tick: Callable[[], None] | None = None,
    name: str = "",
) -> Completed:
    """Run a program to its end and return what it said, whatever its exit status.

    `timeout` in seconds: past it the child and all its children are killed. `environment` replaces ours. `on_tick` is
    called a few times a second while the child runs. `name` is what errors call it; without one, the command line.
    """
    import subprocess

    shown = name or _shown(arguments)
    try:
        child = subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            cwd=directory,
            start_new_session=True,  # so that a child's children can be killed with it
        )
    except (OSError, ValueError) as error:
        raise RefusedError(
            f"cannot run {shown}", why=f"  {error}", hint="check that the program is there and executable"
        ) from error
    try:
        stdout, stderr = _talk(child, input, timeout=timeout, on_tick=on_tick)
    except subprocess.TimeoutExpired:
        raise RefusedError(
            f"{shown} did not end within {timeout:g} seconds",
            why="  it was stopped",
            hint="run it by hand to see what it waits for",
        ) from None
    finally:
        _stop(child)
    return Completed(arguments=tuple(arguments), status=child.returncode, stdout=stdout, stderr=stderr)


def require_success(completed: Completed, *, hint: str = "") -> Completed:
    """Return the child's record if its exit status is 0, else raise with its last words."""
    if completed.status == 0:
        return completed
    raise RefusedError(f"{_shown(completed.arguments)} failed: {completed.ended}", why=completed.last_words, hint=hint)


def _talk(
    child: Popen[bytes], sent: bytes, *, timeout: float, on_tick: Callable[[], None] | None
) -> tuple[bytes, bytes]:
    """Feed the child and collect its output, in slices of a tick so that progress can be shown."""
    import subprocess
    import time

    deadline = time.monotonic() + timeout
    pending: bytes | None = sent
    while True:
        left = deadline - time.monotonic()
        try:
            return child.communicate(pending, timeout=max(0.0, left if on_tick is None else min(left, _TICK_SECONDS)))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                raise
            pending = None  # communicate goes on with what it was given first
            if on_tick is not None:
                on_tick()


def _stop(child: Popen[bytes]) -> None:
    """Kill what is left of the child's process group, and close the pipes."""
    if child.returncode is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            child.kill()
        child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _shown(arguments: Sequence[str]) -> str:
    line = typed(*arguments)
    return line if len(line) <= 60 else line[:57] + "..."  # noqa: PLR2004 - leaves room in a line of 100
