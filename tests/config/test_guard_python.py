"""Guards of one toggle: which level a change gets, and that both variants are there, by tree and by running them."""

from __future__ import annotations

import ast
import itertools
import textwrap
from typing import Any

import pytest

from benchmarks.guards import changed_scopes
from patchkit.config.guard_edit import Level
from patchkit.config.guard_files import GuardedFile, guard_python
from patchkit.config.guard_fold import Check, check_guarded
from patchkit.config.guard_python import guard_variants
from patchkit.config.guard_settle import GuardStep, Terms
from patchkit.config.guard_source import parse_source, read_lines
from patchkit.record import replace

MODULE = "engine._patchkit.autoconf"
TERMS = Terms(module=MODULE, needs={}, values={})
CHECK = Check(symbols=("X",), module=MODULE, needs={})


def guard(old: str | bytes, new: str | bytes, symbol: str = "X") -> GuardedFile:
    base, after = (one if isinstance(one, bytes) else textwrap.dedent(one).encode() for one in (old, new))
    return guard_python(base, [GuardStep(symbol=symbol, content=after)], TERMS)


def levels(guarded: GuardedFile) -> set[Level]:
    return {region.level for region in guarded.regions}


CASES = {
    "inserted": ("a = 1\nc = 3\n", "a = 1\nb = 2\nc = 3\n", Level.STATEMENT),
    "inserted first": ("a = 1\n", "b = 2\na = 1\n", Level.STATEMENT),
    "inserted last": ("def f():\n    a()\n", "def f():\n    a()\n    b()\n", Level.STATEMENT),
    "removed": ("a = 1\nb = 2\nc = 3\n", "a = 1\nc = 3\n", Level.STATEMENT),
    "replaced": ("a = 1\nb = 2\n", "a = 1\nb = 3\n", Level.STATEMENT),
    "body emptied": ("def f():\n    a()\n", "def f():\n    pass\n", Level.STATEMENT),
    "new function": ("def f():\n    a()\n", "def f():\n    a()\n\n\n@cache\ndef g():\n    b()\n", Level.STATEMENT),
    "new method": (
        "class A:\n    def f(self): ...\n",
        "class A:\n    def g(self):\n        pass\n    def f(self): ...\n",
        Level.STATEMENT,
    ),
    "field of a class": ("class A:\n    a: int = 1\n", "class A:\n    a: int = 1\n    b: int = 2\n", Level.STATEMENT),
    "one name more": (
        "from a import (\n    b,\n    d,\n)\n",
        "from a import (\n    b,\n    c as e,\n    d,\n)\n",
        Level.STATEMENT,
    ),
    "one name less": ("from .a import b, c\n", "from .a import b\n", Level.STATEMENT),
    "condition": ("if a:\n    b()\n    c()\n", "if a and d:\n    b()\n    c()\n", Level.CONDITION),
    "condition of several lines": (
        "if (\n    a\n    or b  # why\n):  # so\n    c()\n",
        "if a or (\n    b and\n    d\n):\n    c()\n",
        Level.CONDITION,
    ),
    "while": ("while a():\n    b()\n", "while a() and c():\n    b()\n", Level.CONDITION),
    "loop": ("for i in a, b:\n    c(i)\n", "for i in d(a):\n    c(i)\n", Level.CONDITION),
    "condition and body": ("if a:\n    b()\n    c()\n", "if d:\n    b()\n    c()\n    e()\n", Level.CONDITION),
    "elif inserted": (
        "if a:\n    b()\nelif c:\n    d()\n",
        "if a:\n    b()\nelif e:\n    f()\nelif c:\n    d()\n",
        Level.STATEMENT,
    ),
    "elif removed": (
        "if a:\n    b()\nelif e:\n    f()\nelif c:\n    d()\n",
        "if a:\n    b()\nelif c:\n    d()\n",
        Level.STATEMENT,
    ),
    "elif changed": ("if a:\n    b()\nelif c:\n    d()\n", "if a:\n    b()\nelif c and e:\n    d()\n", Level.CONDITION),
    "elif chain changed": (
        "if a:\n    b()\nelif c:\n    d()\nelse:\n    e()\n",
        "if a:\n    b()\nelif f:\n    g()\nelse:\n    h()\n",
        Level.STATEMENT,
    ),
    "elif appended": (
        "if a:\n    b()\nelif c:\n    d()\n",
        "if a:\n    b()\nelif c:\n    d()\nelif e:\n    f()\n",
        Level.STATEMENT,
    ),
    "first branch": (
        "if a:\n    b()\nelse:\n    c()\n",
        "if d:\n    e()\nelif a:\n    b()\nelse:\n    c()\n",
        Level.STATEMENT,
    ),
    "else added": ("if a:\n    b()\n", "if a:\n    b()\nelse:\n    c()\n", Level.STATEMENT),
    "else removed": ("if a:\n    b()\nelse:\n    c()\n", "if a:\n    b()\n", Level.STATEMENT),
    "else of a loop": ("for i in a:\n    b()\n", "for i in a:\n    b()\nelse:\n    c()\n", Level.STATEMENT),
    "else in the middle of a try": (
        "try:\n    a()\nexcept E:\n    b()\nfinally:\n    c()\n",
        "try:\n    a()\nexcept E:\n    b()\nelse:\n    d()\nfinally:\n    c()\n",
        Level.ENCLOSING,
    ),
    "handler": ("try:\n    a()\nexcept E:\n    b()\n", "try:\n    a()\nexcept (E, F):\n    b()\n", Level.ENCLOSING),
    "body of a handler": (
        "try:\n    a()\nexcept E:\n    b()\n",
        "try:\n    a()\nexcept E:\n    c()\n",
        Level.STATEMENT,
    ),
    "finally": (
        "try:\n    a()\nexcept E:\n    b()\n",
        "try:\n    a()\nexcept E:\n    b()\nfinally:\n    c()\n",
        Level.ENCLOSING,
    ),
    "case": (
        "match a:\n    case 1:\n        b()\n    case {'k': v, **r}:\n        c()\n",
        "match a:\n    case 1:\n        d()\n    case {'k': v, **r}:\n        c()\n",
        Level.STATEMENT,
    ),
    "with": ("with a:\n    b()\n", "with a as c:\n    b()\n", Level.ENCLOSING),
    "call of several lines": ("a(\n    b,\n    c,\n)\n", "a(\n    b,\n    c,\n    d,\n)\n", Level.ENCLOSING),
    "signature": ("def f(a):\n    return a\n", "def f(a, b=1):\n    return a + b\n", Level.FUNCTION),
    "decorator": ("@a\ndef f():\n    b()\n", "@c\ndef f():\n    b()\n", Level.FUNCTION),
    "base class": ("class A(B):\n    c = 1\n", "class A(C):\n    c = 1\n", Level.FUNCTION),
    "becomes a generator": (
        "def f():\n    return [1]\n",
        "def f():\n    a()\n    yield 1\n    return\n",
        Level.FUNCTION,
    ),
    "shadows": ("def f():\n    return len([])\n", "def f():\n    len = g\n    return len([])\n", Level.FUNCTION),
    "no longer shadows": ("def f():\n    g = 1\n    return g\n", "def f():\n    return g\n", Level.FUNCTION),
    "binds in an inner function": (
        "def f():\n    def g():\n        return a\n    return g\n",
        "def f():\n    def g():\n        a = 1\n        return a\n    return g\n",
        Level.FUNCTION,
    ),
    "name of a comprehension": (
        "def f():\n    return [i for i in a]\n",
        "def f():\n    for i in b:\n        c(i)\n    return [i for i in a]\n",
        Level.STATEMENT,
    ),
    "global": ("def f():\n    global a\n    a = 1\n", "def f():\n    global a, b\n    a = b = 1\n", Level.FUNCTION),
    "global moved": (
        "def f():\n    global a\n    a = 1\n",
        "def f():\n    b()\n    global a\n    a = 2\n",
        Level.STATEMENT,
    ),
    "global in the region": (
        "def f():\n    global a\n    a = 1\n",
        "def f():\n    b()\n    c()\n    for global_ in d:\n        global a\n        a = 1\n",
        Level.FUNCTION,
    ),
    "jit": (
        "@triton.jit\ndef f(a):\n    b = 1\n    tl.store(a, b)\n",
        "@triton.jit\ndef f(a):\n    b = 2\n    tl.store(a, b)\n",
        Level.FUNCTION,
    ),
    "autotuned jit": (
        "@triton.autotune(configs=[])\n@triton.jit\ndef f(a):\n    b = 1\n",
        "@triton.autotune(configs=[])\n@triton.jit\ndef f(a):\n    b = 2\n",
        Level.FUNCTION,
    ),
    "scripted class": (
        "@torch.jit.script\nclass A:\n    b = 1\n",
        "@torch.jit.script\nclass A:\n    b = 2\n",
        Level.FUNCTION,
    ),
    "semicolons": ("if a:\n    b(); c()\n    d()\n", "if a:\n    b(); e()\n    d()\n", Level.ENCLOSING),
    "body on the header": ("if a: b()\nc()\n", "if a: d()\nc()\n", Level.STATEMENT),
    "string of several lines": (
        "if a:\n    b = '''\nx\n  # y\n'''\n",
        "if a:\n    b = '''\nx\n  # z\n'''\n",
        Level.ENCLOSING,
    ),
    "f-string of several lines": (
        'def g():\n    b = f"""\n{a}\n  y"""\n',
        'def g():\n    b = f"""\n{a}\n  z"""\n',
        Level.ENCLOSING,
    ),
    "strings one a line": ("f(\n    'a'\n    'b'\n)\n", "f(\n    'a'\n    'c'\n)\n", Level.ENCLOSING),
    "tabs": ("if a:\n\tif b:\n\t\tc()\n", "if a:\n\tif b:\n\t\tc()\n\t\td()\n", Level.STATEMENT),
    "line continued": ("if a:\n    b = c + \\\n  d\n", "if a:\n    b = c + \\\n  e\n", Level.ENCLOSING),
    "no newline at the end": ("a = 1\nif b:\n    c()", "a = 1\nif b:\n    d()", Level.STATEMENT),
    "async": (
        "async def f():\n    async with a:\n        await b()\n",
        "async def f():\n    async with a:\n        await c()\n",
        Level.STATEMENT,
    ),
    "walrus": ("if (a := b()):\n    c(a)\n", "if (a := d()):\n    c(a)\n", Level.CONDITION),
    "names of latin letters": ("é = 'ü'\nif a: pass\n", "é = 'ö'\nif a: pass\n", Level.STATEMENT),
}


