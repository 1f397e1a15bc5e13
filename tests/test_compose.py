"""The laws of a stack: in whatever order layers are taken out, what is left is what was asked for."""

from __future__ import annotations

from random import Random
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from patchkit.errors import RefusedError, TreeChangedError
from patchkit.receipt import Origin
from tests.making import Files, World, diff, entries_of, header, lines, make_lock, outcomes, target, verdicts
from tests.making import settings as toggled

NAMES = ("vllm/a.txt", "vllm/b.txt", "vllm/c/d.txt")
BASE: Files = {NAMES[0]: lines(40), NAMES[1]: lines(24, name="row"), NAMES[2]: lines(12, name="deep")}
VLLM = target("vllm", "0.6.3")


def world(files: Files = BASE) -> World:
    return World(files, VLLM)


def replaced(files: Files, path: str, number: int, text: str) -> Files:
    """Return the files with one line (counted from 1) replaced by a text; "" takes it away."""
    rows = str(files[path]).splitlines(keepends=True)
    rows[number - 1] = text
    return {**files, path: "".join(rows)}


Edit = tuple[int, int, str]
Layers = list[list[list[Edit]]]
_EDIT = st.tuples(st.integers(0, 2), st.integers(1, 11), st.sampled_from(["", "one\n", "one\ntwo\n", "x\ny\nz\n"]))
_PATCH = st.lists(_EDIT, min_size=1, max_size=3, unique_by=lambda edit: edit[:2])
_LAYERS = st.lists(st.lists(_PATCH, min_size=1, max_size=3), min_size=2, max_size=4)


def edited(files: Files, patch: list[Edit], mark: str) -> Files:
    """Make the edits of one patch; every line that it puts in is its own."""
    for place, number, text in sorted(patch, reverse=True):
        path = NAMES[place]
        if number <= len(str(files[path]).splitlines()):
            own = "".join(f"{mark} {number} {row}\n" for row in text.splitlines())
            files = replaced(files, path, number, own)
    return files


def stack_up(one: World, layers: list[list[list[Edit]]]) -> list[int]:
    """Put layers of patches on a world, each cut against the tree as it is then; refused ones are left out."""
    for number, patches in enumerate(layers):
        raws: dict[str, bytes] = {}
        files: Files = {path: one.contents[path] for path in NAMES}
        for place, patch in enumerate(patches):
            after = edited(files, patch, f"layer {number} patch {place}")
            if after != files:
                raws[f"{place}.patch"] = diff(files, after)
            files = after
        if raws and number % 2:
            one.put(one.series(raws, name=f"series {number}"))
        elif raws:
            one.put(one.ad_hoc(b"".join(raws[name] for name in list(raws)[:1]), name=f"{number}.diff"))
    return one.numbers


COMMON = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@COMMON
@given(layers=_LAYERS, order=st.randoms(use_true_random=False))
def test_layers_taken_out_in_any_order_end_in_pristine(layers: Layers, order: Random) -> None:
    one = world()
    left = stack_up(one, layers)
    while left:
        order.shuffle(left)
        taken = next((number for number in left if not one.take(number).refused), None)
        assert taken is not None, "the topmost layer can always be taken out"
        left = one.numbers
    assert one.contents == world().contents
    assert one.receipt is None


@COMMON
@given(layers=_LAYERS)
def test_everything_taken_out_at_once_ends_in_pristine(layers: Layers) -> None:
    one = world()
    numbers = stack_up(one, layers)
    assume(numbers)
    assert not one.take(*numbers).refused
    assert one.contents == world().contents


@COMMON
@given(layers=_LAYERS)
def test_plan_is_deterministic(layers: Layers) -> None:
    first, second = world(), world()
    stack_up(first, layers)
    stack_up(second, layers)
    assert first.receipt == second.receipt
    assert first.contents == second.contents


@COMMON
@given(layers=_LAYERS, data=st.data())
def test_layer_put_back_on_top_is_what_was_taken_out(layers: Layers, data: st.DataObject) -> None:
    """Taking out the topmost layer and putting it on again changes nothing."""
    one = world()
    numbers = stack_up(one, layers[:-1])
    before = one.contents
    stack_up(one, [[], *layers[-1:]])
    assume(one.numbers != numbers)
    assert not one.take(one.numbers[-1]).refused
    assert one.contents == before
    assert one.numbers == numbers


