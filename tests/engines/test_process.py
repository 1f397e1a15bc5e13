"""The children of the harness: limits, logs, and an end of exactly what was started."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.engines.process import EngineError, asking, finished, is_alive, members, started

CHECKOUT = Path(__file__).resolve().parents[2]
SHELL = ("/bin/sh", "-c")


def test_a_child_that_ends_gives_its_status_and_its_log(tmp_path: Path) -> None:
    with started([*SHELL, "echo to the log; echo too >&2; exit 7"], os.environ, tmp_path / "log") as child:
        assert finished(child, 20) == 7
    assert child.said() == "to the log\ntoo\n"


def test_a_child_that_takes_too_long_is_an_error_with_the_log_and_is_ended(tmp_path: Path) -> None:
    with started([*SHELL, "echo last words; exec sleep 600"], os.environ, tmp_path / "log") as child:
        _wait_for(tmp_path / "log")
        with pytest.raises(EngineError, match=r"(?s)not done after 0 s.*last words") as raised:
            finished(child, 0.1)
    assert str(tmp_path / "log") in str(raised.value)
    assert not is_alive(child.process.pid)


def test_a_child_that_is_asked_reads_until_nobody_asks(tmp_path: Path) -> None:
    with started(
        [*SHELL, "while read line; do echo got $line; done; exit 3"], os.environ, tmp_path / "log", asked=True
    ) as child:
        child.tell("one")
        child.tell("two")
        child.finish()
        assert finished(child, 20) == 3
    assert child.said() == "got one\ngot two\n"


def test_to_tell_a_child_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with started([*SHELL, "echo last words"], os.environ, tmp_path / "log", asked=True) as child:
        finished(child, 20)
        with pytest.raises(EngineError, match=r"(?s)does not read any more.*last words"):
            child.tell("one")


def test_a_program_answers_each_line() -> None:
    with asking([*SHELL, 'while read line; do echo "[$line]"; done'], os.environ) as ask:
        assert ask("1") == [1]
        assert ask("2") == [2]


@pytest.mark.parametrize("script", ["read line; echo 1; echo noise >&2", "read line; echo 1; exit 2"])
def test_a_program_that_does_not_end_in_silence_is_an_error(script: str) -> None:
    with pytest.raises(AssertionError), asking([*SHELL, script], os.environ) as ask:
        assert ask("") == 1


def test_the_children_of_a_child_end_with_it(tmp_path: Path) -> None:
    script = "(sleep 600 & echo $! > grandchild; wait) & wait"
    with started([*SHELL, script], os.environ, tmp_path / "log") as child:
        grandchild = int(_wait_for(tmp_path / "grandchild"))
        assert os.getpgid(grandchild) == child.process.pid
        assert [line for line in members(child.process.pid) if "sleep 600 " in line]
        assert is_alive(child.process.pid)
    assert not is_alive(child.process.pid)


def test_what_outlives_its_parent_is_ended_too(tmp_path: Path) -> None:
    with started([*SHELL, "sleep 600 & echo $! > orphan"], os.environ, tmp_path / "log") as child:
        _wait_for(tmp_path / "orphan")
        assert finished(child, 20) == 0
        assert is_alive(child.process.pid), "the parent is gone, the orphan is in its group"
    assert not is_alive(child.process.pid)


def test_a_child_that_ignores_being_asked_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engines.process._GRACE_SECONDS", 0.2)
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    with started([sys.executable, "-c", stubborn], os.environ, tmp_path / "log") as child:
        _wait_for(tmp_path / "log")
    assert not is_alive(child.process.pid)


def test_another_group_is_left_alone(tmp_path: Path) -> None:
    with started([*SHELL, "exec sleep 600"], os.environ, tmp_path / "one") as one:
        with started([*SHELL, "exec sleep 600"], os.environ, tmp_path / "other"):
            pass
        assert is_alive(one.process.pid)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")
def test_a_child_ends_when_who_started_it_is_killed(tmp_path: Path) -> None:
    script = (
        f"import os, sys, time; sys.path.insert(0, {str(CHECKOUT)!r}); from pathlib import Path\n"
        "from tests.engines.process import started\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "with started(['sh', '-c', 'echo up; exec sleep 600'], os.environ, log) as child:\n"
        f"    Path({str(tmp_path / 'group')!r}).write_text(str(child.process.pid)); time.sleep(600)\n"
    )
    with started([sys.executable, "-c", script], os.environ, tmp_path / "starter") as starter:
        group = int(_wait_for(tmp_path / "group"))
        _wait_for(tmp_path / "log")
        starter.process.kill()
        starter.process.wait()
        until = time.monotonic() + 20
        while is_alive(group) and time.monotonic() < until:
            time.sleep(0.01)
        assert not is_alive(group)


def _wait_for(path: Path) -> str:
    """Return the text of a file as soon as it has one."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.01)
    pytest.fail(f"{path} was not written")