@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_both_variants_stand_at_the_finest_level(old: str, new: str, level: Level) -> None:
    guarded = guard(old, new)
    assert guarded.refusals == ()
    assert max(levels(guarded)) == level
    assert guarded.symbols == ("X",)
    assert guarded.compared == 2


@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_the_way_back_is_guarded_too(old: str, new: str, level: Level) -> None:
    assert guard(new, old).refusals == ()


@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_crlf_stays_crlf(old: str, new: str, level: Level) -> None:
    content = guard(old.replace("\n", "\r\n").encode(), new.replace("\n", "\r\n").encode()).content
    assert content is not None
    assert content.count(b"\n") == content.count(b"\r\n")


@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_no_name_has_another_scope_by_the_compilers_own_tables(old: str, new: str, level: Level) -> None:
    content = guard(old, new).content
    assert content is not None
    assert list(changed_scopes(content, old.encode())) == []
    assert list(changed_scopes(content, new.encode())) == []


def test_the_compilers_tables_tell_a_name_that_became_local() -> None:
    plain = b"def f():\n    return len([])\n"
    guarded = b"def f():\n    if CONFIG_X:\n        len = g\n    return len([])\n"
    assert list(changed_scopes(guarded, plain)) == ["names of f are of another scope"]


def _mutants(content: bytes) -> list[bytes]:
    """Invert every guard, one at a time."""
    lines = content.split(b"\n")
    mutants = []
    for number, line in enumerate(lines):
        if b"CONFIG_X" in line and b"import" not in line:
            inverted = (
                line.replace(b"not CONFIG_X", b"CONFIG_Y")
                if b"not CONFIG_X" in line
                else line.replace(b"CONFIG_X", b"(not CONFIG_X)")
            )
            mutants.append(
                b"\n".join([*lines[:number], inverted.replace(b"CONFIG_Y", b"CONFIG_X"), *lines[number + 1 :]])
            )
    return mutants


