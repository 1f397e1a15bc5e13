"""Hard cases of guards in Python: whatever the syntax, both variants come back, or it is said why not."""

from __future__ import annotations

import sys

import pytest

from tests.config.mutations import parse
from tests.config.test_guard_properties import check

NEWER = sys.version_info >= (3, 12)
LONG = "if a == 0:\n    b(0)\n" + "".join(f"elif a == {n}:\n    b({n})\n" for n in range(1, 60)) + "else:\n    c()\n"
CHAIN = """\
def f():
    a = 1
    def g():
        nonlocal a
        def h():
            nonlocal a
            a = 2
        h()
    g()
    return a
"""
CASES = {
    "branch of a long chain": (LONG, LONG.replace("b(30)", "b(300)")),
    "condition in a long chain": (LONG, LONG.replace("elif a == 30:", "elif a == 300:")),
    "one more in a long chain": (LONG, LONG.replace("elif a == 31:", "elif z:\n    y()\nelif a == 31:")),
    "typeparam func": (
        "def f[T](x: T) -> T:\n    a(x)\n    return x\n",
        "def f[T](x: T) -> T:\n    b(x)\n    return x\n",
    ),
    "typeparam sig": (
        "def f[T](x: T) -> T:\n    a(x)\n    return x\n",
        "def f[T, U](x: T) -> U:\n    a(x)\n    return x\n",
    ),
    "class typeparam": (
        "class C[T]:\n    a: T = 1\n    def f(self): return 1\n",
        "class C[T]:\n    a: T = 2\n    def f(self): return 1\n",
    ),
    "class typeparam2": ("class C[T]:\n    a = 1\n", "class C[T, U](B):\n    a = 1\n"),
    "type alias": ("type X = int\ny = 1\n", "type X = str\ny = 1\n"),
    "type alias add": ("y = 1\n", "type X[T] = list[T]\ny = 1\n"),
    "type alias in f": ("Z = 1\ndef f():\n    return Z\n", "Z = 1\ndef f():\n    type Z = int\n    return Z\n"),
    "typeparam shadows": (
        "T = 1\ndef g():\n    def f(x): return T\n    return f\n",
        "T = 1\ndef g():\n    def f[T](x): return T\n    return f\n",
    ),
    "typeparam used inside": (
        "T = 3\ndef f[T](x):\n    a()\n    return T\n",
        "T = 3\ndef f[T](x):\n    a()\n    T = 1\n    return T\n",
    ),
    "pep701": ("a = f'{x + \"y\"}'\nb = 1\n", "a = f'{x + 'z'}'\nb = 1\n"),
    "pep701 nested": (
        "def f():\n    a = f'''\n  {x}\n  {f\"\"\"\n in {y}\n\"\"\"}\n'''\n    b = 1\n",
        "def f():\n    a = f'''\n  {x}\n  {f\"\"\"\n in {z}\n\"\"\"}\n'''\n    b = 1\n",
    ),
    "except*": ("try:\n    a()\nexcept* OSError as e:\n    b(e)\n", "try:\n    a()\nexcept* OSError as e:\n    c(e)\n"),
    "except* added": (
        "try:\n    a()\nexcept* OSError as e:\n    b(e)\n",
        "try:\n    a()\nexcept* OSError as e:\n    b(e)\nexcept* ValueError:\n    pass\n",
    ),
    "except to except*": (
        "try:\n    a()\nexcept OSError as e:\n    b(e)\n",
        "try:\n    a()\nexcept* OSError as e:\n    b(e)\n",
    ),
    "walrus compr": (
        "y = 1\ndef f(v):\n    g()\n    return y\n",
        "y = 1\ndef f(v):\n    z = [y := x for x in v]\n    return y\n",
    ),
    "walrus compr module": (
        "def f(v):\n    return v\nz = 1\n",
        "def f(v):\n    return v\nz = [w := x for x in (1,2)]\n",
    ),
    "nonlocal chain": (
        CHAIN,
        CHAIN.replace("a = 2", "a = 3"),
    ),
    "nonlocal removed": (
        "def f():\n    a = 1\n    def g():\n        nonlocal a\n        a = 3\n    g()\n    return a\n",
        "def f():\n    a = 1\n    def g():\n        a = 3\n    g()\n    return a\n",
    ),
    "nonlocal target gone": (
        "def f():\n    a = 1\n    b = 1\n    def g():\n        nonlocal a\n        a = 3\n    g()\n    return b\n",
        "def f():\n    b = 1\n    def g():\n        a = 3\n    g()\n    return b\n",
    ),
    "decor args": (
        "@app.route('/x', methods=['GET'])\ndef f():\n    return 1\n",
        "@app.route('/x', methods=['GET', 'POST'])\ndef f():\n    return 1\n",
    ),
    "decor multi": (
        "@app.route(\n    '/x',\n    methods=['GET'],\n)\ndef f():\n    return 1\n",
        "@app.route(\n    '/y',\n    methods=['GET'],\n)\ndef f():\n    return 1\n",
    ),
    "decor method": (
        "class A:\n    @p\n    def f(self): return 1\n    @f.setter\n    def f(self, v): self.v = v\n",
        "class A:\n    @p\n    def f(self): return 1\n    @f.setter\n    def f(self, v, w=1): self.v = v\n",
    ),
    "TYPE_CHECKING": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import b\n\ndef f(x: 'b'): ...\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import b, c\n\ndef f(x: 'b'): ...\n",
    ),
    "TYPE_CHECKING new": (
        "from typing import TYPE_CHECKING\nx = 1\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import b\nx = 1\n",
    ),
    "cond import": (
        "try:\n    import a\nexcept ImportError:\n    a = None\n",
        "try:\n    import a\n    import b\nexcept ImportError:\n    a = None\n",
    ),
    "cond import2": (
        "if sys.x:\n    import a\nelse:\n    import b as a\n",
        "if sys.x:\n    import a\nelif sys.y:\n    import c as a\nelse:\n    import b as a\n",
    ),
    "doc only": (
        '"""A."""\ndef f():\n    """B."""\n    return 1\n',
        '"""AA."""\ndef f():\n    """BB."""\n    return 1\n',
    ),
    "doc gone2": ('class A:\n    """B."""\n    a = 1\n', "class A:\n    a = 1\n"),
    "doc only body": ('def f():\n    """B."""\n', 'def f():\n    """C."""\n    return 1\n'),
    "form feed": ("a = 1\n\x0c\ndef f():\n    return 1\n", "a = 1\n\x0c\ndef f():\n    return 2\n"),
    "form feed2": ("def f():\n\x0c    return 1\n\x0cx = 1\n", "def f():\n\x0c    return 2\n\x0cx = 2\n"),
    "form feed indent": ("def f():\n    a()\n\x0c    b()\n", "def f():\n    a()\n\x0c    c()\n"),
    "vertical": ("a = 'x\x0by'\nb = 1\n", "a = 'x\x0by'\nb = 2\n"),
    "nel": ("a = 'x\u2028y'\nb = 1\n", "a = 'x\u2028z'\nb = 2\n"),
    "u85": (
        "def f():\n    a = '''x\x85y\n  z'''\n    return 1\n",
        "def f():\n    a = '''x\x85y\n  w'''\n    return 1\n",
    ),
    "tabs": ("def f():\n\ta()\n\tif b:\n\t\tc()\n", "def f():\n\ta()\n\tif b:\n\t\td()\n\telse:\n\t\te()\n"),
    "tabs mixed": (
        "def f():\n\ta()\n\tif b:\n\t    c()\n\t    x()\n",
        "def f():\n\ta()\n\tif b:\n\t    d()\n\t    x()\n",
    ),
    "cont": ("a = 1 + \\\n  2\nb = 3\n", "a = 1 + \\\n  4\nb = 3\n"),
    "cont if": ("if a and \\\n   b:\n    c()\n    d()\n", "if a and \\\n   e:\n    c()\n    d()\n"),
    "cont with": ("with a as b, \\\n     c as d:\n    e()\n", "with a as b, \\\n     c as f:\n    e()\n"),
    "cont blank": ("a = 1\n\\\n\nb = 2\n", "a = 1\n\\\n\nb = 3\n"),
    "semi": ("a = 1; b = 2; c = 3\nd = 4\n", "a = 1; b = 5; c = 3\nd = 4\n"),
    "semi trailing": ("def f():\n    a();\n    b();\n", "def f():\n    a();\n    c();\n"),
    "semi in f": ("def f():\n    a(); b()\n    return 1\n", "def f():\n    a(); b(); c()\n    return 1\n"),
    "semi header": ("if a: b(); c()\nd()\n", "if a: b(); e()\nd()\n"),
    "oneline if add else": ("if a: b()\nd()\n", "if a: b()\nelse: c()\nd()\n"),
    "match": (
        "match a:\n    case 1:\n        b()\n    case _:\n        c()\n",
        "match a:\n    case 1:\n        d()\n    case _:\n        c()\n",
    ),
    "match new case": (
        "match a:\n    case 1:\n        b()\n    case _:\n        c()\n",
        "match a:\n    case 1:\n        b()\n    case 2 if x:\n        e()\n    case _:\n        c()\n",
    ),
    "match bind": (
        "x = 1\ndef f(a):\n    match a:\n        case 1: return x\n",
        "x = 1\ndef f(a):\n    match a:\n        case 1: return x\n        case [x, *r]: return r\n",
    ),
    "match class": (
        "match a:\n    case P(x=0, y=b):\n        c(b)\n",
        "match a:\n    case P(x=1, y=b):\n        c(b)\n",
    ),
    "async comp": (
        "async def f(v):\n    return [x async for x in v]\n",
        "async def f(v):\n    return [x async for x in v if await x]\n",
    ),
    "async comp2": (
        "async def f(v):\n    g()\n    return 1\n",
        "async def f(v):\n    async with a as b, c:\n        async for x in v:\n            yield x\n",
    ),
    "class deleted": ("a = 1\n\n\nclass A:\n    def f(self):\n        return 1\n\n\nb = 2\n", "a = 1\n\n\nb = 2\n"),
    "class body names": ("x = 1\nclass A:\n    y = x\n", "x = 1\nclass A:\n    x = 2\n    y = x\n"),
    "class in f": (
        "x = 1\ndef f():\n    x = 3\n    class A:\n        y = x\n    return A\n",
        "x = 1\ndef f():\n    x = 3\n    class A:\n        y = x\n        x = 4\n    return A\n",
    ),
    "try no finally": ("try:\n    a()\nexcept A:\n    b()\nfinally:\n    d()\n", "try:\n    a()\nexcept A:\n    b()\n"),
    "mixed eol": ("def f():\r\n    a()\n    return 1\r\n", "def f():\r\n    b()\n    return 1\r\n"),
    "comment in brackets": (
        "a = [\n    1,  # one\n    2,\n    # three\n]\n",
        "a = [\n    1,  # one\n    # two and\n    2, 3,\n]\n",
    ),
    "string dedent": (
        "def f():\n    s = '''\nx\n  y\n'''\n    return s\n",
        "def f():\n    s = '''\nx\n  z\n'''\n    return s\n",
    ),
    "implicit concat": (
        "def f():\n    s = ('a'\n         'b')\n    return s\n",
        "def f():\n    s = ('a'\n         'c')\n    return s\n",
    ),
    "backslash in string": (
        "def f():\n    s = 'a\\\n  b'\n    return s\n",
        "def f():\n    s = 'a\\\n  c'\n    return s\n",
    ),
    "fstring backslash": (
        "def f(x):\n    s = f'a\\\n  {x}'\n    return s\n",
        "def f(x):\n    s = f'a\\\n  {x!r}'\n    return s\n",
    ),
    "super": (
        "class A(B):\n    def f(self):\n        super().f()\n        return 1\n",
        "class A(B):\n    def f(self):\n        return 1\n",
    ),
    "__class__": (
        "class A(B):\n    def f(self):\n        return 1\n",
        "class A(B):\n    def f(self):\n        return __class__\n",
    ),
    "unicode ident": ("ﬁ = 1\ndef f():\n    return ﬁ\n", "ﬁ = 1\ndef f():\n    fi = 2\n    return ﬁ\n"),
}
AS_A_WHOLE = {"semi"}
"""Statements that share a line at the level of the module: there stands what the present values make."""


@pytest.mark.parametrize("name", CASES)
def test_both_variants_come_back(name: str) -> None:
    old, new = CASES[name]
    guarded = check((old, new), run=False)
    if parse(old) is None or parse(new) is None:
        assert not NEWER, "from 3.12 on all of these are Python"
        assert all(one.by_select for one in guarded.refusals)
        return
    assert guarded.refusals == ()
    assert bool(guarded.selected) is (name in AS_A_WHOLE)