def test_upper_layer_alone_is_what_is_left_of_two() -> None:
    lower, upper = replaced(BASE, NAMES[0], 2, "low\nlow\nlow\n"), replaced(BASE, NAMES[0], 15, "high\n")
    one = world()
    one.put(one.ad_hoc(diff(BASE, lower), "low.diff"))
    assert not one.put(one.ad_hoc(diff(BASE, upper), "high.diff")).refused
    assert verdicts_of(one) == [15 + 2 - 3]
    assert not one.take(1).refused
    assert one.contents == {**world().contents, NAMES[0]: upper[NAMES[0]]}


def verdicts_of(one: World) -> list[int]:
    assert one.receipt is not None
    return [line for patch in one.receipt.layers[-1].patches for hunks in patch.lines for line in hunks]


def test_apply_a_second_time_is_nothing_to_do() -> None:
    one = world()
    patches = {"0001.patch": diff(BASE, replaced(BASE, NAMES[0], 5, "five\n"))}
    one.put(one.series(patches))
    again = one.put(one.series(patches))
    assert not again.edits
    assert outcomes(again) == {"0001.patch": "already applied"}
    assert one.numbers == [1]


SERIES: dict[str, bytes] = {}
STEPS: list[Files] = [BASE]
for _number in (8, 20, 32):
    STEPS.append(replaced(STEPS[-1], NAMES[0], _number, f"changed {_number}\nmore\n"))
    SERIES[f"000{len(STEPS) - 1}.patch"] = diff(STEPS[-2], STEPS[-1])


def test_series_replaced_in_the_middle_loses_nothing_below_or_above() -> None:
    low, high = replaced(BASE, NAMES[1], 3, "low\n"), replaced(BASE, NAMES[2], 6, "high\n")
    one = world()
    one.put(one.ad_hoc(diff(BASE, low), "low.diff"))
    one.put(one.series(SERIES))
    one.put(one.ad_hoc(diff(BASE, high), "high.diff"))
    fewer = dict(list(SERIES.items())[:2])
    assert not one.put(one.series(fewer)).refused
    assert one.contents == {NAMES[0]: STEPS[2][NAMES[0]], NAMES[1]: low[NAMES[1]], NAMES[2]: high[NAMES[2]]}
    assert one.numbers == [1, 2, 3]
    assert not one.put(one.series(SERIES)).refused
    assert one.contents[NAMES[0]] == STEPS[3][NAMES[0]]


def test_layer_over_a_replaced_series_follows_the_lines_that_moved() -> None:
    one = world()
    one.put(one.series(SERIES))
    over = replaced(STEPS[3], NAMES[0], 16, "over\n")
    assert not one.put(one.ad_hoc(diff(STEPS[3], over), "over.diff")).refused
    assert not one.put(one.series({"0002.patch": diff(BASE, replaced(BASE, NAMES[0], 1, "1\n2\n3\n4\n"))})).refused
    assert one.contents[NAMES[0]] == "1\n2\n3\n4\n" + lines(2, 40).replace("line 15\n", "over\n")


def test_layer_that_needs_the_one_below_keeps_it_from_being_taken_out() -> None:
    low = replaced(BASE, NAMES[0], 5, "low\n")
    high = replaced(low, NAMES[0], 5, "high\n")
    one = world()
    one.put(one.ad_hoc(diff(BASE, low), "low.diff"))
    one.put(one.ad_hoc(diff(low, high), "high.diff"))
    before = one.contents
    plan = one.take(1)
    assert plan.refused
    assert outcomes(plan) == {"high.diff": "refused"}
    assert verdicts(plan.decisions[0]) == ["conflict"]
    assert one.contents == before
    assert one.numbers == [1, 2]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3), (2, 3, 1), (1, 3, 2), (3, 1, 2)])
def test_diffs_under_and_over_a_series_come_out_in_any_order(order: tuple[int, ...]) -> None:
    low, high = replaced(BASE, NAMES[0], 1, "low\nlow\nlow\n"), replaced(BASE, NAMES[0], 14, "high\n")
    wanted = {1: ("line 1\n", "low\nlow\nlow\n"), 3: ("line 14\n", "high\n")}
    one = world()
    assert not one.put(one.ad_hoc(diff(BASE, low), "low.diff")).refused
    lock = make_lock(SERIES, BASE, STEPS[3])
    assert not one.put(one.series(SERIES, lock=lock)).refused
    assert not one.put(one.ad_hoc(diff(BASE, high), "high.diff")).refused
    left = {1, 2, 3}
    for number in order:
        plan = one.take(number)
        assert not plan.refused, plan.decisions
        left.discard(number)
        text = str(STEPS[3 if 2 in left else 0][NAMES[0]])
        for other in left & {1, 3}:
            text = text.replace(*wanted[other])
        assert one.contents[NAMES[0]] == text
    assert one.receipt is None


