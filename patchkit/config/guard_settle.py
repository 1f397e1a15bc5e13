"""What a file's guards are made of, and where none is valid: there the present values of the toggles are settled.

So `select` does it, for these lines alone: the values decide what stands there, and others make another file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from patchkit.config.guard_compose import Composed, Refusal, RefusedGuardsError, compose_guards
from patchkit.config.guard_ground import Ground
from patchkit.config.guard_replay import Change, Replay, record_changes
from patchkit.config.guard_source import read_lines
from patchkit.record import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardStep:
    """A patch's work on a file: the whole content after it. `symbol` is "" where no guard switches it."""

    symbol: str
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """On what terms files are guarded.

    The constants of Python are imported from `module`; `needs` names the symbols that a symbol can only be on with;
    `values` are those that marks are made of; `constants` are all symbols there are, whose constants are imported too
    where a patch reads them by itself. `seed` chooses the random settings that are verified.
    """

    module: str
    needs: Mapping[str, frozenset[str]]
    values: Mapping[str, str]
    constants: frozenset[str] = frozenset()
    seed: int = 0


def compose_settled(
    base: bytes,
    steps: Sequence[GuardStep],
    terms: Terms,
    read: Callable[[list[bytes]], Ground],
    plain: bytes | None,
    *,
    together: bool = False,
) -> tuple[Composed, Replay, tuple[Refusal, ...]]:
    """Make the guards; what none can switch, and what a patch that is always on stands on, is settled.

    `plain` is what plain patching makes with the present values: the replay of the steps must make it too. Returns the
    replay in which it is settled, and what was settled, and why.
    """
    symbols = symbols_of(steps)
    switched_on = frozenset(symbol for symbol in symbols if terms.values.get(symbol) == "y")
    recorded = record_changes(read_lines(base), [(step.symbol, read_lines(step.content)) for step in steps])
    try:
        _require_plain(recorded, switched_on, plain)
        settled = _grounded(_Settled(replay=recorded), switched_on)
        while True:
            composed = compose_guards(settled.replay, symbols, terms.needs, read, together=together)
            if composed.refusals or not composed.unguarded:
                return composed, settled.replay, settled.reasons
            for reason, changes in composed.unguarded:
                settled = _settle(settled, reason, changes, switched_on)
            settled = _grounded(settled, switched_on)
    except RefusedGuardsError as error:
        refused = Composed(lines=(), edits=(), levels=(), refusals=(error.refusal,))
        return refused, recorded, ()


def _require_plain(replay: Replay, switched_on: frozenset[str], plain: bytes | None) -> None:
    """Refuse where plain patching placed a hunk elsewhere than where it stands beside all others."""
    replayed = replay.lines(switched_on)
    if plain is None or replayed is None or (wanted := read_lines(plain)) == replayed:
        return
    pairs = enumerate(zip_longest(replayed, wanted), 1)
    line = next(number for number, (one, other) in pairs if one != other)
    reason = "plain patching makes something else of it with the present values: a hunk was placed elsewhere"
    raise RefusedGuardsError(Refusal(symbols=tuple(sorted(switched_on)), line=line, reason=reason))


def symbols_of(steps: Sequence[GuardStep]) -> tuple[str, ...]:
    """Return the symbols that switch steps, in order."""
    return tuple(dict.fromkeys(step.symbol for step in steps if step.symbol))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Settled:
    """A replay in which some changes are made, or not, for good: as the present values say."""

    replay: Replay
    reasons: tuple[Refusal, ...] = ()


def _settle(settled: _Settled, reason: Refusal, changes: Sequence[Change], switched_on: frozenset[str]) -> _Settled:
    """Settle changes, and those that stand on what goes with them."""
    replay = settled.replay.settled(changes, switched_on)
    symbols = dict.fromkeys(reason.symbols)
    while (lost := replay.culprit(frozenset(change.symbol for change in replay.changes))) is not None and lost.symbol:
        if lost.symbol in switched_on:
            off = [symbol for symbol in reason.symbols if symbol not in switched_on]
            names = ", ".join(f"CONFIG_{symbol}" for symbol in off)
            why = f"CONFIG_{lost.symbol} edits lines of {names}: add `depends on {' && '.join(off)}`"
            raise RefusedGuardsError(Refusal(symbols=(lost.symbol, *off), line=lost.start + 1, reason=why))
        replay = replay.settled([lost], frozenset())
        symbols[lost.symbol] = None
    return _Settled(replay=replay, reasons=(*settled.reasons, replace(reason, symbols=tuple(symbols))))


def _grounded(settled: _Settled, switched_on: frozenset[str]) -> _Settled:
    """Settle what patches that no guard switches stand on. RefusedGuardsError where that is off."""
    while (culprit := settled.replay.culprit(frozenset())) is not None:
        beneath = _beneath(settled.replay, culprit)
        off = dict.fromkeys(f"CONFIG_{change.symbol}" for change in beneath if change.symbol not in switched_on)
        names = dict.fromkeys(change.symbol for change in beneath)
        line = min((change.start for change in beneath), default=0)
        if off or not beneath:
            reason = f"a patch that no guard switches edits lines of {', '.join(off) or 'a patch'}, which is off"
            raise RefusedGuardsError(Refusal(symbols=tuple(names), line=line, reason=reason))
        why = "a patch that no guard switches edits lines of it"
        reason_there = Refusal(symbols=tuple(names), line=line, reason=why, by_select=True)
        settled = _settle(settled, reason_there, beneath, switched_on)
    replay = settled.replay.grounded()
    return settled if replay is None else replace(settled, replay=replay)


def _beneath(replay: Replay, culprit: Change) -> list[Change]:
    """Return the fewest gated changes without which one that is always made has no place."""
    needed = [change for change in replay.changes if change.symbol]
    everything = frozenset(change.symbol for change in needed)
    for change in list(needed):
        fewer = [other for other in needed if other is not change]
        if _stands(replay.settled(fewer, everything), culprit):
            needed = fewer
    return needed


def _stands(replay: Replay, change: Change) -> bool:
    """Tell whether a change that is always made can be, with all toggles off."""
    failing = replay.culprit(frozenset())
    return failing is None or replay.changes.index(failing) > replay.changes.index(change)
