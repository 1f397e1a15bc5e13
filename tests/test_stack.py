"""The rendering of a stack: verdicts fold per patch, locks prove, layers over layers, refusals that change nothing."""

from __future__ import annotations

from typing import ClassVar

import pytest

from patchkit.decision import Outcome
from patchkit.errors import SeriesError, WrongTreeError
from patchkit.plan import Plan
from tests.making import Files, World, diff, file, header, lines, make_lock, outcomes, target, verdicts

MODULE = """\
import os

RATE = 1


def first(a):
    b = a
    c = b
    return c


def second(a):
    b = a
    c = b
    return c


def third(a):
    d = a
    e = d
    return e
"""
NAME = "vllm/x.py"
TREE: Files = {NAME: MODULE, "vllm/y.py": lines(20), "vllm/z.py": lines(9, name="z")}


def world(files: Files = TREE) -> World:
    return World(files, target("vllm", "0.6.3"))


def top(text: str, count: int) -> str:
    """Put so many lines on top of a module, below its imports."""
    return text.replace("import os\n", "import os\n" + "".join(f"T{n} = {n}\n" for n in range(count)))


def edited(before: str, after: str, files: Files = TREE, path: str = NAME) -> Files:
    text = str(files[path])
    assert text.count(before) == 1, before
    return {**files, path: text.replace(before, after)}


THIRD = edited("    e = d\n", "    e = d + 1\n")


def test_hunks_that_all_stand_make_a_patch_upstreamed() -> None:
    one = world(THIRD)
    plan = one.put(one.ad_hoc(diff(TREE, THIRD)))
    assert outcomes(plan) == {"one.diff": "upstreamed"}
    assert not plan.edits
    assert not plan.layers
    assert not plan.refused


def test_patch_with_one_hunk_there_already_is_partly_applied_and_refused() -> None:
    both = edited("RATE = 1\n", "RATE = 2\n", THIRD)
    one = world(THIRD)
    plan = one.put(one.ad_hoc(diff(TREE, both)))
    assert outcomes(plan) == {"one.diff": "partly applied"}
    assert plan.refused
    assert sorted(verdicts(plan.decisions[0])) == ["exact", "present"]
    assert one.contents[NAME] == THIRD[NAME]


def test_patch_with_one_file_there_already_is_partly_applied_and_refused() -> None:
    both = {**THIRD, "vllm/y.py": lines(20).replace("line 7\n", "")}
    one = world(THIRD)
    plan = one.put(one.ad_hoc(diff(TREE, both)))
    assert outcomes(plan) == {"one.diff": "partly applied"}
    assert "vllm/x.py" in plan.decisions[0].reason


def test_created_file_that_stands_with_the_same_bytes_is_present() -> None:
    new = {**TREE, "vllm/new.py": "x = 1\n"}
    one = world(new)
    assert outcomes(one.put(one.ad_hoc(diff(TREE, new)))) == {"one.diff": "upstreamed"}


def test_created_file_that_stands_with_other_bytes_is_refused() -> None:
    one = world({**TREE, "vllm/new.py": "x = 2\n"})
    plan = one.put(one.ad_hoc(diff(TREE, {**TREE, "vllm/new.py": "x = 1\n"})))
    assert outcomes(plan) == {"one.diff": "refused"}
    assert "other content" in plan.decisions[0].reason


def test_refused_hunk_refuses_the_series_and_every_verdict_is_still_shown() -> None:
    one = world()
    wrong = diff(edited("RATE = 1\n", "RATE = 7\n"), edited("RATE = 1\n", "RATE = 8\n"))
    other = diff(TREE, {**TREE, "vllm/y.py": lines(20).replace("line 7\n", "line seven\n")})
    plan = one.put(one.series({"0001.patch": diff(TREE, THIRD), "0002.patch": wrong, "0003.patch": other}))
    assert outcomes(plan) == {"0001.patch": "applies", "0002.patch": "refused", "0003.patch": "applies"}
    assert [verdicts(decision) for decision in plan.decisions] == [["exact"], ["conflict"], ["exact"]]
    assert one.contents == world().contents


