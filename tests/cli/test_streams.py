"""Streams that are closed or full, and errors as a document: the exit status is the command's, never a traceback."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.blackbox.command import PATCHKIT, snapshot
from tests.blackbox.wheels import DIFF
from tests.cli.said import Patchkit

LOST = b"error: the output could not be written: "


def shell(words: str, redirection: str) -> subprocess.CompletedProcess[bytes]:
    command = f"set -o pipefail; {shlex.join(PATCHKIT)} {words} {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
    assert b"Traceback" not in done.stdout + done.stderr
    assert b"Exception ignored" not in done.stderr
    return done


STATUSES = {
    "status --root {root}": 1,
    "status --root {root} --json": 1,
    "plan --root {root} --patch {patch}": 1,
    "plan --root {root} --patch {patch} --json": 1,
    "diff --root {root}": 1,
    "targets --root {root}": 1,
    "series list": 1,
    "--help": 1,
    "plan --help": 1,
    "--version": 1,
    "apply --root {root} --patch {patch}": 0,
    "apply --root {root} --patch {patch} --json": 1,
    "revert --root {root}": 0,
    "apply --root {root} --patch {wrong}": 1,
    "apply --root {root} --patch missing.diff": 2,
    "apply --root {root} --patch missing.diff --json": 2,
    "targets --bogus": 2,
}


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
@pytest.mark.parametrize(("words", "status"), STATUSES.items())
def test_output_that_is_lost_is_said(
    words: str, status: int, redirection: str, patchkit: Patchkit, root: Path, patch: Path, wrong: Path
) -> None:
    if words.startswith(("diff", "revert")):
        patchkit("apply", "--root", root, "--patch", patch)
    done = shell(words.format(root=root, patch=patch, wrong=wrong), redirection)
    assert done.returncode == status, done.stderr
    assert (LOST in done.stderr) == (status != 2 or "--json" in words)
    if words.startswith("apply") and "{patch}" in words:
        assert b"was done all the same" in done.stderr
        assert patchkit("status", "--root", root).out.count("patched: every touched file") == 1


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full"])
@pytest.mark.parametrize("words", ["apply --root {root} --patch {patch}", "targets --bogus", "status --root {root}"])
def test_messages_that_are_lost_change_nothing(words: str, redirection: str, root: Path, patch: Path) -> None:
    done = shell(words.format(root=root, patch=patch), redirection)
    only_stdout = 1 if words.startswith("status") and ">" in redirection.replace("2>", "") else 0
    assert done.returncode == (2 if "bogus" in words else only_stdout)


@pytest.mark.parametrize("words", ["--help", "apply --help", "--version", "series list", "status --root {root}"])
def test_reader_who_has_gone_is_no_failure(words: str, root: Path) -> None:
    for _ in range(3):  # whether the reader is gone before the words are there is a matter of luck
        assert shell(words.format(root=root), "| true").returncode == 0


def test_patch_from_a_closed_stdin_is_said(root: Path) -> None:
    done = shell(f"apply --root {root} --patch -", "<&-")
    assert done.returncode == 2
    assert b"stdin: cannot be read" in done.stderr


def test_files_of_a_patched_tree_never_get_the_words_of_a_closed_stream(root: Path, patch: Path) -> None:
    shell(f"apply --root {root} --patch {patch}", ">&- 2>&- <&-")
    there = snapshot(root, own=True)
    assert not [path for path, (_, _, content) in there.items() if b"applied: " in content]


ERRORS = {
    "usage of an option": (("plan", "--bogus", "--json"), 2, "No such option"),
    "missing root": (("status", "--root", "/missing", "--json"), 2, "does not exist"),
    "no such command": (("nonsense", "--json"), 2, "No such command"),
    "no tree": (("apply", "--json"), 2, "no tree named"),
    "no patch": (("plan", "--root", "{root}", "--patch", "missing.diff", "--json"), 2, "missing.diff: cannot be read"),
    "malformed patch": (("plan", "--root", "{root}", "--patch", "{tmp}/bad.diff", "--json"), 1, "bad.diff:1"),
    "series": (("series", "show", "no/1", "--json"), 2, "no such series"),
    "command without --json": (("series", "new", "x", "--json"), 2, "No such option"),
}


@pytest.mark.parametrize(("arguments", "status", "what"), ERRORS.values(), ids=ERRORS)
def test_error_is_a_document_too(
    arguments: tuple[str, ...], status: int, what: str, patchkit: Patchkit, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.diff").write_text("no diff\n")
    said = patchkit(*(one.format(root=root, tmp=tmp_path) for one in arguments))
    assert said.status == said.document["status"] == status
    assert set(said.document) == {"schema", "status", "error"}
    assert set(said.document["error"]) == {"what", "why", "hint"}
    assert what in said.document["error"]["what"]
    assert "rror: " in said.err


def test_tree_that_changed_is_a_document_with_the_files(patchkit: Patchkit, root: Path, patch: Path) -> None:
    patchkit("apply", "--root", root, "--patch", patch)
    (root / "vllm/engine.py").write_text("edited\n")
    said = patchkit("apply", "--root", root, "--patch", patch, "--json")
    assert said.status == said.document["status"] == 5
    assert "vllm/engine.py" in said.document["error"]["why"]


def test_bug_is_a_document(patchkit: Patchkit, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from patchkit.cli import status

    monkeypatch.setattr(status, "audit_package", lambda *_: 1 // 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = patchkit("status", "--root", root, "--json")
    assert said.status == said.document["status"] == 3
    assert "ZeroDivisionError" in said.document["error"]["what"]


def test_name_behind_two_dashes_does_not_ask_for_json(patchkit: Patchkit, root: Path) -> None:
    said = patchkit("revert", "--root", root, "--", "--json")
    assert (said.status, said.out) == (2, "")


FORGED = "vllm/x\\nlayer 9: forged\\napplied: 99 files changed"


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_name_with_a_line_end_stays_on_its_line(command: str, patchkit: Patchkit, root: Path, tmp_path: Path) -> None:
    name = tmp_path / "a\nlayer 7: forged\nb.diff"
    diff = DIFF.replace("a/vllm/engine.py", f'"a/{FORGED}"').replace("b/vllm/engine.py", f'"b/{FORGED}"')
    name.write_text(diff + DIFF)
    for arguments in ((), ("--package-only",), ("--strip", "1"), ("--package-only", "--json")):
        said = patchkit(command, "--root", root, "--patch", name, *arguments)
        lines = [line.strip() for line in (said.out + said.err).splitlines()]
        assert not [line for line in lines if line.startswith(("layer 7", "layer 9", "applied: 99", "b.diff"))], said
    said = patchkit("status", "--root", root)
    assert not [line for line in said.out.splitlines() if line.strip().startswith(("layer 7", "b.diff"))]
    assert json.loads(patchkit("status", "--root", root, "--json").out)["schema"] == 1


def test_series_with_a_line_end_in_its_name_stays_on_its_line(patchkit: Patchkit, tmp_path: Path) -> None:
    own = tmp_path / "own\nforged: x"
    own.mkdir()
    (own / "series").write_text("one.patch\n")
    (own / "one.patch").write_text(DIFF)
    for words in (("list", "--patches"), ("show",), ("lint",)):
        said = patchkit("series", *words, own)
        assert not [line for line in (said.out + said.err).splitlines() if line.strip().startswith("forged")], said
