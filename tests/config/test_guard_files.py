"""Several toggles in one file: side by side, inside each other, and what needs a dependency."""

from __future__ import annotations

from typing import Any

import pytest

from patchkit.config.guard_edit import Level
from patchkit.config.guard_files import GuardedFile, guard_python
from patchkit.config.guard_fold import Check, check_guarded, settings
from patchkit.config.guard_settle import GuardStep, Terms
from patchkit.config.guard_source import read_lines

MODULE = "engine._patchkit.autoconf"
CHECK = Check(symbols=("A",), module=MODULE, needs={})
BASE = "a = 1\n\n\ndef f(x):\n    b(x)\n    c(x)\n    d(x)\n    return x\n\n\ne = 2\n"


def steps_of(*steps: tuple[str, str]) -> list[GuardStep]:
    return [GuardStep(symbol=symbol, content=content.encode()) for symbol, content in steps]


def guard(*steps: tuple[str, str], base: str = BASE, on: tuple[str, ...] = (), **needs: str) -> GuardedFile:
    closure = {symbol: frozenset(names.split()) for symbol, names in needs.items()}
    terms = Terms(module=MODULE, needs=closure, values=dict.fromkeys(on, "y"))
    return guard_python(base.encode(), steps_of(*steps), terms)


def content_of(guarded: GuardedFile) -> str:
    assert guarded.refusals == ()
    assert guarded.content is not None
    return guarded.content.decode()


def test_toggles_apart_are_guarded_side_by_side() -> None:
    first = BASE.replace("b(x)", "bb(x)")
    guarded = guard(("A", first), ("B", first.replace("d(x)", "dd(x)")))
    assert guarded.compared == 4
    assert "if CONFIG_A:\n        bb(x)\n    else:\n        b(x)\n    c(x)\n    if CONFIG_B:" in content_of(guarded)


def test_patch_on_lines_of_another_stands_in_its_on_branch() -> None:
    first = BASE.replace("c(x)", "cc(x)\n    g(x)")
    guarded = guard(("A", first), ("B", first.replace("cc(x)", "ccc(x)")), B="A")
    text = content_of(guarded)
    assert "if CONFIG_A:\n        if CONFIG_B:\n            ccc(x)\n        else:\n            cc(x)\n" in text
    assert guarded.compared == 3  # B alone is no setting
    assert guarded.regions[0].symbols == ("A", "B")


def test_patch_on_lines_of_another_needs_a_dependency() -> None:
    first = BASE.replace("c(x)", "cc(x)")
    guarded = guard(("A", first), ("B", first.replace("cc(x)", "ccc(x)")))
    assert guarded.content is None
    (refusal,) = guarded.refusals
    assert refusal.symbols == ("B", "A")
    assert refusal.line == 6
    assert "CONFIG_B edits lines of CONFIG_A: add `depends on A`" in refusal.reason


def test_plain_patching_that_makes_something_else_is_refused() -> None:
    """Guards stand where a hunk stands beside all others; plain patching may have found another place without them."""
    first = BASE.replace("b(x)", "bb(x)")
    steps = steps_of(("A", first), ("B", first.replace("d(x)", "dd(x)")))
    terms = Terms(module=MODULE, needs={}, values={"B": "y"})
    plain = BASE.replace("d(x)", "dd(x)")
    assert guard_python(BASE.encode(), steps, terms, plain.encode()).refusals == ()
    (refusal,) = guard_python(BASE.encode(), steps, terms, BASE.replace("c(x)", "dd(x)").encode()).refusals
    assert (refusal.symbols, refusal.line, refusal.by_select) == (("B",), 6, False)
    assert "a hunk was placed elsewhere" in refusal.reason


def test_two_patches_on_lines_of_a_third_need_a_dependency() -> None:
    first = BASE.replace("c(x)", "cc(x)")
    second = first.replace("cc(x)", "ccc(x)")
    (refusal,) = guard(("A", first), ("B", second), ("C", second.replace("ccc(x)", "cccc(x)"))).refusals
    assert "CONFIG_B edits lines of CONFIG_A: add `depends on A`" in refusal.reason


