"""One file of a patch against a tree: git's kinds of change, what is in the way, and what is there already."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.plan import Plan
from patchkit.tree import Kind
from tests.making import Files, World, diff, entries_of, file, lines, link, outcomes

TREE: Files = {
    "a.py": lines(12),
    "b.py": lines(12, name="row"),
    "run.sh": file("echo\n", 0o755),
    "d/one.py": "one\n",
    "d/two.py": "two\n",
    "ln": link("a.py"),
    "blob": bytes(range(256)) * 4,
}


@pytest.fixture(scope="module")
def diffs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return git's own diff of every sample, with renames, copies and binary content."""
    root = tmp_path_factory.mktemp("repository")
    _git(root, "init", "-q")
    _write(root, TREE)
    _git(root, "add", "-A")
    _git(root, "-c", "user.name=a", "-c", "user.email=a@example.invalid", "commit", "-qm", "before")
    return {sample: _diff_of(root, files) for sample, files in SAMPLES.items()}


def _diff_of(root: Path, files: Files) -> bytes:
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink() and path.name != ".git":
            shutil.rmtree(path)
        elif path.name != ".git":
            path.unlink()
    _write(root, files)
    _git(root, "add", "-A")
    return _git(root, "diff", "--cached", "--binary", "--full-index", "-M", "-C", "--find-copies-harder", "HEAD")


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True).stdout


def _write(root: Path, files: Files) -> None:
    for path, entry in entries_of(files).items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind is Kind.SYMLINK:
            place.symlink_to(os.fsdecode(entry.content))
        else:
            place.write_bytes(entry.content)
            place.chmod(entry.mode)


def without(*names: str) -> Files:
    return {path: entry for path, entry in TREE.items() if path not in names}


