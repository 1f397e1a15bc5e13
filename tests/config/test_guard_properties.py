"""Random changes of real files behind guards: what each setting comes to, found by other means than patchkit's check.

By the tree that is left, by what names mean in compiled code, and by running small files.
"""

from __future__ import annotations

import ast
import random
import sysconfig
import textwrap
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit.config.guard_files import GuardedFile, guard_python
from patchkit.config.guard_settle import GuardStep, Terms
from tests.config import folding
from tests.config.mutations import mutate, parse
from tests.test_restating import cut, placed, restated

MODULE = "engine._patchkit.autoconf"
LIBRARY = [path for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")) if path.stat().st_size < 12_000]
SMALL = (
    '''\
"""Doc."""
from __future__ import annotations
import os
limit = 3
a = 1


def f(a, b=2):
    """Doc of f."""
    total = 0
    for x in range(a):
        if x > limit:
            total += x
        elif x == 1:
            total -= 1
        else:
            total += b
    log(total)
    return total


class C:
    n = limit

    def get(self, x):
        # why
        c = x + self.n
        return c


def g(n):
    c = n

    def inner(x):
        nonlocal c
        c = x + limit
        return c

    try:
        b = inner(n)
        log(b)
    except ValueError:
        b = 0
    finally:
        log(c)
    with scope(b) as x:
        c = [x for x in range(n) if x]
    return c, b


total = f(2)
log(total, C().get(1))
''',
    """\
limit = 2


def gen(n):
    for x in range(n):
        yield x
    total = limit
    yield total


async def co(a):
    b = a
    return b + limit


def f(a):
    match a:
        case 0 | 1:
            c = a
        case [x, *b]:
            c = x
        case _:
            c = limit
    while c > 3:
        c -= 1
    else:
        log(c)
    if a: return c
    b = (
        a +
        c
    )
    return (
        b - a,
    ) if b < 2 else b


class D(object):
    a = 1
    b = [a for c in range(2)]
    def f(self): return limit
    def inner(self, n):
        def f():
            return n
        n = f()
        return n
""",
)


def guard(*texts: str) -> GuardedFile:
    steps = [GuardStep(symbol=f"S{number}", content=text.encode()) for number, text in enumerate(texts[1:])]
    return guard_python(texts[0].encode(), steps, Terms(module=MODULE, needs={}, values={}))


def plain(texts: tuple[str, ...], there: list[bool]) -> str | None:
    """Return what the patches make without those that are not there, None where they cannot be without them."""
    if all(there):
        return texts[-1]
    if any(one == other for one, other in pairwise(texts)):
        return None
    made = placed(restated(cut(*texts), there), texts[0])
    return made if made is not None and parse(made) is not None else None


def check(texts: tuple[str, ...], *, run: bool) -> GuardedFile:
    guarded = guard(*texts)
    if guarded.content is None:
        assert all(one.reason and (one.symbols or one.by_select) for one in guarded.refusals)
        return guarded
    symbols = [f"S{number}" for number in range(len(texts) - 1)]
    settled = {symbol for one in guarded.selected for symbol in one.symbols}
    for on in (one for size in range(len(symbols) + 1) for one in combinations(symbols, size)):
        text = plain(texts, [symbol in on for symbol in symbols])
        if text is None or settled & {*on}:
            continue
        values = {symbol: symbol in on for symbol in symbols}
        left, wanted = folding.folded(guarded.content, values, MODULE), folding.plain(text.encode())
        assert ast.dump(left) == ast.dump(wanted)
        assert folding.wrong_scopes(guarded.content, left, text.encode(), wanted) == []
        if run:
            made, expected = (folding.told(one, values, MODULE) for one in (guarded.content, text.encode()))
            assert made == expected or folding.TOO_LONG in (*made, *expected)
    return guarded


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32), st.sampled_from(SMALL), st.integers(1, 3))
def test_random_patches_of_small_files_run_as_plain_patching_makes_them(seed: int, base: str, patches: int) -> None:
    draw = random.Random(seed)  # noqa: S311 -- what to change
    texts = [mutate(base, draw, draw.randrange(3))]
    for _ in range(patches):
        texts.append(mutate(texts[-1], draw, draw.randrange(1, 4)))
    check(tuple(texts), run=True)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32), st.sampled_from(LIBRARY), st.integers(1, 3))
def test_random_patches_of_the_standard_library_come_to_what_plain_patching_makes(
    seed: int, path: Path, patches: int
) -> None:
    draw = random.Random(seed)  # noqa: S311 -- what to change
    texts = [path.read_text("utf-8", errors="replace")]
    for _ in range(patches):
        texts.append(mutate(texts[-1], draw, draw.randrange(1, 4)))
    check(tuple(texts), run=False)


