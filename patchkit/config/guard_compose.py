"""The guards of several toggles in one file: put side by side where they do not meet, inside each other else.

Where the guards of two toggles meet, one of them is decided first: its off branch holds the guards of the others as
they stand without it, its on branch as they stand with it. So a patch that edits lines of another ends up inside the on
branch of the other, and needs no branch elsewhere. It must depend on the other: alone it has no meaning.

The toggle that meets most others is decided first: those that meet it alone stand side by side in its branches. Where
so many meet each other that the branches would outgrow the file, and where no guard is valid, none is made: such
changes are to be settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from patchkit.config.guard_edit import GuardEdit, Level, spliced
from patchkit.config.guard_ground import Ground
from patchkit.config.guard_meeting import meeting_most, most_that_meet
from patchkit.config.guard_replay import Change, Replay
from patchkit.config.guard_source import UnguardableError, UnreadableError
from patchkit.record import dataclass

MOST_VARIANTS = 32
"""Variants of a region that may stand in the file: five toggles that all meet each other make as many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a file cannot hold both variants: `symbols` are those concerned, `line` is of the file with all off, or 0.

    `by_select`: rendering the file for the present values does what guards cannot.
    """

    symbols: tuple[str, ...]
    line: int
    reason: str
    by_select: bool = False


class RefusedGuardsError(Exception):
    """Some guards cannot be made; carries a Refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


def compose_guards(
    replay: Replay,
    symbols: Sequence[str],
    needs: Mapping[str, frozenset[str]],
    read: Callable[[list[bytes]], Ground],
    *,
    together: bool = False,
) -> Composed:
    """Return the guards of all symbols, in lines of the file with all of them off; all `together`: as if all met.

    `needs` says which other symbols a symbol can only be on with; `read` reads lines in the language of the file. What
    cannot be guarded is in `refusals`: first what cannot be by itself, and where there is none of that, what cannot
    where it meets others.
    """
    return _Composer(replay, tuple(symbols), needs, read).compose(together=together)


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """The file with all toggles off, and the edits (sorted, none touching another's) that put the guards in.

    `levels` are the coarsest that each symbol has by itself, where it has guards. `unguarded` are the changes that no
    guard can switch where they stand, and why: they are to be settled (Replay.settled).
    """

    lines: tuple[bytes, ...]
    edits: tuple[GuardEdit, ...]
    levels: tuple[tuple[str, Level], ...]
    refusals: tuple[Refusal, ...]
    unguarded: tuple[tuple[Refusal, tuple[Change, ...]], ...] = ()


