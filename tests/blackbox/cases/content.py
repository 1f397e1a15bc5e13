"""What stands in files and hunks: ends of lines, odd bytes, binary data, headers of git, damage."""

from __future__ import annotations

import base64
import gzip
import hashlib
import zlib
from typing import Any

from tests.blackbox.case import Case, File, lines

SIX = lines("one", "two", "three", "four", "five", "six")
HEADER = lines("--- a/f.py", "+++ b/f.py")


def _hunk(old: bytes, new: bytes, before: bytes, after: bytes, *, header: bytes = b"@@ -2,3 +2,3 @@\n") -> bytes:
    return HEADER + header + b" " + before + b"-" + old + b"+" + new + b" " + after


def _applies(name: str, why: str, before: bytes, patch: bytes, after: bytes, **more: Any) -> Case:
    return Case(name=name, why=why, before={"f.py": before}, patch=patch, after={"f.py": after}, **more)


def _odd(name: str, why: str, odd: bytes) -> Case:
    """A case where the bytes stand in context, in a removed and in an added line."""
    before = b"one\nctx " + odd + b" a\nold " + odd + b"\nctx " + odd + b" b\nsix\n"
    patch = _hunk(b"old " + odd + b"\n", b"new " + odd + b"\n", b"ctx " + odd + b" a\n", b"ctx " + odd + b" b\n")
    return _applies(name, why, before, patch, before.replace(b"old", b"new"))


def _git_change(name: str, why: str, header: bytes, before: dict[str, File], after: dict[str, File | None]) -> Case:
    return Case(name=name, why=why, before=before, patch=header, after=after)


def _binary(content: bytes) -> bytes:
    """Return a literal as git writes it: deflated, 52 bytes a line in git's base 85, each line with its length."""
    deflated = zlib.compress(content, 9)
    rows = [deflated[start : start + 52] for start in range(0, len(deflated), 52)]
    text = b"literal %d\n" % len(content)
    for row in rows:
        length = len(row) + ord("A") - 1 if len(row) <= 26 else len(row) - 27 + ord("a")
        text += bytes([length]) + base64.b85encode(row, pad=True) + b"\n"
    return text + b"\n"


