"""Where hunks are placed, with examples for each verdict and a comparison with the real `git apply`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit.diff.apply import apply_placements
from patchkit.diff.image import split_lines
from patchkit.diff.locate import Evidence, accepted, place_hunks
from patchkit.diff.model import FilePatch, Placement, Proof, Verdict
from patchkit.diff.parse import parse_patch

HEADER = b"--- a/f.py\n+++ b/f.py\n"


def evidence(
    *, base: bytes | None = None, proven: bool = False, python: bool = True, strict: bool = False, crlf: bool = False
) -> Evidence:
    return Evidence(base=base, proven=proven, python=python, strict=strict, crlf=crlf)


def file_patch(text: bytes, name: bytes = b"f.py") -> FilePatch:
    return parse_patch(HEADER.replace(b"f.py", name) + text, source="test.diff").files[0]


def place(text: bytes, content: bytes, name: bytes = b"f.py", **known: Any) -> tuple[Placement, ...]:
    return place_hunks(file_patch(text, name), split_lines(content), evidence(**known))


def only(text: bytes, content: bytes, **known: Any) -> Placement:
    (placed,) = place(text, content, **known)
    return placed


def patched(text: bytes, content: bytes, **known: Any) -> bytes:
    return apply_placements(file_patch(text), split_lines(content), place(text, content, **known))


def numbered(*numbers: int) -> bytes:
    return b"".join(b"%d\n" % number for number in numbers)


MIDDLE = b"@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n"


def test_context_at_the_stated_line_is_exact() -> None:
    placed = only(MIDDLE, numbered(*range(1, 10)))
    assert (placed.verdict, placed.line, placed.offset, placed.reason) == (Verdict.EXACT, 4, 0, "")
    assert placed.proof is Proof.LINE


INNER = b"@@ -4,3 +4,3 @@\n-4\n+four\n 5\n-6\n+six\n"


def test_hunk_with_context_between_its_changes_only_stands_at_its_line_of_a_proven_file() -> None:
    content = numbered(*range(1, 10))
    placed = only(INNER, content, proven=True)
    assert (placed.verdict, placed.line, placed.proof) == (Verdict.EXACT, 4, Proof.LOCK)
    assert patched(INNER, content, proven=True) == b"1\n2\n3\nfour\n5\nsix\n7\n8\n9\n"


def test_hunk_with_context_between_its_changes_only_is_anchored_in_a_file_that_is_not_proven() -> None:
    assert "it must stand at the end of the file" in only(INNER, numbered(*range(1, 10))).reason


def test_context_elsewhere_is_an_offset_whose_scope_is_unproven() -> None:
    placed = only(MIDDLE, numbered(0, 0, *range(1, 10)))
    assert (placed.verdict, placed.line, placed.offset) == (Verdict.OFFSET, 6, 2)
    assert placed.proof is Proof.NONE
    assert placed.reason == "scope unproven"
    assert accepted(placed, strict=False)


def test_an_unproven_offset_is_not_accepted_in_a_series() -> None:
    placed = only(MIDDLE, numbered(0, *range(1, 10)), strict=True)
    assert placed.verdict is Verdict.OFFSET
    assert placed.reason == "scope unproven: not accepted in a series (give --base)"
    assert not accepted(placed, strict=True)


def test_context_that_fits_at_several_places_is_ambiguous() -> None:
    placed = only(MIDDLE, numbered(0, *range(4, 8), *range(4, 8), *range(4, 8)))
    assert placed.verdict is Verdict.CONFLICT
    assert placed.line is None
    assert placed.reason == "ambiguous: fits at lines 2, 6 and 10"


def test_the_stated_line_wins_over_other_places() -> None:
    placed = only(MIDDLE, numbered(1, 2, 3, 4, 5, 6, 4, 5, 6))
    assert (placed.verdict, placed.line) == (Verdict.EXACT, 4)


@pytest.mark.parametrize(("old_start", "verdict"), [(1, Verdict.CONFLICT), (2, Verdict.OFFSET)])
def test_a_hunk_at_line_one_is_anchored_at_the_start_of_the_file(old_start: int, verdict: Verdict) -> None:
    hunk = b"@@ -%d,2 +%d,3 @@\n+new\n a\n b\n" % (old_start, old_start)
    placed = only(hunk, b"x\nx\na\nb\nc\n")
    assert placed.verdict is verdict
    assert ("must stand at the start" in placed.reason) == (verdict is Verdict.CONFLICT)


def test_a_hunk_without_trailing_context_is_anchored_at_the_end_of_the_file() -> None:
    hunk = b"@@ -2,2 +2,3 @@\n b\n c\n+new\n"
    assert only(hunk, b"a\nb\nc\n").verdict is Verdict.EXACT
    assert only(hunk, b"a\nx\nb\nc\n").verdict is Verdict.OFFSET
    refused = only(hunk, b"a\nb\nc\nd\n")
    assert refused.verdict is Verdict.CONFLICT
    assert "end of the file" in refused.reason


def test_shorter_trailing_context_is_no_anchor() -> None:
    hunk = b"@@ -2,4 +2,5 @@\n b\n c\n d\n+new\n e\n"
    assert only(hunk, b"a\nx\nb\nc\nd\ne\nf\n").verdict is Verdict.OFFSET


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_no_newline_marker_is_part_of_the_preimage(ending: bytes) -> None:
    hunk = b"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"
    verdict = only(hunk, b"a\nb" + ending).verdict
    assert verdict is (Verdict.CONFLICT if ending else Verdict.EXACT)


def test_a_line_with_newline_does_not_match_the_last_one_without() -> None:
    placed = only(b"@@ -1,2 +1,3 @@\n a\n+x\n b\n", b"a\nb")
    assert placed.verdict is Verdict.CONFLICT
    assert "newline at the end of the file only" in placed.reason


def test_nothing_is_put_behind_a_line_without_newline() -> None:
    hunk = b"@@ -2,0 +3 @@\n+c\n"
    assert only(hunk, b"a\nb\n", proven=True).verdict is Verdict.EXACT
    assert only(hunk, b"a\nb", proven=True).verdict is Verdict.CONFLICT


WITHOUT_CONTEXT = [b"@@ -3,0 +4 @@\n+new\n", b"@@ -3 +3 @@\n-3\n+three\n", b"@@ -3 +2,0 @@\n-3\n"]


@pytest.mark.parametrize("hunk", WITHOUT_CONTEXT)
def test_a_hunk_without_context_needs_a_proven_file(hunk: bytes) -> None:
    content = numbered(1, 2, 3, 4, 5)
    assert only(hunk, content).reason == "no context: needs --base or a lock"
    assert only(hunk, content, base=numbered(1, 2, 3, 4)).verdict is Verdict.CONFLICT
    for known in ({"proven": True}, {"base": content}):
        placed = only(hunk, content, **known)
        assert (placed.verdict, placed.line, placed.proof) == (Verdict.EXACT, 3, Proof.LOCK)
    assert patched(WITHOUT_CONTEXT[0], content, proven=True) == b"1\n2\n3\nnew\n4\n5\n"


def test_a_hunk_without_context_goes_nowhere_but_to_its_line() -> None:
    assert only(b"@@ -2 +2 @@\n-3\n+three\n", numbered(1, 2, 3), proven=True).verdict is Verdict.CONFLICT


def test_a_hunk_that_makes_or_takes_the_whole_content_needs_no_context() -> None:
    assert only(b"@@ -0,0 +1,2 @@\n+a\n+b\n", b"").verdict is Verdict.EXACT
    assert only(b"@@ -1,2 +0,0 @@\n-a\n-b\n", b"a\nb\n").verdict is Verdict.EXACT
    assert only(b"@@ -0,0 +1 @@\n+a\n", b"b\n").verdict is Verdict.CONFLICT
    assert patched(b"@@ -0,0 +1,2 @@\n+a\n+b\n", b"") == b"a\nb\n"
    assert patched(b"@@ -1,2 +0,0 @@\n-a\n-b\n", b"a\nb\n") == b""


def test_a_whole_file_at_another_line_is_an_offset() -> None:
    placed = only(b"@@ -2 +2 @@\n-one\n+two\n", b"one\n")
    assert (placed.verdict, placed.line, placed.offset) == (Verdict.OFFSET, 1, -1)
    assert not accepted(placed, strict=True)


def test_a_new_file_that_is_there_already_is_present() -> None:
    assert only(b"@@ -0,0 +1,2 @@\n+a\n+b\n", b"a\nb\n").verdict is Verdict.PRESENT


def test_a_change_that_is_there_is_present() -> None:
    placed = only(MIDDLE, b"1\n2\n3\n4\nfive\n6\n7\n")
    assert (placed.verdict, placed.line, placed.proof) == (Verdict.PRESENT, 4, Proof.LINE)
    assert accepted(placed, strict=True)
    assert patched(MIDDLE, b"1\n2\n3\n4\nfive\n6\n7\n") == b"1\n2\n3\n4\nfive\n6\n7\n"


def test_a_change_that_stands_at_two_other_lines_is_no_presence() -> None:
    placed = only(MIDDLE, b"4\nfive\n6\n4\nfive\n6\n7\n8\n")
    assert placed.verdict is Verdict.PRESENT  # at its new line
    placed = only(MIDDLE, b"4\nfive\n6\n7\n4\nfive\n6\n7\n8\n")
    assert placed.verdict is Verdict.CONFLICT
    assert "lines 1 and 5" in placed.reason


def test_an_insertion_is_not_made_twice() -> None:
    hunk = b"@@ -2,2 +2,3 @@\n a\n+N\n b\n"
    placed = only(hunk, b"0\na\nN\nb\n1\na\nb\n2\n")
    assert placed.verdict is Verdict.CONFLICT
    assert placed.reason == "fits at line 6, but the change stands already at line 2: applied twice?"


def test_repeated_lines_that_read_as_before_and_after_are_a_conflict_unless_proven() -> None:
    hunk = b"@@ -2,2 +2,3 @@\n a\n+b\n b\n"
    content = b"0\na\nb\nb\n1\n"
    placed = only(hunk, content)
    assert placed.verdict is Verdict.CONFLICT
    assert "as before and as after" in placed.reason
    assert only(hunk, content, proven=True).verdict is Verdict.EXACT
    assert only(hunk, b"0\na\nb\n1\n").verdict is Verdict.EXACT


BASE = b"""\
class Engine:
    def generate(self):
        before()
        return call()

    async def async_generate(self):
        pass


