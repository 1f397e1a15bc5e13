"""What is no file where a file is expected: in the state of a tree, as a patch, in the place of a patched file."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.blackbox.command import PATCHKIT, snapshot
from tests.blackbox.command import patchkit as run_child
from tests.blackbox.wheels import DIFF, NEW_FILE
from tests.cli.said import Patchkit

SECOND = NEW_FILE.replace("extra.py", "more.py")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/null")])
@pytest.mark.parametrize("name", ["receipt.json", "journal.json", "lock"])
@pytest.mark.parametrize("command", ["status", "apply", "revert"])
def test_what_is_no_file_in_the_state_is_named(
    command: str, name: str, make: object, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
) -> None:
    assert patchkit("apply", "--root", root, "--patch", patch).status == 0
    other = tmp_path / "second.diff"
    other.write_text(SECOND)
    place = root / ".patchkit/vllm" / name
    place.unlink(missing_ok=True)
    make(place)  # type: ignore[operator]
    before = snapshot(root)
    arguments = ("--patch", other) if command == "apply" else ()
    said = run_child(command, "--root", root, *arguments, seconds=20)
    if name == "lock" and make is not os.mkfifo:
        assert said.status != 3, said.said
    else:
        assert said.status == 5, said.said
        assert str(place) in said.said or (name, command) == ("journal.json", "status")
    assert "Traceback" not in said.said
    assert snapshot(root) == before or said.status == 0


def test_stored_patch_that_became_a_fifo_is_said(patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path) -> None:
    other = tmp_path / "second.diff"
    other.write_text(SECOND)
    patchkit("apply", "--root", root, "--patch", patch)
    patchkit("apply", "--root", root, "--patch", other)
    for stored in (root / ".patchkit/vllm/patches").iterdir():
        stored.unlink()
        os.mkfifo(stored)
    said = run_child("revert", "--root", root, "one.diff", seconds=20)
    assert said.status == 5, said.said
    assert "stored patch is damaged" in said.err


@pytest.mark.parametrize("name", ["pristine", "patches", "archive"])
@pytest.mark.parametrize("command", ["apply", "revert"])
def test_symlink_for_a_directory_of_the_state_is_refused_before_anything_is_written(
    command: str, name: str, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
) -> None:
    patchkit("apply", "--root", root, "--patch", patch)
    place, outside = root / ".patchkit/vllm" / name, tmp_path / "outside"
    if place.exists():
        place.rename(outside)
    else:
        outside.mkdir()
    place.symlink_to(outside)
    other = tmp_path / "second.diff"
    other.write_text(SECOND)
    before = snapshot(root, own=True), snapshot(outside)
    said = patchkit(command, "--root", root, *(("--patch", other) if command == "apply" else ()))
    assert said.status == 1
    assert f"{place} is a symlink" in said.err
    assert (snapshot(root, own=True), snapshot(outside)) == before


DEVICES = ["/dev/zero", "/dev/random", "/dev/full"]


@pytest.mark.parametrize("option", ["--patch", "--config"])
@pytest.mark.parametrize("device", DEVICES)
def test_device_is_no_patch(option: str, device: str, root: Path) -> None:
    said = run_child("plan", "--root", root, option, device, seconds=20)
    assert said.status == 2
    assert f"{device}: not a file" in said.err


def test_dev_null_is_an_empty_patch(patchkit: Patchkit, root: Path) -> None:
    said = patchkit("plan", "--root", root, "--patch", "/dev/null")
    assert said.status in (1, 2)
    assert "/dev/null" in said.err


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_patch_comes_through_a_pipe(name: str, root: Path) -> None:
    done = subprocess.run(
        [*PATCHKIT, "apply", "--root", root, "--patch", name], input=DIFF.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_patch_comes_from_a_process_substitution(root: Path, patch: Path) -> None:
    command = ["bash", "-c", '"$@" --patch <(cat "$0")', str(patch), *PATCHKIT, "apply", "--root", str(root)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("option", "name"), [("--patch", "fifo"), ("--config", "fifo"), ("--patch", "-")])
def test_pipe_that_nobody_writes_is_named_and_left_by_interrupting(
    option: str, name: str, root: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    read, write = os.pipe()
    command = [*PATCHKIT, "plan", "--root", str(root), option, name]
    child = subprocess.Popen(command, cwd=tmp_path, stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None
    told = child.stderr.readline().decode()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    os.close(read)
    os.close(write)
    assert told == f"waiting for {'stdin' if name == '-' else name} to be written and closed; Ctrl-C gives up\n"
    assert (child.returncode, out, err) == (130, b"", b"\ninterrupted\n")


def test_nothing_is_waited_for_while_a_file_is_read(
    patchkit: Patchkit, root: Path, patch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("patchkit.cli.reading.Timer", waiting)
    assert patchkit("plan", "--root", root, "--patch", patch).status == 0


def test_patch_comes_through_a_fifo_that_is_written_late(root: Path, tmp_path: Path, patch: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    command = [*PATCHKIT, "apply", "--root", str(root), "--patch", "fifo"]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None
    assert child.stderr.readline().startswith(b"waiting for fifo")
    (tmp_path / "fifo").write_bytes(patch.read_bytes())
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, b"")
    assert b"applied: 2 files" in out


def test_patch_is_read_up_to_the_cap_and_no_further(
    patchkit: Patchkit, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchkit.cli.reading.MAX_RAW", 100)
    path = tmp_path / "long.diff"
    path.write_bytes(b"x" * 101)
    said = patchkit("plan", "--root", root, "--patch", path)
    assert said.status == 2
    assert "larger than 100 bytes" in said.err


def test_endless_pipe_ends_at_the_cap(root: Path, tmp_path: Path) -> None:
    start = "import sys, patchkit.cli.reading as r; r.MAX_RAW = 1000; from patchkit.cli.main import main; main()"
    command = f"exec {PATCHKIT[0]} -c '{start}' plan --root '{root}' --patch - < <(yes)"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60, cwd=Path.cwd())
    assert done.returncode == 2, done.stderr
    assert b"larger than 1,000 bytes" in done.stderr


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_diff_names_what_is_no_file_in_the_place_of_a_patched_one(
    make: object, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
) -> None:
    patchkit("apply", "--root", root, "--patch", patch)
    place = root / "vllm/engine.py"
    place.unlink()
    make(place)  # type: ignore[operator]
    said = patchkit("diff", "--root", root)
    assert said.status == 5
    assert "vllm/engine.py" in said.err
    edits = tmp_path / "edits.diff"
    said = patchkit("revert", "--root", root, "--save-edits", edits)
    assert said.status in (1, 5)
    assert "vllm/engine.py" in said.err
    assert not edits.exists()


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a directory that is removed."""
    place = tmp_path / "gone"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("arguments", [("series", "list"), ("plan", "--root", "{root}")])
