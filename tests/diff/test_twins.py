"""Definitions of one qualified name in one file: which of them is the same one in another file."""

from __future__ import annotations

import pytest

from patchkit.diff.image import split_lines
from patchkit.diff.locate import Evidence, accepted, place_hunks
from patchkit.diff.model import Placement, Proof, Verdict
from patchkit.diff.parse import parse_patch
from patchkit.diff.scope import Definition, python_scopes
from patchkit.diff.twins import compare_definitions, describe_difference


def definition(source: str, word: str) -> Definition:
    """Return the innermost definition around the line that holds the word."""
    scopes = python_scopes(source.encode())
    assert scopes is not None
    return scopes.around(next(number for number, line in enumerate(source.split("\n"), 1) if word in line))


def same(before: str, after: str, word: str = "here") -> bool | None:
    return compare_definitions(definition(before, word), definition(after, word))


def swapped(source: str) -> str:
    return source.replace("here", "#").replace("other", "here").replace("#", "other")


GETTER_HERE = """\
class C:
    @property
    def x(self):
        here
    @x.setter
    def x(self, value):
        other
"""
SETTER_HERE = swapped(GETTER_HERE)
GETTER_ALONE = GETTER_HERE[: GETTER_HERE.index("    @x.setter")]
IF_HERE = "if A:\n    def f():\n        here\nelse:\n    def f():\n        other\n"
ELSE_HERE = "if A:\n    def f():\n        other\nelse:\n    def f():\n        here\n"
OVERLOADS = """\
@overload
def f(x: int) -> int: here
@overload
def f(x: str) -> str: other
def f(x):
    body
"""
AGAIN = "def f():\n    {}\ndef f():\n    {}\n"


def test_a_definition_without_a_twin_is_compared_by_its_name_alone() -> None:
    assert same("def f():\n    here\n", "@fast\nasync def f(x):\n    here\n") is True
    assert same("def f():\n    here\n", "def g():\n    here\n") is False
    assert same("here\n", "import os\nhere\n") is True
    assert same("here\n", "def g():\n    here\n") is False


def test_decorators_tell_the_parts_of_a_property_apart() -> None:
    assert same(GETTER_HERE, GETTER_HERE) is True
    assert same(GETTER_HERE, SETTER_HERE) is False
    assert same(SETTER_HERE, GETTER_HERE) is False
    assert same(GETTER_HERE, GETTER_HERE.replace("(self)", "(self) -> int")) is True


def test_a_twin_that_is_in_one_file_only_is_not_taken_for_another() -> None:
    assert same(GETTER_ALONE, GETTER_HERE) is True
    assert same(GETTER_ALONE, SETTER_HERE) is False
    assert same(SETTER_HERE, GETTER_ALONE) is False


def test_the_signature_tells_overloads_apart() -> None:
    assert same(OVERLOADS, OVERLOADS) is True
    assert same(OVERLOADS, OVERLOADS, "body") is True
    assert same(OVERLOADS, swapped(OVERLOADS)) is False
    fewer = OVERLOADS[: OVERLOADS.rindex("@overload")] + "def f(x):\n    body\n"
    assert same(OVERLOADS, fewer, "body") is True
    assert same(OVERLOADS, fewer.replace("body", "other"), "other") is False


def test_implementations_that_are_registered_for_a_type_are_told_apart() -> None:
    source = "@f.register(int)\ndef _(x):\n    {}\n@f.register(str)\ndef _(x):\n    {}\n"
    assert same(source.format("here", "other"), source.format("here", "other")) is True
    assert same(source.format("here", "other"), source.format("other", "here")) is False


def test_the_branches_around_definitions_tell_them_apart() -> None:
    assert same(IF_HERE, "import os\n" + IF_HERE) is True
    assert same(IF_HERE, ELSE_HERE) is False
    tried = "try:\n    def f():\n        {}\nexcept ImportError:\n    def f():\n        {}\n"
    assert same(tried.format("here", "other"), tried.format("other", "here")) is False
    matched = "match n:\n    case 1:\n        def f():\n            {}\n    case _:\n        def f():\n            {}\n"
    assert same(matched.format("here", "other"), matched.format("other", "here")) is False


def test_a_condition_that_was_turned_round_leaves_it_undecided() -> None:
    assert same(IF_HERE, IF_HERE.replace("if A", "if not A")) is None


def test_the_ordinal_decides_between_equal_twins_of_equal_number() -> None:
    assert same(AGAIN.format("here", "other"), AGAIN.format("here", "other")) is True
    assert same(AGAIN.format("here", "other"), AGAIN.format("other", "here")) is False
    assert same(AGAIN.format("here", "other"), AGAIN.format("other", "other") + "def f():\n    here\n") is None
    assert same("def f():\n    here\n", AGAIN.format("here", "other")) is None


