"""The law of the reader: what git writes is read and written again byte for byte, and says what the trees were."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit.diff.binary import apply_binary
from patchkit.diff.crosscheck import crosscheck
from patchkit.diff.model import Change, FilePatch
from patchkit.diff.parse import parse_patch
from patchkit.diff.render import render_file, render_hunk, render_patch
from patchkit.diff.reverse import reverse_patch

Tree = dict[str, tuple[bytes, bytes]]

LINES = st.sampled_from(
    [
        b"",
        b"a",
        b"-- x",
        b"++ y",
        b"@@ -1 +1 @@",
        b"diff --git a/f b/f",
        b"- ",
        b"\\ x",
        b"cr\r",
        b"c\rr",
        b"\r",
        b"\x0c",
        b"latin \xe9",
        "u\u2028".encode(),
        b"  tab\t",
    ],
)
TEXT = st.tuples(st.lists(LINES, max_size=12), st.booleans()).map(
    lambda made: b"\n".join(made[0]) + (b"\n" if made[1] and made[0] else b"")
)
CONTENT = st.one_of(TEXT, TEXT, TEXT, st.binary(max_size=80).map(lambda tail: b"\0" + tail))
NAMES = st.sampled_from(
    ["f", "a b/c d", "d/f.py", "tab\there", 'quo"te', "日本", "back\\slash", "x and y", " lead", "a/b/f"]
)
MODES = st.sampled_from([b"100644", b"100755", b"120000"])
TREES = st.dictionaries(NAMES, st.tuples(MODES, CONTENT), max_size=5)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", "--bare"], cwd=root, check=True)
    return root


def git_diff(root: Path, old: Tree, new: Tree, *options: str) -> bytes:
    """Return git's diff of two trees, which are dictionaries of mode and content."""
    stream = [b"feature done\n"]
    for branch, tree in ((b"old", old), (b"new", new)):
        stream.append(b"commit refs/heads/%b\ncommitter A U Thor <a@example.com> 1 +0000\ndata 0\ndeleteall\n" % branch)
        for name, (mode, content) in tree.items():
            path = name.encode()
            quoted = b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
            stream.append(b"M %b inline %b\ndata %d\n%b\n" % (mode, quoted, len(content), content))
    stream.append(b"done\n")
    command = ["git", "fast-import", "--quiet", "--force"]
    subprocess.run(command, cwd=root, input=b"".join(stream), check=True, capture_output=True)
    command = ["git", "diff", "--binary", *options, "old", "new"]
    return subprocess.run(command, cwd=root, check=True, capture_output=True).stdout


def sides(file: FilePatch) -> tuple[bytes, bytes]:
    """Return both contents as the hunks of a diff with whole context tell them."""
    made = []
    for mark in (b"-", b"+"):
        content = b""
        for hunk in file.hunks:
            for at, line in enumerate(hunk.lines):
                if line[:1] in (mark, b" "):
                    bare = hunk.lines[at + 1 : at + 2] and hunk.lines[at + 1].startswith(b"\\")
                    content += line[1:] + (b"" if bare else b"\n")
        made.append(content)
    return made[0], made[1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=TREES, new=TREES, context=st.sampled_from([0, 1, 3]), prefix=st.sampled_from([(), ("--no-prefix",)]))
def test_what_git_writes_is_rendered_the_same_and_cross_checked(
    repository: Path, old: Tree, new: Tree, context: int, prefix: tuple[str, ...]
) -> None:
    raw = git_diff(repository, old, new, f"-U{context}", "-M", "-C", "--find-copies-harder", *prefix)
    if not raw:
        return
    patch = parse_patch(raw, source="x")
    assert render_patch(patch) == raw
    assert crosscheck(raw, patch) == ()
    assert b"".join(render_file(file) for file in patch.files) == raw
    again = reverse_patch(reverse_patch(patch))
    assert [file.hunks for file in again.files] == [file.hunks for file in patch.files]
    assert render_patch(again) == raw


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=TREES, new=TREES)
def test_what_git_writes_says_what_the_trees_were(repository: Path, old: Tree, new: Tree) -> None:
    raw = git_diff(repository, old, new, "-U9999", "--no-renames", "--full-index")
    seen_old, seen_new = dict(old), dict(new)
    for file in parse_patch(raw, source="x").files if raw else ():
        before = seen_old.pop(file.old_name[2:], (b"", b""))[1] if file.old_name else b""
        after = seen_new.pop(file.new_name[2:], (b"", b""))[1] if file.new_name else b""
        if file.binary is not None:
            assert apply_binary(file.binary, before) == after
        elif file.hunks:
            assert sides(file) == (before, after)
        elif file.change is Change.MODIFY:
            assert file.old_mode != file.new_mode
    assert seen_old == seen_new


def test_a_hunk_renders_as_it_stands() -> None:
    raw = b"--- a/f\n+++ b/f\n@@ -1 +1 @@ def f():\n-a\n+b\n\\ No newline at end of file\n"
    assert render_hunk(parse_patch(raw, source="x").files[0].hunks[0]) == raw[16:]
