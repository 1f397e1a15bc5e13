from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from patchkit.errors import RefusedError
from patchkit.process import require_success, run_child

SECONDS = 60.0


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_child_gets_its_input_and_its_output_is_returned() -> None:
    code = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.stderr.write('done')"
    completed = run_child(python(code), input=b"a\0b" * 100_000, timeout=SECONDS)
    assert completed.stdout == b"b\0a" * 100_000
    assert completed.stderr == b"done"
    assert completed.status == 0


def test_exit_status_is_returned_and_turned_into_an_error_on_demand() -> None:
    completed = run_child(python("import sys; sys.stderr.write('first\\nsecond\\n'); sys.exit(7)"), timeout=SECONDS)
    assert completed.status == 7
    with pytest.raises(RefusedError) as caught:
        require_success(completed, hint="try again")
    assert "exit status 7" in caught.value.what
    assert caught.value.why == "  first\n  second"
    assert caught.value.hint == "try again"


def test_success_is_passed_through() -> None:
    completed = run_child(python("pass"), timeout=SECONDS)
    assert require_success(completed) is completed


def test_death_by_a_signal_is_named() -> None:
    completed = run_child(python("import os; os.kill(os.getpid(), 9)"), timeout=SECONDS)
    with pytest.raises(RefusedError, match="signal 9"):
        require_success(completed)


@pytest.mark.parametrize("program", ["/nowhere/program", "bad\0name"], ids=["absent", "nul"])
def test_program_that_cannot_be_started_is_an_error_of_ours(program: str) -> None:
    with pytest.raises(RefusedError, match="cannot run"):
        run_child([program], timeout=SECONDS)


def test_arguments_are_never_read_by_a_shell(tmp_path: Path) -> None:
    argument = f"$(touch {tmp_path}/made); `id` | * ;"
    completed = run_child([*python("import sys; print(sys.argv[1], end='')"), argument], timeout=SECONDS)
    assert completed.stdout.decode() == argument
    assert not list(tmp_path.iterdir())


def test_child_past_its_time_is_killed_with_its_own_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r} + '.new', 'w').write(str(child.pid))\n"
        f"import os; os.rename({str(note)!r} + '.new', {str(note)!r})\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(RefusedError, match="did not end within") as caught:
        run_child(python(code), timeout=3)
    assert caught.value.hint
    grandchild = int(note.read_text())
    assert has_ended(grandchild)


def has_ended(pid: int) -> bool:
    """Wait for a killed process to go: its state is a zombie's, or it is not there."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in ("Z", "X"):
            return True
        time.sleep(0.05)
    return False


def test_environment_replaces_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_OURS", "1")
    code = "import os; print(sorted(set(os.environ) & {'ONLY_OURS', 'GIVEN'}))"
    completed = run_child(python(code), timeout=SECONDS, environment={"GIVEN": "1"})
    assert completed.stdout.strip() == b"['GIVEN']"


def test_directory_is_where_the_child_starts(tmp_path: Path) -> None:
    completed = run_child(python("import os; print(os.getcwd(), end='')"), timeout=SECONDS, directory=tmp_path)
    assert os.fsdecode(completed.stdout) == str(tmp_path.resolve())


def test_ticks_come_while_the_child_runs_and_nothing_of_the_talk_is_lost() -> None:
    ticks: list[int] = []
    code = "import sys, time; data = sys.stdin.read(); time.sleep(1); print(len(data), end='')"
    completed = run_child(python(code), input=b"x" * 1_000_000, timeout=SECONDS, on_tick=lambda: ticks.append(1))
    assert ticks
    assert completed.stdout == b"1000000"


def test_long_command_lines_are_cut_in_the_error() -> None:
    with pytest.raises(RefusedError) as caught:
        run_child(["/nowhere/program", "x" * 500], timeout=SECONDS)
    assert len(caught.value.what) < 100
