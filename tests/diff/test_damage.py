"""Damaged headers and hunks: what is left of one is refused with its line, where git passes over it."""

from __future__ import annotations

import pytest

from patchkit.diff.parse import parse_patch
from patchkit.errors import PatchFormatError

HUNK = "@@ -1 +1 @@\n-a\n+b\n"
NAMES = "--- a/f\n+++ b/f\n"
GIT = "diff --git a/f b/f\n"
OTHER = "diff --git a/g b/g\n--- a/g\n+++ b/g\n" + HUNK
MODES = "old mode 100644\nnew mode 100755\n"
RENAME = "similarity index 90%\nrename from f\nrename to g\n"
COPY = "similarity index 90%\ncopy from f\ncopy to g\n"
MOVED = "index 1234567..2345678 100644\n--- a/f\n+++ b/g\n" + HUNK
BINARY = "GIT binary patch\nliteral 0\nHcmV?d00001\n\n"
SUBJECT = "From: a\nSubject: b\n\n"

REFUSED = {
    "a blank line in a header": (GIT + "\n" + MODES + OTHER, 3, "a line of a damaged header"),
    "a lone CR in a header": (GIT + "\r\n" + MODES + OTHER, 3, "a line of a damaged header"),
    "a line between": (GIT + "junk\nnew file mode 100755\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n", 3, "a line of"),
    "a quoted line": ("diff --git a/f b/g\n> similarity index 90%\n" + RENAME[21:] + MOVED, 3, "a line of"),
    "a damaged word": ("diff --git a/f b/g\nsimilar1ty index 90%\n" + RENAME[21:] + MOVED, 3, "a line of"),
    "a quoted first line": (OTHER + "> " + GIT + MODES, 8, "a line of a damaged header"),
    "no first line": (RENAME + MOVED, 2, "a line of a damaged header"),
    "no first line of modes": (MODES + OTHER, 1, "a line of a damaged header"),
    "no first line of a binary": ("index 1234567..2345678\n" + BINARY + OTHER, 2, "a line of a damaged header"),
    "half a rename behind its likeness": (
        OTHER + "similarity index 90%\nrename to f\n",
        8,
        "a line of a damaged header",
    ),
    "half a rename above its blobs": (OTHER + "\nrename to g\n" + MOVED, 8, "a line of a damaged header"),
    "an index line alone": (GIT + "junk\nindex 0000000..e69de29\n" + OTHER, 3, "a line of a damaged header"),
    "a quoted line before the names": ("diff --git a/f b/g\n" + COPY + "> " + MOVED, 5, "a damaged change"),
    "a likeness without its names": ("diff --git a/f b/g\n" + COPY[:21] + MOVED, 2, "the header lacks a name"),
    "another name of a new file": (
        "diff --git a/d/f b/e/f\nnew file mode 100644\n" + OTHER,
        1,
        "inconsistent file name",
    ),
    "no new mode": (GIT + MODES[:16] + "index 1234567..2345678\n" + NAMES + HUNK, 2, "the header lacks a mode"),
    "no old mode": (GIT + MODES[16:] + OTHER, 2, "the header lacks a mode"),
    "no mode of a new file": (
        GIT + "index 0000000..2345678\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n",
        2,
        "the header lacks a mode",
    ),
    "no mode of a deleted file": (GIT + "index 1234567..0000000\n" + BINARY, 2, "the header lacks a mode"),
    "a new file's hunk that is gone": (
        GIT + "new file mode 100644\nindex 0000000..2345678\n--- /dev/null\n+++ b/f\n" + OTHER,
        5,
        "a new file without its content",
    ),
    "a quoted hunk": (GIT + MODES + "> " + HUNK, 4, "a damaged change"),
    "a binary without its first line": (
        GIT + "new file mode 100644\nindex 0000000..e69de29\n" + BINARY[17:],
        4,
        "a damaged change",
    ),
    "a quoted second hunk": (GIT + NAMES + HUNK + "> @@ -9 +9 @@\n-c\n+d\n", 7, "damaged hunk header"),
    "a damaged second hunk": (GIT + NAMES + HUNK + "b@ -9 +9 @@\n-c\n+d\n", 7, "damaged hunk header"),
}
READ = {
    "nothing is to be done": GIT + OTHER,
    "a header twice": GIT + GIT + NAMES + HUNK,
    "a rename above another tool's diff": "diff --git a/f b/g\n" + RENAME + "Index: f\n" + NAMES + HUNK,
    "a rename above prose and a diff": "diff --git a/f b/g\n" + RENAME + "\nand now f:\n" + NAMES + HUNK,
    "prose that begins so": "rename from here on\nindex of things\ncopy to all\n" + OTHER,
    "prose between that begins so": GIT
    + MODES
    + "\ncopy from host to device\nnew mode of it\nGIT binary patches\n\n"
    + OTHER,
    "prose behind that begins so": OTHER + "\ncopy to pinned memory\nrename from here on\n",
    "the message of a mail": SUBJECT + "old mode 100644\nrename from a\nrename to b\n\n---\n f | 2\n" + OTHER,
    "a first line behind a wrong mark": "\ufeff\ufeff" + GIT + "index 1234567..2345678 100644\n" + NAMES + HUNK,
    "blobs that a model made up": GIT + "index 0000000..1111111 100644\n" + NAMES + HUNK,
    "an empty new file": GIT + "new file mode 100644\nindex 0000000..e69de29\n" + OTHER,
    "an empty new file without its blob": GIT + "new file mode 100644\n" + OTHER,
}


@pytest.mark.parametrize(("raw", "line", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_left_of_a_header_or_a_hunk_is_refused_with_its_line(raw: str, line: int, what: str) -> None:
    with pytest.raises(PatchFormatError) as caught:
        parse_patch(raw.encode(), source="x")
    assert caught.value.what.startswith(f"x:{line}: {what}")


@pytest.mark.parametrize("raw", READ.values(), ids=READ)
def test_what_only_looks_like_damage_is_read(raw: str) -> None:
    (hunk,) = (hunk for file in parse_patch(raw.encode(), source="x").files for hunk in file.hunks)
    assert hunk.lines == (b"-a", b"+b")