SAMPLES: dict[str, Files] = {
    "modify": {**TREE, "a.py": lines(12).replace("line 6\n", "six\n")},
    "rename": {**without("a.py"), "c/a.py": TREE["a.py"]},
    "rename and edit": {**without("a.py"), "z.py": lines(12).replace("line 6\n", "six\n")},
    "copy": {**TREE, "e.py": TREE["a.py"]},
    "copy and edit both": {
        **TREE,
        "a.py": lines(12).replace("line 2\n", "2\n"),
        "e.py": lines(12).replace("line 6\n", "six\n"),
    },
    "swap": {**TREE, "a.py": TREE["b.py"], "b.py": TREE["a.py"]},
    "mode on": {**TREE, "a.py": file(lines(12), 0o755)},
    "mode off": {**TREE, "run.sh": file("echo\n", 0o644)},
    "mode and edit": {**TREE, "a.py": file(lines(12).replace("line 6\n", "six\n"), 0o755)},
    "delete": without("b.py"),
    "delete all of a directory": without("d/one.py", "d/two.py"),
    "create": {**TREE, "new/deep/x.py": "x\n"},
    "create empty": {**TREE, "empty": ""},
    "create executable": {**TREE, "x.sh": file("x\n", 0o755)},
    "link elsewhere": {**TREE, "ln": link("b.py")},
    "link made": {**TREE, "ln2": link("d/one.py")},
    "link deleted": without("ln"),
    "link renamed": {**without("ln"), "c/ln": TREE["ln"]},
    "copy of a link": {**TREE, "ln2": TREE["ln"]},
    "file becomes link": {**TREE, "b.py": link("a.py")},
    "link becomes file": {**TREE, "ln": "now a file\n"},
    "binary": {**TREE, "blob": bytes(reversed(range(256))) * 4},
    "binary delta": {**TREE, "blob": bytes(range(256)) * 4 + b"\0tail"},
    "binary made": {**TREE, "blob2": b"\0\1\2" * 50},
    "binary deleted": without("blob"),
    "directory becomes file": {**without("d/one.py", "d/two.py"), "d": "a file now\n"},
    "file becomes directory": {**without("a.py"), "a.py/x.py": "x\n"},
    "directory becomes link": {**without("d/one.py", "d/two.py"), "d": link("b.py")},
    "no newline at end": {**TREE, "a.py": lines(12).removesuffix("\n")},
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_change_comes_out_as_git_made_it_and_goes_again(sample: str, diffs: dict[str, bytes]) -> None:
    raw = diffs[sample]
    assert raw
    one = World(TREE)
    plan = one.put(one.ad_hoc(raw, strip=1))
    assert not plan.refused, plan.decisions
    assert dict(one.now.items()) == dict(World(SAMPLES[sample]).now.items())
    assert not one.take(1).refused
    assert dict(one.now.items()) == dict(World(TREE).now.items())


FORWARD_ONLY = {"copy", "copy and edit both", "copy of a link", "directory becomes link"}


@pytest.mark.parametrize("sample", sorted(SAMPLES.keys() - FORWARD_ONLY))
def test_change_reversed_is_the_way_back(sample: str, diffs: dict[str, bytes]) -> None:
    raw = diffs[sample]
    one = World(SAMPLES[sample])
    plan = one.put(one.ad_hoc(raw, strip=1, reverse=True))
    assert not plan.refused, plan.decisions
    assert dict(one.now.items()) == dict(World(TREE).now.items())


THERE_ALREADY = [
    *("modify", "mode on", "mode off", "mode and edit", "create", "create empty", "create executable", "link made"),
    *("binary", "binary delta", "binary made", "no newline at end", "link elsewhere"),
]


@pytest.mark.parametrize("sample", THERE_ALREADY)
def test_change_that_is_there_already_is_upstreamed(sample: str, diffs: dict[str, bytes]) -> None:
    one = World(SAMPLES[sample])
    plan = one.put(one.ad_hoc(diffs[sample], strip=1))
    assert set(outcomes(plan).values()) == {"upstreamed"}, plan.decisions
    assert not plan.edits


def refused(one: World, raw: bytes) -> str:
    before = one.contents
    plan = one.put(one.ad_hoc(raw, strip=1))
    assert plan.refused
    assert one.contents == before
    return reason(plan)


def reason(plan: Plan) -> str:
    return " ".join(file.refusal for decision in plan.decisions for file in decision.files)


def test_binary_patch_for_another_content_is_refused(diffs: dict[str, bytes]) -> None:
    raw = diffs["binary"]
    assert "another content" in refused(World({**TREE, "blob": b"\0something else"}), raw)


def test_binary_patch_that_lost_its_first_half_is_refused(diffs: dict[str, bytes]) -> None:
    head, _, halves = diffs["binary made"].partition(b"literal ")
    raw = head + halves[halves.index(b"literal 0\n") :]
    assert "does not make what its index line names" in refused(World(TREE), raw)


def test_binary_patch_without_data_is_refused() -> None:
    raw = b"diff --git a/blob b/blob\nindex 1111111..2222222 100644\nBinary files a/blob and b/blob differ\n"
    assert "does not hold its content" in refused(World(TREE), raw)


def test_file_that_only_changes_its_mode_is_not_moved() -> None:
    raw = b"diff --git a/d/one.py b/e/one.py\nold mode 100644\nnew mode 100755\n"
    assert "nothing says that the file is renamed" in refused(World(TREE), raw)


def test_deletion_that_would_leave_lines_is_refused() -> None:
    raw = diff({"b.py": lines(11, name="row")}, {})
    said = refused(World(TREE), raw)
    assert "b.py" in said


def test_deletion_of_what_is_not_there_says_so() -> None:
    assert "not there" in refused(World(without("b.py")), diff(TREE, without("b.py")))


def test_rename_onto_a_file_that_stands_is_refused_and_not_partly_applied(diffs: dict[str, bytes]) -> None:
    raw = diffs["rename"]
    one = World({**TREE, "c/a.py": "mine\n"})
    plan = one.put(one.ad_hoc(raw, strip=1))
    assert outcomes(plan) == {"one.diff": "refused"}
    assert "something stands there" in reason(plan)


def test_directory_in_the_place_of_a_new_file_is_refused() -> None:
    assert "directory" in refused(World(TREE), diff({}, {"d": "a file\n"}))


def test_directory_cannot_be_patched() -> None:
    assert "not a file" in refused(World(TREE), b"--- a/d\n+++ b/d\n@@ -1 +1 @@\n-one\n+two\n")


def test_file_in_the_place_of_a_directory_is_refused() -> None:
    assert "not a directory" in refused(World(TREE), diff({}, {"a.py/x.py": "x\n"}))


@pytest.mark.parametrize("name", ["ln/x.py", "dirlink/new.py", "dirlink/one.py"])
def test_path_through_a_symlink_is_refused(name: str) -> None:
    one = World({**TREE, "dirlink": link("d")})
    assert "symlink" in refused(one, diff({}, {name: "x\n"}))


def test_path_through_a_symlink_that_the_patch_itself_makes_is_refused() -> None:
    raw = diff({}, {"out": link("/etc")}) + diff({}, {"out/passwd": "x\n"})
    assert "symlink" in refused(World(TREE), raw)


def test_path_through_a_symlink_that_a_lower_layer_made_is_refused() -> None:
    one = World(TREE)
    assert not one.put(one.ad_hoc(diff({}, {"out": link("d")}), "link.diff")).refused
    assert "symlink" in refused(one, diff({}, {"out/new.py": "x\n"}))


def test_symlink_is_not_patched_as_a_file() -> None:
    assert "symlink" in refused(World(TREE), b"--- a/ln\n+++ b/ln\n@@ -1 +1 @@\n-a.py\n+b.py\n")


def test_file_is_not_patched_as_a_symlink() -> None:
    raw = diff({"ln": link("a.py")}, {"ln": link("b.py")}).replace(b"/ln", b"/a.py")
    assert "about a symlink" in refused(World(TREE), raw)


def test_same_file_twice_in_a_patch_is_patched_twice() -> None:
    middle = {**TREE, "a.py": lines(12).replace("line 2\n", "2\n")}
    after = {**TREE, "a.py": str(middle["a.py"]).replace("line 11\n", "11\n")}
    one = World(TREE)
    assert not one.put(one.ad_hoc(diff(TREE, middle) + diff(middle, after))).refused
    assert one.contents["a.py"] == after["a.py"]


def test_same_deletion_twice_in_a_patch_is_refused() -> None:
    assert "takes it away already" in refused(World(TREE), diff(TREE, without("b.py")) * 2)


def test_file_of_a_traditional_diff_is_gone_when_it_is_not_there() -> None:
    one = World(TREE)
    plan = one.put(one.ad_hoc(b"--- a/gone.py\n+++ b/gone.py\n@@ -1,2 +1,2 @@\n x\n-a\n+b\n", strip=1))
    assert plan.decisions[0].files[0].placements[0].verdict.value == "file gone"


def test_permission_bits_that_git_does_not_know_are_kept(diffs: dict[str, bytes]) -> None:
    raw = diffs["mode on"]
    one = World({**TREE, "a.py": file(lines(12), 0o640)})
    plan = one.put(one.ad_hoc(raw, strip=1))
    assert plan.edits[0].after is not None
    assert plan.edits[0].after.mode == 0o750


def test_svn_writes_the_name_of_a_file_that_does_not_exist() -> None:
    git = b"Index: n.py\n=====\ndiff --git a/n.py b/n.py\n"
    made = b"new file mode 100644\n--- a/n.py\t(nonexistent)\n+++ b/n.py\t(revision 2)\n@@ -0,0 +1 @@\n+x\n"
    gone = b"deleted file mode 100644\n--- a/n.py\t(revision 2)\n+++ b/n.py\t(nonexistent)\n@@ -1 +0,0 @@\n-x\n"
    one = World({})
    assert not one.put(one.ad_hoc(git + made, strip=1)).refused
    assert one.contents == {"n.py": "x\n"}
    assert not one.put(one.ad_hoc(git + gone, "two.diff", strip=1)).refused
    assert one.contents == {}
