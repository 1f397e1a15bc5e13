"""The only writer to the terminal: data to stdout, progress and warnings to stderr, colour where people look."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from patchkit.errors import PatchkitError

_COLOURS = {"good": "32", "bad": "31", "doubt": "33", "dim": "2", "head": "1"}
_PATIENCE_SECONDS = 1.0
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
# What turns the direction of a text, breaks its lines or cannot be seen.
_UNSEEN = (0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_CONTROL.update({code: f"\\u{code:04x}" for code in _UNSEEN})


class Output:
    """Where a command's words go. `machine` is true with --json: stdout holds one JSON document, no progress.

    `acting`: the command is there for what it does, not for what it writes. `lost` says why stdout cannot be written.
    """

    def __init__(
        self,
        *,
        machine: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        begun: float | None = None,
    ) -> None:
        self.machine = machine
        self.acting = False
        self.lost = ""
        self.stdout = sys.stdout if stdout is None else stdout
        self.stderr = sys.stderr if stderr is None else stderr
        self._begun = time.monotonic() if begun is None else begun
        self._answered = False

    def line(self, text: str = "", *, style: str = "") -> None:
        """Write a line of data: one line, whatever names from outside are in it."""
        with self._surviving():
            print(self._painted(text, style, self.stdout), file=self.stdout)

    def raw(self, content: bytes) -> None:
        """Write bytes of data as they are, or made visible where a person looks at them."""
        buffer = getattr(self.stdout, "buffer", None)
        with self._surviving():
            self.stdout.flush()
            if buffer is None or self.stdout.isatty():
                self.stdout.write(_encodable(visible(content.decode("utf-8", errors="backslashreplace")), self.stdout))
            else:
                buffer.write(content)
            self.stdout.flush()

    def document(self, record: Mapping[str, object] | Sequence[object]) -> None:
        """Write a JSON document: stable keys, digests instead of contents."""
        import json

        self._answered = True
        with self._surviving():
            print(json.dumps(record, indent=1, ensure_ascii=True), file=self.stdout)

    def note(self, text: str, *, style: str = "") -> None:
        """Write a line for people beside the data: a warning, what was chosen."""
        try:
            print(self._painted(text, style, self.stderr), file=self.stderr)
        except OSError:  # nobody listens
            _sink(self.stderr)

    def next_step(self, text: str, *, beside: bool = False) -> None:
        """Write what to do next, beside the data or in it; nothing for "". Documents have it under the key `next`."""
        first, *others = text.split("\n")
        write = self.note if beside else self.line
        for line in (f"next: {first}", *(f"  {one}" for one in others)) if text else ():
            write(line)

    def flush(self) -> None:
        """Write out what is held back; who closed the pipe has seen enough."""
        with self._surviving():
            self.stdout.flush()

    def progress(self, text: str) -> None:
        """Say what takes long; nothing in the first second, nothing with --json."""
        if not self.machine and time.monotonic() - self._begun > _PATIENCE_SECONDS:
            self.note(text, style="dim")

    def error(self, error: PatchkitError) -> None:
        """Show what failed, why, and what to do next; with --json also as the document, unless there is one already."""
        self.note(f"error: {error.what}", style="bad")
        for line in error.why.rstrip("\n").split("\n") if error.why else ():
            self.note(f"  {line.rstrip()}")
        self.next_step(error.hint, beside=True)
        self.failure(int(error.status), what=error.what, why=error.why, hint=error.hint)

    def failure(self, status: int, *, what: str, why: str = "", hint: str = "") -> None:
        """Write the document of a command that failed: nothing without --json, or where its document was written."""
        if self.machine and not self._answered:
            error = {"what": what, "why": why, "hint": hint}
            self.document({"schema": 1, "status": status, "error": error})

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Let the command go on when stdout fails: the reader has gone, or the disk is full."""
        try:
            yield
        except OSError as error:
            self.lose(error)

    def lose(self, error: OSError) -> None:
        """Write no more to stdout, and remember why unless its reader has seen enough."""
        if not isinstance(error, BrokenPipeError):
            self.lost = error.strerror or str(error)
        _sink(self.stdout)

    def _painted(self, text: str, style: str, stream: TextIO) -> str:
        text = _encodable(visible(text.replace("\n", "\\n")), stream)
        if (
            not style
            or not text
            or os.environ.get("NO_COLOR")
            or os.environ.get("TERM") == "dumb"
            or not stream.isatty()
        ):
            return text
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m"


def _sink(stream: TextIO) -> None:
    """Send what is still to come nowhere: the interpreter would complain about it at the end."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)


def visible(text: str) -> str:
    """Make control characters and undecodable bytes visible: a name in a patch shall not steer the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_CONTROL).encode("utf-8", "backslashreplace").decode("utf-8")


def one_line(name: str) -> str:
    """Make the line ends and tabs of a name visible too, so that it cannot pass for a line of ours."""
    return name.replace("\n", "\\n").replace("\t", "\\t")


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