@pytest.mark.parametrize("place", ["before", "behind"])
def test_touching_insertion_needs_a_dependency(place: str) -> None:
    first = BASE.replace("    c(x)\n", "    c(x)\n    new(x)\n")
    more = "    new(x)\n    more(x)\n" if place == "behind" else "    more(x)\n    new(x)\n"
    second = first.replace("    new(x)\n", more)
    assert "depends on A" in guard(("A", first), ("B", second)).refusals[0].reason
    assert guard(("A", first), ("B", second), B="A").refusals == ()


def test_guards_that_meet_though_the_patches_do_not_are_nested_without_a_dependency() -> None:
    first = BASE.replace("def f(x):", "def f(x, y=0):")
    guarded = guard(("A", first), ("B", first.replace("d(x)", "dd(x)")))
    text = content_of(guarded)
    assert guarded.compared == 4
    assert text.count("if CONFIG_B:") == 2  # in both variants of the function
    assert text.count("if CONFIG_A:") == 1


def test_a_name_that_one_toggle_binds_and_another_takes_from_outside() -> None:
    base = "from options import *\n" + BASE
    binds = base.replace("    b(x)\n", "    size = b(x)\n")
    both = binds.replace("    d(x)\n", "    d(x, size)\n")
    guarded = guard(("A", binds), ("B", both), base=base)
    text = content_of(guarded)
    assert [region.symbols for region in guarded.regions] == [("A", "B")]  # side by side, A off would hide B's size
    calls: list[tuple[object, ...]] = []
    for on in (("B",), ("A", "B")):
        values = {"CONFIG_A": "A" in on, "CONFIG_B": "B" in on}
        names: dict[str, Any] = {one: lambda *words: calls.append(words) for one in "bcd"}
        names |= {"size": "outer", **values}
        exec(text.split("\n", 2)[2], names)  # noqa: S102 -- code of this file
        names["f"](1)
    assert calls == [(1,), (1,), (1, "outer"), (1,), (1,), (1, None)]


def test_a_name_that_nothing_outside_has_is_an_error_either_way() -> None:
    binds = BASE.replace("    b(x)\n", "    size = b(x)\n")
    guarded = guard(("A", binds), ("B", binds.replace("    d(x)\n", "    d(x, size)\n")))
    assert [region.symbols for region in guarded.regions] == [("A",), ("B",)]


def test_insertion_at_the_end_of_a_body_that_another_toggle_replaces() -> None:
    base = "with a:\n    b()\n    c()\nd()\n"
    first = base.replace("with a", "with a as e")
    guarded = guard(("A", first), ("B", first.replace("    c()\n", "    c()\n    f()\n")), base=base)
    assert guarded.compared == 4
    assert guarded.refusals == ()


def test_chain_of_three() -> None:
    one = BASE.replace("c(x)", "c1(x)")
    two = one.replace("c1(x)", "c2(x)")
    three = two.replace("c2(x)", "c3(x)")
    guarded = guard(("A", one), ("B", two), ("C", three), B="A", C="A B")
    assert guarded.compared == 4
    assert guarded.refusals == ()


def test_two_that_depend_on_one() -> None:
    one = BASE.replace("    c(x)\n", "    c1(x)\n    mid(x)\n    c2(x)\n")
    two = one.replace("c1(x)", "c11(x)")
    three = two.replace("c2(x)", "c22(x)")
    guarded = guard(("A", one), ("B", two), ("C", three), B="A", C="A")
    assert guarded.refusals == ()
    assert guarded.compared == 5


def test_one_symbol_may_gate_several_patches() -> None:
    one = BASE.replace("b(x)", "bb(x)")
    two = one.replace("d(x)", "dd(x)")
    three = two.replace("bb(x)", "bbb(x)")
    guarded = guard(("A", one), ("B", two), ("A", three))
    text = content_of(guarded)
    assert "bbb(x)" in text
    assert " bb(x)" not in text


def test_patch_without_a_gate_is_in_every_variant() -> None:
    one = BASE.replace("b(x)", "bb(x)")
    guarded = guard(("A", one), ("", one.replace("e = 2", "e = 3")))
    text = content_of(guarded)
    assert "e = 3" in text
    assert "e = 2" not in text