def test_working_directory_that_is_gone_is_said(
    arguments: tuple[str, ...], patchkit: Patchkit, root: Path, gone: Path
) -> None:
    os.chdir(gone)
    gone.rmdir()
    said = patchkit(*(one.format(root=root) for one in arguments))
    assert said.status == 2
    assert "the working directory is not there any more" in said.err


@pytest.mark.parametrize("words", ["series list --patches .", "series show .", "series lint .", "targets --root ."])
def test_relative_name_below_a_directory_that_is_gone_is_no_bug(words: str, patchkit: Patchkit, gone: Path) -> None:
    os.chdir(gone)
    gone.rmdir()
    assert patchkit(*words.split()).status in (0, 1, 2)


def test_absolute_names_do_not_need_a_working_directory(
    patchkit: Patchkit, root: Path, patch: Path, gone: Path
) -> None:
    os.chdir(gone)
    gone.rmdir()
    assert patchkit("apply", "--root", root, "--patch", patch).status == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ('"$@" <(cat "$0")', "0001-go-twice-as-fast.patch"),
        ('"$@" - < "$0"', "0001-go-twice-as-fast.patch"),
        ('"$@" - --subject "Rate" < "$0"', "0001-rate.patch"),
        ('sed "/^Subject/d" "$0" | "$@" -', "0001-imported.patch"),
    ],
    ids=["substitution", "stdin", "subject", "untitled"],
)
def test_diff_is_imported_through_a_pipe(command: str, name: str, root: Path, tmp_path: Path) -> None:
    mail = tmp_path / "mail.patch"
    mail.write_text(f"From: A <a@b>\nSubject: [PATCH] Go twice as fast\n\n---\n{DIFF}")
    arguments = [*PATCHKIT, "series", "import", "--patches", str(tmp_path / "own"), "--root", str(root)]
    done = subprocess.run(["bash", "-c", command, str(mail), *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "own/vllm/0.6.3").glob("*.patch")] == [name]
