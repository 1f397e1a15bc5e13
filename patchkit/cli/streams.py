"""What the process was started without: a closed stdin, stdout or stderr becomes one that fails when it is used."""

from __future__ import annotations

import os
import sys


def fill_gaps() -> None:
    """Open what is closed the wrong way round, so that its use is an OSError and no file of ours gets its number."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    if sys.stdin is None:
        sys.stdin = open(_gap(0, os.O_WRONLY), encoding="utf-8", closefd=False)  # noqa: SIM115 -- for the whole run
    if sys.stdout is None:
        sys.stdout = open(_gap(1, os.O_RDONLY), "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(_gap(2, os.O_RDONLY), "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115


def _gap(number: int, flags: int) -> int:
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number, inheritable=False)
        os.close(opened)
    return number
