"""A reversed patch undoes the patch: git itself is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.diff.model import Change
from patchkit.diff.parse import parse_patch
from patchkit.diff.render import render_patch
from patchkit.diff.reverse import reverse_file, reverse_patch

CASES = Path(__file__).parents[1] / "cases"
READABLE = sorted(path.name for path in CASES.glob("*.patch") if not path.name.startswith("bad-"))

OLD = {"f.py": "".join(f"{at}\n" for at in range(30)), "gone": "x\n", "my old": "".join(f"m{at}\n" for at in range(30))}
NEW = {"f.py": OLD["f.py"].replace("15\n", "fifteen"), "come": "y", "my new": OLD["my old"].replace("m3\n", "M\n")}


def write(root: Path, tree: dict[str, str]) -> None:
    root.mkdir()
    for name, content in tree.items():
        (root / name).write_text(content)
    (root / "x.bin").write_bytes(b"\0" * 40 + (b"changed" if tree is NEW else b""))
    (root / "run.sh").write_text("x\n")
    (root / "run.sh").chmod(0o755 if tree is NEW else 0o644)


def git_diff(root: Path, *sides: str) -> bytes:
    """Return git's diff of two directories, by way of two trees of a repository."""
    git = ["git", f"--git-dir={root / 'repository'}"]
    subprocess.run([*git, "init", "-q"], check=True)
    trees = []
    for side in sides:
        subprocess.run([*git, f"--work-tree={root / side}", "add", "-A"], cwd=root / side, check=True)
        made = subprocess.run([*git, "write-tree"], check=True, capture_output=True, text=True)
        trees.append(made.stdout.strip())
    command = [*git, "diff", "--binary", "-M", *trees]
    return subprocess.run(command, check=True, capture_output=True).stdout


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mode & 0o100, path.read_bytes()) for path in root.iterdir()}


def test_git_applies_the_rendered_reverse(tmp_path: Path) -> None:
    write(tmp_path / "a", OLD)
    write(tmp_path / "b", NEW)
    raw = git_diff(tmp_path, "a", "b")
    patch = parse_patch(raw, source="x")
    assert {file.change for file in patch.files} == {Change.MODIFY, Change.CREATE, Change.DELETE, Change.RENAME}
    work = tmp_path / "work"
    shutil.copytree(tmp_path / "b", work)
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    undo = render_patch(reverse_patch(patch))
    subprocess.run(["git", "apply"], cwd=work, input=undo, check=True, env=environment)
    assert snapshot(work) == snapshot(tmp_path / "a")


@pytest.mark.parametrize("name", READABLE)
def test_two_reversals_give_the_same_patch(name: str) -> None:
    patch = parse_patch((CASES / name).read_bytes(), source=name)
    assert reverse_patch(reverse_patch(patch)) == patch


@pytest.mark.parametrize("name", [name for name in READABLE if name != "git-converted-to-crlf.patch"])
def test_a_rendered_reverse_is_read_as_the_reverse(name: str) -> None:
    file = parse_patch((CASES / name).read_bytes(), source=name).files[0]
    turned = reverse_file(file)
    raw = turned.header + b"".join(b"\n".join((hunk.header, *hunk.lines, b"")) for hunk in turned.hunks)
    again = parse_patch(raw, source=name).files[0]
    assert (again.change, again.hunks[0:1] == () or again.hunks[0].lines) == (
        turned.change,
        turned.hunks[0:1] == () or turned.hunks[0].lines,
    )
    assert (again.old_name, again.new_name) == (turned.old_name, turned.new_name)
    assert (again.old_mode, again.new_mode) == (turned.old_mode, turned.new_mode)
    assert again.binary == turned.binary


def test_creation_and_deletion_exchange_their_modes() -> None:
    file = parse_patch(
        b"diff --git a/f b/f\nnew file mode 100755\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", source="x"
    ).files[0]
    turned = reverse_file(file)
    assert (turned.change, turned.old_name, turned.new_name) == (Change.DELETE, "b/f", None)
    assert (turned.old_mode, turned.new_mode) == (0o100755, None)
    assert b"deleted file mode 100755\n--- b/f\n+++ /dev/null\n" in turned.header


def test_the_last_file_is_undone_first() -> None:
    raw = b"".join(b"--- a/%b\n+++ b/%b\n@@ -1 +1 @@\n-a\n+b\n" % (name, name) for name in (b"f", b"g"))
    assert [file.old_name for file in reverse_patch(parse_patch(raw, source="x")).files] == ["b/g", "b/f"]


def test_an_unchanged_mode_stays_on_its_side() -> None:
    raw = b"diff --git a/f b/f\nindex 1111111..2222222 120000\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    turned = reverse_file(parse_patch(raw, source="x").files[0])
    assert (turned.old_mode, turned.new_mode) == (0o120000, None)
    assert (turned.old_blob, turned.new_blob) == ("2222222", "1111111")
