"""A file that several patches change, some of them switched by guards: one text for all settings, or why not."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from patchkit.config.guard_c import fold_c
from patchkit.config.guard_compose import Composed, Refusal
from patchkit.config.guard_constants import (
    constants_import,
    import_place,
    imported_constants,
    named_constants,
    used_constants,
    values_mark,
)
from patchkit.config.guard_edit import GuardEdit, Level, spliced
from patchkit.config.guard_fold import TOO_DEEP, Check, Mismatch, Verdict, check_source, settings
from patchkit.config.guard_ground import CGround, PythonGround
from patchkit.config.guard_replay import Replay
from patchkit.config.guard_settle import GuardStep, Terms, compose_settled, symbols_of
from patchkit.config.guard_source import BOM, Source, UnguardableError, parse_source, read_lines
from patchkit.diff.compare import Block
from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardedRegion:
    """A guard, or several that meet: `line` is the 1-based line of the file with all toggles off."""

    symbols: tuple[str, ...]
    line: int
    level: Level
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardedFile:
    """What became of a file. `content` is None when there are refusals.

    `symbols` are those whose constants it imports; `levels` the coarsest that each has by itself; `compared` is the
    number of settings that were verified. `selected` says where no guard is valid: there stands what the present
    values of its symbols make, and another value makes another file.
    """

    content: bytes | None
    regions: tuple[GuardedRegion, ...]
    refusals: tuple[Refusal, ...]
    symbols: tuple[str, ...]
    levels: tuple[tuple[str, Level], ...]
    compared: int
    selected: tuple[Refusal, ...] = ()


def guard_python(base: bytes, steps: Sequence[GuardStep], terms: Terms, plain: bytes | None = None) -> GuardedFile:
    """Return a Python file that holds every variant that the steps' symbols can make, verified by folding.

    `plain` is what plain patching makes with the present values, where that is known.
    """
    with _collector_paused():
        guarded = _guard_python(base, steps, terms, plain, together=False)
        if not isinstance(guarded, GuardedFile) and len(symbols_of(steps)) > 1:
            # Equal statements side by side: a toggle alone pairs them otherwise than where it meets another.
            guarded = _guard_python(base, steps, terms, plain, together=True)
        return guarded if isinstance(guarded, GuardedFile) else _refused(_wrong(guarded))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Leave out the search for cycles: syntax trees have none, and it would go through all of them again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _guard_python(
    base: bytes, steps: Sequence[GuardStep], terms: Terms, plain: bytes | None, *, together: bool
) -> GuardedFile | Verdict:
    """Return the file, or the verdict that it is not what it should be."""
    symbols = symbols_of(steps)
    try:
        grounds: list[PythonGround] = []

        def read(lines: list[bytes]) -> PythonGround:
            grounds.append(PythonGround(lines))
            return grounds[-1]

        composed, replay, selected = compose_settled(base, steps, terms, read, plain, together=together)
        if composed.refusals:
            parse_source(read_lines(steps[-1].content))  # perhaps the whole is for a newer Python than this
            return _refused(composed.refusals)
        ground = next(one for one in grounds if one.lines == list(composed.lines))
        source = ground.source
        edits = _with_constants(source, composed, replay, symbols, terms)
    except UnguardableError as error:
        return _refused((Refusal(symbols=symbols, line=error.line, reason=error.reason, by_select=True),))
    except RecursionError:
        return _refused((Refusal(symbols=symbols, line=0, reason=TOO_DEEP, by_select=True),))
    content = b"".join(spliced(source.lines, edits))
    check = Check(symbols=symbols, module=terms.module, needs=terms.needs, seed=terms.seed)
    verdict = check_source(source, content, replay.lines, check, _blocks(edits), ground.scopes)
    if verdict.broken:
        reason = f"with guards {verdict.mismatches[0].reason}"
        return _refused((Refusal(symbols=symbols, line=0, reason=reason, by_select=True),))
    if verdict.mismatches:
        return verdict
    bom = BOM if base.startswith(BOM) else b""
    return GuardedFile(
        content=bom + content,
        regions=_regions(composed),
        refusals=(),
        symbols=imported_constants(content),
        levels=(*composed.levels, *((symbol, Level.SELECT) for one in selected for symbol in one.symbols)),
        compared=verdict.compared,
        selected=selected,
    )


def guard_c(base: bytes, steps: Sequence[GuardStep], terms: Terms, plain: bytes | None = None) -> GuardedFile:
    """Return a C, C++ or CUDA file that holds every variant, verified by folding its directives to the exact lines.

    It includes nothing: whoever writes it includes autoconf.h where CONFIG_ names stand.
    """
    symbols = symbols_of(steps)
    try:
        composed, replay, selected = compose_settled(base, steps, terms, CGround, plain)
        if composed.refusals:
            return _refused(composed.refusals)
        lines = spliced(composed.lines, composed.edits)
        verdict = _check_c(lines, replay, symbols, terms)
    except UnguardableError as error:
        return _refused((Refusal(symbols=symbols, line=error.line, reason=error.reason, by_select=True),))
    if verdict.mismatches:
        return _refused(_wrong(verdict))
    return GuardedFile(
        content=(BOM if base.startswith(BOM) else b"") + b"".join(lines),
        regions=_regions(composed),
        refusals=(),
        symbols=symbols,
        levels=(*composed.levels, *((symbol, Level.SELECT) for one in selected for symbol in one.symbols)),
        compared=verdict.compared,
        selected=selected,
    )


def _check_c(lines: list[bytes], replay: Replay, symbols: tuple[str, ...], terms: Terms) -> Verdict:
    """Compare the lines that every setting leaves with those of plain patching."""
    compared, wrong = 0, []
    for chosen in settings(symbols, halves=4, seed=terms.seed, needs=terms.needs):
        plain = replay.lines(chosen)
        if plain is None:
            continue
        compared += 1
        folded = fold_c(lines, {symbol: symbol in chosen for symbol in symbols})
        if folded != plain:
            line = next((n for n, (a, b) in enumerate(zip(folded, plain, strict=False), 1) if a != b), 0)
            wrong.append(Mismatch(switched_on=tuple(sorted(chosen)), line=line, reason="differs from plain patching"))
    return Verdict(compared=compared, mismatches=tuple(wrong))


def _wrong(verdict: Verdict) -> tuple[Refusal, ...]:
    return tuple(Refusal(symbols=one.switched_on, line=one.line, reason=one.reason) for one in verdict.mismatches)


def _with_constants(
    source: Source, composed: Composed, replay: Replay, symbols: tuple[str, ...], terms: Terms
) -> list[GuardEdit]:
    """Return the edits with the one that imports the constants: those of guards, and those patches use."""
    known = {*terms.constants, *symbols}
    used = tuple(sorted({symbol for edit in composed.edits for symbol in edit.symbols}))
    if named_constants(replay.lines(frozenset(symbols)) or source.lines, known):
        used = used_constants(parse_source(spliced(source.lines, composed.edits)), known)
    if not used:
        return list(composed.edits)
    place = import_place(source)
    added = constants_import(source, used, module=terms.module, mark=values_mark(terms.values, used))
    edit = GuardEdit(start=place, end=place, level=Level.STATEMENT, lines=(added,), reason="", symbols=used)
    return [edit, *composed.edits]


def _blocks(edits: Sequence[GuardEdit]) -> list[Block]:
    """Return where the edits lie in the base and in the guarded file; those that touch are one block."""
    blocks: list[Block] = []
    grown = 0
    for edit in edits:
        start = edit.start + grown
        block = Block(edit.start, edit.end, start, start + len(edit.lines))
        grown += len(edit.lines) - (edit.end - edit.start)
        if blocks and blocks[-1].old_end == block.old_start:
            block = Block(blocks[-1].old_start, block.old_end, blocks[-1].new_start, block.new_end)
            blocks.pop()
        blocks.append(block)
    return blocks


def _regions(composed: Composed) -> tuple[GuardedRegion, ...]:
    return tuple(
        GuardedRegion(symbols=edit.symbols, line=edit.start + 1, level=edit.level, reason=edit.reason)
        for edit in composed.edits
    )


def _refused(refusals: tuple[Refusal, ...]) -> GuardedFile:
    return GuardedFile(content=None, regions=(), refusals=refusals, symbols=(), levels=(), compared=0)