class TestPackageOnly:
    PATCH = diff(
        {**TREE, "tests/t.py": "a\n", "csrc/k.cu": "a\n", "setup.py": "a\n"},
        {**THIRD, "tests/t.py": "b\n", "csrc/k.cu": "b\n", "setup.py": "b\n"},
    )

    def test_what_is_not_in_the_tree_is_noted_by_name_and_refused(self) -> None:
        one = world()
        plan = one.put(one.ad_hoc(self.PATCH))
        assert plan.refused
        assert "--package-only" in plan.decisions[0].reason
        notes = {file.name: file.note for file in plan.decisions[0].files if file.note}
        assert notes == {
            "b/csrc/k.cu": "not in this tree: needs a build",
            "b/setup.py": "changes dependencies: reinstall",
            "b/tests/t.py": "not in this tree: harmless",
        }

    def test_the_rest_is_applied_when_it_is_allowed(self) -> None:
        one = world()
        plan = one.put(one.ad_hoc(self.PATCH, package_only=True))
        assert outcomes(plan) == {"one.diff": "applies"}
        assert one.contents == {**world().contents, NAME: THIRD[NAME]}

    def test_patch_without_any_file_of_the_tree_leaves_no_layer(self) -> None:
        one = world()
        plan = one.put(one.ad_hoc(diff({"tests/t.py": "a\n"}, {"tests/t.py": "b\n"}), package_only=True))
        assert outcomes(plan) == {"one.diff": "nothing here"}
        assert not plan.layers

    def test_nothing_outside_of_the_package_is_ever_written(self) -> None:
        one = world({**TREE, "tests/t.py": "a\n"})
        one.put(one.ad_hoc(self.PATCH, package_only=True))
        assert one.contents["tests/t.py"] == "a\n"

    def test_source_tree_takes_files_outside_of_the_package(self) -> None:
        from patchkit.target import Layout

        one = World({**TREE, "tests/t.py": "a\n"}, target("vllm", "0.6.3", Layout.SOURCE))
        plan = one.put(one.ad_hoc(diff({"tests/t.py": "a\n"}, {"tests/t.py": "b\n"})))
        assert not plan.refused
        assert one.contents["tests/t.py"] == "b\n"


class TestLock:
    PATCHES: ClassVar = {"0001.patch": diff(TREE, THIRD)}
    LOCK = make_lock(PATCHES, TREE, THIRD)

    def test_locked_series_applies(self) -> None:
        one = world()
        plan = one.put(one.series(self.PATCHES, lock=self.LOCK))
        assert outcomes(plan) == {"0001.patch": "applies"}
        assert plan.layers[0].locked
        assert plan.decisions[0].files[0].placements[0].proof.value == "lock"

    def test_series_whose_lock_names_other_files_is_for_another_tree(self) -> None:
        one = world(edited("RATE = 1\n", "RATE = 2\n"))
        with pytest.raises(WrongTreeError, match="not what the series was cut against") as wrong:
            one.series(self.PATCHES, lock=self.LOCK)
        assert "differs: vllm/x.py" in wrong.value.why

    def test_release_without_a_section_needs_unlocked(self) -> None:
        one = World(TREE, target("vllm", "0.6.4"))
        with pytest.raises(WrongTreeError, match="not what"):
            one.series(self.PATCHES, lock=self.LOCK)
        assert not one.put(one.series(self.PATCHES, lock=self.LOCK, unlocked=True)).refused

    def test_series_without_a_lock_needs_unlocked(self) -> None:
        one = world()
        with pytest.raises(WrongTreeError, match="has no lock"):
            one.series(self.PATCHES, unlocked=False)

    def test_lock_of_other_patches_is_stale(self) -> None:
        one = world()
        with pytest.raises(SeriesError, match="stale") as stale:
            one.series({"0001.patch": self.PATCHES["0001.patch"] + b"\n"}, lock=self.LOCK)
        assert "0001.patch" in stale.value.why

    def test_result_that_is_not_the_locks_is_a_problem(self) -> None:
        one = world()
        plan = one.put(one.series(self.PATCHES, lock=make_lock(self.PATCHES, TREE, edited("e = d", "e = d + 2"))))
        assert plan.refused
        assert "vllm/x.py: not what series.lock says" in plan.problems[0]

    def test_hunk_with_an_offset_is_proven_by_the_lock(self) -> None:
        shifted = self.PATCHES["0001.patch"].replace(b"@@ -16,5 +16,5 @@", b"@@ -12,5 +12,5 @@")
        shifted = shifted if b"-12,5" in shifted else _restated(shifted, -4)
        patches = {"0001.patch": shifted}
        one = world()
        plan = one.put(one.series(patches, lock=make_lock(patches, TREE, THIRD)))
        assert not plan.refused
        placement = plan.decisions[0].files[0].placements[0]
        assert (placement.verdict.value, placement.offset, placement.proof.value) == ("offset", 4, "lock")


def _restated(raw: bytes, offset: int) -> bytes:
    """Return a diff of one hunk that states its lines so much further down."""
    import re

    def moved(match: re.Match[bytes]) -> bytes:
        return b"@@ -%d,%b +%d,%b @@" % (int(match[1]) + offset, match[2], int(match[3]) + offset, match[4])

    return re.sub(rb"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", moved, raw)