class _Composer:
    def __init__(
        self,
        replay: Replay,
        symbols: tuple[str, ...],
        needs: Mapping[str, frozenset[str]],
        read: Callable[[list[bytes]], Ground],
    ) -> None:
        self._replay = replay
        self._read = read
        self._symbols = symbols
        self._needs = needs
        self._outside = frozenset[str]()
        self._refusals: list[Refusal] = []
        self._unguarded: list[tuple[Refusal, tuple[Change, ...]]] = []

    def compose(self, *, together: bool) -> Composed:
        lines = self._replay.lines(frozenset()) or []
        try:
            ground = self._read(lines)
        except UnguardableError as error:
            refusal = Refusal(symbols=self._symbols, line=error.line, reason=error.reason, by_select=True)
            return Composed(lines=tuple(lines), edits=(), levels=(), refusals=(refusal,))
        edits = [edit for symbol in self._symbols for edit in self._guards_of(ground, symbol)]
        if not (self._refusals or self._unguarded):
            edits += self._clashing(ground, edits)
        alone = {symbol: [edit.level for edit in edits if edit.symbols == (symbol,)] for symbol in self._symbols}
        if self._refusals or self._unguarded:
            edits = []
        elif together:
            whole = self._meeting(ground, self._replay, 0, len(lines), one_by_one=True)
            edits = [] if whole is None else [whole]
        else:
            edits = self._joined(ground, edits)
        made = tuple(sorted(edits, key=lambda one: (one.start, one.end)))
        return Composed(
            lines=tuple(lines),
            edits=made,
            levels=tuple((symbol, max(found)) for symbol, found in alone.items() if found),
            refusals=tuple(self._refusals),
            unguarded=tuple(self._unguarded),
        )

    def _guards_of(self, ground: Ground, symbol: str) -> Sequence[GuardEdit]:
        """Return the guards of a symbol alone; for one that stands on others, where its changes lie."""
        lines = self._replay.lines(frozenset((symbol,)))
        if lines is None:
            return [_undecided(one.start, one.end, symbol) for one in self._replay.changes if one.symbol == symbol]
        try:
            return ground.guards(lines, symbol)
        except UnreadableError as error:
            self._refusals.append(Refusal(symbols=(symbol,), line=error.line, reason=error.reason))
        except UnguardableError as error:
            self._leave(error, self._unguardable(ground, symbol))
        return ()

    def _unguardable(self, ground: Ground, symbol: str) -> list[Change]:
        """Return the changes of a symbol that no guard can switch; all of them where each could be switched alone."""
        own = [change for change in self._replay.changes if change.symbol == symbol]
        found = []
        for change in own:
            alone = self._replay.settled([other for other in own if other is not change], frozenset())
            lines = alone.lines(frozenset((symbol,)))
            try:
                if lines is not None:
                    ground.guards(lines, symbol)
            except UnreadableError:
                continue
            except UnguardableError:
                found.append(change)
        return found or own

    def _leave(self, error: UnguardableError, changes: Sequence[Change]) -> None:
        """Take note of changes that no guard can switch."""
        symbols = tuple(one for one in self._symbols if any(change.symbol == one for change in changes))
        line = error.line or min(change.start for change in changes) + 1
        self._unguarded.append((Refusal(symbols=symbols, line=line, reason=error.reason, by_select=True), (*changes,)))

    def _clashing(self, ground: Ground, edits: Sequence[GuardEdit]) -> list[GuardEdit]:
        wanted = {one: self._needs.get(one, frozenset()) & set(self._symbols) | {one} for one in self._symbols}
        wanted[""] = frozenset(self._symbols)
        variants = {symbol: lines for symbol, on in wanted.items() if (lines := self._replay.lines(on)) is not None}
        if len(self._symbols) == 1:
            return []
        try:
            self._outside = ground.outside(variants.values())
            return _clashing(ground, edits, variants, self._outside)
        except UnguardableError as error:
            self._refusals.append(Refusal(symbols=self._symbols, line=error.line, reason=error.reason))
            return []

    def _joined(self, ground: Ground, edits: list[GuardEdit]) -> list[GuardEdit]:
        """Put what meets into one edit, until nothing does."""
        apart: list[GuardEdit] = []
        pending = sorted(edits, key=lambda one: (one.start, one.end))
        while pending:
            edit = pending.pop(0)
            alone = not any(other.symbols != edit.symbols and other.touches(edit) for other in [*apart, *pending])
            if alone and "" not in edit.symbols:
                apart.append(edit)
                continue
            local, start, end = self._hull(ground, edit, [*apart, *pending])
            apart = [one for one in apart if one.end < start or end < one.start]
            pending = [one for one in pending if one.end < start or end < one.start]
            made = self._meeting(ground, local, start, end)
            if made is not None:
                pending.insert(0, made)
        return apart

    def _hull(self, ground: Ground, edit: GuardEdit, others: Sequence[GuardEdit]) -> tuple[Replay, int, int]:
        """Return the changes that meet an edit, the region they lie in, and all that meets that region."""
        start, end = edit.start, edit.end
        while True:
            local, first, last = self._replay.within(start, end)
            inside = [one for one in others if one.start <= last and first <= one.end]
            changes = [*local.changes, *self._elsewhere(local, [edit, *inside], first, last)]
            first = min([first, *(one.start for one in changes if one.symbol)])
            last = max([last, *(one.end for one in changes if one.symbol)])
            around = ground.around(
                min([first, *(one.start for one in inside)]), max([last, *(one.end for one in inside)])
            )
            first, last = around.start, around.stop
            if (first, last) == (start, end):
                return local, start, end
            start, end = first, last

    def _elsewhere(self, local: Replay, edits: Sequence[GuardEdit], first: int, last: int) -> Iterator[Change]:
        """Yield the nearest change of each symbol that has a guard in a region and no change there: a change may give
        an `else` below it to another `if`.
        """
        there = {change.symbol for change in local.changes}
        for symbol in {symbol for edit in edits for symbol in edit.symbols if symbol} - there:
            own = (change for change in self._replay.changes if change.symbol == symbol)
            yield min(own, key=lambda change: max(first - change.end, change.start - last))

    def _meeting(
        self, ground: Ground, local: Replay, start: int, end: int, *, one_by_one: bool = False
    ) -> GuardEdit | None:
        """Compose the toggles that meet in a region by themselves; `one_by_one`: none beside another."""
        symbols = tuple(one for one in self._symbols if any(change.symbol == one for change in local.changes))
        try:
            nest = _Nest(local, self._needs, self._read, ground.part(start, end), self._outside)
            lines, level = nest.nested(frozenset(), symbols, one_by_one=one_by_one)
        except UnreadableError as error:
            self._refusals.append(Refusal(symbols=symbols, line=error.line or start + 1, reason=error.reason))
            return None
        except UnguardableError as error:
            self._leave(error, [change for change in local.changes if change.symbol])
            return None
        except RefusedGuardsError as error:
            self._refusals.append(error.refusal)
            return None
        part = ground.part(start, end)
        old = ground.lines[part.start : part.stop]
        first = next((k for k, (a, b) in enumerate(zip(old, lines, strict=False)) if a != b), min(len(old), len(lines)))
        last = 0
        while last < min(len(old), len(lines)) - first and old[-1 - last] == lines[-1 - last]:
            last += 1
        kept = tuple(lines[first : len(lines) - last])
        reason = f"{', '.join(symbols)} meet"
        return GuardEdit(
            start=part.start + first, end=part.stop - last, level=level, lines=kept, reason=reason, symbols=symbols
        )


