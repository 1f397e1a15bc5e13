"""The acts of a user on real trees: plan, apply and revert, with RECORD, receipt and archive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit.asking import Request
from patchkit.errors import PatchkitError, SeriesError, TargetError, TreeChangedError, UsageError, WrongTreeError
from patchkit.receipt import Receipt, read_receipt
from patchkit.session import open_session
from patchkit.target import TargetTree, find_targets, plain_target
from patchkit.wanted import Terms
from patchkit.workflow import Result, apply_request, missing_from, plan_request, revert_layers
from tests.blackbox.command import directories, snapshot
from tests.blackbox.wheels import NEW_FILE, engine, record_of, recorded, wheel_tree, write_tree
from tests.making import diff, header, settings

NOW = "2026-01-01T00:00:00Z"
ENGINE = {path: content.decode() for path, content in engine().items()}
FIRST = diff(ENGINE, {**ENGINE, "vllm/engine.py": ENGINE["vllm/engine.py"].replace("RATE = 1", "RATE = 2")})
SECOND = diff(ENGINE, {**ENGINE, "vllm/layers/attention.py": "import os\n", "vllm/new/deep/x.py": "x = 1\n"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "site", wheel_tree("vllm", "0.6.3", engine(), installer="pip"))


def tree_of(root: Path) -> TargetTree:
    found = find_targets(root=root)
    return found[0] if found else plain_target(root)


def request(*raws: bytes | str, directories: tuple[Path, ...] = (), **others: Any) -> Request:
    fields = {name: others.pop(name) for name in ("lenient", "shipped") if name in others}
    patches = tuple(
        (Path(f"{number}.diff"), raw.encode() if isinstance(raw, str) else raw) for number, raw in enumerate(raws)
    )
    return Request(**{"shipped": None, **fields}, directories=directories, patches=patches, terms=Terms(**others))


def apply(root: Path, asked: Request, *, now: str = NOW, epoch: int | None = None) -> Result:
    with open_session(tree_of(root), write=True) as session:
        return apply_request(session, asked, now=now, epoch=epoch)


def revert(root: Path, patch: str = "", layer: int | None = None, **others: Any) -> Result:
    with open_session(tree_of(root), write=True) as session:
        return revert_layers(session, patch=patch, layer=layer, now=NOW, epoch=None, **others)


def there(root: Path, asked: Request) -> bool:
    with open_session(tree_of(root), write=False) as session:
        return not missing_from(session, asked)


def receipt_of(root: Path, engine_name: str = "vllm") -> Receipt:
    return read_receipt(root / ".patchkit" / engine_name / "receipt.json")


def series(directory: Path, **patches: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, raw in patches.items():
        (directory / f"{name}.patch").write_bytes(raw)
    (directory / "series").write_text("".join(f"{name}.patch\n" for name in patches))
    return directory


def test_full_revert_leaves_every_byte_and_directory_as_it_was(root: Path) -> None:
    before, places = snapshot(root, own=True), directories(root)
    apply(root, request(FIRST))
    apply(root, request(SECOND))
    assert record_of(root) == recorded(root), "RECORD lists what stands there, new files too"
    assert "vllm/new/deep/x.py" in record_of(root)
    assert revert(root).changed
    assert snapshot(root, own=True) == before
    assert directories(root) == places
    assert not (root / ".patchkit").exists()


def test_revert_needs_neither_the_patches_nor_their_stored_bytes(root: Path) -> None:
    before = snapshot(root)
    apply(root, request(FIRST))
    shutil.rmtree(root / ".patchkit/vllm/patches")
    assert revert(root).changed
    assert snapshot(root) == before


def test_stored_patch_that_is_gone_or_changed_is_named_when_it_is_needed(root: Path) -> None:
    apply(root, request(FIRST))
    apply(root, request(SECOND))
    [first, *_] = sorted((root / ".patchkit/vllm/patches").iterdir())
    first.write_bytes(b"--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n")
    with pytest.raises(TreeChangedError, match="stored patch is damaged"):
        revert(root, layer=1)
    first.unlink()
    with pytest.raises(TreeChangedError, match="stored patch is damaged"):
        revert(root, layer=1)


def test_second_apply_changes_nothing(root: Path) -> None:
    assert apply(root, request(FIRST)).changed
    after = snapshot(root, own=True)
    assert not apply(root, request(FIRST), now="later").changed
    assert {path: one for path, one in snapshot(root, own=True).items() if "lock" not in path} == {
        path: one for path, one in after.items() if "lock" not in path
    }


def test_same_diff_twice_in_one_request_is_one_layer(root: Path) -> None:
    apply(root, request(FIRST, FIRST))
    assert [layer.number for layer in receipt_of(root).layers] == [1]


def test_diff_that_only_deletes_is_known_the_second_time(root: Path) -> None:
    less = {path: text for path, text in ENGINE.items() if "attention" not in path}
    assert apply(root, request(diff(ENGINE, less))).changed
    assert not apply(root, request(diff(ENGINE, less))).changed
    assert not apply(root, request(diff(ENGINE, less), strip=1)).changed


def test_same_diff_with_another_strip_is_another_layer(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "plain", {"x/f": b"a\nb\nc\n", "f": b"a\nb\nc\n"})
    raw = b"--- x/f\n+++ x/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
    assert apply(root, request(raw, strip=0)).changed
    assert (root / "f").read_bytes() == b"a\nb\nc\n"
    assert apply(root, request(raw, strip=1)).changed
    assert (root / "f").read_bytes() == (root / "x/f").read_bytes() == b"a\nB\nc\n"
    assert not apply(root, request(raw, strip=1)).changed
    revert(root)
    assert (root / "f").read_bytes() == (root / "x/f").read_bytes() == b"a\nb\nc\n"


def test_series_that_renames_is_known_and_can_be_replaced(root: Path, tmp_path: Path) -> None:
    """Its own names are no longer in the tree when it is asked for again."""
    moved = b"diff --git a/vllm/engine.py b/vllm/motor.py\nsimilarity index 100%\nrename from vllm/engine.py\nrename to vllm/motor.py\n"  # noqa: E501
    own = series(tmp_path / "own", rename=moved, second=header("second", Config="B") + SECOND)
    asked = request(directories=(own,), unlocked=True)
    apply(root, asked)
    assert there(root, asked)
    switched = request(directories=(own,), unlocked=True, configuration=settings(B="y"))
    assert apply(root, switched).changed
    assert (root / "vllm/motor.py").exists()
    assert (root / "vllm/new/deep/x.py").exists()
    assert not (root / "vllm/engine.py").exists()


class TestConfiguration:
    @pytest.fixture
    def own(self, tmp_path: Path) -> Path:
        return series(tmp_path / "own", first=header("first", Config="A") + FIRST, second=SECOND)

    def asked(self, own: Path, **values: str) -> Request:
        return request(directories=(own,), unlocked=True, configuration=settings(**values))

    def test_gate_is_opened_by_a_setting_and_kept_in_the_receipt(self, root: Path, own: Path) -> None:
        apply(root, self.asked(own, A="y"))
        assert receipt_of(root).configuration == (("A", "y"),)
        assert "RATE = 2" in (root / "vllm/engine.py").read_text()
        assert not apply(root, self.asked(own)).changed, "what is not said again stays"

    def test_gate_that_is_closed_takes_its_patch_out(self, root: Path, own: Path) -> None:
        apply(root, self.asked(own, A="y"))
        assert apply(root, self.asked(own, A="n")).changed
        assert "RATE = 1" in (root / "vllm/engine.py").read_text()
        assert there(root, self.asked(own))
        assert not there(root, self.asked(own, A="y"))

    def test_revert_does_not_ask_for_the_configuration(self, root: Path, own: Path) -> None:
        before = snapshot(root)
        apply(root, self.asked(own, A="y"))
        shutil.rmtree(own)
        revert(root)
        assert snapshot(root) == before

    def test_requirement_that_is_off_is_an_error_and_nothing_is_written(self, root: Path, own: Path) -> None:
        before = snapshot(root)
        series(own, first=header("first", Config="A") + FIRST, second=header("2", Requires="first.patch") + SECOND)
        with pytest.raises(SeriesError, match="1 requirement is not met"):
            apply(root, self.asked(own))
        assert snapshot(root) == before


class TestMissing:
    """What `status --require-applied` says when all patches are in the tree and the stack is another all the same."""

    def missing(self, root: Path, *directories: Path) -> tuple[str, ...]:
        with open_session(tree_of(root), write=False) as session:
            return missing_from(session, request(directories=directories, unlocked=True))

    def test_layer_under_another_name_is_named_with_the_one_that_is_there(self, root: Path, tmp_path: Path) -> None:
        own, same = series(tmp_path / "patches", first=FIRST), series(tmp_path / "q/same", first=FIRST)
        again = series(tmp_path / "q/mypatches", first=header("first") + FIRST)
        apply(root, request(directories=(own,), unlocked=True))
        assert self.missing(root, own) == self.missing(root, same) == ()
        assert self.missing(root, again) == (
            "layer mypatches (user) is not in the tree, which has layer 1 patches; a directory is known by its name",
        )

    def test_layer_that_has_lost_a_patch_is_named(self, root: Path, tmp_path: Path) -> None:
        own = series(tmp_path / "own", first=FIRST, second=SECOND)
        apply(root, request(directories=(own,), unlocked=True))
        series(own, first=FIRST)
        assert self.missing(root, own) == ("layer 1 own: its patches are others than those in the tree",)

    def test_configuration_that_differs_is_said(self, root: Path, tmp_path: Path) -> None:
        own = series(tmp_path / "own", first=FIRST.replace(b"RATE = 2", b"RATE = CONFIG_B"))
        (own / "Kconfig").write_text('config B\n\tint "b"\n\tdefault 3\n')
        asked = request(directories=(own,), unlocked=True)
        apply(root, asked)
        other = request(directories=(own,), unlocked=True, configuration=settings(B="4"))
        with open_session(tree_of(root), write=False) as session:
            assert missing_from(session, other) == ("the configuration in the tree is another than asked for",)


class TestReinstalled:
    @pytest.fixture
    def upgraded(self, root: Path) -> Path:
        apply(root, request(FIRST + NEW_FILE.encode()))
        shutil.rmtree(root / "vllm")
        shutil.rmtree(root / "vllm-0.6.3.dist-info")
        return write_tree(root, wheel_tree("vllm", "0.6.4", engine(version="0.6.4")))

    def test_revert_refuses(self, upgraded: Path) -> None:
        before = snapshot(upgraded)
        with pytest.raises(TreeChangedError, match="reinstall"):
            revert(upgraded)
        assert snapshot(upgraded) == before

    def test_apply_starts_afresh_and_keeps_the_old_state(self, upgraded: Path) -> None:
        before = snapshot(upgraded)
        assert apply(upgraded, request(FIRST)).changed
        assert receipt_of(upgraded).version == "0.6.4"
        assert (upgraded / ".patchkit/vllm/archive/1/receipt.json").exists()
        assert record_of(upgraded) == recorded(upgraded)
        revert(upgraded)
        assert snapshot(upgraded) == before
        assert sorted(path.name for path in (upgraded / ".patchkit/vllm").iterdir()) == ["archive", "lock"]

    def test_plan_and_apply_say_what_was_there_and_where_it_goes(self, upgraded: Path) -> None:
        with open_session(tree_of(upgraded), write=False) as session:
            planned = plan_request(session, request(FIRST)).warnings
        applied = apply(upgraded, request(FIRST)).plan.warnings
        assert planned == applied
        assert len(applied) == 1
        assert "archives the old state to .patchkit/vllm/archive/1, which had layer 1 0.diff (ad hoc)" in applied[0]
        assert apply(upgraded, request(SECOND)).plan.warnings == ()

    def test_plan_and_apply_name_the_toggles_that_were_on(self, root: Path, tmp_path: Path) -> None:
        own = tmp_path / "own"
        series(own, first=header("first", Config="A") + FIRST)
        apply(root, request(directories=(own,), unlocked=True, configuration=settings(A="y")))
        write_tree(root, wheel_tree("vllm", "0.6.3", engine()))
        (warning,) = apply(root, request(directories=(own,), unlocked=True)).plan.warnings
        assert "which had layer 1 own (user), CONFIG_A=y: name again" in warning

    def test_refused_apply_keeps_the_receipt(self, upgraded: Path) -> None:
        wrong = FIRST.replace(b"-RATE = 1", b"-RATE = 9")
        assert apply(upgraded, request(wrong)).plan.refused
        assert receipt_of(upgraded).version == "0.6.3"

    def test_it_is_not_wholly_there(self, upgraded: Path) -> None:
        assert not there(upgraded, request(FIRST))


class TestDrift:
    @pytest.fixture
    def drifted(self, root: Path) -> Path:
        apply(root, request(FIRST))
        place = root / "vllm/engine.py"
        place.write_text(place.read_text().replace("LIMIT = 3", "LIMIT = 4"))
        return root

    @pytest.mark.parametrize("act", [lambda root: apply(root, request(SECOND)), revert], ids=["apply", "revert"])
    def test_no_act_overwrites_an_edit(self, drifted: Path, act: Callable[[Path], Result]) -> None:
        before = snapshot(drifted)
        with pytest.raises(TreeChangedError) as refused:
            act(drifted)
        assert "changed: vllm/engine.py" in refused.value.why
        assert "--save-edits" in refused.value.hint
        assert snapshot(drifted) == before

    def test_edits_are_saved_as_a_diff_that_can_be_applied_again(self, drifted: Path) -> None:
        saved: list[bytes] = []
        revert(drifted, save_edits=saved.append)
        assert (drifted / "vllm/engine.py").read_text() == ENGINE["vllm/engine.py"]
        [edits] = saved
        assert b"+LIMIT = 4" in edits
        assert b"RATE = 2\n" in edits, "what patchkit wrote is its context"
        apply(drifted, request(FIRST))
        assert apply(drifted, request(edits)).changed
        assert "LIMIT = 4" in (drifted / "vllm/engine.py").read_text()

    def test_nothing_is_written_when_the_edits_cannot_be_saved(self, drifted: Path) -> None:
        def fail(_: bytes) -> None:
            raise UsageError("cannot be written")

        before = snapshot(drifted)
        with pytest.raises(UsageError):
            revert(drifted, save_edits=fail)
        assert snapshot(drifted) == before


class TestWhollyThere:
    def test_unpatched_tree_is_not(self, root: Path) -> None:
        assert not there(root, request(FIRST))

    def test_tree_whose_release_has_it_is(self, root: Path) -> None:
        place = root / "vllm/engine.py"
        place.write_text(place.read_text().replace("RATE = 1", "RATE = 2"))
        assert not apply(root, request(FIRST)).changed
        assert there(root, request(FIRST))
        assert not (root / ".patchkit").exists()

    def test_one_of_two_is_not_enough(self, root: Path) -> None:
        apply(root, request(FIRST))
        assert there(root, request(FIRST))
        assert not there(root, request(FIRST, SECOND))


class TestSeriesOfARequest:
    def test_directory_without_a_series_for_the_tree_is_an_error(self, root: Path, tmp_path: Path) -> None:
        own = series(tmp_path / "own", first=header("first", Applies_To="sglang>=0.5") + FIRST)
        with pytest.raises(TargetError, match="no series in"):
            apply(root, request(directories=(own,), unlocked=True))

    def test_of_lenient_directories_one_is_enough(self, root: Path, tmp_path: Path) -> None:
        other = series(tmp_path / "other", first=header("first", Applies_To="sglang>=0.5") + FIRST)
        own = series(tmp_path / "own", first=FIRST)
        asked = request(directories=(other, own), unlocked=True, lenient=True, shipped=tmp_path / "nothing")
        assert apply(root, asked).changed

    def test_two_directories_of_one_name_are_refused(self, root: Path, tmp_path: Path) -> None:
        one, two = (series(tmp_path / place / "own", first=FIRST) for place in "ab")
        with pytest.raises(UsageError, match="called own"):
            apply(root, request(directories=(one, two), unlocked=True))

    def test_series_without_a_lock_needs_unlocked(self, root: Path, tmp_path: Path) -> None:
        own = series(tmp_path / "own", first=FIRST)
        with pytest.raises(WrongTreeError) as refused:
            apply(root, request(directories=(own,)))
        assert refused.value.status == 4


class TestRevertOne:
    def test_unknown_patch_and_layer_are_usage_errors(self, root: Path) -> None:
        apply(root, request(FIRST))
        with pytest.raises(UsageError, match="not applied"):
            revert(root, "other.diff")
        with pytest.raises(UsageError, match="no layer 99") as refused:
            revert(root, layer=99)
        assert "1 (0.diff)" in refused.value.why

    @pytest.mark.parametrize("typed", ["0001-first", "0001-frist.patch"])
    def test_patch_that_was_meant_is_proposed(self, typed: str, root: Path, tmp_path: Path) -> None:
        own = series(tmp_path / "own", **{"0001-first": FIRST, "0002-first": SECOND})
        apply(root, request(directories=(own,), unlocked=True))
        with pytest.raises(UsageError, match="not applied") as refused:
            revert(root, typed)
        assert refused.value.hint.startswith("did you mean 0001-first.patch? ")

    def test_patch_of_a_series_is_taken_out_and_comes_back(self, root: Path, tmp_path: Path) -> None:
        own = series(tmp_path / "own", first=FIRST, second=SECOND)
        asked = request(directories=(own,), unlocked=True)
        apply(root, asked)
        whole = snapshot(root)
        assert revert(root, "second.patch").changed
        assert not (root / "vllm/new").exists()
        assert not there(root, asked)
        assert apply(root, asked).changed
        assert snapshot(root) == whole

    def test_revert_of_an_unpatched_tree_is_nothing_to_do(self, root: Path) -> None:
        assert not revert(root).changed
        assert not (root / ".patchkit").exists()


def test_source_date_is_the_time_of_what_is_written(root: Path) -> None:
    epoch = 1_700_000_000
    apply(root, request(FIRST), now="2023-11-14T22:13:20Z", epoch=epoch)
    assert int((root / "vllm/engine.py").stat().st_mtime) == epoch
    assert receipt_of(root).layers[0].applied_at == "2023-11-14T22:13:20Z"


def test_plan_writes_nothing_and_is_the_same_twice(root: Path) -> None:
    before = snapshot(root, own=True)
    digests = set()
    for _ in range(2):
        with open_session(tree_of(root), write=False) as session:
            digests.add(plan_request(session, request(FIRST, SECOND)).sha256)
    assert len(digests) == 1
    assert snapshot(root, own=True) == before


def test_tree_without_record_is_patched_and_reverted(root: Path) -> None:
    (root / "vllm-0.6.3.dist-info/RECORD").unlink()
    before = snapshot(root)
    apply(root, request(FIRST))
    assert receipt_of(root).record_sha256 == ""
    revert(root)
    assert snapshot(root) == before


@pytest.mark.parametrize("name", [b"with blank", b"caf\xe9", "üñí".encode(), b"-dash", b'quo"te', b"back\\slash"])
def test_odd_file_names_in_an_odd_directory(tmp_path: Path, name: bytes) -> None:
    place = tmp_path / "a tree\nwith a \udcff name"
    odd = os.fsdecode(name)
    root = write_tree(place, {f"d/{odd}": b"a\nb\nc\n"})
    raw = diff({f"d/{odd}": "a\nb\nc\n"}, {f"d/{odd}": "a\nB\nc\n", f"d/{odd}.new": "x\n"})
    before = snapshot(root)
    result = apply(root, request(raw))
    assert result.changed, result.plan.decisions
    assert (root / "d" / odd).read_bytes() == b"a\nB\nc\n"
    assert (root / "d" / f"{odd}.new").read_bytes() == b"x\n"
    revert(root)
    assert snapshot(root) == before


def test_odd_file_name_is_listed_in_record(root: Path) -> None:
    before = snapshot(root)
    apply(root, request(diff({}, {'vllm/ca, "fé".py': "x = 1\n"})))
    assert record_of(root) == recorded(root)
    revert(root)
    assert snapshot(root) == before


def test_checkout_is_written_outside_of_its_package_too(tmp_path: Path) -> None:
    files = {f"python/{path}": content for path, content in engine("sglang").items()}
    root = write_tree(tmp_path / "sglang", {**files, "test/t.py": b"a\n", "python/pyproject.toml": b"[project]\n"})
    text = {path: content.decode() for path, content in files.items()}
    raw = diff(
        {**text, "test/t.py": "a\n"},
        {**text, "test/t.py": "b\n", "docs/x.md": "x\n", "python/sglang/engine.py": "import os\n"},
    )
    before = snapshot(root)
    apply(root, request(raw))
    assert (root / "test/t.py").read_text() == "b\n"
    assert (root / "docs/x.md").read_text() == "x\n"
    revert(root)
    assert snapshot(root) == before
    assert not (root / "docs").exists()


def test_error_of_every_act_names_an_interrupted_run(root: Path) -> None:
    apply(root, request(FIRST))
    (root / ".patchkit/vllm/journal.json").write_text("{}")
    with pytest.raises(PatchkitError) as raised, open_session(tree_of(root), write=False) as session:
        plan_request(session, request(SECOND))
    assert raised.value.status == 5
    assert "journal" in raised.value.what
