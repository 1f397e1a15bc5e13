"""A file that several patches change, some of them switched by guards: one text for all settings, or why not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from patchkit.config.guard_compose import Composed, Refusal, compose_guards
from patchkit.config.guard_constants import (
    constants_import,
    import_place,
    imported_constants,
    named_constants,
    used_constants,
    values_mark,
)
from patchkit.config.guard_edit import GuardEdit, Level, spliced
from patchkit.config.guard_fold import Check, Plain, check_source
from patchkit.config.guard_replay import Replay, record_changes
from patchkit.config.guard_source import BOM, UnguardableError, parse_source, read_lines
from patchkit.diff.compare import Block
from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardStep:
    """A patch's work on a file: the whole content after it. `symbol` is "" where no guard switches it."""

    symbol: str
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardedRegion:
    """A guard, or several that meet: `line` is the 1-based line of the file with all toggles off."""

    symbols: tuple[str, ...]
    line: int
    level: Level
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardedFile:
    """What became of a file. `content` is None when there are refusals: select has to switch it.

    `symbols` are those whose constants it imports; `compared` is the number of settings that were verified.
    """

    content: bytes | None
    regions: tuple[GuardedRegion, ...]
    refusals: tuple[Refusal, ...]
    symbols: tuple[str, ...]
    compared: int


def guard_python(
    base: bytes,
    steps: Sequence[GuardStep],
    *,
    module: str,
    needs: Mapping[str, frozenset[str]] | None = None,
    values: Mapping[str, str] | None = None,
    constants: Collection[str] = (),
    seed: int = 0,
) -> GuardedFile:
    """Return a Python file that holds every variant that the steps' symbols can make, verified by folding.

    `module` is where the constants are imported from; `needs` names the symbols that a symbol can only be on with;
    `values` are those the mark is made of; `constants` are all symbols there are, whose constants are imported too
    where a patch uses them by itself.
    """
    symbols = tuple(dict.fromkeys(step.symbol for step in steps if step.symbol))
    try:
        replay = _replay(base, steps)
        composed = compose_guards(replay, symbols, needs or {})
        if composed.refusals:
            return _refused(composed.refusals)
        edits = _with_constants(composed, replay, symbols, {*constants, *symbols}, module=module, values=values or {})
        lines = spliced(composed.source.lines, edits)
    except UnguardableError as error:
        return _refused((Refusal(symbols=symbols, line=error.line, reason=error.reason),))
    content = b"".join(lines)
    check = Check(symbols=symbols, module=module, needs=needs or {}, seed=seed)
    verdict = check_source(composed.source, content, _plain(replay), check, _blocks(edits))
    if verdict.mismatches:
        wrong = [Refusal(symbols=one.switched_on, line=one.line, reason=one.reason) for one in verdict.mismatches]
        return _refused(tuple(wrong))
    regions = _regions(composed)
    content = (BOM if base.startswith(BOM) else b"") + content
    return GuardedFile(
        content=content, regions=regions, refusals=(), symbols=imported_constants(content), compared=verdict.compared
    )


def _with_constants(
    composed: Composed,
    replay: Replay,
    symbols: Sequence[str],
    known: Collection[str],
    *,
    module: str,
    values: Mapping[str, str],
) -> list[GuardEdit]:
    """Return the edits with the one that imports the constants: those of guards, and those patches use."""
    source = composed.source
    used = tuple(sorted({symbol for edit in composed.edits for symbol in edit.symbols}))
    if named_constants(replay.lines(frozenset(symbols)) or source.lines, known):
        used = used_constants(parse_source(spliced(source.lines, composed.edits)), known)
    if not used:
        return list(composed.edits)
    place = import_place(source)
    added = constants_import(source, used, module=module, mark=values_mark(values, used))
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


def _replay(base: bytes, steps: Sequence[GuardStep]) -> Replay:
    recorded = record_changes(read_lines(base), [(step.symbol, read_lines(step.content)) for step in steps])
    replay = recorded.grounded()
    if replay is None:
        culprit = recorded.culprit(frozenset())
        owners = recorded.owners(culprit) if culprit else ()
        names = ", ".join(f"CONFIG_{symbol}" for symbol in owners if symbol)
        raise UnguardableError(f"a patch that is always on edits lines of {names or 'one that is not'}")
    return replay


def _plain(replay: Replay) -> Plain:
    def plain(symbols: frozenset[str]) -> bytes | None:
        lines = replay.lines(symbols)
        return None if lines is None else b"".join(lines)

    return plain


def _regions(composed: Composed) -> tuple[GuardedRegion, ...]:
    return tuple(
        GuardedRegion(symbols=edit.symbols, line=edit.start + 1, level=edit.level, reason=edit.reason)
        for edit in composed.edits
    )


def _refused(refusals: tuple[Refusal, ...]) -> GuardedFile:
    return GuardedFile(content=None, regions=(), refusals=refusals, symbols=(), compared=0)