def helper() -> None:
    pass
"""
BODY = b"""\
@@ -3,3 +3,4 @@ class Engine:
         before()
+        new()
         return call()

"""
ELSEWHERE = BASE.replace(b"        before()\n        return call()\n", b"        pass\n", 1).replace(
    b"async_generate(self):\n        pass\n", b"async_generate(self):\n        before()\n        return call()\n"
)


def test_an_offset_in_the_scope_of_the_base_is_proven() -> None:
    placed = only(BODY, b"import os\n\n" + BASE, base=BASE, strict=True)
    assert (placed.verdict, placed.line, placed.proof) == (Verdict.OFFSET, 5, Proof.SCOPE)
    assert (placed.scope_before, placed.scope_after) == ("Engine.generate", "Engine.generate")
    assert placed.reason == ""
    assert accepted(placed, strict=True)


def test_a_hunk_whose_context_stands_in_another_function_is_moved() -> None:
    placed = only(BODY, ELSEWHERE, base=BASE)
    assert (placed.verdict, placed.line) == (Verdict.MOVED, 6)
    assert (placed.scope_before, placed.scope_after) == ("Engine.generate", "Engine.async_generate")
    assert placed.reason == "cut in Engine.generate, but its context stands in Engine.async_generate at line 6"
    assert not accepted(placed, strict=False)


def test_the_default_heading_cannot_tell_two_methods_apart_but_the_python_driver_can() -> None:
    assert only(BODY, ELSEWHERE).verdict is Verdict.OFFSET
    by_driver = BODY.replace(b"class Engine:", b"def generate(self):")
    assert only(by_driver, ELSEWHERE).verdict is Verdict.MOVED
    agreed = only(by_driver, b"\n" + BASE)
    assert (agreed.verdict, agreed.proof, agreed.reason) == (Verdict.OFFSET, Proof.HEADING, "scope unproven")


def test_an_exact_place_in_another_scope_than_the_base_is_moved_unless_proven() -> None:
    renamed = BASE.replace(b"def generate", b"def produce")
    assert only(BODY, renamed).verdict is Verdict.EXACT
    assert only(BODY, renamed, base=BASE).verdict is Verdict.MOVED
    assert only(BODY, renamed, base=BASE, proven=True).verdict is Verdict.EXACT


def test_of_two_places_the_one_in_the_scope_of_the_base_is_taken() -> None:
    both = ELSEWHERE.replace(b"        pass\n", b"        before()\n        return call()\n", 1)
    shifted = b"import os\n" + both
    assert only(BODY, shifted).verdict is Verdict.CONFLICT
    placed = only(BODY, shifted, base=BASE)
    assert (placed.verdict, placed.line, placed.scope_after) == (Verdict.OFFSET, 4, "Engine.generate")


def test_a_broken_base_proves_nothing() -> None:
    placed = only(BODY, b"\n" + BASE, base=BASE + b"def (\n")
    assert (placed.verdict, placed.proof) == (Verdict.OFFSET, Proof.HEADING)
    assert placed.reason == "scope unproven"


def indented(*numbers: int) -> bytes:
    return b"".join(b"    %d\n" % number for number in numbers)


def under(section: bytes) -> bytes:
    return b"@@ -4,3 +4,3 @@ " + section + b"\n     4\n-    5\n+    five\n     6\n"


def test_a_section_that_is_a_statement_says_module_level_only() -> None:
    body = indented(*range(1, 8))
    assert only(under(b"import os"), b"import os\nimport sys\n" + body).verdict is Verdict.OFFSET
    assert only(under(b"import os"), b"import os\ndef f():\n" + body).verdict is Verdict.MOVED


def test_a_class_that_got_another_base_is_the_same_class() -> None:
    content = b"class A(B, C):\n" + indented(1, 2, 3, 3, 4, 5, 6, 7)
    assert only(under(b"class A(B):"), content).proof is Proof.HEADING
    moved = only(under(b"class A(B):"), content.replace(b"    1", b"    pass\nclass AA:\n"))
    assert (moved.verdict, moved.scope_after) == (Verdict.MOVED, "class AA:")


def test_a_section_that_is_nowhere_in_the_file_contradicts_nothing() -> None:
    placed = only(under(b"class A(B):"), b"class AA:\n" + indented(1, 2, 3, 3, 4, 5, 6, 7))
    assert (placed.verdict, placed.proof) == (Verdict.OFFSET, Proof.NONE)
    assert placed.reason == "scope unproven (class A(B):, where it was cut, is not in the file)"


def test_a_section_says_nothing_of_a_change_behind_it() -> None:
    hunk = b"@@ -3,4 +3,4 @@ def f():\n     return\n \n-@old\n+@new\n def h():\n"
    content = b"def f():\n    return\n\n\ndef g():\n    return\n\n@old\ndef h():\n    pass\n"
    placed = only(hunk, content)
    assert (placed.verdict, placed.line) == (Verdict.OFFSET, 6)
    twice = content + content.replace(b"def g():", b"def k():")
    assert only(hunk, twice).reason == "ambiguous: fits at lines 6 and 16"
    assert only(hunk, twice.replace(b"def k", b"def f")).line == 16


C_BASE = b"int f(void)\n{\n  a();\n  b();\n  c();\n}\nint g(void)\n{\n  d();\n}\n"
C_HUNK = b"@@ -3,3 +3,3 @@ int f(void)\n   a();\n-  b();\n+  B();\n   c();\n"


def test_other_languages_compare_their_headings_with_the_base() -> None:
    known: dict[str, Any] = {"name": b"f.cu", "python": False, "base": C_BASE}
    (placed,) = place(C_HUNK, b"#include <x>\n" + C_BASE, **known)
    assert (placed.verdict, placed.proof, placed.scope_after) == (Verdict.OFFSET, Proof.SCOPE, "int f(void)")
    (placed,) = place(C_HUNK, b"\n" + C_BASE.replace(b"int f", b"int h"), **known)
    assert placed.verdict is Verdict.MOVED


def test_a_conflict_names_the_line_that_differs_and_where_the_context_went() -> None:
    hunk = b"@@ -2,5 +2,5 @@\n b = 1\n c = 2\n-d = 3\n+D = 3\n e = 4\n f = 5\n"
    placed = only(hunk, b"x\n" * 40 + b"b = 1\nc = 2\nd =  3\ne = 4\nf = 5\n")
    assert placed.reason == (
        "line 43: expected `d = 3`, found `d =  3` (white space only); 4 of 5 lines now at line 41"
    )


def test_a_conflict_with_nothing_in_common_says_so() -> None:
    placed = only(MIDDLE, b"a\nb\nc\nd\n")
    assert placed.reason == "line 4: expected `4`, found `d`; none of its distinctive lines is in the file"
    assert "\x1b" not in only(MIDDLE, b"a\nb\nc\n\x1b[31m\n").reason


def test_a_missing_file_is_a_conflict_for_a_change() -> None:
    assert only(MIDDLE, b"").reason == "the file is empty or missing"


def test_all_hunks_get_a_verdict() -> None:
    text = MIDDLE + b"@@ -20,3 +20,3 @@\n 20\n-21\n+x\n 22\n" + b"@@ -30,3 +30,3 @@\n 30\n-31\n+x\n 32\n"
    verdicts = [placed.verdict for placed in place(text, numbered(*range(1, 25)))]
    assert verdicts == [Verdict.EXACT, Verdict.EXACT, Verdict.CONFLICT]


def test_hunks_may_come_in_any_order() -> None:
    text = b"@@ -8,3 +8,3 @@\n 8\n-9\n+nine\n 10\n" + MIDDLE
    result = patched(text, numbered(*range(1, 12)))
    assert result == b"1\n2\n3\n4\nfive\n6\n7\n8\nnine\n10\n11\n"


def test_two_hunks_never_share_a_line() -> None:
    text = MIDDLE + b"@@ -6,3 +6,3 @@\n 6\n-7\n+seven\n 8\n"
    first, second = place(text, numbered(*range(1, 10)))
    assert first.verdict is Verdict.EXACT
    assert second.verdict is Verdict.CONFLICT
    assert second.reason == "overlaps hunk 1, which stands at line 4"


def test_equal_line_is_inserted_without_context_where_the_file_is_proven() -> None:
    again = b"@@ -1,0 +2 @@\n+1\n"
    assert patched(again, b"1\n", proven=True) == b"1\n1\n"
    assert only(again, b"1\n").verdict is Verdict.PRESENT


def test_insertions_at_one_point_keep_their_order() -> None:
    text = b"@@ -2,0 +3 @@\n+x\n@@ -2,0 +4 @@\n+y\n"
    assert patched(text, numbered(1, 2, 3), proven=True) == b"1\n2\nx\ny\n3\n"


def test_line_numbers_that_contradict_each_other_need_a_single_place() -> None:
    edited = MIDDLE.replace(b"+4,3", b"+7,3")
    assert only(edited, numbered(*range(1, 10))).verdict is Verdict.EXACT
    assert only(edited, numbered(1, 2, 3, 4, 5, 6, 4, 5, 6)).reason == "ambiguous: fits at lines 4 and 7"
    assert only(edited, numbered(1, 2, 3, 4, 5, 6, 4, 5, 6), proven=True).verdict is Verdict.EXACT


CONVERTED = MIDDLE.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_a_converted_patch_takes_the_line_endings_of_the_file(ending: bytes) -> None:
    file = parse_patch(HEADER.replace(b"\n", b"\r\n") + CONVERTED, source="x").files[0]
    lines = split_lines(numbered(*range(1, 8)).replace(b"\n", ending))
    placements = place_hunks(file, lines, evidence(crlf=True))
    assert [placed.verdict for placed in placements] == [Verdict.EXACT]
    expected = b"1\n2\n3\n4\nfive\n6\n7\n".replace(b"\n", ending)
    assert apply_placements(file, lines, placements) == expected


def test_line_endings_that_differ_are_named() -> None:
    assert only(MIDDLE, numbered(*range(1, 8)).replace(b"\n", b"\r\n")).reason == (
        "the file has CRLF line endings, the patch LF"
    )
    carriage = MIDDLE.replace(b"\n", b"\r\n").replace(b"@@\r\n", b"@@\n")
    assert only(carriage, numbered(*range(1, 8))).reason == "the patch has CRLF line endings, the file LF"


def test_lines_repeated_without_end_are_given_up() -> None:
    hunk = b"@@ -900,2 +900,3 @@\n x\n+y\n x\n"
    placed = only(hunk, b"x\n" * 500 + b"z\n" + b"x\n" * 398 + b"z\n" + b"x\n" * 3000)
    assert placed.verdict is Verdict.CONFLICT
    assert "repeated too often" in placed.reason


# What git apply does, over random files: the stated line or not, anchors, no newline at the end, headers that lie.

LETTERS = st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"def f():\n", b"def g():\n"])
NUMBERS = st.integers(0, 40).map(lambda number: b"%d\n" % number)
TEXTS = st.lists(LETTERS, max_size=16) | st.lists(NUMBERS, max_size=20, unique=True)
EDITS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 3), st.lists(LETTERS | NUMBERS, max_size=3)), min_size=1, max_size=3
)

Edits = list[tuple[int, int, list[bytes]]]


def edited(lines: list[bytes], edits: Edits, *, newline: bool) -> bytes:
    lines = list(lines)
    for at, gone, put in edits:
        lines[at : at + gone] = put
    content = b"".join(lines)
    return content if newline else content.removesuffix(b"\n")


def git(*arguments: str, directory: str) -> subprocess.CompletedProcess[bytes]:
    environment = dict(os.environ, GIT_CEILING_DIRECTORIES=tempfile.gettempdir())
    return subprocess.run(["git", *arguments], cwd=directory, env=environment, capture_output=True, check=False)


def git_apply(patch: bytes, content: bytes) -> bytes | None:
    """Return what the real git makes of the file, None when it refuses."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory, "f")
        target.write_bytes(content)
        Path(directory, "p").write_bytes(patch)
        if git("apply", "--whitespace=nowarn", "p", directory=directory).returncode:
            return None
        return target.read_bytes() if target.exists() else b""


