"""What a patch must not reach: outside the tree, through a link, git's own files; and names that drive a terminal."""

from __future__ import annotations

from tests.blackbox.case import Case, File, lines

FILE = lines("one", "two", "three")
HUNK = lines("@@ -1,3 +1,3 @@", " one", "-two", "+TWO", " three")
NEW = lines("@@ -0,0 +1 @@", "+owned")


def _change(old: str, new: str) -> bytes:
    return lines(f"--- {old}", f"+++ {new}") + HUNK


def _create(name: str, mode: str = "100644") -> bytes:
    return lines(f"diff --git a/{name} b/{name}", f"new file mode {mode}", "--- /dev/null", f"+++ b/{name}") + NEW


def _refused(name: str, why: str, patch: bytes, before: dict[str, File] | None = None, *options: str) -> Case:
    return Case(
        name=name,
        why=why,
        before={"f.py": FILE, "dir/g.py": FILE} if before is None else before,
        patch=patch,
        after=None,
        status=1,
        options=options or ("--strip", "1"),
    )


LINK_TO_OUTSIDE = lines(
    "diff --git a/out b/out", "new file mode 120000", "--- /dev/null", "+++ b/out", "@@ -0,0 +1 @@"
) + (b"+../..\n\\ No newline at end of file\n")

CASES = (
    _refused("parent directory", "CVE-2010-4651", _create("../../owned.py")),
    _refused("parent directory within", "a detour is not needed", _create("dir/../../owned.py")),
    _refused("absolute name", "CVE-2010-4651", _change("/etc/hostname", "/etc/hostname"), None, "--strip", "0"),
    _refused("quoted parent directory", "CVE-2014-0471", _create("x").replace(b"b/x", b'"b/\\056\\056/\\056\\056/x"')),
    _refused(
        "index parent directory",
        "CVE-2014-3865",
        lines("Index: ../../owned.py", "--- /dev/null", "+++ /dev/null") + NEW,
        None,
        "--strip",
        "0",
    ),
    _refused("link, then through it", "CVE-2015-1196", LINK_TO_OUTSIDE + _create("out/owned.py")),
    _refused(
        "through a link of the tree",
        "CVE-2019-13636",
        _create("out/owned.py"),
        {"f.py": FILE, "out": ("link", "../..")},
    ),
    _refused(
        "through a link within",
        "the other name is the one to patch",
        _change("a/other/g.py", "b/other/g.py"),
        {"dir/g.py": FILE, "other": ("link", "dir")},
    ),
    _refused(
        "the file is a link", "CVE-2019-13636", _change("a/l.py", "b/l.py"), {"f.py": FILE, "l.py": ("link", "f.py")}
    ),
    _refused(
        "rename out of the tree",
        "CVE-2015-1395",
        lines("diff --git a/f.py b/../../f.py", "similarity index 100%", "rename from f.py", "rename to ../../f.py"),
    ),
    _refused(
        "copy from outside",
        "git apply 2.39 reads it",
        lines(
            "diff --git a/../../secret b/stolen", "similarity index 100%", "copy from ../../secret", "copy to stolen"
        ),
    ),
    _refused("hook of git", "CVE-2014-9390", _create(".git/hooks/post-checkout", "100755")),
    _refused("hook of git on a case-blind disk", "CVE-2014-9390", _create("dir/.GIT/hooks/post-checkout", "100755")),
    _refused("file .git", "a file of that name leads git elsewhere", _create("dir/.git")),
    _refused("our own state", "a patch does not edit its receipt", _create(".patchkit/tree/receipt.json")),
    _refused(
        "ed script",
        "CVE-2018-1000156",
        lines("--- a/f.py", "+++ b/f.py", "2c", "!touch owned", ".", "w", "q"),
    ),
    Case(
        name="set-user-id mode",
        why="git knows 644 and 755: the bit is dropped, as git and GNU patch do",
        before={"f.py": FILE},
        patch=_create("new.py", "104755"),
        after={"new.py": ("exec", b"owned\n")},
    ),
    _refused("device", "not a file", _create("new.py", "020666")),
    _refused(
        "submodule",
        "a commit id is no content",
        _create("new", "160000").replace(b"+owned", b"+Subproject commit " + b"0" * 40),
    ),
    _refused("NUL in a name", "ends the name in C", _create("x").replace(b"b/x", b'"b/x\\000y"')),
    _refused("newline in a name", "two names in a listing", _create("x").replace(b"b/x", b'"b/x\\ny"')),
    _refused("new file is there", "a later release has it", _create("f.py")),
    _refused("new file where a directory is", "no directory is replaced", _create("dir")),
    _refused("new file below a file", "no file becomes a directory", _create("f.py/x.py")),
    _refused(
        "the same new file twice",
        "the second would win",
        _create("new.py") + _create("new.py"),
    ),
    _refused(
        "count of billions",
        "nothing is allocated for a promise",
        _change("a/f.py", "b/f.py").replace(b"-1,3", b"-1,99999999999"),
    ),
    _refused(
        "line number of billions",
        "nothing is there",
        _change("a/f.py", "b/f.py").replace(b"-1,3", b"-99999999999,3").replace(b"one", b"eins"),
    ),
    Case(
        name="escape sequence in a name",
        why="what is printed does not drive the terminal",
        before={"f.py": FILE},
        patch=_change('"a/\\033[2Jx.py"', '"b/\\033[2Jx.py"'),
        after=None,
        status=1,
    ),
    Case(
        name="other people's leftovers",
        why="f.py.orig and f.py.rej are not ours",
        before={"f.py": FILE, "f.py.orig": b"keep\n", "f.py.rej": b"keep\n", "f.py~": b"keep\n"},
        patch=_change("a/f.py", "b/f.py"),
        after={"f.py": FILE.replace(b"two", b"TWO")},
    ),
)