def test_series_stays_locked_when_a_layer_below_is_taken_out() -> None:
    one = world()
    one.put(one.ad_hoc(diff(BASE, replaced(BASE, NAMES[1], 3, "low\n")), "low.diff"))
    one.put(one.series(SERIES, lock=make_lock(SERIES, BASE, STEPS[3])))
    one.take(1)
    assert one.receipt is not None
    assert one.receipt.layers[0].locked


class TestTakePatch:
    def test_patch_taken_out_comes_back_with_the_series(self) -> None:
        one = world()
        one.put(one.series(SERIES))
        whole = one.contents
        plan = one.take_patch(1, "0002.patch")
        assert not plan.refused, plan.decisions
        assert outcomes(plan)["0002.patch"] == "disabled"
        assert "changed 20" not in one.contents[NAMES[0]]
        assert "changed 32" in one.contents[NAMES[0]]
        assert not one.put(one.series(SERIES)).refused
        assert one.contents == whole

    def test_patch_after_it_stands_where_it_stood(self) -> None:
        """Also when a patch was taken out before: the base of what follows is the tree without it."""
        one = world()
        one.put(one.series(SERIES))
        one.take_patch(1, "0001.patch")
        plan = one.take_patch(1, "0002.patch")
        assert not plan.refused, plan.decisions
        assert one.contents[NAMES[0]] == lines(40).replace("line 30\n", "changed 32\nmore\n")

    def test_patch_that_another_requires_is_kept(self) -> None:
        patches = dict(SERIES)
        patches["0003.patch"] = header("third", Requires="0002.patch") + patches["0003.patch"]
        one = world()
        one.put(one.series(patches))
        with pytest.raises(RefusedError, match=r"0002\.patch: required by 0003\.patch") as refused:
            one.take_patch(1, "0002.patch")
        assert "--layer 1" in refused.value.hint


class TestPresentBelow:
    """What a layer has because a lower one has it is needed when that one goes."""

    CHANGE: ClassVar = diff(BASE, STEPS[1])

    def test_part_of_a_series(self) -> None:
        one = world()
        one.put(one.ad_hoc(self.CHANGE, "same.diff"))
        plan = one.put(one.series(SERIES))
        assert outcomes(plan)["0001.patch"] == "already applied"
        assert plan.decisions[1].reason == "layer 1 same.diff has all of it"
        assert one.contents[NAMES[0]] == STEPS[3][NAMES[0]]
        assert not one.take(1).refused
        assert one.contents[NAMES[0]] == STEPS[3][NAMES[0]]
        assert not one.take(2).refused
        assert one.contents == world().contents

    def test_what_the_release_has_is_upstreamed_also_above_a_layer_on_the_same_file(self) -> None:
        one = World(STEPS[1], world().tree)
        one.put(one.ad_hoc(diff(STEPS[1], STEPS[2]), "other.diff"))
        assert outcomes(one.put(one.ad_hoc(self.CHANGE, "same.diff")))["same.diff"] == "upstreamed"

    def test_earlier_patch_of_the_same_series_is_named(self) -> None:
        one = world()
        plan = one.put(one.series({"0001.patch": self.CHANGE, "0002-again.patch": self.CHANGE}))
        again = plan.decisions[1]
        assert (again.outcome.value, again.reason) == ("already applied", "0001.patch has all of it")

    def test_whole_of_a_series(self) -> None:
        one = world()
        one.put(one.ad_hoc(self.CHANGE, "same.diff"))
        one.put(one.series({"0001.patch": SERIES["0001.patch"]}))
        assert one.numbers == [1, 2]
        assert not one.take(1).refused
        assert one.contents[NAMES[0]] == STEPS[1][NAMES[0]]
        assert not one.take(2).refused
        assert one.contents == world().contents

    def test_series_that_the_release_has_leaves_no_trace(self) -> None:
        one = world(STEPS[1])
        one.put(one.series({"0001.patch": SERIES["0001.patch"]}))
        assert one.receipt is None


