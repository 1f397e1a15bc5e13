"""From layers to a plan: edits, pristine copies, RECORD, directories and a digest, without a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from patchkit.compose import put_layers
from patchkit.plan import Plan, make_plan
from tests.making import Files, World, diff, file, lines, target

RECORD = "vllm-0.6.3.dist-info/RECORD"
TREE: Files = {
    "vllm/a.py": "def a():\n    b = 1\n    c = 2\n    return b\n",
    "vllm/b.py": lines(20),
    RECORD: f"vllm/a.py,sha256=x,1\nvllm/b.py,sha256=y,2\n{RECORD},,\n",
}
CHANGED: Files = {**TREE, "vllm/a.py": str(TREE["vllm/a.py"]).replace("c = 2", "c = 3"), "vllm/new/x.py": "x = 1\n"}


def world(files: Files = TREE) -> World:
    return World(files, target("vllm", "0.6.3"))


def planned(one: World, raw: bytes, **others: object) -> Plan:
    composition = put_layers(one.situation, [one.ad_hoc(raw)], one.stored.__getitem__)
    return make_plan(one.situation, composition.layers, kept=composition.kept, **others)  # type: ignore[arg-type]


def test_edits_take_the_tree_as_it_is_to_the_tree_as_it_will_be() -> None:
    plan = planned(world(), diff(TREE, CHANGED))
    assert [str(edit.path) for edit in plan.edits] == ["vllm/a.py", "vllm/new/x.py", RECORD]
    changed, new, _ = plan.edits
    assert changed.content == str(CHANGED["vllm/a.py"]).encode()
    assert changed.before == file(str(TREE["vllm/a.py"])).state
    assert new.before is None
    assert [str(path) for path in plan.directories] == ["vllm/new"]


def test_pristine_bytes_are_kept_of_what_changes_for_the_first_time() -> None:
    one = world()
    plan = one.put(one.ad_hoc(diff(TREE, CHANGED)))
    assert [str(path) for path, _ in plan.pristine] == ["vllm/a.py", RECORD]
    again = one.put(one.ad_hoc(diff(TREE, {**TREE, "vllm/b.py": lines(20).replace("line 4\n", "4\n")}), "two.diff"))
    assert [str(path) for path, _ in again.pristine] == ["vllm/b.py"]


def test_record_is_made_anew_from_the_pristine_one_at_every_rendering() -> None:
    one = world()
    one.put(one.ad_hoc(diff(TREE, CHANGED)))
    first = one.contents[RECORD]
    assert "vllm/new/x.py,sha256=" in first
    assert "vllm/b.py,sha256=y,2\n" in first, "what is not changed keeps its row"
    plan = one.put(one.ad_hoc(diff(TREE, {**TREE, "vllm/b.py": lines(20).replace("line 4\n", "4\n")}), "two.diff"))
    assert plan.record_sha256 == hashlib.sha256(one.contents[RECORD].encode()).hexdigest()
    one.take(2)
    assert one.contents[RECORD] == first
    one.take(1)
    assert one.contents[RECORD] == TREE[RECORD]


def test_digest_tells_plans_apart() -> None:
    digests = {
        planned(world(), diff(TREE, CHANGED)).sha256,
        planned(world(), diff(TREE, CHANGED), configuration=(("A", "y"),)).sha256,
        planned(world(), diff(CHANGED, {**CHANGED, "vllm/a.py": "x\n"})).sha256,
        planned(world({**TREE, "vllm/a.py": str(TREE["vllm/a.py"]) + "# more\n"}), diff(TREE, CHANGED)).sha256,
    }
    assert len(digests) == 4
    assert planned(world(), diff(TREE, CHANGED)).sha256 in digests


def test_syntax_is_checked_where_a_hunk_was_shifted() -> None:
    seen: list[list[str]] = []

    def check(files: Mapping[PurePosixPath, tuple[bytes, bytes]]) -> dict[PurePosixPath, str]:
        seen.append(sorted(map(str, files)))
        return {PurePosixPath("vllm/a.py"): "line 3: invalid syntax"}

    plan = planned(world(), diff(TREE, CHANGED), check_syntax=check)
    assert seen == [], "every hunk is exact"
    assert not plan.refused
    shifted = world({**TREE, "vllm/a.py": "import os\n\n\n" + str(TREE["vllm/a.py"])})
    middle = b"--- a/vllm/b.py\n+++ b/vllm/b.py\n@@ -9,3 +9,3 @@\n line 7\n-line 8\n+eight\n line 9\n"
    plan = planned(shifted, middle, check_syntax=check)
    assert seen == [["vllm/b.py"]]
    assert plan.refused
    assert plan.problems == ("vllm/a.py: does not parse after patching: line 3: invalid syntax",)


def test_every_file_is_checked_when_it_is_asked_for() -> None:
    seen: list[list[str]] = []

    def check(files: Mapping[PurePosixPath, tuple[bytes, bytes]]) -> dict[PurePosixPath, str]:
        seen.append(sorted(map(str, files)))
        return {}

    planned(world(), diff(TREE, CHANGED), check_syntax=check, check_all_syntax=True)
    assert seen == [["vllm/a.py", "vllm/new/x.py"]]


def test_file_that_becomes_a_directory_and_back() -> None:
    one = World({"d": "a file\n", "e": "e\n"})
    plan = one.put(one.ad_hoc(diff({"d": "a file\n"}, {"d/x": "x\n"})))
    assert not plan.refused, plan.decisions
    assert [str(path) for path in plan.directories] == ["d"]
    plan = one.take(1)
    assert [str(path) for path in plan.removals] == ["d"]
    assert one.contents == {"d": "a file\n", "e": "e\n"}
