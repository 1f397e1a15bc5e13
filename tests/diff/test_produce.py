"""Diffs that the real `git apply` takes, and what they look like."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit.diff.compare import Block, compare_lines
from patchkit.diff.image import split_lines
from patchkit.diff.produce import produce_diff
from patchkit.tree import Kind, TreeEntry

Tree = dict[PurePosixPath, TreeEntry]


def entry(content: bytes, *, mode: int = 0o644, kind: Kind = Kind.FILE) -> TreeEntry:
    return TreeEntry(kind=kind, mode=mode, content=content)


def write(root: Path, tree: dict[PurePosixPath, TreeEntry]) -> None:
    for path, one in tree.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if one.kind is Kind.SYMLINK:
            place.symlink_to(os.fsdecode(one.content))
        else:
            place.write_bytes(one.content)
            place.chmod(one.mode)


def read(root: Path) -> dict[PurePosixPath, TreeEntry]:
    found = {}
    for place in root.rglob("*"):
        path = PurePosixPath(place.relative_to(root).as_posix())
        if place.is_symlink():
            found[path] = entry(os.fsencode(place.readlink()), kind=Kind.SYMLINK, mode=0o777)
        elif place.is_file():
            found[path] = entry(place.read_bytes(), mode=place.stat().st_mode & 0o777)
    return found


def applied(old: dict[PurePosixPath, TreeEntry], diff: bytes, *arguments: str) -> dict[PurePosixPath, TreeEntry]:
    """Return the tree that the real git makes of the old one."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "tree")
        root.mkdir()
        write(root, old)
        run = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", *arguments, "-"],
            cwd=root,
            input=diff,
            env=dict(os.environ, GIT_CEILING_DIRECTORIES=directory),
            capture_output=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr.decode()
        return read(root)


LINES = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"\n", b"    x\n", b"def f():\n", b"\xff\r\n", b"-- \n"]), max_size=30
)
CONTENTS = st.tuples(LINES, st.sampled_from([b"", b"", b"last"])).map(lambda parts: b"".join(parts[0]) + parts[1])
BINARIES = st.binary(max_size=200).map(lambda content: b"\0" + content)
FILES = st.builds(entry, CONTENTS | BINARIES, mode=st.sampled_from([0o644, 0o755]))
LINKS = st.sampled_from([b"a.py", b"../x y", b"\xffz"]).map(lambda text: entry(text, kind=Kind.SYMLINK, mode=0o777))
NAMES = ["a.py", "b c.txt", 'q"uote', "tab\there", "\u00fcber/d\udcff.py", "back\\slash", "deep/er/f", "at /end"]
TREES = st.dictionaries(st.sampled_from(NAMES).map(PurePosixPath), FILES | LINKS, max_size=4)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(old=TREES, new=TREES)
def test_git_makes_the_new_tree_of_the_old_one_and_back(old: Tree, new: Tree) -> None:
    diff = produce_diff(old, new)
    if old == new:
        assert diff == b""
        return
    assert applied(old, diff) == new
    assert applied(new, diff, "-R") == old


def test_a_diff_reads_like_one_of_git(tmp_path: Path) -> None:
    content = b"import os\n\nclass A:\n    def f(self):\n" + b"".join(b"        line(%d)\n" % n for n in range(30))
    changed = content.replace(b"line(9)", b"line(nine)").replace(b"        line(29)\n", b"        more()")
    old = {PurePosixPath("f.py"): entry(content), PurePosixPath("g"): entry(b"x\n")}
    new = {PurePosixPath("f.py"): entry(changed), PurePosixPath("g"): entry(b"x\n", mode=0o755)}
    write(tmp_path, old)
    (tmp_path / ".gitattributes").write_text("*.py diff=python\n")
    for arguments in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    write(tmp_path, new)
    expected = subprocess.run(["git", "diff", "--abbrev=12"], cwd=tmp_path, check=True, capture_output=True).stdout
    assert b"def f(self):\n" in expected
    assert produce_diff(old, new) == expected


def test_equal_trees_give_nothing() -> None:
    tree = {PurePosixPath("f"): entry(b"a\n", mode=0o664)}
    assert produce_diff(tree, {PurePosixPath("f"): entry(b"a\n", mode=0o644)}) == b""


def test_a_directory_has_no_diff() -> None:
    with pytest.raises(ValueError, match="a directory has no diff"):
        produce_diff({}, {PurePosixPath("d"): entry(b"", kind=Kind.DIRECTORY)})


def test_an_empty_file_is_made_by_its_header_alone() -> None:
    diff = produce_diff({}, {PurePosixPath("f"): entry(b"")})
    assert diff == b"diff --git a/f b/f\nnew file mode 100644\nindex 000000000000..e69de29bb2d1\n"


def rebuilt(old: list[bytes], new: list[bytes], blocks: list[Block]) -> list[bytes]:
    """Apply the blocks, holding that what lies between them is equal on both sides."""
    result: list[bytes] = []
    at = 0
    for block in blocks:
        result += old[at : block.old_start]
        assert len(result) == block.new_start
        result += new[block.new_start : block.new_end]
        at = block.old_end
    return result + old[at:]


@settings(max_examples=150, deadline=None)
@given(old=LINES, new=LINES)
def test_the_blocks_take_one_side_to_the_other(old: list[bytes], new: list[bytes]) -> None:
    blocks = compare_lines(old, new)
    assert rebuilt(old, new, blocks) == new
    assert all(one.old_end < other.old_start for one, other in pairwise(blocks))
    assert compare_lines(old, old) == []


def test_two_edits_far_apart_stay_two() -> None:
    old = [b"line %d\n" % (number % 700) for number in range(6000)]
    new = [*old[:10], b"new\n", *old[10:5990], *old[5991:]]
    assert compare_lines(old, new) == [Block(10, 10, 10, 11), Block(5990, 5991, 5991, 5991)]


def test_lines_without_any_fixed_point_are_replaced_as_a_whole() -> None:
    choose = random.Random(7).choice  # noqa: S311 - any two unlike texts will do
    old, new = ([choose([b"a\n", b"b\n"]) for _ in range(2000)] for _ in range(2))
    blocks = compare_lines(old, new)
    assert rebuilt(old, new, blocks) == new
    assert len(blocks) == 1


def test_lines_are_those_of_the_patch_not_of_python() -> None:
    content = b"a\rb\x0cc\xe2\x80\xa8d\n"
    assert split_lines(content) == [content]
