"""Child processes of an engine: a session of their own, a time limit, a log on disk, and an end by their own group.

Engines start processes that start processes. All of them are in the group of the child that is started here, and the
group is what is ended; nothing is ever looked up by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GRACE_SECONDS = 10
_LAST_LINES = 40


class EngineError(AssertionError):
    """An engine did not do what was asked; the message ends with its log's last lines. `log` is the whole of it."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, kw_only=True)
class Started:
    """A running child with its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """Return everything that was written to the log so far."""
        return self.log.read_text(errors="replace")

    def tell(self, line: str) -> None:
        """Write a line to the standard input of a child that is asked."""
        assert self.process.stdin
        try:
            self.process.stdin.write(f"{line}\n".encode())
        except BrokenPipeError:
            raise self.fail("it does not read any more") from None

    def finish(self) -> None:
        """Close the standard input of a child that is asked."""
        assert self.process.stdin
        self.process.stdin.close()

    def fail(self, what: str) -> EngineError:
        """Return an error about this child."""
        said = self.said()
        last = "\n".join(f"  | {line}" for line in said.splitlines()[-_LAST_LINES:])
        return EngineError(f"{what}; the last lines of {self.log}:\n{last}", said)


@contextlib.contextmanager
def started(
    command: Sequence[object], environment: Mapping[str, str], log: Path, *, asked: bool = False
) -> Iterator[Started]:
    """Start a child in a group of its own; when the block is left, nothing of the group is.

    One that is `asked` has its standard input open; the others have none.
    Should this process itself be killed, the kernel asks the child to end (where util-linux has setpriv): a server of a
    test session that is no more would run for ever.
    """
    tied = ("setpriv", "--pdeathsig", "TERM", "--") if shutil.which("setpriv") else ()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in (*tied, *command)],
            bufsize=0,
            cwd=log.parent,
            env=dict(environment),
            stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Started(process=process, log=log)
    finally:
        end_group(process)
        if process.stdin:
            process.stdin.close()


@contextlib.contextmanager
def asking(command: Sequence[object], environment: Mapping[str, str]) -> Iterator[Callable[[str], Any]]:
    """Start a program that answers every line with a line of JSON, and give what asks it; it has to end in silence."""
    with subprocess.Popen(
        [str(part) for part in command],
        env=dict(environment),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:

        def ask(line: str) -> Any:
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, process.communicate(timeout=60)[1]
            return json.loads(answer)

        try:
            yield ask
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "")


def finished(child: Started, seconds: float) -> int:
    """Wait for a child and return its exit status; one that takes longer is an error."""
    try:
        return child.process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise child.fail(f"not done after {seconds:.0f} s") from None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a child and all that it started: asked first, killed after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until:
            process.poll()  # a leader that has ended is reaped
            if not is_alive(process.pid):
                process.wait()
                return
            time.sleep(0.05)


def is_alive(group: int) -> bool:
    """True while a process of the group runs; one that has ended and waits to be reaped does not."""
    return bool(members(group))


def members(group: int) -> list[str]:
    """Return the command lines of the processes of a group that run."""
    found = []
    for home in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (home / "stat").read_text().rpartition(")")[2].split()
            if fields[2] == str(group) and fields[0] not in ("Z", "X"):
                found.append((home / "cmdline").read_text(errors="replace").replace("\0", " "))
    return found