class _Nest:
    """The toggles that meet in one part of a file; only that part is looked at."""

    def __init__(
        self,
        replay: Replay,
        needs: Mapping[str, frozenset[str]],
        read: Callable[[list[bytes]], Ground],
        part: range,
        outside: frozenset[str],
    ) -> None:
        self._outside = outside
        self._replay = replay
        self._read = read
        self._needs = needs
        self._top = part.start
        self._rest = len(replay.lines(frozenset()) or ()) - part.stop
        self._variants = 0

    def _lines(self, on: frozenset[str]) -> list[bytes] | None:
        lines = self._replay.lines(on)
        return None if lines is None else lines[self._top : len(lines) - self._rest]

    def nested(self, on: frozenset[str], free: tuple[str, ...], *, one_by_one: bool) -> tuple[list[bytes], Level]:
        """Return the part with `on` fixed and all of `free` guarded, and the coarsest level of its guards."""
        lines = self._lines(on)
        if lines is None:
            raise RefusedGuardsError(self._dependency(on))
        source = self._read(lines)
        variants = {symbol: self._lines(on | {symbol}) for symbol in free}
        edits = [
            edit
            for symbol, variant in variants.items()
            if variant is not None
            for edit in source.guards(variant, symbol)
        ]
        if most_that_meet(edits, self._needs) >= MOST_VARIANTS.bit_length():
            raise _crowded()
        known = {symbol: variant for symbol, variant in variants.items() if variant is not None}
        if (whole := self._lines(on.union(free))) is not None:
            known[""] = whole
        clashing = _clashing(source, edits, known, self._outside) if len(free) > 1 else []
        edits += clashing
        beside = not (clashing or (one_by_one and len(free) > 1))
        apart = beside and all(
            one.symbols == other.symbols or not one.touches(other)
            for place, one in enumerate(edits)
            for other in edits[:place]
        )
        if apart and None not in variants.values():
            self._variants += 2 if edits else 1
            if self._variants > MOST_VARIANTS:
                raise _crowded()
            made = sorted(edits, key=lambda one: (one.start, one.end))
            return spliced(lines, made), max((one.level for one in made), default=Level.STATEMENT)
        candidates = [symbol for symbol in free if variants[symbol] is not None]
        if len(free) == 1 or not candidates:
            raise RefusedGuardsError(self._dependency(on | {free[0]}))
        return self._decided(on, free, meeting_most(edits, candidates), one_by_one=one_by_one)

    def _decided(
        self, on: frozenset[str], free: tuple[str, ...], first: str, *, one_by_one: bool
    ) -> tuple[list[bytes], Level]:
        """Decide one symbol: a guard around (or beside) those of the others, without it and with it."""
        others = tuple(symbol for symbol in free if symbol != first)
        without = tuple(symbol for symbol in others if first not in self._needs.get(symbol, frozenset()))
        off, _ = self.nested(on, without, one_by_one=one_by_one)
        switched, level = self.nested(on | {first}, others, one_by_one=one_by_one)
        source = self._read(off)
        edits = source.guards(switched, first)
        return spliced(off, edits), max([level, *(edit.level for edit in edits)])

    def _dependency(self, wanted: frozenset[str]) -> Refusal:
        change = self._replay.culprit(wanted)
        if change is None:
            return Refusal(symbols=tuple(sorted(wanted)), line=0, reason="their changes meet")
        owners = [symbol for symbol in self._replay.owners(change) if symbol and symbol not in wanted]
        names = ", ".join(f"CONFIG_{symbol}" for symbol in owners) or "another patch"
        return Refusal(
            symbols=(change.symbol, *owners),
            line=change.start + 1,
            reason=f"CONFIG_{change.symbol} edits lines of {names}: add `depends on {' && '.join(owners)}`",
        )


def _crowded() -> UnguardableError:
    return UnguardableError(f"so many meet that they would make more than {MOST_VARIANTS} variants")


def _clashing(
    ground: Ground, edits: Sequence[GuardEdit], variants: Mapping[str, list[bytes]], outside: frozenset[str]
) -> list[GuardEdit]:
    """Return where symbols are to be decided because their guards mean something for those of others."""
    found = ground.clashes(edits, variants, outside)
    return [_undecided(part.start, part.stop, symbol) for symbol, part in found]


def _undecided(start: int, end: int, symbol: str) -> GuardEdit:
    return GuardEdit(start=start, end=end, level=Level.STATEMENT, lines=(), reason="", symbols=(symbol, ""))
