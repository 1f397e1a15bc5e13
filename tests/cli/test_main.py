"""The command as a whole: help everywhere, every exit status, where words go, and no input that makes a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from patchkit.cli.main import COMMANDS, run
from patchkit.cli.main import patchkit as root_command
from patchkit.errors import ExitStatus
from tests.blackbox.command import PATCHKIT, snapshot
from tests.blackbox.wheels import DIFF, write_tree
from tests.cli.said import Patchkit


def commands(command: click.Command, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield above, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from commands(below, *above, name)


ALL = dict(commands(root_command))


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_help_says_what_it_does_with_an_example(names: tuple[str, ...], patchkit: Patchkit) -> None:
    said = patchkit(*names, "--help")
    assert said.status == 0
    assert said.err == ""
    assert "Example" in said.out
    assert re.search(r"^ +patchkit " + " ".join(names), said.out, re.MULTILINE), "an example of the command itself"
    assert patchkit(*names, "-h").out == said.out


@pytest.mark.parametrize("names", [names for names, one in ALL.items() if not isinstance(one, click.Group)])
def test_every_option_has_a_help(names: tuple[str, ...]) -> None:
    bare = [
        one.name for one in ALL[names].params if isinstance(one, click.Option) and not one.help and one.name != "help"
    ]
    assert bare == []


def test_table_of_commands_is_the_help_and_the_commands() -> None:
    assert {names[0] for names in ALL if names} == set(COMMANDS)


@pytest.mark.parametrize(
    ("typed", "meant"), [(("aply",), "apply"), (("series", "lst"), "list"), (("abi", "explian"), "explain")]
)
def test_command_that_was_meant_is_proposed(typed: tuple[str, ...], meant: str, patchkit: Patchkit) -> None:
    said = patchkit(*typed)
    assert (said.status, f"No such command {typed[-1]!r}: did you mean {meant!r}?" in said.err) == (2, True)
    assert "did you mean" not in patchkit("frobnicate").err


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        (("--json", "status"), "patchkit status --json"),
        (("series", "--patches", "x", "lint"), "patchkit series lint --patches"),
    ],
)
def test_option_before_its_command_is_sent_behind_it(typed: tuple[str, ...], right: str, patchkit: Patchkit) -> None:
    said = patchkit(*typed)
    assert (said.status, said.err.rstrip().endswith(f"Options stand behind it: {right}")) == (2, True)
    assert "stand behind" not in patchkit("--nosuch").err


def test_version(patchkit: Patchkit) -> None:
    from patchkit.version import VERSION

    assert patchkit("--version").out == f"patchkit, version {VERSION}\n"


class TestExitStatus:
    """Each is provoked for real."""

    def test_0_done(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        assert patchkit("apply", "--root", root, "--patch", patch).status == ExitStatus.DONE
        again = patchkit("apply", "--root", root, "--patch", patch)
        assert (again.status, "nothing to do" in again.out) == (0, True)

    def test_1_refused(self, patchkit: Patchkit, root: Path, wrong: Path) -> None:
        said = patchkit("apply", "--root", root, "--patch", wrong)
        assert said.status == ExitStatus.REFUSED
        assert "refused: nothing was written" in said.out

    @pytest.mark.parametrize("arguments", [(), ("nonsense",), ("plan", "--nonsense"), ("apply", "--strip", "x")])
    def test_2_usage(self, patchkit: Patchkit, arguments: tuple[str, ...]) -> None:
        said = patchkit(*arguments)
        assert said.status == ExitStatus.USAGE
        assert said.out == "" or not arguments

    def test_3_bug(self, patchkit: Patchkit, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from patchkit.cli import status

        def fail(*_: object) -> None:
            raise ZeroDivisionError("seven \x1b[2J")

        monkeypatch.setattr(status, "audit_package", fail)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        said = patchkit("status", "--root", root)
        assert said.status == ExitStatus.BUG
        assert "a bug in patchkit: ZeroDivisionError: seven" in said.err
        assert "\x1b" not in said.err
        [report] = tmp_path.glob("patchkit-bug-*.txt")
        assert str(report) in said.err
        assert "in fail" in report.read_text()
        assert "ZeroDivisionError" in report.read_text()

    def test_3_bug_where_no_report_can_be_written(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        from patchkit.cli import status

        monkeypatch.setattr(status, "audit_package", lambda *_: 1 // 0)
        monkeypatch.setattr("tempfile.mkstemp", _no_space)
        assert run(["status", "--root", str(root)]) == ExitStatus.BUG
        assert "ZeroDivisionError" in capfd.readouterr().err

    def test_4_wrong_tree(self, patchkit: Patchkit, root: Path, tmp_path: Path) -> None:
        own = write_tree(tmp_path / "own", {"one.patch": DIFF.encode(), "series": b"one.patch\n"})
        said = patchkit("plan", "--root", root, "--patches", own)
        assert said.status == ExitStatus.WRONG_TREE
        assert "--unlocked" in said.err

    def test_5_tree_changed(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / "vllm/engine.py").write_text("edited\n")
        for command in ("apply", "plan"):
            assert patchkit(command, "--root", root, "--patch", patch).status == ExitStatus.TREE_CHANGED
        for command in ("revert", "status"):
            assert patchkit(command, "--root", root).status == ExitStatus.TREE_CHANGED

    @pytest.mark.parametrize("command", ["status", "diff", "plan", "targets"])
    def test_5_interrupted_run_is_only_reported(
        self, command: str, patchkit: Patchkit, root: Path, patch: Path
    ) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / ".patchkit/vllm/journal.json").write_text("{}")
        before = snapshot(root)
        said = patchkit(command, "--root", root, *(("--patch", patch) if command == "plan" else ()))
        assert said.status == ExitStatus.TREE_CHANGED
        assert "journal" in said.out + said.err
        assert snapshot(root) == before
        assert (root / ".patchkit/vllm/journal.json").exists()

    def test_130_interrupted(self, root: Path, tmp_path: Path) -> None:
        pipe = tmp_path / "never.diff"
        os.mkfifo(pipe)
        child = subprocess.Popen(
            [*PATCHKIT, "apply", "--root", str(root), "--patch", str(pipe)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with pipe.open("wb"):  # opened as soon as the child reads
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=60)
        assert child.returncode == ExitStatus.INTERRUPTED
        assert b"interrupted" in err
        assert b"Traceback" not in err


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


BAD_PATCHES = {
    "empty": b"",
    "prose": b"Dear all,\n\nplease find attached.\n",
    "binary garbage": bytes(range(256)) * 20,
    "gzip garbage": b"\x1f\x8b\x08\x00garbage",
    "lying counts": b"--- a/vllm/engine.py\n+++ b/vllm/engine.py\n@@ -1,9 +1,9 @@\n x\n",
    "UTF-16": DIFF.encode("utf-16"),
    "one line": b"--- a/x",
    "hostile name": b"--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n",
    "into .git": DIFF.replace("vllm/engine.py", ".git/config").encode(),
    "NUL in a name": b'--- "a/x\\000y"\n+++ "b/x\\000y"\n@@ -1 +1 @@\n-a\n+b\n',
}


@pytest.mark.parametrize("command", ["plan", "apply"])
@pytest.mark.parametrize("raw", BAD_PATCHES.values(), ids=BAD_PATCHES)
def test_bad_patch_is_an_answer_and_not_a_crash(
    command: str, raw: bytes, patchkit: Patchkit, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.diff"
    path.write_bytes(raw)
    before = snapshot(root)
    said = patchkit(command, "--root", root, "--patch", path)
    assert said.status in (1, 2), said.err
    assert "error: " in said.err or "refused" in said.out
    assert snapshot(root) == before
    assert not (root / ".patchkit").exists()


BAD_ARGUMENTS = {
    "missing patch": ("apply", "--root", "{root}", "--patch", "{tmp}/missing.diff"),
    "directory as patch": ("apply", "--root", "{root}", "--patch", "{tmp}"),
    "root is a file": ("apply", "--root", "{patch}", "--patch", "{patch}"),
    "root is missing": ("status", "--root", "{tmp}/missing"),
    "no tree": ("apply", "--patch", "{patch}"),
    "fetch without target": ("plan", "--root", "{root}", "--fetch", "{tmp}/x"),
    "malformed setting": ("plan", "--root", "{root}", "--set", "X=y"),
    "malformed configuration": ("plan", "--root", "{root}", "--config", "{patch}"),
    "missing configuration": ("plan", "--root", "{root}", "--config", "{tmp}/missing"),
    "setting without a series": ("plan", "--root", "{root}", "--patch", "{patch}", "--set", "CONFIG_X=y"),
    "reverse of a series": ("apply", "--root", "{root}", "--reverse"),
    "unknown engine": ("status", "--target", "vlm==0.6.3"),
    "malformed target": ("status", "--target", "vllm=0.6.3"),
    "two things": ("revert", "--root", "{root}", "one.diff", "--layer", "1"),
    "layer 99": ("revert", "--root", "{root}", "--layer", "99"),
    "layer 0": ("revert", "--root", "{root}", "--layer", "0"),
    "patch that is not there": ("revert", "--root", "{root}", "other.diff"),
    "negative strip": ("plan", "--root", "{root}", "--patch", "{patch}", "--strip", "-1"),
    "patches is a file": ("plan", "--root", "{root}", "--patches", "{patch}"),
}


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_bad_arguments_are_said_on_stderr(
    arguments: tuple[str, ...], patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
) -> None:
    before = snapshot(root, own=True)
    said = patchkit(*(one.format(root=root, tmp=tmp_path, patch=patch) for one in arguments))
    assert said.status in (1, 2), said
    assert said.status == 2 or "malformed configuration" in str(said) or "not a setting" in said.err
    assert said.out == ""
    assert "rror: " in said.err
    assert snapshot(root, own=True) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_patch_that_may_not_be_read_is_said(patchkit: Patchkit, root: Path, patch: Path) -> None:
    patch.chmod(0)
    assert patchkit("plan", "--root", root, "--patch", patch).status == 2


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "²", "9" * 40])
def test_source_date_that_is_no_number_is_said(
    value: str, patchkit: Patchkit, root: Path, patch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    said = patchkit("apply", "--root", root, "--patch", patch)
    assert said.status == 2
    assert "SOURCE_DATE_EPOCH" in said.err


class TestDamagedState:
    @pytest.mark.parametrize("command", ["status", "diff", "revert", "targets"])
    def test_receipt(self, command: str, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / ".patchkit/vllm/receipt.json").write_text("{")
        said = patchkit(command, "--root", root)
        assert said.status == 5
        assert "receipt" in said.out + said.err

    @pytest.mark.parametrize("command", ["diff", "revert"])
    def test_pristine_copy(self, command: str, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / ".patchkit/vllm/pristine/vllm%2Fengine.py").write_text("other\n")
        said = patchkit(command, "--root", root)
        assert said.status == 5
        assert "pristine copy is damaged" in said.err

    @pytest.mark.parametrize("command", ["status", "diff", "revert"])
    def test_symlink(self, command: str, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / ".patchkit").rename(tmp_path / "state")
        (root / ".patchkit").symlink_to(tmp_path / "state")
        said = patchkit(command, "--root", root)
        assert said.status == 1
        assert ".patchkit is a symlink" in said.err


def test_json_is_one_document_and_nothing_else(patchkit: Patchkit, root: Path, patch: Path) -> None:
    for arguments in (
        ("plan", "--patch", patch),
        ("apply", "--patch", patch),
        ("status",),
        ("diff",),
        ("targets",),
        ("revert",),
    ):
        said = patchkit(arguments[0], "--root", root, *arguments[1:], "--json")
        assert said.status == 0, said.err
        assert said.document
        assert said.err == ""
        assert said.out.isascii()


def child(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PATCHKIT, *map(str, arguments)], env={**os.environ, **environment}, capture_output=True, check=False
    )


def test_closed_pipe_is_quiet_and_keeps_the_status(root: Path, tmp_path: Path) -> None:
    """As `| head -1`: what is beyond the pipe's capacity meets a reader that has gone."""
    path = tmp_path / "long.diff"
    path.write_text("".join(DIFF.replace("engine.py", f"{'long' * 20}{number}.py") for number in range(1500)))
    command = [*PATCHKIT, "plan", "--root", str(root), "--patch", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline()
        running.stdout.close()
        err = running.stderr.read()
    assert running.returncode == ExitStatus.REFUSED
    assert err == b""


def test_output_that_cannot_be_encoded_is_escaped(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd.diff"
    path.write_text(DIFF.replace("engine.py", "m\u00f6tor.py"))
    said = child("plan", "--root", root, "--patch", path, PYTHONIOENCODING="ascii")
    assert said.returncode == 1
    assert b"m\\xf6tor.py" in said.stdout
    assert b"bug" not in said.stderr


HOSTILE = "tests/\\033[2J\\033]0;owned\\007\\nlayer 1: fine\\342\\200\\256gpj.py"


def test_hostile_name_is_made_visible(patchkit: Patchkit, root: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.diff"
    path.write_text(
        DIFF + DIFF.replace("a/vllm/engine.py", f'"a/{HOSTILE}"').replace("b/vllm/engine.py", f'"b/{HOSTILE}"')
    )
    said = patchkit("plan", "--root", root, "--patch", path)
    assert said.status == 1
    shown = said.out + said.err
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert "\nlayer 1: fine" not in shown


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo terminal of Linux")
@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colour_is_for_terminals_and_no_color_turns_it_off(no_colour: str, root: Path) -> None:
    import pty

    above, below = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": no_colour}
    with subprocess.Popen([*PATCHKIT, "status", "--root", str(root)], stdout=below, env=environment) as running:
        running.wait(timeout=60)
    os.close(below)
    shown = os.read(above, 1 << 16)
    os.close(above)
    assert running.returncode == 0
    assert (b"\x1b[" in shown) == (not no_colour)
    assert b"\x1b" not in child("status", "--root", root, TERM="xterm").stdout
