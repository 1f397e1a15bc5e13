"""What a file that holds no unified diff looks like, and what to do about it."""

from __future__ import annotations

import re

from patchkit.diff.mail import DECODE
from patchkit.diff.text import PatchText
from patchkit.errors import PatchFormatError

_LOOKS = (
    (rb"\A(?:BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|PK\x03\x04)", "a compressed file, and not gz", "decompress it first"),
    (rb"\A(?:\xff\xfe|\xfe\xff)", "UTF-16 text", "convert it to UTF-8 (a PowerShell `>` writes UTF-16)"),
    (rb"\Aversion https://git-lfs", "a git LFS pointer, not the file itself", "fetch it with `git lfs pull`"),
    (rb"(?i)\A\s*<(?:!doctype|html|\?xml|head|body)", "a web page", "download the raw diff (GitHub: add .diff)"),
    (rb"\A\s*[\[{]", "JSON", "download the raw diff, not the API's answer"),
    (rb"(?m)^\*{15}", "a context diff", "make it anew with `diff -u`, or use `filterdiff --format=unified`"),
    (rb"(?m)^(?:diff --(?:cc|combined) |@@@+ -)", "a merge commit's combined diff", "use `git show -m --first-parent`"),
    (rb"(?m)^\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?$", "a normal diff (without -u)", "make it anew with `diff -u`"),
    (
        rb"(?m)^(?:\d+(?:,\d+)?[acdis]|[acd]\d+ \d+)\r?$",
        "an ed script",
        "make it anew with `diff -u`: no script is run",
    ),
    (rb"(?m)^(?:--- .*\n\+\+\+ |diff --git |Index: )", "a diff's head without a hunk", "hunks begin with `@@ -`"),
    (rb"(?im)^content-transfer-encoding:[ \t]*base64\b", "a mail in base64", DECODE),
    (rb"\0", "a binary file", "give the unified diff itself"),
)
_SAMPLE = 200  # lines, and no more bytes of them than this: a file of zeros is one line
_SAMPLE_BYTES = 1 << 16
_MAKE = "make it with `diff -u` or `git diff`"


def no_diff_error(text: PatchText) -> PatchFormatError:
    """Return the error for a file in which no file patch was found."""
    sample = text.join(0, min(text.end, _SAMPLE))[:_SAMPLE_BYTES]
    if not sample.strip():
        return text.error(0, "the patch is empty", why="a unified diff is needed", hint=_hint(_MAKE))
    for look, name, hint in _LOOKS:
        found = re.search(look, sample)
        if found:
            line = sample.count(b"\n", 0, found.start())
            return text.error(line, "no unified diff in this file", why=f"it looks like {name}", hint=_hint(hint))
    return text.error(0, "no unified diff in this file", why="it looks like plain text", hint=_hint(_MAKE))


def _hint(step: str) -> str:
    return f"{step}; `---`, `+++` and `@@ -` lines, or a `diff --git` line, are needed"