def git_diff(old: bytes, new: bytes, *, context: int) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "f").write_bytes(old)
        Path(directory, "g").write_bytes(new)
        patch = git("diff", "--no-index", f"-U{context}", "f", "g", directory=directory).stdout
    return patch.replace(b" b/g\n", b" b/f\n")


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    lines=TEXTS,
    edits=EDITS,
    drift=EDITS | st.just([]),
    newlines=st.tuples(*[st.integers(0, 4).map(bool)] * 3),
    context=st.sampled_from([0, 1, 3]),
    target=st.sampled_from(["old", "new"]),
    lie=st.sampled_from([0, 0, 0, 3]),
)
def test_what_is_accepted_is_what_git_apply_does(
    *, lines: list[bytes], edits: Edits, drift: Edits, newlines: tuple[bool, ...], context: int, target: str, lie: int
) -> None:
    old, new = edited(lines, [], newline=newlines[0]), edited(lines, edits, newline=newlines[1])
    start = lines if target == "old" else split_lines(new)
    content = edited(start, drift, newline=newlines[2])
    patch = git_diff(old, new, context=context)
    if b"@@" not in patch:
        return
    if lie:
        patch = patch.replace(b" +%d," % 1, b" +%d," % (1 + lie), 1)
    file = parse_patch(patch, source="p").files[0]
    placements = place_hunks(file, split_lines(content), evidence(python=False))
    if not all(placed.verdict in (Verdict.EXACT, Verdict.OFFSET) for placed in placements):
        return
    theirs = git_apply(patch, content)
    assert theirs is not None
    # A heading that tells two places apart is the one thing git does not look at: it takes the nearest.
    if not any(placed.proof is Proof.HEADING for placed in placements):
        assert apply_placements(file, split_lines(content), placements) == theirs


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(lines=TEXTS, edits=EDITS, newlines=st.tuples(st.booleans(), st.booleans()), context=st.sampled_from([0, 1, 3]))
def test_every_diff_of_git_goes_onto_the_file_it_was_cut_from(
    *, lines: list[bytes], edits: Edits, newlines: tuple[bool, ...], context: int
) -> None:
    old, new = edited(lines, [], newline=newlines[0]), edited(lines, edits, newline=newlines[1])
    patch = git_diff(old, new, context=context)
    if b"@@" not in patch:
        return
    file = parse_patch(patch, source="p").files[0]
    placements = place_hunks(file, split_lines(old), evidence(proven=True, python=False))
    assert {placed.verdict for placed in placements} == {Verdict.EXACT}
    assert apply_placements(file, split_lines(old), placements) == new
