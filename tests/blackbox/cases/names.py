"""Names as people's patches write them: which file of the tree is meant."""

from tests.blackbox.case import Case, lines
from tests.blackbox.wheels import CHANGED, MODULE, engine

HUNK = lines("@@ -2,7 +2,7 @@", " ", " import os", " ", "-RATE = 1", "+RATE = 2", " LIMIT = 3", " ", " ")
VLLM = ("vllm", "0.1.0")
SGLANG = ("sglang", "0.1.3")


def _git(old: str, new: str) -> bytes:
    return lines(f"diff --git {old} {new}", f"--- {old}", f"+++ {new}") + HUNK


def _plain(old: str, new: str) -> bytes:
    return lines(f"--- {old}", f"+++ {new}") + HUNK


def _wheel(name: str, why: str, patch: bytes, path: str = "vllm/engine.py", wheel: tuple[str, str] = VLLM) -> Case:
    return Case(name=name, why=why, before=engine(*wheel), wheel=wheel, patch=patch, after={path: CHANGED})


def _tree(name: str, why: str, patch: bytes, path: str, *options: str) -> Case:
    return Case(name=name, why=why, before={path: MODULE}, patch=patch, after={path: CHANGED}, options=options)


CASES = (
    _wheel("git names", "the usual a/ and b/", _git("a/vllm/engine.py", "b/vllm/engine.py")),
    _wheel(
        "source tree of sglang",
        "python/ is there in the repository and gone in the wheel",
        _git("a/python/sglang/engine.py", "b/python/sglang/engine.py"),
        "sglang/engine.py",
        SGLANG,
    ),
    _wheel(
        "package-relative",
        "cut inside the package",
        _git("a/layers/attention.py", "b/layers/attention.py"),
        "vllm/layers/attention.py",
    ),
    _wheel(
        "absolute dist-packages",
        "git diff --no-index of an installed file",
        _git(
            "a/usr/local/lib/python3.12/dist-packages/vllm/engine.py",
            "b/usr/local/lib/python3.12/dist-packages/vllm/engine.py",
        ),
    ),
    _wheel(
        "absolute names without letters",
        "diff -u of two installed files",
        _plain(
            "/opt/venv/lib/python3.11/site-packages/vllm/engine.py.orig",
            "/opt/venv/lib/python3.11/site-packages/vllm/engine.py",
        ),
    ),
    _wheel(
        "diff of two directories",
        "diff -ruN ./srt ../../../checkout/python/sglang/srt: the sides differ in depth and the new one climbs",
        lines("diff -ruN ./layers/attention.py ../../../sglang/python/sglang/layers/attention.py")
        + _plain(
            "./layers/attention.py\t2025-01-01 10:00:00.000000000 +0000",
            "../../../sglang/python/sglang/layers/attention.py\t2025-01-02 10:00:00.000000000 +0000",
        ),
        "sglang/layers/attention.py",
        SGLANG,
    ),
    _wheel("mnemonic prefixes", "diff.mnemonicPrefix", _git("i/vllm/engine.py", "w/vllm/engine.py")),
    _wheel("commit and index prefixes", "diff.mnemonicPrefix", _git("c/vllm/engine.py", "i/vllm/engine.py")),
    _wheel("no prefix", "diff.noprefix", _git("vllm/engine.py", "vllm/engine.py")),
    _wheel(
        "other directory names", "diff -ru old new", _plain("vllm-0.1.0/vllm/engine.py", "vllm-mine/vllm/engine.py")
    ),
    _tree(
        "time stamps",
        "a name ends at the tab",
        _plain("a/engine.py\t2026-01-01 00:00:00 +0000", "b/engine.py\t2026-01-02 00:00:00 +0000"),
        "engine.py",
    ),
    _tree(
        "blanks in names",
        "git does not quote blanks but ends the name with a tab",
        lines("diff --git a/my engine.py b/my engine.py", "--- a/my engine.py\t", "+++ b/my engine.py\t") + HUNK,
        "my engine.py",
    ),
    _tree(
        "blank and b slash in a directory",
        "`a/a b/c d.py b/a b/c d.py` splits in several places",
        lines("diff --git a/a b/c d.py b/a b/c d.py", "--- a/a b/c d.py\t", "+++ b/a b/c d.py\t") + HUNK,
        "a b/c d.py",
    ),
    _tree(
        "quoted UTF-8 name",
        "git's C quoting of bytes over 127",
        _git('"a/\\346\\227\\245\\346\\234\\254.py"', '"b/\\346\\227\\245\\346\\234\\254.py"'),
        "日本.py",
    ),
    _tree(
        "quoted tab",
        "git's C quoting of control characters",
        _git('"a/tab\\there.py"', '"b/tab\\there.py"'),
        "tab\there.py",
    ),
    _tree(
        "unquoted UTF-8 name",
        "core.quotePath=false",
        _git("a/日本.py", "b/日本.py"),
        "日本.py",
    ),
    _tree(
        "svn index",
        "Subversion's header",
        lines("Index: engine.py", "=" * 67) + _plain("engine.py\t(revision 3)", "engine.py\t(working copy)"),
        "engine.py",
    ),
    _tree("backup name", "the old side is an editor's backup", _plain("engine.py.orig", "engine.py"), "engine.py"),
    _tree(
        "three levels stripped",
        "an explicit level",
        _git("a/x/y/engine.py", "b/x/y/engine.py"),
        "engine.py",
        "--strip",
        "3",
    ),
    Case(
        name="strip level too high",
        why="an explicit level is not second-guessed",
        before={"engine.py": MODULE},
        patch=_git("a/engine.py", "b/engine.py"),
        after=None,
        status=1,
        options=("--strip", "3"),
    ),
    Case(
        name="nothing of that name",
        why="a patch for another project",
        before={"other.py": MODULE},
        patch=_git("a/engine.py", "b/engine.py"),
        after=None,
        status=1,
        says=("engine.py",),
    ),
)