class TestPlacesOfBefore:
    """Hunks are recorded where they were placed, and found again when lower layers move."""

    def test_repeated_lines_do_not_tempt_a_hunk_to_its_old_number(self) -> None:
        same = "same\n" * 30
        files: Files = {NAMES[0]: lines(4) + same + "end\n"}
        lower: Files = {NAMES[0]: lines(4).replace("line 2\n", "a\nb\nc\nd\n") + same + "end\n"}
        rows = str(lower[NAMES[0]]).splitlines(keepends=True)
        rows[19] = "mine\n"
        one = world(files)
        one.put(one.ad_hoc(diff(files, lower), "low.diff"))
        assert not one.put(one.ad_hoc(diff(lower, {NAMES[0]: "".join(rows)}), "high.diff")).refused
        assert not one.take(1).refused
        assert one.contents[NAMES[0]].splitlines().index("mine") == 19 - 3

    def test_hunk_that_stood_on_the_first_line_finds_its_place_below_it(self) -> None:
        lower = {**BASE, NAMES[0]: lines(5, 40)}
        upper = replaced(BASE, NAMES[0], 8, "eight\n")
        one = world()
        one.put(one.ad_hoc(diff(BASE, lower), "low.diff"))
        assert not one.put(one.ad_hoc(diff(BASE, upper), "high.diff")).refused
        assert verdicts_of(one) == [1]
        assert not one.take(1).refused
        assert one.contents[NAMES[0]] == upper[NAMES[0]]

    def test_hunk_without_context_survives_where_its_file_did_not_change(self) -> None:
        bare = b"--- a/vllm/b.txt\n+++ b/vllm/b.txt\n@@ -5 +5 @@\n-row 5\n+five\n"
        one = world()
        one.put(one.ad_hoc(diff(BASE, replaced(BASE, NAMES[0], 1, "low\n")), "low.diff"))
        assert not one.put(one.ad_hoc(bare, "bare.diff", base=dict(entries_of(BASE)))).refused
        assert not one.take(1).refused
        assert one.contents[NAMES[1]] == replaced(BASE, NAMES[1], 5, "five\n")[NAMES[1]]

    @pytest.mark.parametrize("bare", ["@@ -8 +8 @@\n-row 8\n+eight\n", "@@ -8,0 +9,2 @@\n+new\n+newer\n"])
    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_hunk_without_context_moves_with_the_lines_around_it(self, bare: str, number: int) -> None:
        """Above it the layer below put two lines, took one away, or changed one in its place."""
        lower = replaced(BASE, NAMES[1], 2, ("one\ntwo\nthree\n", "", "changed\n")[number])
        names = f"--- a/{NAMES[1]}\n+++ b/{NAMES[1]}\n"
        shift = (2, -1, 0)[number]
        cut = bare.replace("-8", f"-{8 + shift}").replace("+8", f"+{8 + shift}").replace("+9", f"+{9 + shift}")
        one = world()
        one.put(one.ad_hoc(diff(BASE, lower), "low.diff"))
        assert not one.put(one.ad_hoc((names + cut).encode(), "bare.diff", base=dict(entries_of(lower)))).refused
        assert not one.take(1).refused
        expected = "eight\n" if "eight" in bare else "row 8\nnew\nnewer\n"
        assert one.contents[NAMES[1]] == replaced(BASE, NAMES[1], 8, expected)[NAMES[1]]

    def test_hunk_without_context_stays_out_where_the_lines_around_it_go(self) -> None:
        lower = replaced(BASE, NAMES[1], 7, "one\ntwo\n")
        bare = f"--- a/{NAMES[1]}\n+++ b/{NAMES[1]}\n@@ -9 +9 @@\n-row 8\n+eight\n".encode()
        one = world()
        one.put(one.ad_hoc(diff(BASE, lower), "low.diff"))
        assert not one.put(one.ad_hoc(bare, "bare.diff", base=dict(entries_of(lower)))).refused
        assert one.take(1).refused

    def test_receipt_that_does_not_fit_the_stored_patch_is_said(self) -> None:
        one = world()
        one.put(one.ad_hoc(diff(BASE, STEPS[1]), "low.diff"))
        one.put(one.ad_hoc(diff(BASE, replaced(BASE, NAMES[1], 3, "low\n")), "high.diff"))
        assert one.receipt is not None
        digest = one.receipt.layers[1].patches[0].sha256
        one.stored[digest] = diff(BASE, replaced(replaced(BASE, NAMES[1], 3, "low\n"), NAMES[0], 3, "low\n"))
        with pytest.raises(TreeChangedError, match="does not fit"):
            one.take(1)


