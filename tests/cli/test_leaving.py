"""How the process ends, and how wide it finds its terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.cli.streams import columns

_LEAVE = "import atexit, sys, threading; from patchkit.cli.streams import leave; "


def _ended(checkout: Path, code: str) -> tuple[int, str, str]:
    run = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout, run.stderr


def test_the_end_comes_with_the_status_and_all_that_was_written(checkout: Path) -> None:
    code = _LEAVE + "print('out'); print('err', end='', file=sys.stderr); leave(5); print('no more')"
    assert _ended(checkout, code) == (5, "out\n", "err")


def test_what_was_registered_for_the_end_runs_and_may_write(checkout: Path) -> None:
    assert _ended(checkout, _LEAVE + "atexit.register(print, 'at last'); leave(0)") == (0, "at last\n", "")


def test_a_thread_that_still_runs_is_waited_for(checkout: Path) -> None:
    code = _LEAVE + "threading.Timer(0.2, print, ['done']).start(); leave(1)"
    assert _ended(checkout, code) == (1, "done\n", "")


@pytest.mark.parametrize(
    ("stated", "found"),
    [("132", 132), ("0", 80), ("-3", 80), ("wide", 80), ("", 80), ("9" * 5000, 80)],
    ids=lambda one: repr(one)[:8],
)
def test_the_width_is_that_of_columns_or_of_a_usual_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stated: str, found: int
) -> None:
    del capsys  # stdout is captured: no terminal
    monkeypatch.setenv("COLUMNS", stated)
    assert columns() == found