def test_patch_without_a_gate_on_lines_of_a_gated_one_that_is_off_is_refused() -> None:
    one = BASE.replace("b(x)", "bb(x)")
    steps = ("A", one), ("", one.replace("bb(x)", "bbb(x)").replace("e = 2", "e = 3"))
    (refusal,) = guard(*steps).refusals
    assert refusal.reason == "a patch that no guard switches edits lines of CONFIG_A, which is off"


def test_lines_of_a_gated_patch_that_is_on_are_settled_for_one_without_a_gate() -> None:
    one = BASE.replace("b(x)", "bb(x)").replace("d(x)", "dd(x)")
    guarded = guard(("A", one), ("", one.replace("bb(x)", "bbb(x)")), on=("A",))
    text = content_of(guarded)
    assert text.count("bbb(x)") == text.count("b(x)") == 1
    assert "    if CONFIG_A:\n        dd(x)\n    else:\n        d(x)\n" in text
    assert [(one.symbols, one.line) for one in guarded.selected] == [(("A",), 0)]


def test_insertions_among_the_comments_above_a_statement_meet() -> None:
    base = "def f(x):\n    b(x)\n    # one\n    # two\n    # three\n    # four\n    c(x)\n"
    first = base.replace("# one\n", "# one\n    new(x)\n")
    guarded = guard(("A", first), ("B", first.replace("# three\n", "# three\n    newer(x)\n")), base=base)
    assert guarded.compared == 4
    assert guarded.regions[0].symbols == ("A", "B")
    assert content_of(guarded).count("new(x)") > 0


def test_toggles_that_meet_one_other_alone_stand_side_by_side_in_its_branches() -> None:
    lines = [f"    s{n}(x)\n" for n in range(20)]
    base = "def f(x):\n" + "".join(lines)
    steps = []
    text = base
    for n in range(18, -2, -2):
        text = text.replace(f"s{n}(x)", f"t{n}(x)") if n else text.replace("f(x)", "f(x, y=0)")
        steps.append((f"T{n}", text))
    guarded = guard(*steps, base=base)
    assert content_of(guarded).count("def f(") == 2
    assert guarded.selected == ()


def _crowd(count: int) -> list[tuple[str, str]]:
    """Return patches that each put an entry of its own into one literal, with an entry between them."""
    steps = []
    rows = [f"    k{n},\n" for n in range(2 * count)]
    for n in range(count):
        rows[2 * n] = f"    new{n},\n"
        steps.append((f"T{n}", "a = [\n" + "".join(rows) + "]\nc = 0\nb = 1\n"))
    return steps


def test_where_too_many_toggles_meet_each_other_the_present_values_stand() -> None:
    base = "a = [\n" + "".join(f"    k{n},\n" for n in range(14)) + "]\nc = 0\nb = 1\n"
    steps = [*_crowd(7), ("T6", _crowd(7)[-1][1].replace("b = 1", "b = 2"))]
    for on in ((), ("T0", "T5"), ("T6",)):
        guarded = guard(*steps, base=base, on=on)
        text = content_of(guarded)
        assert [f"new{n}" in text for n in range(7)] == [f"T{n}" in on for n in range(7)]
        assert "if CONFIG_T6:\n    b = 2\nelse:\n    b = 1\n" in text
        assert [one.symbols for one in guarded.selected] == [tuple(f"T{n}" for n in range(7))]
        assert dict(guarded.levels)["T3"] is Level.SELECT


def test_what_stands_on_lines_that_are_settled_goes_with_them() -> None:
    future = "from __future__ import annotations\n"
    second = future + "from __future__ import division\n" + BASE.replace("c(x)", "cc(x)")
    for on in ((), ("A",), ("A", "B")):
        guarded = guard(("A", future + BASE), ("B", second), on=on, B="A")
        text = content_of(guarded)
        assert [text.count(word) for word in ("annotations", "division", "CONFIG_B:")] == ["A" in on, "B" in on, 1]
        assert {symbol for one in guarded.selected for symbol in one.symbols} == {"A", "B"}


def test_what_stands_on_lines_that_are_settled_and_off_needs_a_dependency() -> None:
    future = "from __future__ import annotations\n"
    second = future + "from __future__ import division\n" + BASE
    guarded = guard(("A", future + BASE), ("B", second), on=("B",))
    assert [one.reason for one in guarded.refusals] == ["CONFIG_B edits lines of CONFIG_A: add `depends on A`"]


