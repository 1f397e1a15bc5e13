"""What `plan` says of a series of one's own on a release that it was not made for, and of a directory renamed."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.blackbox.wheels import DIFF, NEW_FILE, engine, wheel_tree, write_tree
from tests.cli.said import Patchkit

OWN = Path("own/vllm/0.6.7")
PLAN = ("plan", "--root", "new", "--patches", "own", "--no-shipped")


@pytest.fixture(autouse=True)
def _locked(patchkit: Patchkit) -> None:
    """Write two releases, and a series that is locked for the first."""
    write_tree(Path("old"), wheel_tree("vllm", "0.6.7", engine()))
    write_tree(Path("new"), wheel_tree("vllm", "0.6.8", engine()))
    Path("one.diff").write_text(DIFF)
    assert patchkit("series", "import", "one.diff", "--patches", "own", "--root", "old").status == 0
    assert patchkit("series", "lock", "--patches", "own", "--root", "old").status == 0


def _widen(patchkit: Patchkit) -> None:
    patch = OWN / "0001-one.patch"
    patch.write_text(patch.read_text().replace("Applies-To: vllm==0.6.7", "Applies-To: vllm>=0.6.7,<0.7"))
    assert patchkit("series", "lock", "--patches", "own", "--root", "old").status == 0


@pytest.mark.parametrize("by", ["option", "pyproject"])
def test_series_that_is_for_another_release_is_named_with_what_excludes_this_one(by: str, patchkit: Patchkit) -> None:
    Path("pyproject.toml").write_text('[tool.patchkit]\npatches = ["own"]\n')
    own = "own" if by == "option" else str(Path("own").absolute())

    said = patchkit(*PLAN[:3], *(PLAN[3:] if by == "option" else ()))

    assert said.status == 4
    assert f"error: no series in {own} is for vllm 0.6.8\n" in said.err
    assert f"{own}/vllm/0.6.7: 0001-one.patch is for vllm==0.6.7\n" in said.err
    assert "widen their Applies-To so that it has vllm==0.6.8" in said.err
    assert f"copy {own}/vllm/0.6.7 to\n  {own}/vllm/0.6.8 without series.lock" in said.err


def test_copy_that_the_error_speaks_of_is_then_planned(patchkit: Patchkit) -> None:
    shutil.copytree(OWN, "own/vllm/0.6.8")
    Path("own/vllm/0.6.8/series.lock").unlink()
    patch = Path("own/vllm/0.6.8/0001-one.patch")
    patch.write_text(patch.read_text().replace("0.6.7", "0.6.8"))

    assert patchkit(*PLAN, "--unlocked", "--base", "old").status == 0


def test_patch_without_applies_to_is_for_the_release_of_its_directory(patchkit: Patchkit) -> None:
    patch = OWN / "0001-one.patch"
    patch.write_text(patch.read_text().replace("Applies-To: vllm==0.6.7\n", ""))

    assert "0001-one.patch has no Applies-To: it is for the release that the directory" in patchkit(*PLAN).err


def test_directory_without_any_series_for_the_engine_is_said_to_have_none(patchkit: Patchkit) -> None:
    Path("empty").mkdir()

    said = patchkit("plan", "--root", "new", "--patches", "empty", "--no-shipped")

    assert said.status == 4
    assert "neither `series` nor vllm/<version>/series is there" in said.err


def test_series_of_another_engine_is_named_with_it(patchkit: Patchkit) -> None:
    patch = OWN / "0001-one.patch"
    patch.write_text(patch.read_text().replace("Applies-To: vllm==0.6.7", "Applies-To: sglang==0.5.1"))

    said = patchkit("plan", "--root", "new", "--patches", OWN, "--no-shipped")

    assert said.status == 4
    assert "own/vllm/0.6.7: 0001-one.patch is for sglang==0.5.1\n" in said.err


def test_release_that_nothing_is_shipped_for_is_told_what_is(patchkit: Patchkit) -> None:
    said = patchkit("plan", "--root", "new")

    assert said.status == 4
    assert "shipped for vllm are: 0.6.3, 0.32.0\n" in said.err


def test_release_without_a_section_is_told_which_lock_and_how_to_make_it(patchkit: Patchkit) -> None:
    _widen(patchkit)

    said = patchkit(*PLAN)

    assert said.status == 4
    assert "own/vllm/0.6.7/series.lock: no section for 0.6.8; locked are: 0.6.7\n" in said.err
    assert "--base DIR, an unpatched tree of a locked release" in said.err
    assert patchkit(*PLAN, "--unlocked", "--base", "old").status == 0
    (command,) = re.findall("`patchkit (series lock .*)` makes the section", said.err)
    assert patchkit(*shlex.split(command)).status == 0
    assert patchkit(*PLAN).status == 0
    assert patchkit("plan", "--root", "old", "--patches", "own", "--no-shipped").status == 0


def test_tree_with_other_files_than_the_lock_says_is_not_told_to_lock_them(patchkit: Patchkit) -> None:
    place = Path("old/vllm/engine.py")
    place.write_bytes(place.read_bytes() + b"# by hand\n")

    said = patchkit("plan", "--root", "old", "--patches", "own", "--no-shipped")

    assert said.status == 4
    assert "differs: vllm/engine.py" in said.err
    assert "series lock" not in said.err


def test_directory_under_a_new_name_is_the_layer_that_it_was(patchkit: Patchkit) -> None:
    on = ("--root", "old", "--no-shipped")
    assert patchkit("apply", *on, "--patches", "own").status == 0
    (before,) = patchkit("status", "--root", "old", "--json").document["layers"]
    engine = Path("old/vllm/engine.py")
    inode = engine.stat().st_ino
    Path("own").rename("ours")

    assert patchkit("status", *on, "--patches", "ours", "--require-applied").status == 0
    words = "layer 1 own/vllm/0.6.7 is called ours/vllm/0.6.7 from now on: that directory has its patches"
    for command in ("plan", "apply"):
        said = patchkit(command, *on, "--patches", "ours")
        assert (said.status, f"warning: {words}\n" in said.err) == (0, True)
        assert "layer 2" not in said.out
    assert engine.stat().st_ino == inode
    assert patchkit("status", "--root", "old", "--json").document["layers"] == [{**before, "name": "ours/vllm/0.6.7"}]
    again = patchkit("apply", *on, "--patches", "ours")
    assert (again.status, again.out.endswith("nothing to do\n"), "from now on" in again.err) == (0, True, False)
    assert patchkit("revert", "--root", "old").status == 0


def test_two_directories_with_the_same_patches_are_two_layers(patchkit: Patchkit) -> None:
    on = ("--root", "old", "--no-shipped")
    assert patchkit("apply", *on, "--patches", "own").status == 0
    for name in ("one", "two"):
        shutil.copytree("own", name)
    said = patchkit("plan", *on, "--patches", "own", "--patches", "one")
    assert "layer 1: own/vllm/0.6.7" in said.out
    assert "layer 2: one/vllm/0.6.7" in said.out
    said = patchkit("plan", *on, "--patches", "one", "--patches", "two")
    assert "from now on" not in said.err
    assert "layer 1: own/vllm/0.6.7" in said.out


def test_renamed_directory_is_said_to_look_like_the_layer_that_is_there(patchkit: Patchkit) -> None:
    on = ("--root", "old", "--no-shipped")
    assert patchkit("apply", *on, "--patches", "own").status == 0
    Path("own").rename("ours")
    patch = next(Path("ours/vllm/0.6.7").glob("*.patch"))
    patch.write_text(patch.read_text().replace("Subject: ", "Subject: Again, "))
    assert patchkit("series", "lock", "--patches", "ours", "--root", "old").status == 0

    said = patchkit("plan", *on, "--patches", "ours")

    words = "layer 2 ours/vllm/0.6.7 looks like layer 1 own/vllm/0.6.7 under another name"
    assert words in said.out + said.err
    assert any(words in one for one in patchkit("plan", *on, "--patches", "ours", "--json").document["warnings"])
    assert patchkit("revert", "--root", "old", "--layer", "1").status == 0
    again = patchkit("apply", *on, "--patches", "ours")
    assert again.status == 0
    assert "under another name" not in again.out + again.err


def test_series_with_other_patches_is_no_renamed_one(patchkit: Patchkit) -> None:
    on = ("--root", "old", "--no-shipped")
    assert patchkit("apply", *on, "--patches", "own").status == 0
    Path("two.diff").write_text(NEW_FILE)
    assert patchkit("series", "import", "two.diff", "--patches", "more", "--root", "old").status == 0
    assert patchkit("series", "lock", "--patches", "more", "--root", "old").status == 0

    said = patchkit("plan", *on, "--patches", "own", "--patches", "more")

    assert said.status == 0
    assert "under another name" not in said.out + said.err
