r"""Both variants of a C, C++ or CUDA file in one text: `#if CONFIG_X` regions, which the preprocessor takes away.

A region is whole lines, widened on both sides until it may stand there: its own `#if` are balanced on either side, and
it neither begins nor ends in a line that goes on (`\\`), a block comment or a raw string.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from patchkit.config.guard_edit import GuardEdit, Level
from patchkit.config.guard_source import UnguardableError
from patchkit.diff.compare import Block, compare_lines
from patchkit.pattern import compile_lazily

# What may hold a line break or hide one: raw strings, comments, strings and characters (but no 1'000).
_TOKENS = compile_lazily(
    rb'(?<!\w)(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    rb"|/\*.*?(?:\*/|\Z)"
    rb"|//(?:\\\r?\n|[^\n])*"
    rb'|"(?:\\\r?\n|\\.|[^"\\\n])*"'
    rb"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
# A comment may stand wherever a blank may; a line is given with those that go on from it.
_DIRECTIVE = compile_lazily(
    rb"(?:\s|/\*.*?\*/)*(?:#|%:)(?:\s|/\*.*?\*/)*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b", re.DOTALL
)
_GUARD = compile_lazily(rb"#if (!?)CONFIG_([A-Za-z0-9_]+)\r?\n?")
_GOES_ON = (b"\\\n", b"\\\r\n")


class CText:
    """The lines of a file; `free` tells for each line, and the end, whether a directive may stand above it.

    `steps` holds for each line 1 for an `#if`, -1 for an `#endif`, 0 for an `#else` or `#elif`, None for no directive.
    """

    __slots__ = ("free", "lines", "newline", "steps")

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = list(lines)
        self.newline = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
        self.free = _free_places(self.lines)
        self.steps = [_step(self._logical(number)) if self.free[number] else None for number in range(len(lines))]

    def _logical(self, number: int) -> bytes:
        """Return a line with those that go on from it, in one."""
        end = number
        while end < len(self.lines) - 1 and self.lines[end].endswith(_GOES_ON):
            end += 1
        if end == number:
            return self.lines[number]
        return b"".join(line.rstrip(b"\r\n").removesuffix(b"\\") for line in self.lines[number : end + 1])

    def opens(self, start: int, end: int) -> tuple[bool, bool]:
        """Tell whether lines belong to an `#if` above them, and whether they open one that ends below them."""
        depth = 0
        for step in self.steps[start:end]:
            if step is not None:
                depth += step
                if depth < 0 or (depth == 0 and step == 0):
                    return True, False
        return False, depth > 0


def _step(line: bytes) -> int | None:
    directive = _DIRECTIVE.match(line)
    if directive is None:
        return None
    word = directive.group(1)
    return -1 if word == b"endif" else int(word.startswith(b"if"))


def _free_places(lines: list[bytes]) -> list[bool]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    free = [True, *(not line.endswith(_GOES_ON) for line in lines)]
    for token in _TOKENS.finditer(b"".join(lines)):
        for place in range(bisect_left(starts, token.start() + 1), bisect_left(starts, token.end())):
            free[place] = False
    return free


def guard_c_variants(old: CText, lines: Sequence[bytes], symbol: str) -> tuple[GuardEdit, ...]:
    """Return the edits after which the old text holds both variants: `lines` where CONFIG_symbol is defined as 1."""
    new = CText(lines)
    blocks = compare_lines(old.lines, new.lines)
    pending, done = list(blocks), list[Block]()
    while pending:
        done.append(_widened(old, new, pending.pop(0), done, pending))
    return tuple(_edit(old, new, one, symbol, widened=one not in blocks) for one in done)


def _widened(old: CText, new: CText, block: Block, done: list[Block], pending: list[Block]) -> Block:
    """Return the region that may stand under a directive; it takes in what it runs into."""
    a, b, c, d = block
    while True:
        above_old, below_old = old.opens(a, b)
        above_new, below_new = new.opens(c, d)
        if above_old or above_new or not (old.free[a] and new.free[c]):
            if done and done[-1].old_end == a:
                a, _, c, _ = done.pop()
            elif a and c:
                a, c = a - 1, c - 1
            else:
                raise UnguardableError("its #if and #endif are not balanced", a + 1)
        elif below_old or below_new or not (old.free[b] and new.free[d]):
            if pending and pending[0].old_start == b:
                _, b, _, d = pending.pop(0)
            elif b < len(old.lines) and d < len(new.lines):
                b, d = b + 1, d + 1
            else:
                raise UnguardableError("its #if and #endif are not balanced", b)
        else:
            return Block(a, b, c, d)


def _edit(old: CText, new: CText, block: Block, symbol: str, *, widened: bool) -> GuardEdit:
    before = old.lines[block.old_start : block.old_end]
    after = new.lines[block.new_start : block.new_end]
    condition = f"#if {'' if after else '!'}CONFIG_{symbol}".encode()
    lines = [condition + old.newline, *after]
    if before and after:
        lines.append(b"#else" + old.newline)
    lines += [*before, b"#endif" + old.newline]
    level = Level.ENCLOSING if widened else Level.STATEMENT
    reason = "widened to whole directives, comments and lines" if widened else ""
    return GuardEdit(
        start=block.old_start, end=block.old_end, level=level, lines=tuple(lines), reason=reason, symbols=(symbol,)
    )


def fold_c(lines: Sequence[bytes], values: Mapping[str, bool]) -> list[bytes]:
    """Return what the preprocessor leaves when these symbols have values, all other directives kept as they are.

    UnguardableError when the directives are not balanced.
    """
    text = CText(lines)
    around: list[_Branch] = []
    kept: list[bytes] = []
    for number, (line, step) in enumerate(zip(text.lines, text.steps, strict=False), 1):
        if step is not None and step <= 0 and not around:
            raise UnguardableError("an #else or #endif without #if", number)
        if not (step is not None and _turned(line, step, around, values)) and all(one.taken for one in around):
            kept.append(line)
    if around:
        raise UnguardableError("an #if without #endif", len(text.lines))
    return kept


class _Branch(NamedTuple):
    """The present branch of an `#if` around a line; `ours` when its condition is a known symbol."""

    ours: bool
    taken: bool


def _turned(line: bytes, step: int, around: list[_Branch], values: Mapping[str, bool]) -> bool:
    """Follow a directive; True when it is one of a guard, which goes."""
    if step > 0:
        guard = _GUARD.fullmatch(line)
        value = None if guard is None else values.get(guard.group(2).decode())
        ours = guard is not None and value is not None
        around.append(_Branch(ours, taken=not ours or value is (guard is not None and not guard.group(1))))
        return ours
    branch = around[-1]
    if step < 0 or branch.ours:
        around.pop()
    if step == 0 and branch.ours:
        around.append(_Branch(ours=True, taken=not branch.taken))
    return branch.ours