def _id(content: bytes) -> str:
    """Return git's id of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


CHANGE = _hunk(b"three\n", b"THREE\n", b"two\n", b"four\n")
CHANGED = SIX.replace(b"three", b"THREE")
MAIL = (
    b"From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\nFrom: Somebody <somebody@example.com>\n"
    b"Date: Mon, 1 Jan 2026 00:00:00 +0000\nSubject: [PATCH 1/2] Change a thing\n\nA list:\n\n--- not a header\n"
    b"+++ nor this\n---\n f.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\ndiff --git a/f.py b/f.py\n"
    b"index 0123456..89abcde 100644\n"
)
BEFORE_BLOB, AFTER_BLOB = bytes(range(256)) * 3, bytes(range(255, -1, -1)) * 2

CASES = (
    _applies(
        "mail", "git format-patch: header, list, diffstat, signature", SIX, MAIL + CHANGE + b"-- \n2.43.0\n\n", CHANGED
    ),
    _applies(
        "prose around", "a licence line and words before the first header", SIX, b"SPDX: x\n\n@@ no\n" + CHANGE, CHANGED
    ),
    _applies("gz", "patches/*.patch.gz", SIX, gzip.compress(CHANGE, mtime=0), CHANGED, suffix="patch.gz"),
    _applies(
        "CRLF patch of an LF file",
        "a patch converted on its way (Intel's for vLLM 0.10.2)",
        SIX,
        CHANGE.replace(b"\n", b"\r\n"),
        CHANGED,
    ),
    _applies(
        "CRLF file",
        "the lines have CR, the headers do not",
        SIX.replace(b"\n", b"\r\n"),
        _hunk(b"three\r\n", b"THREE\r\n", b"two\r\n", b"four\r\n"),
        CHANGED.replace(b"\n", b"\r\n"),
    ),
    _applies(
        "one CRLF line of many",
        "an end of line is content",
        SIX.replace(b"three\n", b"three\r\n"),
        _hunk(b"three\r\n", b"three\n", b"two\n", b"four\n"),
        SIX,
    ),
    Case(
        name="LF patch of a CRLF file",
        why="git refuses; an end of line is content",
        before={"f.py": SIX.replace(b"\n", b"\r\n")},
        patch=CHANGE,
        after=None,
        status=1,
    ),
    _applies(
        "newline added at the end",
        "the marker behind the old line",
        b"one\ntwo",
        HEADER + b"@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of file\n+two\n",
        b"one\ntwo\n",
    ),
    _applies(
        "newline removed at the end",
        "the marker behind the new line, translated",
        b"one\ntwo\n",
        HEADER + b"@@ -1,2 +1,2 @@\n one\n-two\n+two\n\\ Kein Zeilenumbruch am Dateiende.\n",
        b"one\ntwo",
    ),
    _applies(
        "no newline in context",
        "the marker behind a context line",
        b"one\ntwo",
        HEADER + b"@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n\\ No newline at end of file\n",
        b"ONE\ntwo",
    ),
    Case(
        name="marker against a newline",
        why="the patch ends without, the file with a newline",
        before={"f.py": b"one\ntwo\n"},
        patch=HEADER + b"@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n\\ No newline at end of file\n",
        after=None,
        status=1,
    ),
    _odd("lone CR", "str.splitlines splits there", b"a\rb"),
    _odd("form feed", "str.splitlines splits there", b"a\x0cb"),
    _odd("vertical tab", "str.splitlines splits there", b"a\x0bb"),
    _odd("file separators", "str.splitlines splits there", b"a\x1cb\x1db\x1e"),
    _odd("U+2028 and U+0085", "str.splitlines splits there", "a\u2028b\u0085c".encode()),
    _odd("latin-1", "not UTF-8", b"caf\xe9"),
    _odd("NUL", "text for git apply when the diff says so", b"a\0b"),
    _applies(
        "stripped blanks",
        "a mailer took the blank of empty context lines",
        b"one\n\nthree\n\nfive\n",
        HEADER + b"@@ -1,5 +1,5 @@\n one\n\n-three\n+THREE\n\n five\n",
        b"one\n\nTHREE\n\nfive\n",
    ),
    _applies(
        "removed dashes",
        "`--- x` and `+++ x` inside a hunk are lines",
        b"one\n-- a\n-- b\nsix\n",
        HEADER + b"@@ -1,4 +1,4 @@\n one\n--- a\n--- b\n+++ a\n+++ b\n six\n",
        b"one\n++ a\n++ b\nsix\n",
    ),
    _applies(
        "a diff as content",
        "`@@` and `diff --git` inside a hunk are lines",
        b"one\n@@ -1 +1 @@\nsix\n",
        HEADER + b"@@ -1,3 +1,4 @@\n one\n-@@ -1 +1 @@\n+@@ -2 +2 @@\n+diff --git a/x b/x\n six\n",
        b"one\n@@ -2 +2 @@\ndiff --git a/x b/x\nsix\n",
    ),
    Case(
        name="count too large",
        why="the hunk ends early: damaged or cut off",
        before={"f.py": SIX},
        patch=CHANGE.replace(b"-2,3 +2,3", b"-2,4 +2,4"),
        after=None,
        status=1,
        says=("line 3 says",),
    ),
    Case(
        name="count too small",
        why="hand-edited: a changed line stands behind the end of the hunk",
        before={"f.py": SIX},
        patch=CHANGE.replace(b" four\n", b"-four\n+FOUR\n"),
        after=None,
        status=1,
    ),
    Case(
        name="cut off",
        why="the download stopped within the second file",
        before={"f.py": SIX, "g.py": SIX},
        patch=CHANGE + CHANGE.replace(b"f.py", b"g.py")[:-12],
        after=None,
        status=1,
    ),
    Case(
        name="no diff at all",
        why="a web page instead of a patch",
        before={"f.py": SIX},
        patch=b"<!DOCTYPE html>\n<html><body>Not Found</body></html>\n",
        after=None,
        status=1,
    ),
    Case(name="empty patch", why="an empty file is no patch", before={"f.py": SIX}, patch=b"", after=None, status=1),
    Case(
        name="context diff",
        why="not the format that we read",
        before={"f.py": SIX},
        patch=lines("*** a/f.py", "--- b/f.py", "***************", "*** 2,4 ****", "  two", "! three", "  four")
        + lines("--- 2,4 ----", "  two", "! THREE", "  four"),
        after=None,
        status=1,
    ),
    _git_change(
        "rename with a change",
        "both names, one hunk",
        lines("diff --git a/f.py b/new/g.py", "similarity index 80%", "rename from f.py", "rename to new/g.py")
        + CHANGE.replace(b"b/f.py", b"b/new/g.py"),
        {"f.py": SIX},
        {"f.py": None, "new/g.py": CHANGED},
    ),
    _git_change(
        "pure rename",
        "no hunk",
        lines("diff --git a/f.py b/g.py", "similarity index 100%", "rename from f.py", "rename to g.py"),
        {"f.py": SIX},
        {"f.py": None, "g.py": SIX},
    ),
    _git_change(
        "copy",
        "the source stays",
        lines("diff --git a/f.py b/g.py", "similarity index 100%", "copy from f.py", "copy to g.py"),
        {"f.py": SIX},
        {"g.py": SIX},
    ),
    _git_change(
        "mode only",
        "no hunk, no content",
        lines("diff --git a/f.py b/f.py", "old mode 100644", "new mode 100755"),
        {"f.py": SIX},
        {"f.py": ("exec", SIX)},
    ),
    _git_change(
        "new file in a new directory",
        "parents are made, and go again",
        lines("diff --git a/x/y/z.py b/x/y/z.py", "new file mode 100755", "--- /dev/null", "+++ b/x/y/z.py")
        + b"@@ -0,0 +1 @@\n+new\n",
        {"f.py": SIX},
        {"x/y/z.py": ("exec", b"new\n")},
    ),
    _git_change(
        "empty new file",
        "no hunk to hang it on",
        lines("diff --git a/x/__init__.py b/x/__init__.py", "new file mode 100644", "index 0000000..e69de29"),
        {"f.py": SIX},
        {"x/__init__.py": b""},
    ),
    _git_change(
        "deleted file",
        "the last of its directory",
        lines("diff --git a/x/f.py b/x/f.py", "deleted file mode 100644", "--- a/x/f.py", "+++ /dev/null")
        + b"@@ -1,2 +0,0 @@\n-one\n-two\n",
        {"x/f.py": b"one\ntwo\n", "g.py": SIX},
        {"x/f.py": None},
    ),
    Case(
        name="deleted file has more lines",
        why="what is not in the patch would be lost",
        before={"f.py": SIX},
        patch=lines("diff --git a/f.py b/f.py", "deleted file mode 100644", "--- a/f.py", "+++ /dev/null")
        + b"@@ -1,2 +0,0 @@\n-one\n-two\n",
        after=None,
        status=1,
    ),
    _git_change(
        "new symlink",
        "mode 120000: the content is the target",
        lines(
            "diff --git a/link b/link", "new file mode 120000", "--- /dev/null", "+++ b/link", "@@ -0,0 +1 @@", "+f.py"
        )
        + b"\\ No newline at end of file\n",
        {"f.py": SIX},
        {"link": ("link", "f.py")},
    ),
    Case(
        name="binary literal of another content",
        why="the id of the preimage is another one",
        before={"blob": BEFORE_BLOB + b"x"},
        patch=lines(
            "diff --git a/blob b/blob", f"index {_id(BEFORE_BLOB)}..{_id(AFTER_BLOB)} 100644", "GIT binary patch"
        )
        + _binary(AFTER_BLOB)
        + _binary(BEFORE_BLOB),
        after=None,
        status=1,
        says=("blob",),
    ),
    _git_change(
        "binary literal",
        "GIT binary patch, both sides",
        lines("diff --git a/blob b/blob", f"index {_id(BEFORE_BLOB)}..{_id(AFTER_BLOB)} 100644", "GIT binary patch")
        + _binary(AFTER_BLOB)
        + _binary(BEFORE_BLOB),
        {"blob": BEFORE_BLOB},
        {"blob": AFTER_BLOB},
    ),
    Case(
        name="binary files differ",
        why="the payload is not in the patch",
        before={"blob": BEFORE_BLOB, "f.py": SIX},
        patch=lines(
            "diff --git a/blob b/blob", "index 1111111..2222222 100644", "Binary files a/blob and b/blob differ"
        )
        + CHANGE,
        after=None,
        status=1,
        says=("blob",),
    ),
    _applies("reverse", "-R", CHANGED, CHANGE, SIX, options=("--reverse",)),
)
