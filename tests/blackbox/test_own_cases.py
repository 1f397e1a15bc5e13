"""Cases of our own: each is planned, applied, applied again and reverted with the real command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.case import Case, write
from tests.blackbox.command import Ended, Snapshot, difference, directories, patchkit, snapshot
from tests.blackbox.own_cases import CASES
from tests.blackbox.wheels import record_of, recorded, wheel_tree

APPLYING = {name: case for name, case in CASES.items() if case.after is not None}
REFUSED = {name: case for name, case in CASES.items() if case.after is None}


@pytest.mark.parametrize("case", APPLYING.values(), ids=APPLYING)
def test_case_applies_and_reverts(case: Case, tmp_path: Path) -> None:
    box = Box(case, tmp_path)
    before, places, around = snapshot(box.root), directories(box.root), box.around()
    planned = box("plan")
    assert planned.status == 0, planned.said
    assert snapshot(box.root, own=True) == before, "plan writes nothing"

    applied = box("apply")
    assert applied.status == 0, applied.said
    assert [text for text in case.says if text not in applied.said] == [], applied.said
    after = snapshot(box.root)
    assert difference(_without_record(after), _without_record(box.wanted())) == []
    if case.wheel:
        assert record_of(box.root) == recorded(box.root)
        assert {path for path in after if path.startswith(case.wheel[0])} == set(record_of(box.root)), "RECORD has all"

    again = box("apply")
    assert again.status == 0, again.said
    assert difference(snapshot(box.root), after) == []

    reverted = patchkit("revert", *box.tree)
    assert reverted.status == 0, reverted.said
    assert difference(snapshot(box.root), before) == []
    assert directories(box.root) == places
    assert box.around() == around


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_case_is_refused_and_the_tree_untouched(case: Case, tmp_path: Path) -> None:
    box = Box(case, tmp_path)
    before, around = snapshot(box.root), box.around()
    for act in ("plan", "apply"):
        ended = box(act)
        assert ended.status == case.status, ended.said
        assert difference(snapshot(box.root), before) == []
        assert box.around() == around
        assert [text for text in case.says if text not in ended.said] == [], ended.said
        assert "\x1b[2J" not in ended.said, "a name drives the terminal"


class Box:
    """A case laid out on disk: the tree two directories deep in others that no patch may reach."""

    def __init__(self, case: Case, scratch: Path) -> None:
        self._case = case
        self._scratch = scratch
        self.root = self._lay_out(scratch / "box" / "sandbox" / "tree", case.before)
        write(scratch / "box", {"secret": b"secret\n", "sandbox/secret": b"secret\n"})
        self._patch = scratch / f"case.{case.suffix}"
        self._patch.write_bytes(case.patch)
        self.tree = ["--root", self.root, *(["--target", case.wheel[0]] if case.wheel else [])]

    def __call__(self, act: str) -> Ended:
        """Plan or apply the case's patch."""
        base = ["--base", self._lay_out(self._scratch / "base", self._case.before)] if self._case.base else []
        return patchkit(act, *self.tree, "--patch", self._patch, *self._case.options, *base)

    def wanted(self) -> Snapshot:
        """Return the tree as it is to be."""
        root = self._lay_out(self._scratch / "wanted", self._case.before)
        return snapshot(write(root, self._case.after or {}))

    def around(self) -> Snapshot:
        """Return what lies beside the tree."""
        found = snapshot(self._scratch / "box", own=True)
        return {path: entry for path, entry in found.items() if not path.startswith("sandbox/tree/")}

    def _lay_out(self, root: Path, files: Mapping[str, Any]) -> Path:
        if root.exists():
            return root
        whole = wheel_tree(*self._case.wheel, files) if self._case.wheel else files
        return write(root, whole)


def _without_record(tree: Snapshot) -> Snapshot:
    return {path: entry for path, entry in tree.items() if not path.endswith(".dist-info/RECORD")}