class TestAdHoc:
    def test_reversed_diff_is_a_layer_of_its_own(self) -> None:
        one = world(STEPS[1])
        assert not one.put(one.ad_hoc(diff(BASE, STEPS[1]), reverse=True)).refused
        assert one.contents == world().contents
        assert one.receipt is not None
        assert one.receipt.layers[0].name == "one.diff (reversed)"
        assert not one.take(1).refused
        assert one.contents == world(STEPS[1]).contents

    def test_diff_and_its_reverse_cancel_and_come_apart_again(self) -> None:
        one = world()
        one.put(one.ad_hoc(diff(BASE, STEPS[1])))
        one.put(one.ad_hoc(diff(BASE, STEPS[1]), reverse=True))
        assert one.contents == world().contents
        assert one.numbers == [1, 2]
        assert not one.take(2).refused
        assert one.contents == world(STEPS[1]).contents
        assert not one.take(1).refused
        assert one.contents == world().contents

    def test_reversed_copy_is_refused(self) -> None:
        copy = (
            b"diff --git a/vllm/b.txt b/vllm/e.txt\nsimilarity index 100%\ncopy from vllm/b.txt\ncopy to vllm/e.txt\n"
        )
        one = world({**BASE, "vllm/e.txt": BASE[NAMES[1]]})
        plan = one.put(one.ad_hoc(copy, reverse=True))
        assert plan.refused
        assert "something stands there" in plan.decisions[0].reason

    def test_new_directory_that_another_layer_uses_stays(self) -> None:
        one = world()
        first, second = {**BASE, "vllm/new/a.py": "a\n"}, {**BASE, "vllm/new/b.py": "b\n"}
        one.put(one.ad_hoc(diff(BASE, first), "a.diff"))
        one.put(one.ad_hoc(diff(BASE, second), "b.diff"))
        plan = one.take(1)
        assert [str(path) for path in one.receipt.directories if one.receipt] == ["vllm/new"]  # type: ignore[union-attr]
        assert not plan.removals
        plan = one.take(2)
        assert [str(path) for path in plan.removals] == ["vllm/new"]

    def test_file_that_a_lower_layer_deletes_is_back_for_the_upper_ones(self) -> None:
        lower = {path: text for path, text in BASE.items() if path != NAMES[1]}
        one = world()
        one.put(one.ad_hoc(diff(BASE, lower), "low.diff"))
        one.put(one.ad_hoc(diff(BASE, {**BASE, NAMES[1]: "another\n"}), "high.diff"))
        assert one.numbers == [1]
        new = {**lower, NAMES[1]: "another\n"}
        assert not one.put(one.ad_hoc(diff(lower, new), "new.diff")).refused
        plan = one.take(1)
        assert plan.refused, "the new file would stand on the old one"

    def test_layers_keep_their_numbers(self) -> None:
        one = world()
        for number in (2, 7, 12):
            one.put(one.ad_hoc(diff(BASE, replaced(BASE, NAMES[2], number, "x\n")), f"{number}.diff"))
        one.take(2)
        assert one.numbers == [1, 3]
        one.put(one.ad_hoc(diff(BASE, replaced(BASE, NAMES[0], 5, "x\n")), "more.diff"))
        assert one.numbers == [1, 3, 4]
        assert one.receipt is not None
        assert {layer.origin for layer in one.receipt.layers} == {Origin.AD_HOC}


@pytest.mark.parametrize("edit", ["@@ -30,0 +31 @@\n+new\n", "@@ -30,2 +30,3 @@\n line 30\n+new\n line 31\n"])
def test_series_that_is_read_anew_is_not_proven_by_the_tree_that_it_stands_on(edit: str) -> None:
    """A patch that is switched on later needs the proof that it would have needed at first."""
    one = world({**BASE, NAMES[0]: lines(20) + "row\n" * 3 + "".join(f"line {number}\n" for number in range(21, 41))})
    first = diff({NAMES[0]: lines(40)}, {NAMES[0]: lines(40).replace("line 3\n", "three\n")})
    second = header("On", Config="ON") + f"--- a/{NAMES[0]}\n+++ b/{NAMES[0]}\n{edit}".encode()
    patches = {"1.patch": first, "2.patch": second}
    assert not one.put(one.series(patches)).refused
    before = one.contents
    plan = one.put(one.series(patches, configuration=toggled(ON="y")))
    assert plan.refused
    assert one.contents == before
