"""Public patches of vLLM and sglang on the releases they were cut against, and on the next ones, beside git apply.

The patches lie in ../shared/real-patches and stay there; the releases come through pip (see `released`).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.command import CHECKOUT, Ended, difference, patchkit, snapshot, stamps
from tests.blackbox.released import UnreachableError, released_tree
from tests.blackbox.wheels import record_of, recorded

PATCHES = CHECKOUT.parent / "shared" / "real-patches"

NEXT = {
    ("sglang", "0.4.6.post2"): "0.4.6.post3",
    ("sglang", "0.4.6.post4"): "0.4.6.post5",
    ("sglang", "0.4.9"): "0.4.9.post1",
    ("sglang", "0.4.9.post2"): "0.4.9.post3",
    ("sglang", "0.5.1.post3"): "0.5.2",
    ("sglang", "0.5.9"): "0.5.10",
    ("sglang", "0.5.12"): "0.5.12.post1",
    ("sglang", "0.5.13.post1"): "0.5.14",
    ("sglang", "0.5.15"): "0.5.15.post1",
    ("vllm", "0.7.3"): "0.8.0",
    ("vllm", "0.8.4"): "0.8.5",
    ("vllm", "0.9.0"): "0.9.1",  # 0.9.0.1 has no sdist
    ("vllm", "0.10.0"): "0.10.1",
    ("vllm", "0.23.0"): "0.24.0",
    ("vllm", "0.25.0"): "0.25.1",
}
"""The release after each target."""

AMBIGUOUS = {
    "mbR9700-0.5.12/15-026-gemma4-mm-video-per-frame-batching.patch": "fits in get_image_feature, 25 lines above the "
    "stated line, and in get_video_feature, 38 below; the patch is about video, git apply takes the nearer place",
}
"""Patches that git applies and the design refuses (one place must remain), with the reason."""

PLACED = {"exact", "offset"}


@dataclass(frozen=True, kw_only=True)
class Member:
    """A patch of a series. `refused` is what is said where its own target refuses it, "" where it applies.

    `outside`: a part of it is in no wheel; `nowhere`: all of it.
    """

    path: Path
    strip: int
    outside: bool
    nowhere: bool
    zero_context: bool
    refused: str


@dataclass(frozen=True, kw_only=True)
class RealSeries:
    """A series of the manifest: patches in their order, for one release."""

    name: str
    engine: str
    version: str
    members: tuple[Member, ...]


def _read_manifest() -> Iterator[RealSeries]:
    rows = json.loads((PATCHES / "manifest.json").read_text()) if PATCHES.is_dir() else []
    for name, group in itertools.groupby(rows, key=lambda row: row["series"]):
        members = list(group)
        yield RealSeries(
            name=name,
            engine=members[0]["engine"],
            version=members[0]["target"],
            members=tuple(_member(row) for row in members),
        )


def _member(row: Mapping[str, object]) -> Member:
    expected = "refused: ambiguous" if row["file"] in AMBIGUOUS else str(row["expect"])
    return Member(
        path=PATCHES / str(row["file"]),
        strip=int(str(row["strip"])),
        outside=bool(row["outside_package"]),
        nowhere=row["outside_package"] == row["files"],
        zero_context="-U0" in str(row["note"]),
        refused=expected.removeprefix("refused: ") if expected.startswith("refused") else "",
    )


SERIES = {series.name: series for series in _read_manifest()}
each_series = pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(not SERIES, reason="no real patches beside this checkout"),
]


@each_series
def test_series_does_on_its_target_what_it_is_known_to_do(series: RealSeries, tmp_path: Path) -> None:
    tree = Tree(series, series.version, tmp_path)
    pristine = snapshot(tree.root)
    for member in series.members:
        ended = tree.patchkit("apply", member)
        assert ended.status == (1 if member.refused else 0), ended.said
        assert member.refused in ended.said
        if not member.refused:
            assert tree.git(member, check=False).returncode == 0
    assert tree.differs_from_git() == []
    applies = [member for member in series.members if not member.refused and not member.nowhere]
    stack = tree.status()
    assert len(stack["layers"]) == len(applies)
    assert stack["standing"] == ("patched" if applies else "not patched")
    assert record_of(tree.root) == recorded(tree.root)

    reverted = patchkit("revert", *tree.options)
    assert reverted.status == 0, reverted.said
    assert difference(snapshot(tree.root), pristine) == []
    assert tree.status()["standing"] == "not patched"


@each_series
def test_plan_for_the_next_release_names_every_refused_hunk(series: RealSeries, tmp_path: Path) -> None:
    tree = Tree(series, NEXT[series.engine, series.version], tmp_path)
    for member in series.members:
        before = stamps(tree.root)
        planned = tree.patchkit("plan", member, "--json")
        assert difference(stamps(tree.root), before) == []
        checked = tree.git(member, check=True)
        if planned.status == 0 and checked.returncode == 0:
            assert tree.patchkit("apply", member).status == 0
            assert tree.git(member, check=False).returncode == 0
            continue
        _assert_named(planned, checked.stderr, tree.patchkit("plan", member).out)
        if planned.status:
            assert planned.status == 1, planned.said
            refused = tree.patchkit("apply", member)
            assert refused.status == 1, refused.said
            assert [path for path in difference(stamps(tree.root), before) if not path.startswith(".patchkit")] == []
    assert tree.differs_from_git() == []
    assert patchkit("revert", *tree.options).status == 0
    assert difference(snapshot(tree.root), snapshot(tree.pristine)) == []


@pytest.mark.parametrize("name", ["slime-v0.5.9", "kvcached-vllm-0.8.4", "areal-0.5.1.post3", "kvcached-sgl-0.4.9"])
def test_strip_level_and_prefix_are_found(name: str, tmp_path: Path) -> None:
    series = SERIES[name]
    tree = Tree(series, series.version, tmp_path)
    (member,) = series.members
    found = patchkit("apply", *tree.options, "--patch", member.path)
    assert found.status == 0, found.said
    assert tree.git(member, check=False).returncode == 0
    assert tree.differs_from_git() == []


class Tree:
    """Two copies of a release: one for patchkit, one for git apply."""

    def __init__(self, series: RealSeries, version: str, scratch: Path) -> None:
        self._engine = series.engine
        self.pristine = _released(series.engine, version)
        self._base = _released(series.engine, series.version)
        self.root = shutil.copytree(self.pristine, scratch / "ours", symlinks=True)
        self._git = shutil.copytree(self.pristine, scratch / "git", symlinks=True)
        self._scratch = scratch
        self.options = ["--root", self.root, "--target", series.engine]

    def patchkit(self, act: str, member: Member, *more: str) -> Ended:
        """Plan or apply a patch as the manifest says."""
        options = [*self.options, "--patch", member.path, "--strip", member.strip, *more]
        options += ["--package-only"] if member.outside else []
        options += ["--base", self._base] if member.zero_context else []
        return patchkit(act, *options)

    def git(self, member: Member, *, check: bool) -> subprocess.CompletedProcess[str]:
        """Do the same with git, to the other copy; or only ask whether it would."""
        options = ["--check"] if check else []
        options += ["--unidiff-zero"] if member.zero_context else []
        return subprocess.run(
            [
                "git",
                "apply",
                *options,
                f"-p{member.strip}",
                f"--include={self._engine}/*",
                "--whitespace=nowarn",
                member.path,
            ],
            cwd=self._git,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(self._scratch)},
            capture_output=True,
            text=True,
            check=False,
        )

    def differs_from_git(self) -> list[str]:
        """Name the paths in which the copies differ, but for RECORD, of which git knows nothing."""
        ours, theirs = snapshot(self.root), snapshot(self._git)
        return [path for path in difference(ours, theirs) if not path.endswith(".dist-info/RECORD")]

    def status(self) -> dict[str, Any]:
        ended = patchkit("status", *self.options, "--json")
        assert ended.status == 0, ended.said
        return ended.report


def _released(engine: str, version: str) -> Path:
    try:
        return released_tree(engine, version)
    except UnreachableError as error:
        pytest.skip(f"pip does not bring {engine} {version}: {error}")


def _assert_named(planned: Ended, git_said: str, text: str) -> None:
    """Compare the plan with what git says: the first hunk that fails in each file; git names no other."""
    files = {file["path"]: file for patch in planned.report["patches"] for file in patch["files"] if file["path"]}
    for path, line in re.findall(r"^error: patch failed: (.+):(\d+)$", git_said, re.MULTILINE):
        verdicts = {hunk["stated_line"]: hunk["verdict"] for hunk in files[path]["hunks"]}
        assert verdicts[int(line)] not in PLACED, f"{path}:{line}"
    for path in re.findall(r"^error: (.+): (?:No such file|already exists)", git_said, re.MULTILINE):
        assert files[path]["refusal"] or files[path]["present"], path
    refused = [file for file in files.values() if file["refusal"]]
    assert bool(refused) == bool(planned.status), planned.said
    for file in refused:
        assert file["path"] in text
        for hunk in file["hunks"]:
            if hunk["verdict"] not in {*PLACED, "present"}:
                assert f"patch line {hunk['patch_line']}" in text
                assert hunk["reason"]
