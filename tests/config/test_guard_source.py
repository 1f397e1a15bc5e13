"""A variant that is parsed in part has the tree of the whole."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from patchkit.config.guard_align import same_tree
from patchkit.config.guard_source import UnguardableError, parse_source, read_lines, vary

LIBRARY = Path(ast.__file__).parent
FILES = ["argparse.py", "ast.py", "dataclasses.py", "typing.py", "tokenize.py"]

# Lines that change what the lines around them mean.
_TRAPS = [
    b"else:\n",
    b"    else:\n",
    b'"""\n',
    b"(\n",
    b")\n",
    b"@x\n",
    b"    @x\n",
    b"\\\n",
    b"    pass; x = (\n",
    b"# c\n",
    b"    def f(self):\n",
    b"        return 1\n",
    b"class C:\n",
    b"import q\n",
    b"    x = 1\n",
    b"\n",
    b"  odd\n",
    b"if 1: pass\n",
]


@pytest.mark.parametrize("name", FILES)
def test_variant_equals_the_whole_parse(name: str) -> None:
    lines = read_lines((LIBRARY / name).read_bytes())
    base = parse_source(lines)
    chance = random.Random(name)  # noqa: S311 -- reproducible
    parsed = 0
    for _ in range(60):
        varied = list(lines)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(varied))
            del varied[place : place + chance.randrange(3)]
            varied[place:place] = chance.sample(_TRAPS, chance.randrange(3))
        try:
            expected = parse_source(varied).body
        except UnguardableError:
            with pytest.raises(UnguardableError):
                vary(base, varied)
            continue
        parsed += 1
        made = vary(base, varied)
        assert same_tree(made.body, expected)
        assert all(member in ast.walk(ast.Module(made.body, [])) for member in made.body[:1])
    assert parsed > 3


def test_variant_shares_what_it_does_not_change() -> None:
    lines = read_lines(
        b"a = 1\n\n\nclass A:\n    b = 1\n\n    def f(self):\n        return 1\n\n    c = 2\n\n\nd = 4\n"
    )
    base = parse_source(lines)
    varied = [line.replace(b"return 1", b"return 2") for line in lines]
    made = vary(base, varied)
    assert [one is other for one, other in zip(made.body, base.body, strict=True)] == [True, False, True]
    holder, old = made.body[1], base.body[1]
    assert isinstance(holder, ast.ClassDef)
    assert isinstance(old, ast.ClassDef)
    assert [one is other for one, other in zip(holder.body, old.body, strict=True)] == [True, False, True]
    assert holder.body[1].lineno == 7
    assert id(holder) in made.partial