def test_a_twin_that_is_a_fallback_is_not_taken_for_the_only_definition_of_before() -> None:
    wrapped = "if A:\n    @compiled\n    def f():\n        other\nelse:\n    def f():\n        here\n"
    assert same("def f():\n    here\n", wrapped) is None


def test_what_stands_in_a_twin_is_told_apart_by_the_twin() -> None:
    nested = "class C:\n    @property\n    def x(self):\n        def inner():\n            {}\n{}"
    rest = "    @x.setter\n    def x(self, v):\n        def inner():\n            {}\n"
    before, after = nested.format("here", rest.format("other")), nested.format("other", rest.format("here"))
    assert same(before, before) is True
    assert same(before, after) is False
    assert same("class C:\n    def f():\n        here\n", "if A:\n    class C: pass\nelse:\n    " + "class C:\n"
                "        def f():\n            here\n") is None  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (GETTER_HERE, SETTER_HERE, ("C.x (@property)", "C.x (@x.setter)")),
        (OVERLOADS, swapped(OVERLOADS), ("f (def f(x: int) -> int)", "f (def f(x: str) -> str)")),
        (IF_HERE, ELSE_HERE, ("f (in if A)", "f (in else of if A)")),
        (AGAIN.format("here", "other"), AGAIN.format("other", "here"), ("f (number 1 of 2)", "f (number 2 of 2)")),
        ("def f():\n    here\n", "def g():\n    here\n", ("f", "g")),
        (GETTER_HERE.replace("    @property\n", ""), SETTER_HERE, ("C.x (no decorator)", "C.x (@x.setter)")),
    ],
)  # fmt: skip
def test_twins_are_named_by_what_tells_them_apart(before: str, after: str, words: tuple[str, str]) -> None:
    assert describe_difference(definition(before, "here"), definition(after, "here")) == words


HUNK = b"--- a/f.py\n+++ b/f.py\n@@ -4,3 +4,3 @@ class C:\n         a\n-        b\n+        B\n         c\n"
LINES = "        a\n        b\n        c\n"
CUT_IN = GETTER_HERE.replace("        here\n", LINES)
IN_SETTER = "import os\n" + GETTER_HERE.replace("        other\n", LINES)


def place(content: str, base: str, *, strict: bool) -> Placement:
    known = Evidence(base=base.encode(), proven=False, python=True, strict=strict, crlf=False)
    (file,) = parse_patch(HUNK, source="x").files
    (placed,) = place_hunks(file, split_lines(content.encode()), known)
    return placed


@pytest.mark.parametrize("strict", [False, True])
def test_a_hunk_of_a_getter_does_not_go_into_the_setter(*, strict: bool) -> None:
    placed = place(IN_SETTER, CUT_IN, strict=strict)
    assert placed.verdict is Verdict.MOVED
    assert placed.reason == "cut in C.x (@property), but its context stands in C.x (@x.setter) at line 8"
    assert not accepted(placed, strict=strict)


def test_a_hunk_of_a_getter_goes_into_the_getter_though_the_setter_has_its_lines_too() -> None:
    both = IN_SETTER.replace("        here\n", LINES)
    placed = place(both, CUT_IN, strict=True)
    assert (placed.verdict, placed.line, placed.proof) == (Verdict.OFFSET, 5, Proof.SCOPE)


def test_an_exact_line_in_another_twin_is_moved() -> None:
    turned = "class C:\n    @x.setter\n    def x(self, value):\n" + LINES + "    @property\n    def x(self): here\n"
    assert place(turned, CUT_IN, strict=True).verdict is Verdict.MOVED


def test_an_undecided_twin_is_an_unproven_offset_that_a_series_refuses() -> None:
    cut = "if A:\n    #\n    def f():\n" + LINES + "else:\n    def f(): pass\n"
    turned = "import os\n" + cut.replace("if A", "if not A")
    placed = place(turned, cut, strict=False)
    assert (placed.verdict, placed.proof) == (Verdict.OFFSET, Proof.NONE)
    assert placed.reason == "scope unproven (f is defined 2 times before and 2 times here)"
    assert accepted(placed, strict=False)
    assert not accepted(place(turned, cut, strict=True), strict=True)


def test_both_branches_of_one_if_in_one_function_are_ambiguous() -> None:
    cut = "def f():\n    if A:\n        #\n" + LINES + "    else:\n        pass\n"
    both = "import os\nimport sys\ndef f():\n    if A:\n" + LINES + "    else:\n" + LINES
    assert place(both, cut, strict=True).reason == "ambiguous: fits at lines 5 and 9"
