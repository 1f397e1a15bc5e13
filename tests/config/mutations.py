"""Python files changed at random, as patches change them: statements come, go, move and are wrapped, by lines."""

from __future__ import annotations

import ast
import random
import re
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

UNIT = "    "


class Place(NamedTuple):
    """A statement that has its lines for itself: 0-based, half open, with decorators."""

    node: ast.stmt
    start: int
    end: int
    indent: str
    function: ast.FunctionDef | ast.AsyncFunctionDef | None
    alone: bool


def parse(text: str) -> ast.Module | None:
    """Return the tree of a text that compiles, None for any other."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<mutant>", "exec", dont_inherit=True)
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def mutate(text: str, draw: random.Random, changes: int = 3, tries: int = 40) -> str:
    """Return a text with a few random changes, each of which leaves it one that compiles."""
    done = 0
    for _ in range(tries):
        tree = parse(text)
        if done == changes or tree is None:
            break
        lines = text.splitlines(keepends=True)
        places = list(_places(tree, lines))
        if not places:
            break
        change = draw.choice(CHANGES)
        made = change(lines, draw.choice(places), draw, places)
        if made is not None and (new := "".join(made)) != text and parse(new) is not None:
            text, done = new, done + 1
    return text


def _places(tree: ast.Module, lines: list[str]) -> Iterator[Place]:
    def walk(body: list[ast.stmt], function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> Iterator[Place]:
        for node in body:
            start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
            end = node.end_lineno or node.lineno
            indent = lines[start][: len(lines[start]) - len(lines[start].lstrip(" \t"))]
            last = lines[end - 1].encode()[node.end_col_offset or 0 :].strip()
            whole = node.col_offset == len(indent.encode()) and (not last or last.startswith(b"#"))
            if whole and not lines[start].lstrip().startswith("elif"):
                yield Place(node, start, end, indent, function, len(body) == 1)
            inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
            for name in ("body", "orelse", "finalbody"):
                yield from walk(getattr(node, name, []), inner)
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from walk(part.body, inner)

    yield from walk(tree.body, None)


def _shifted(lines: list[str], by: str = UNIT) -> list[str]:
    return [by + line if line.strip() else line for line in lines]


Change = Callable[[list[str], Place, random.Random, list[Place]], "list[str] | None"]


def _delete(lines: list[str], at: Place, _draw: random.Random, _places: list[Place]) -> list[str]:
    gap = [f"{at.indent}pass\n"] if at.alone else []
    return [*lines[: at.start], *gap, *lines[at.end :]]


def _repeat(lines: list[str], at: Place, _draw: random.Random, _places: list[Place]) -> list[str]:
    return [*lines[: at.end], *lines[at.start : at.end], *lines[at.end :]]


def _swap(lines: list[str], at: Place, draw: random.Random, places: list[Place]) -> list[str] | None:
    other = draw.choice(places)
    first, second = sorted((at, other), key=lambda one: one.start)
    if first.end > second.start or first.indent != second.indent:
        return None
    between = lines[first.end : second.start]
    swapped = [*lines[second.start : second.end], *between, *lines[first.start : first.end]]
    return [*lines[: first.start], *swapped, *lines[second.end :]]


def _move(lines: list[str], at: Place, draw: random.Random, places: list[Place]) -> list[str] | None:
    other = draw.choice(places)
    if other.indent != at.indent or at.start <= other.start < at.end or at.alone:
        return None
    moved = lines[at.start : at.end]
    if other.start >= at.end:
        return [*lines[: at.start], *lines[at.end : other.start], *moved, *lines[other.start :]]
    return [*lines[: other.start], *moved, *lines[other.start : at.start], *lines[at.end :]]


WRAPPERS = (
    ("if {n} > 1:",),
    ("if {n}:", "else:\n{i}    {n} = 7"),
    ("for {v} in range(2):",),
    ("while {n} > 3:\n{i}    {n} -= 2",),
    ("try:", "finally:\n{i}    log('done', {n})"),
    ("try:", "except ValueError as {v}:\n{i}    log({v})"),
    ("try:", "except (KeyError, TypeError):\n{i}    pass\n{i}else:\n{i}    {n} = 3"),
    ("with scope({n}) as {v}:",),
    ("match {n}:\n{i}    case 1 | 2:\n{i}        {v} = 1\n{i}    case [{v}, *_]:\n{i}        pass\n{i}    case _:",),
)


def _wrap(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str]:
    opening, *closing = draw.choice(WRAPPERS)
    names = {"n": _name(draw), "v": _name(draw), "i": at.indent}
    deeper = UNIT * (2 if opening.startswith("match") else 1)
    body = _shifted(lines[at.start : at.end], deeper)
    end = [at.indent + part.format(**names) + "\n" for part in closing]
    return [*lines[: at.start], at.indent + opening.format(**names) + "\n", *body, *end, *lines[at.end :]]


NEW = (
    "{n} = {n} + {k}",
    "{n} = {v}",
    "{v} = {k}",
    "log({n}, {v})",
    "del {n}",
    "return {n}",
    "yield {n}",
    "{v} = yield",
    "yield from ({n}, {v})",
    "raise ValueError({k})",
    "global {n}",
    "nonlocal {n}",
    "import math as {n}",
    "from math import floor as {n}, ceil as {v}",
    "{n} = [{v} for {v} in range({k}) if ({n} := {v}) or True]",
    "{n} = sum({v} * {n} for {v} in range(3))",
    "{n} = {{{v}: {n} for {v} in range(3)}}",
    "{n} = lambda {v}={n}: ({v}, {n})",
    "{n}: int = {k}",
    "{n} += 1; {v} = {n}",
    "{n} = {n} \\\n{i}    + {k}",
    "{n} = (\n{i}    {n},\n{i}    # why\n{i}    {v},\n{i})",
    "{n} = f'{{{n}!r}} and {{ {v} }}'",
    "{n} = '''\n  text {k}\n# no comment\n'''",
    "'''A lone text.'''",
    "# only a comment {k}",
    "def {n}({v}={k}):\n{i}    return {v}, {n}",
    "def {n}():\n{i}    nonlocal {v}\n{i}    {v} = {k}",
    "async def {n}({v}):\n{i}    return [x async for x in {v}]",
    "class {n}:\n{i}    {v} = {v}\n{i}    def get(self): return {n}, {v}",
    "for {n} in range(3): {v} = {n}",
    "if {n}: {v} = 1\n{i}elif {v}: {n} = 2\n{i}else: {n} = 3",
    "assert {n} != {k}, {v}",
    "try: {n} = {v}\n{i}except NameError: {n} = {k}",
    "try:\n{i}    {n} = {v}\n{i}except* OSError as {v}:\n{i}    pass",
    "while {n} > {k}:\n{i}    {n} -= 1\n{i}else:\n{i}    {v} = 0",
    "match {v}:\n{i}    case {{'a': {n}, **{v}}}:\n{i}        pass\n{i}    case int({n}) if {n}:\n{i}        {v} = 1",
)


def _insert(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str]:
    text = draw.choice(NEW).format(n=_name(draw), v=_name(draw), k=draw.randrange(9), i=at.indent)
    where = draw.choice((at.start, at.end))
    return [*lines[:where], f"{at.indent}{text}\n", *lines[where:]]


def _replace(lines: list[str], at: Place, draw: random.Random, places: list[Place]) -> list[str] | None:
    made = _insert(lines, at, draw, places)
    if len(made) <= len(lines):
        return None
    new = made[at.start : at.start + len(made) - len(lines)]
    if made[at.start + len(new) : at.start + len(new) + 1] != lines[at.start : at.start + 1]:
        return None
    return [*lines[: at.start], *new, *lines[at.end :]]


def _rename(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str]:
    old, new = _name(draw), _name(draw)
    changed = [re.sub(rf"\b{old}\b", new, line) for line in lines[at.start : at.end]]
    return [*lines[: at.start], *changed, *lines[at.end :]]


def _number(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str]:
    row = draw.randrange(at.start, at.end)
    line = re.sub(r"\b\d+\b", str(draw.randrange(9)), lines[row], count=1)
    return [*lines[:row], line, *lines[row + 1 :]]


def _drop_line(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str]:
    row = draw.randrange(at.start, at.end)
    return [*lines[:row], *lines[row + 1 :]]


def _header(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str] | None:
    node, name = at.node, _name(draw)
    row = node.lineno - 1
    line = lines[row]
    pairs: tuple[tuple[str, str], ...]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        pairs = (
            (r"\)(\s*(->.*)?:)", rf", *, {name}=None)\1"),
            (r"\((?=\w)", rf"({name}, "),
            (r"^(\s*)def ", r"\1async def "),
            (r"^(\s*)", rf"\1@keep\n{at.indent}"),
            (r"\):", ") -> int:"),
        )
    elif isinstance(node, ast.ClassDef):
        pairs = ((r"(class \w+).*:$", rf"\1({name}):"), (r"^(\s*)", rf"\1@keep\n{at.indent}"))
    elif isinstance(node, ast.If | ast.While):
        pairs = ((r"(if|while) (.*):", rf"\1 {name} and (\2):"), (r"(if|while) (.*):", rf"\1 {name}:"))
    elif isinstance(node, ast.For):
        pairs = ((r" in (.*):", rf" in [*(\1), {name}]:"), (r"for \w+ in", f"for {name} in"))
    else:
        return None
    pattern, put = draw.choice(pairs)
    return [*lines[:row], re.sub(pattern, put, line, count=1, flags=re.MULTILINE), *lines[row + 1 :]]


def _chain(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str] | None:
    if not isinstance(at.node, ast.If):
        return None
    name, other = _name(draw), _name(draw)
    row = at.node.body[-1].end_lineno or 0
    part = draw.choice((f"elif {name}:\n{at.indent}    {other} = 4\n", f"else:\n{at.indent}    {name} = {other}\n"))
    return [*lines[:row], at.indent + part, *lines[row:]]


def _comment(lines: list[str], at: Place, draw: random.Random, _places: list[Place]) -> list[str]:
    row = draw.randrange(at.start, at.end)
    return [*lines[:row], lines[row].rstrip("\n") + f"  # note {draw.randrange(9)}\n", *lines[row + 1 :]]


NAMES = ("a", "b", "c", "n", "x", "total", "f", "g", "inner", "limit", "log")


def _name(draw: random.Random) -> str:
    return draw.choice(NAMES[:-1])


CHANGES: tuple[Change, ...] = (
    *(_delete, _repeat, _swap, _move, _wrap, _wrap, _insert, _insert, _insert, _insert, _replace, _replace),
    *(_rename, _rename, _number, _drop_line, _header, _header, _chain, _comment),
)