class TestSeriesOverAdHoc:
    def over(self, *, lock: bool, below: Files, patched: Files) -> tuple[World, Plan]:
        one = world()
        assert not one.put(one.ad_hoc(diff(TREE, below))).refused
        patches = {"0001.patch": diff(TREE, patched)}
        return one, one.put(one.series(patches, lock=make_lock(patches, TREE, patched) if lock else None))

    def test_offset_is_proven_by_the_scope_in_the_pristine_file(self) -> None:
        below = {**TREE, NAME: top(MODULE, 3)}
        one, plan = self.over(lock=True, below=below, patched=edited("second(a):\n    b = a\n    c = b\n", "second(a):\n    b = a\n    c = b * 2\n"))  # fmt: skip # noqa: E501
        assert not plan.refused, plan.decisions
        placement = plan.decisions[-1].files[0].placements[0]
        assert (placement.verdict.value, placement.offset, placement.proof.value) == ("offset", 3, "scope")
        assert placement.scope_after == "second"
        assert "def second(a):\n    b = a\n    c = b * 2\n" in one.contents[NAME]

    def test_unlocked_series_accepts_no_offset_that_is_not_proven(self) -> None:
        below = {**TREE, "vllm/y.py": "new\n" + lines(20)}
        patched = {**TREE, "vllm/y.py": lines(20).replace("line 12\n", "line twelve\n")}
        one, plan = self.over(lock=False, below=below, patched=patched)
        assert plan.refused
        assert "scope unproven" in plan.decisions[-1].files[0].placements[0].reason
        assert one.contents["vllm/y.py"] == below["vllm/y.py"]

    def test_locked_series_accepts_no_offset_that_is_not_proven_either(self) -> None:
        """The files do not parse, so that no scope can be known."""
        odd = {**TREE, "vllm/y.py": "print 'x'\n" + lines(20)}
        below = {**odd, "vllm/y.py": "print 'y'\n" + str(odd["vllm/y.py"])}
        patched = {**odd, "vllm/y.py": str(odd["vllm/y.py"]).replace("line 12\n", "line twelve\n")}
        one = world(odd)
        assert not one.put(one.ad_hoc(diff(odd, below))).refused
        patches = {"0001.patch": diff(odd, patched)}
        plan = one.put(one.series(patches, lock=make_lock(patches, odd, patched)))
        assert plan.refused
        assert "scope unproven" in plan.decisions[-1].files[0].placements[0].reason

    def test_series_is_moved_into_no_other_function(self) -> None:
        """The ad hoc diff takes away the function that the hunk belongs to; its twin is not taken for it."""
        body = "def second(a):\n    b = a\n    c = b\n    return c\n\n\n"
        below = edited(body, "")
        patched = edited(body, body.replace("c = b", "c = b * 2"))
        _, plan = self.over(lock=True, below=below, patched=patched)
        assert plan.refused

    def test_untouched_file_is_still_proven_by_the_lock(self) -> None:
        below = {**TREE, "vllm/y.py": lines(20).replace("line 7\n", "line seven\n")}
        _, plan = self.over(lock=True, below=below, patched=THIRD)
        assert plan.decisions[-1].files[0].placements[0].proof.value == "lock"

    def test_patches_of_a_locked_series_over_an_ad_hoc_layer_build_on_each_other(self) -> None:
        below = {**TREE, NAME: top(MODULE, 3)}
        middle = edited("    e = d\n", "    e = d + 1\n")
        after = edited("    e = d + 1\n", "    e = d + 1\n    f = e\n", middle)
        one = world()
        one.put(one.ad_hoc(diff(TREE, below)))
        patches = {"0001.patch": diff(TREE, middle), "0002.patch": diff(middle, after)}
        plan = one.put(one.series(patches, lock=make_lock(patches, TREE, after)))
        assert not plan.refused, plan.decisions
        assert one.contents[NAME] == top(str(after[NAME]), 3)