BOUND_TWICE = """\
total = 1
def f(n):
    if n:
        total = 2
    log(n)
    if not n:
        total = 3
    log(total)
"""
SAME = """\
def f(a):
    match a:
        case 0 | 1:
            c = limit
    while c > 3:
        log(c)
    b = (
    )
    return f(
    ) if b < 2 else b
"""
MATCH = """\
    match a:
        case 0 | 1:
            c = a
        case [x, *b]:
            c = x
        case _:
            c = limit
"""
MORE = SAME.replace("        log(c)\n", "        log(c)\n        total = 0\n")
LINE = "    x = x \\\n        + 4\n"
REST = "\n\nclass D(object):\n    def inner(self, n):\n            return n\n"
FOUND: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "two toggles take the two yields of a generator": (
        "def f(n):\n    for x in range(n):\n        yield x\n    log(n)\n    yield n\n",
        [("        yield x\n", "        pass\n"), ("    yield n\n", "    return n\n")],
    ),
    "two toggles take what binds a name that stands outside too": (
        BOUND_TWICE,
        [("total = 2", "pass"), ("total = 3", "pass")],
    ),
    "and a third binds it": (
        BOUND_TWICE,
        [("total = 2", "pass"), ("total = 3", "pass"), ("log(total)\n", "log(total)\n    total = 4\n")],
    ),
    "in two functions": (
        "t = 1\ndef f(n):\n    log(n)\n    log(1)\n    return n\ndef g(n):\n    log(n)\n    log(1)\n    return n\n",
        [("    log(n)\n    log(1)", "    t = 1\n    log(n)\n    log(1)"), ("    return n", "    return t")],
    ),
    "one takes what binds a name, the other reads it": (
        "t = 1\ndef f(n):\n    def g(x):\n        log(x)\n        t = 3\n        return x\n    return g(n)\n",
        [("        t = 3\n", "        x = 3\n"), ("        return x\n", "        if t: return x\n")],
    ),
    "equal functions side by side": (
        f"def gen(n):\n        yield x\n\n\n\n\n{SAME}{SAME}{REST}",
        [(f"{SAME}{SAME}", f"{SAME}{LINE}{SAME}"), (f"{SAME}{LINE}{SAME}", f"{MORE}{LINE}{SAME}import math as c\n")],
    ),
    "a repeated statement, and a change in the second": (
        f"limit = 2\ndef f(a):\n{MATCH}    return c\n",
        [
            (f"limit = 2\ndef f(a):\n{MATCH}", f"def f(a):\n{MATCH}{MATCH}"),
            (MATCH + MATCH, MATCH + MATCH.replace("            c = a\n", "            c = a\n            c = a\n")),
        ],
    ),
    "a file without code": ("\n", [("\n", "\nx = 1\n")]),
    "a file of comments": ("# why\n", [("# why\n", "# why\nx = 1\n")]),
    "a statement that goes on a line further": (
        "def f():\n    x = 1; \\\n    y = 2\n    return x, y\n",
        [("y = 2", "y = 3")],
    ),
    "a body that goes on a line further": ("if True: \\\n    x = 1\ny = x\n", [("x = 1", "x = 2")]),
}


@pytest.mark.parametrize(("base", "changes"), FOUND.values(), ids=FOUND)
def test_what_random_patches_found(base: str, changes: list[tuple[str, str]]) -> None:
    texts = [base]
    for old, new in changes:
        assert old in texts[-1]
        texts.append(texts[-1].replace(old, new))
    guarded = check(tuple(texts), run=True)
    assert guarded.refusals == ()
    assert guarded.selected == ()


def test_a_guard_stands_in_a_file_that_was_empty() -> None:
    assert b"if CONFIG_S0:\n    x = 1\n" in (guard("", "x = 1\n").content or b"")


def test_what_cannot_be_compared_is_rendered_for_the_present_values() -> None:
    chain = "if a == 0:\n    b(0)\n" + "".join(f"elif a == {n}:\n    b({n})\n" for n in range(1, 400))
    (refusal,) = guard(chain, chain.replace("b(390)", "c()")).refusals
    assert refusal.by_select
    assert "nested too deeply" in refusal.reason
    late = "def f(x):\n    a(x)\n    a(1)\n    a(2)\n    return x\n"
    declared = late.replace("def f(x):\n", "def f():\n    global x\n")
    used = declared.replace("    a(x)\n", "    a(x)\n    a(0)\n")
    assert check((late, declared, used), run=True).refusals == ()


def test_settings_of_a_neighbour_that_binds_a_name_do_not_reach_the_others() -> None:
    text = textwrap.dedent(SMALL[0])
    one = text.replace("    log(total)\n", "    log(total)\n    limit = 1\n")
    two = one.replace("        c = x + self.n\n", "        c = x + self.n + limit\n")
    assert check((text, one, two), run=True).refusals == ()