@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_an_inverted_guard_is_found(old: str, new: str, level: Level) -> None:
    content = guard(old, new).content
    assert content is not None
    mutants = _mutants(content)
    assert mutants
    for mutant in mutants:
        verdict = check_guarded(old.encode(), mutant, lambda on: read_lines((new if on else old).encode()), CHECK)
        assert verdict.mismatches, mutant.decode()


def test_a_text_that_stands_alone_is_a_docstring_only_where_one_can_be() -> None:
    guarded = guard("try:\n    a()\nexcept E:\n    b()\n", "try:\n    a()\nexcept E:\n    'text'\n")
    assert guarded.refusals == ()
    assert levels(guarded) == {Level.STATEMENT}


def test_a_class_in_a_function_takes_its_names_from_there_with_the_guard_off() -> None:
    old = "def f(x):\n    class A:\n        y = x\n    return A.y\n"
    guarded = guard(old, old.replace("        y", "        x = 2\n        y"))
    assert levels(guarded) == {Level.FUNCTION}
    assert guarded.content is not None
    for on, there in ((False, 1), (True, 2)):
        names: dict[str, Any] = {"CONFIG_X": on}
        exec(guarded.content.partition(b"\n")[2], names)  # noqa: S102 -- code of this file
        assert names["f"](1) == there


