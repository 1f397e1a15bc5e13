"""The second reader agrees with ours on every input, and says so when it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patchkit.diff.crosscheck import crosscheck
from patchkit.diff.model import Patch
from patchkit.diff.parse import parse_patch

CASES = Path(__file__).parents[1] / "cases"
READABLE = sorted(path.name for path in CASES.glob("*.patch*") if not path.name.startswith("bad-"))
RAW = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9 +9 @@\n-x\n+y\n"


@pytest.mark.parametrize("name", READABLE)
def test_unidiff_reads_the_same_hunks(name: str) -> None:
    raw = (CASES / name).read_bytes()
    assert crosscheck(raw, parse_patch(raw, source=name)) == ()


def changed(**fields: Any) -> Patch:
    """Return the patch with its first hunk read wrongly."""
    patch = parse_patch(RAW, source="x")
    file = patch.files[0]
    first = replace(file.hunks[0], **fields)
    return replace(patch, files=(replace(file, hunks=(first, *file.hunks[1:])),))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"old_start": 2}, "x:3: -2,2 +1,2 here, -1,2 +1,2 by unidiff"),
        ({"new_count": 3}, "x:3: -1,2 +1,3 here, -1,2 +1,2 by unidiff"),
        ({"lines": (b" a", b"-B", b"+c")}, "x:5: unidiff reads another line here"),
        ({"lines": (b" a", b"+c", b"-b")}, "x:5: unidiff reads another line here"),
        ({"lines": (b" a", b"-b")}, "x:6: unidiff reads another line here"),
    ],
)
def test_another_reading_is_told_with_its_line(fields: dict[str, Any], words: str) -> None:
    assert crosscheck(RAW, changed(**fields)) == (words,)


def test_a_lost_hunk_is_told() -> None:
    patch = parse_patch(RAW, source="x")
    lost = replace(patch, files=(replace(patch.files[0], hunks=patch.files[0].hunks[:1]),))
    assert crosscheck(RAW, lost) == ("x: 1 hunk here, 2 by unidiff", "x: unidiff has a hunk more: -9,1 +9,1")
    assert len(crosscheck(RAW[: RAW.index(b"@@ -9")], patch)) == 2


def test_what_unidiff_cannot_read_is_told() -> None:
    torn = RAW.replace(b"@@ -9 +9", b"@@ -9,7 +9")
    (told,) = crosscheck(torn, parse_patch(RAW, source="x"))
    assert told.startswith("x: unidiff cannot read it: ")


def test_a_lost_hunk_is_seen_behind_a_header_that_unidiff_cannot_read() -> None:
    raw = b"diff --git a/a b/c b/a b/c\nindex 1111111..2222222 100644\n--- a/a b/c\t\n+++ b/a b/c\t\n" + RAW[16:]
    patch = parse_patch(raw, source="x")
    assert crosscheck(raw, patch) == ()
    lost = replace(patch, files=(replace(patch.files[0], hunks=patch.files[0].hunks[:1]),))
    assert crosscheck(raw, lost)