class TestGates:
    FIRST = header("first", Config="A") + diff(TREE, THIRD)
    NEXT = edited("    return e\n", "    return e + 1\n", THIRD)

    def test_patch_whose_toggle_is_off_is_left_out(self) -> None:
        one = world()
        plan = one.put(one.series({"0001.patch": self.FIRST}))
        assert outcomes(plan) == {"0001.patch": "disabled"}
        assert plan.decisions[0].reason == "CONFIG_A is not set"
        assert not plan.edits

    def test_retired_patch_is_left_out_and_reported(self) -> None:
        one = world()
        raw = header("first", Retires_When="vllm>=0.6.2") + diff(TREE, THIRD)
        plan = one.put(one.series({"0001.patch": raw}))
        assert outcomes(plan) == {"0001.patch": "retired"}
        assert not plan.layers

    def test_patch_for_another_release_is_left_out(self) -> None:
        one = world()
        raw = header("first", Applies_To="vllm<0.6") + diff(TREE, THIRD)
        assert outcomes(one.put(one.series({"0001.patch": raw}))) == {"0001.patch": "disabled"}

    def test_requirement_that_is_switched_off_is_an_error(self) -> None:
        one = world()
        needing = header("second", Requires="0001.patch") + diff(THIRD, self.NEXT)
        with pytest.raises(SeriesError, match="1 requirement is not met") as unmet:
            one.series({"0001.patch": self.FIRST, "0002.patch": needing})
        assert "0001.patch is not enabled" in unmet.value.why

    def test_requirement_of_a_patch_that_is_off_itself_does_not_matter(self) -> None:
        one = world()
        needing = header("second", Requires="0001.patch", Config="B") + diff(THIRD, self.NEXT)
        assert not one.put(one.series({"0001.patch": self.FIRST, "0002.patch": needing})).refused

    def test_retired_requirement_is_met(self) -> None:
        one = world(THIRD)
        first = header("first", Retires_When="vllm>=0.6.2") + diff(TREE, THIRD)
        needing = header("second", Requires="0001.patch") + diff(THIRD, self.NEXT)
        plan = one.put(one.series({"0001.patch": first, "0002.patch": needing}))
        assert outcomes(plan) == {"0001.patch": "retired", "0002.patch": "applies"}

    def test_patch_over_a_disabled_one_is_stated_where_its_lines_are_then(self) -> None:
        """With the lock the pristine file is the base; the disabled patch moves what comes after it."""
        longer = {**TREE, NAME: top(MODULE, 4)}
        after = edited("    e = d\n", "    e = d + 1\n", longer)
        patches = {"0001.patch": header("first", Config="A") + diff(TREE, longer), "0002.patch": diff(longer, after)}
        one = world()
        plan = one.put(one.series(patches, lock=make_lock(patches, TREE, after)))
        assert outcomes(plan) == {"0001.patch": "disabled", "0002.patch": "applies"}
        placement = plan.decisions[1].files[0].placements[0]
        assert placement.line == MODULE.splitlines().index("    e = d") + 1 - 3
        assert (placement.offset, placement.proof.value) == (0, "lock")
        assert one.contents[NAME] == THIRD[NAME]

    @pytest.mark.parametrize("locked", [True, False], ids=["locked", "unlocked"])
    def test_patch_over_a_disabled_one_does_not_go_where_the_same_lines_stood_with_it(self, *, locked: bool) -> None:
        def functions(*numbers: int) -> str:
            return "".join(f"def f{number}(x):\n{lines(8, name='    x +=')}    return x\n\n\n" for number in numbers)

        text = functions(1, 2, 3, 4)
        two, three = text.index("def f2"), text.index("def f3")
        wanted = text[:two] + text[two:three].replace("x += 5", "x += 50") + text[three:]
        files, more = {**TREE, NAME: text}, {**TREE, NAME: functions(0) + text}
        after = {**TREE, NAME: functions(0) + wanted}
        patches = {"0001.patch": header("first", Config="A") + diff(files, more), "0002.patch": diff(more, after)}
        one = world(files)
        lock = make_lock(patches, files, after) if locked else None
        plan = one.put(one.series(patches, lock=lock))
        assert outcomes(plan) == {"0001.patch": "disabled", "0002.patch": "applies"}
        assert one.contents[NAME] == wanted


def test_mode_of_a_new_file_and_a_link_are_kept() -> None:
    from patchkit.tree import Kind
    from tests.making import link

    new: Files = {**TREE, "vllm/run": file("x\n", 0o755), "vllm/ln": link("x.py")}
    one = world()
    plan = one.put(one.ad_hoc(diff(TREE, new)))
    assert not plan.refused
    states = {str(edit.path): edit.after for edit in plan.edits}
    run, made = states["vllm/run"], states["vllm/ln"]
    assert run is not None
    assert run.mode & 0o111 == 0o111
    assert made is not None
    assert made.kind is Kind.SYMLINK


def test_outcomes_have_words_that_the_documentation_uses() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "applies",
        "already applied",
        "upstreamed",
        "nothing here",
        "partly applied",
        "refused",
        "disabled",
        "guarded, off",
        "retired",
    ]
