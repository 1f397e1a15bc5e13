"""Mails as `git am` reads them: messages that look like a diff, mailboxes of other writers, encodings, parts."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from patchkit.diff.crosscheck import crosscheck
from patchkit.diff.mail import Messages
from patchkit.diff.parse import parse_patch
from patchkit.diff.text import read_text
from patchkit.errors import PatchFormatError
from patchkit.record import replace
from tests.making import Files, World, entries_of

TREE: Files = {"x.py": "1\n2\n3\n4\n5\n", "y.py": "a\nb\nc\n"}
PLAIN = b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n"
MBOXRD = b"From mboxrd@z Thu Jan  1 00:00:00 1970\n"
HEADER = b"From: A U Thor <a@example.org>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\nSubject: [PATCH] one\n"
STAT = b"---\n x.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"
EDIT = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,5 +1,5 @@\n 1\n 2\n-3\n+three\n 4\n 5\n"
AGAIN = EDIT.replace(b"three", b"drei").replace(b"-3", b"-three")
QUOTED_EDIT = EDIT.replace(b"three", b"a=3D1")
RENAME = b"diff --git a/x.py b/z.py\nsimilarity index 100%\nrename from x.py\nrename to z.py\n"
SIGNATURE = b"-- \n2.39.5\n\n"
QUOTED = b"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: Quoted-Printable\n"


def mail(message: bytes = b"text\n", edit: bytes = EDIT, *, begin: bytes = PLAIN, fields: bytes = b"") -> bytes:
    return begin + HEADER + fields + b"\n" + message + STAT + edit + SIGNATURE


def in_base64(edit: bytes = EDIT) -> bytes:
    header, _, body = mail(edit=edit).partition(b"\n\n")
    return header + b"\n" + QUOTED.replace(b"Quoted-Printable", b"base64") + b"\n" + base64.encodebytes(body)


def in_parts(message: bytes) -> bytes:
    """Return a mail as `git format-patch --attach` writes it."""
    edge, plain = b"------------2.39.5", b"Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n"
    head = HEADER + b'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="%b"\n\nIn parts.\n' % edge
    parts = (plain + b"\n" + message + STAT, plain.replace(b"plain", b"x-patch") + b"\n" + EDIT + b"\n")
    return PLAIN + head + b"".join(b"--%b\n%b" % (edge, part) for part in parts) + b"--%b--\n\n\n" % edge


def applied_by_git(raw: bytes, root: Path) -> Files | None:
    """Return the files as git am leaves them, None where it refuses."""
    identity = {f"GIT_{who}_{what}": f"{what}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull}

    def git(*arguments: str) -> bool:
        command = ["git", *arguments]
        return not subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False).returncode

    for path, entry in entries_of(TREE).items():
        (root / path).write_bytes(entry.content)
    assert all((git("init", "-q"), git("add", "-A"), git("commit", "-qm", "tree")))
    (root / ".git" / "in.mbox").write_bytes(raw)
    if not git("am", "-q", ".git/in.mbox"):
        return None
    return {path.name: path.read_text() for path in root.iterdir() if path.name != ".git"}


def applied_here(raw: bytes) -> Files | None:
    """Return the files as patchkit leaves them, None where it does not read the patch."""
    try:
        patch = parse_patch(raw, source="x")
    except PatchFormatError:
        return None
    assert crosscheck(raw, patch) == ()
    one = World(TREE)
    assert not one.put(one.ad_hoc(raw, strip=1)).refused
    return dict(one.contents)


SAME = {
    "a hunk's head": mail(b"text\n@@ -1,2 +1,2 @@\nmore\n"),
    "a whole hunk": mail(b"text\n@@ -1,2 +1,2 @@\n-a\n+b\n c\nmore\n"),
    "below a line of four dashes": mail(b"text\n----\n@@ -1,2 +1,2 @@\n"),
    "without a From line": mail(b"text\n@@ -1,2 +1,2 @@\nmore\n", begin=b""),
    "behind the subject": b"Subject: one\n" + mail(b"text\n@@ -1 +1 @@\n", begin=b""),
    "with CRLF": mail(b"text\n@@ -1,2 +1,2 @@\nmore\n").replace(b"\n", b"\r\n"),
    "in the second mail": mail() + mail(b"text\n@@ -1,2 +1,2 @@\n-a\n+b\n", AGAIN),
    "in the second mail of another writer": mail(begin=MBOXRD) + mail(b"@@ -1 +1 @@\n", AGAIN, begin=MBOXRD),
    "behind the name of a commit": mail(b"t\n\ncommit 0123456789012345678901234567890123456789\n@@ -1 +1 @@\n"),
    "in parts": in_parts(b"text\n@@ -1,2 +1,2 @@\nmore\n"),
    "of hg": b"# HG changeset patch\n# User A U Thor <a@example.org>\n# Date 1 0\nsubject\n\n@@ -1 +1 @@\n\n" + EDIT,
    "a binary file that differs": mail(b"text\nBinary files a/y.py and b/y.py differ\nmore\n"),
    "a file's name": mail(b"text\n--- a/y.py\nmore\n"),
    "both names": mail(b"text\n--- a/y.py\n+++ b/y.py\nmore\n"),
    "a whole diff": mail(b"text\n--- a/y.py\n+++ b/y.py\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n\nmore\n"),
    "a new file": mail(b"text\ndiff --git a/z.py b/z.py\nnew file mode 100644\nmore\n"),
    "an Index line": mail(b"text\nIndex: y.py\nmore\n"),
    "a name, then a hunk's head": mail(b"text\n--- a/y.py\n@@ -1,2 +1,2 @@\nmore\n"),
    "a hunk's head below the dashes": mail(b"text\n---\n@@ -1,2 +1,2 @@\nmore\n"),
    "a diff that lost its head": mail(b"text\n@@ -1,2 +1,2 @@\n-a\n+b\n", b""),
    "the second diff lost its head": mail() + mail(b"text\n@@ -1,2 +1,2 @@\n-a\n+b\n", b""),
    "renamed in a second mail": mail(begin=MBOXRD) + mail(edit=RENAME, begin=MBOXRD),
    "quoted-printable in the message": mail(b"=C3=A9\n", fields=QUOTED),
}
REFUSED = {
    "a combined diff": (mail(b"text\ndiff --cc y.py\nmore\n"), "x:7: a merge commit's combined diff cannot be applied"),
    "quoted-printable": (mail(edit=QUOTED_EDIT, fields=QUOTED), "x:21: a mail in quoted-printable"),
    "base64": (in_base64(), "x:7: no unified diff in this file"),
    "base64, then a mail": (in_base64() + b"\n" + mail(edit=AGAIN), "x:7: a mail in base64"),
    "a mail, then base64": (mail() + in_base64(AGAIN), "x:30: a mail in base64"),
}


@pytest.mark.parametrize("raw", SAME.values(), ids=SAME)
def test_mail_is_read_as_git_am_reads_it(raw: bytes, tmp_path: Path) -> None:
    assert applied_here(raw) == applied_by_git(raw, tmp_path)


@pytest.mark.parametrize(("raw", "words"), REFUSED.values(), ids=REFUSED)
def test_mail_that_git_am_reads_and_patchkit_does_not_is_refused_with_its_line(
    raw: bytes, words: str, tmp_path: Path
) -> None:
    assert applied_by_git(raw, tmp_path) is not None
    with pytest.raises(PatchFormatError) as caught:
        parse_patch(raw, source="x")
    assert caught.value.what == words
    assert words.endswith("cannot be applied") or "git mailinfo" in caught.value.hint


def test_only_the_header_of_a_mail_says_how_it_is_encoded() -> None:
    about = b"Content-Transfer-Encoding: quoted-printable\n"
    raw = mail(about, edit=EDIT.replace(b"three", b"a=10"))
    assert len(parse_patch(raw, source="x").files) == 1
    raw = mail(b"=C3=A9\n", fields=QUOTED) + mail(edit=AGAIN.replace(b"drei", b"a=10"))
    assert len(parse_patch(raw, source="x").files) == 2


class _Counted(list[bytes]):
    """Lines that count how often one of them is read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.reads += len(found) if isinstance(place, slice) else 1
        return found


@pytest.mark.parametrize("begins", [PLAIN + b"\n", b"", b"---\n"])
@pytest.mark.parametrize("ends", [b"diff --git a/x b/x\n", b"---\n", b""])
def test_prose_that_looks_like_a_diff_is_passed_over_once(begins: bytes, ends: bytes) -> None:
    text = read_text(begins + b"new mode a\n" * 500 + ends, source="x")
    lines = _Counted(text.lines)
    messages = Messages(replace(text, lines=lines), 0)
    held = [messages.hold(index) for index in range(2, 500)]
    assert set(held) == {begins.startswith(b"From") and ends.startswith(b"diff")}
    assert lines.reads < 3 * len(lines)