def test_five_toggles_that_all_meet_are_guarded() -> None:
    base = "a = [\n" + "".join(f"    k{n},\n" for n in range(10)) + "]\nc = 0\nb = 1\n"
    guarded = guard(*_crowd(5), base=base)
    assert content_of(guarded).count("a = [") == 32
    assert guarded.selected == ()


def test_a_symbol_is_checked_with_those_it_needs() -> None:
    chosen = settings("ABC", halves=0, seed=0, needs={"B": frozenset("A"), "C": frozenset("AB")})
    assert chosen == (frozenset(), frozenset("ABC"), frozenset("A"), frozenset("AB"))


def test_settings_are_all_off_all_on_each_alone_and_halves_by_the_seed() -> None:
    names = [f"S{number}" for number in range(12)]
    chosen = settings(names, halves=6, seed=3)
    assert chosen[:2] == (frozenset(), frozenset(names))
    assert set(chosen[2:14]) == {frozenset((name,)) for name in names}
    assert 18 <= len(chosen) <= 20
    assert chosen == settings(names, halves=6, seed=3)
    assert chosen != settings(names, halves=6, seed=4)


WRONG = {
    "a statement lost": ("if CONFIG_A:\n    b()\n", "b()\nc()\n", 2),
    "a statement too many": ("a()\nif CONFIG_A:\n    b()\nc()\n", "a()\nb()\n", 4),
    "another constant": ("a(1)\n", "a(1.0)\n", 1),
    "true is not one": ("a(True)\n", "a(1)\n", 1),
    "in a handler": (
        "try:\n    a()\nexcept E:\n    if CONFIG_A:\n        b()\n    c()\n",
        "try:\n    a()\nexcept E:\n    d()\n    c()\n",
        5,
    ),
    "a condition": ("if a if CONFIG_A else b:\n    c()\n", "if b:\n    c()\n", 1),
    "names of an import": ("from a import b\nif CONFIG_A:\n    from a import c\n", "from a import b, d\n", 1),
    "an operand": ("a = CONFIG_A and b\n", "a = c\n", 1),
    "evaluated first": ("a = b() and CONFIG_A\n", "a = b()\n", 1),
}


@pytest.mark.parametrize(("made", "plain", "line"), WRONG.values(), ids=WRONG)
def test_a_difference_is_found_with_its_setting_and_line(made: str, plain: str, line: int) -> None:
    verdict = check_guarded(b"", made.encode(), lambda _: read_lines(plain.encode()), CHECK)
    wrong = next(one for one in verdict.mismatches if one.switched_on == ("A",))
    assert wrong.line == line


SAME = {
    "choice": ("a = (b if CONFIG_A else c)\n", "a = b\n"),
    "not": ("if not CONFIG_A:\n    a()\nelse:\n    b()\n", "b()\n"),
    "elif": ("if a:\n    b()\nelif CONFIG_A and (c):\n    d()\n", "if a:\n    b()\nelif c:\n    d()\n"),
    "and of three": ("if CONFIG_A and b and c:\n    d()\n", "if b and c:\n    d()\n"),
    "or": ("if not CONFIG_A or b:\n    d()\n", "if b:\n    d()\n"),
    "written by the author": ("if CONFIG_A:\n    a()\n", "if CONFIG_A:\n    a()\n"),
    "import": (f"from {MODULE} import CONFIG_A\nif CONFIG_A:\n    a()\n", "a()\n"),
}


@pytest.mark.parametrize(("made", "plain"), SAME.values(), ids=SAME)
def test_a_folded_guard_is_the_plain_code(made: str, plain: str) -> None:
    verdict = check_guarded(b"", made.encode(), lambda on: read_lines(plain.encode()) if on else None, CHECK)
    assert verdict.mismatches == ()
    assert verdict.compared == 1


def test_what_does_not_compile_is_a_mismatch() -> None:
    verdict = check_guarded(b"", b"a = 1\nreturn 1\n", lambda _: [], CHECK)
    assert verdict.mismatches[0].line == 2
    assert "does not compile" in verdict.mismatches[0].reason