def test_every_line_of_an_edit_is_one() -> None:
    old, new, _ = CASES["condition of several lines"]
    base = read_lines(textwrap.dedent(old).encode())
    edits = guard_variants(parse_source(base), parse_source(read_lines(new.encode())), "X")
    assert all(line.index(b"\n") == len(line) - 1 for edit in edits for line in edit.lines)


REFUSED = {
    "future": ("a = 1\n", "from __future__ import annotations\na = 1\n", "__future__"),
    "does not parse": ("a = 1\n", "a = = 1\n", "does not parse"),
    "lone CR": (b"a = 1\rb = 2\n", b"a = 1\rb = 3\n", "CR"),
    "latin-1": (b"# coding: latin-1\na = '\xe9'\n", b"# coding: latin-1\na = '\xe8'\n", "latin-1"),
    "one line": ("a = 1; b = 2\n", "a = 1; b = 3\n", ""),
    "its own constant": ("a = 1\nCONFIG_X = 2\n", "a = 3\nCONFIG_X = 2\n", "CONFIG_X"),
}


@pytest.mark.parametrize(("old", "new", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_guarded_says_why(old: str | bytes, new: str | bytes, reason: str) -> None:
    guarded = guard(old, new)
    found = guarded.refusals or guarded.selected
    if not found:
        assert reason == ""  # the whole line is one region
        return
    assert reason in found[0].reason
    assert found[0].symbols == ("X",)
    assert found[0].by_select
    assert not guarded.selected or guarded.content == (old.encode() if isinstance(old, str) else old)


def test_docstrings_and_comments_alone_change_nothing() -> None:
    old = '"""One."""\n# a\ndef f():\n    """Two."""\n    return 1  # b\n'
    new = '"""Other."""\n# c\ndef f():\n    """Another."""\n    return 1  # d\n'
    guarded = guard(old, new)
    assert guarded.content == old.encode()
    assert guarded.regions == ()


def test_import_stands_behind_docstring_and_future_imports() -> None:
    old = '#!/usr/bin/python\n"""Text\nof two lines."""\n\nfrom __future__ import annotations\n\nimport a\n'
    content = guard(old, old + "b = 1\n").content
    assert content is not None
    before, _, behind = content.partition(b"from engine._patchkit.autoconf import CONFIG_X  # patchkit: ")
    assert before.endswith(b"annotations\n")
    assert behind[16:].startswith(b"\n\nimport a\n")


def test_import_stands_below_the_comments_at_the_top_and_above_the_first_guard() -> None:
    content = guard("# licence\n\n# why\nimport a\n", "# licence\n\n# why\nimport b\nimport a\n").content
    assert content is not None
    assert content.startswith(b"# licence\n\n# why\nfrom engine.")
    assert content.index(b"autoconf import") < content.index(b"if CONFIG_X")


def test_byte_order_mark_stays_first() -> None:
    content = guard(b"\xef\xbb\xbfa = 1\n", b"\xef\xbb\xbfa = 2\n").content
    assert content is not None
    assert content.startswith(b"\xef\xbb\xbffrom engine.")
    assert content.count(b"\xef\xbb\xbf") == 1


def test_what_a_patch_reads_itself_is_imported_too() -> None:
    guarded = guard_python(
        b"a = 1\n",
        [GuardStep(symbol="", content=b"a = CONFIG_N if CONFIG_OTHER else 1\n")],
        replace(TERMS, constants=frozenset({"N", "UNUSED"})),
    )
    assert guarded.symbols == ("N",)


# What a guard must not change, by running all of it: (file, what to evaluate).
RUNS = {
    "unbound local": (
        "def f():\n    return len('ab')\n",
        "def f():\n    len = lambda _: 7\n    return len('ab')\n",
        "f()",
    ),
    "generator": ("def f():\n    return [1, 2]\n", "def f():\n    yield 3\n    return\n", "list(f())"),
    "closure": (
        "a = 1\ndef f():\n    def g():\n        return a\n    return g()\n",
        "a = 1\ndef f():\n    a = 2\n    def g():\n        return a\n    return g()\n",
        "f()",
    ),
    "class body": (
        "a = 1\nclass A:\n    b = a\n",
        "a = 1\nclass A:\n    a = 2\n    b = a\n",
        "A.b",
    ),
    "property": (
        "class A:\n    @property\n    def b(self):\n        return 1\n    @b.setter\n    def b(self, v): pass\n",
        "class A:\n    @property\n    def b(self) -> int:\n        return 2\n    @b.setter\n    def b(self, v): pass\n",
        "A().b",
    ),
    "dataclass": (
        "from dataclasses import dataclass, fields\n@dataclass\nclass A:\n    a: int = 1\n",
        "from dataclasses import dataclass, fields\n@dataclass\nclass A:\n    a: int = 1\n    b: int = 2\n",
        "[one.name for one in fields(A)]",
    ),
    "enum": (
        "import enum\nclass E(enum.Enum):\n    A = 1\n",
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2\n",
        "[one.name for one in E]",
    ),
    "branch": (
        "def f(n):\n    if n > 2:\n        return 'big'\n    elif n > 1:\n        return 'two'\n    return 'one'\n",
        "def f(n):\n    if n > 3:\n        return 'huge'\n"  # noqa: ISC004
        "    elif n > 2:\n        return 'big'\n    elif n > 1:\n        return 'two'\n    return 'one'\n",
        "[f(n) for n in range(6)]",
    ),
}


@pytest.mark.parametrize(("old", "new", "asked"), RUNS.values(), ids=RUNS)
def test_each_variant_runs_as_plain_patching_does(old: str, new: str, asked: str) -> None:
    content = guard(old, new).content
    assert content is not None
    for on, plain in ((False, old), (True, new)):
        code = b"\n".join(line for line in content.split(b"\n") if b"autoconf import" not in line)
        assert _run(code, asked, CONFIG_X=on) == _run(plain.encode(), asked)


def _run(code: bytes, asked: str, **constants: bool) -> object:
    space: dict[str, object] = {"__name__": "guarded", **constants}
    exec(compile(code, "<guarded>", "exec", dont_inherit=True), space)  # noqa: S102 -- code of this file
    return eval(asked, space)  # noqa: S307


def test_every_pair_of_the_cases_can_be_put_into_one_file() -> None:
    names = [name for name in CASES if name not in ("tabs", "no newline at the end")]
    for first, second in itertools.pairwise(names):
        old = f"{CASES[first][0]}\n{CASES[second][0]}"
        both = [f"{CASES[first][1]}\n{CASES[second][0]}", f"{CASES[first][1]}\n{CASES[second][1]}"]
        steps = [GuardStep(symbol=symbol, content=text.encode()) for symbol, text in zip("AB", both, strict=True)]
        guarded = guard_python(old.encode(), steps, TERMS)
        assert guarded.refusals == (), (first, second)
        assert guarded.compared == 4
        assert guarded.content is not None
        ast.parse(guarded.content)


def test_lines_that_moved_above_a_class_do_not_mislead() -> None:
    old = "import a\n\n\nclass A:\n    b = (\n        1)\n\n"
    old += "    def c(self):\n        return 1\n\n    def d(self):\n        return 2\n"
    new = "import e\nimport f\nimport a\n" + old[len("import a\n") :].replace("return 1", "return 3") + "\n\ng = 1\n"
    guarded = guard(old, new)
    assert guarded.refusals == ()
    assert levels(guarded) == {Level.STATEMENT}


def test_statements_that_change_places_are_guarded_as_they_are() -> None:
    old = "a = 1\n\n\nclass A:\n    b = 1\n    c = 2\n\n\nd = 4\ne = 5\n"
    new = "d = 4\n\n\nclass A:\n    c = 2\n    b = 1\n\n\ne = 5\na = 1\n"
    assert guard(old, new).refusals == ()
