"""The process's own: streams it was started without, how wide its terminal is, and how it ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

_USUAL_COLUMNS = 80
_LONGEST_WIDTH = 6  # digits


def fill_gaps() -> None:
    """Open a closed stream the wrong way round, so that its use is an OSError and no file of ours gets its number."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    if sys.stdin is None:
        sys.stdin = open(_gap(0, os.O_WRONLY), encoding="utf-8", closefd=False)  # noqa: SIM115 -- for the whole run
    if sys.stdout is None:
        sys.stdout = open(_gap(1, os.O_RDONLY), "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(_gap(2, os.O_RDONLY), "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115


def columns() -> int:
    """Return the width of the terminal, COLUMNS before what it says itself, as `shutil.get_terminal_size` does."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and len(stated) < _LONGEST_WIDTH and int(stated) > 0:
        return int(stated)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):  # no terminal, no descriptor
        return _USUAL_COLUMNS


def leave(status: int) -> NoReturn:
    """End the process, without taking it apart object by object: a sixth of a short command's time.

    What was registered for the end still runs, and what was written is flushed. Where a thread is left the interpreter
    ends as ever.
    """
    if threading.active_count() > 1:
        sys.exit(status)
    atexit._run_exitfuncs()  # noqa: SLF001 -- os._exit does not
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # stdout was flushed, and its errors told, by `run`
            stream.flush()
    os._exit(status)


def _gap(number: int, flags: int) -> int:
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number, inheritable=False)
        os.close(opened)
    return number
