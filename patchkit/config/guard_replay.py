"""The changes of several patches to one file, so that any set of their toggles can be replayed without the others.

Every line has an identity: the place in the base, or the patch that added it. A change says which lines it removes, or
between which two it inserts. Without another toggle a change stands as long as these lines are there, side by side;
else it needs that toggle: it edits (or touches) lines of the other patch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from patchkit.diff.compare import compare_lines

_TOP, _END = -1, -2


class Change(NamedTuple):
    """Lines `removed` (by identity) between `above` and `below` give way to `added`; symbol "": always.

    In lines of the ground (the file with all toggles off) it lies between `start` and `end`.
    """

    symbol: str
    removed: tuple[int, ...]
    above: int
    below: int
    added: tuple[int, ...]
    start: int = 0
    end: int = 0


class Replay:
    """The base's lines and the changes in the order of the patches."""

    __slots__ = ("_base", "_dropped", "_made", "_texts", "changes")

    def __init__(
        self, base: int, texts: list[bytes], changes: Sequence[Change], dropped: Sequence[Change] = ()
    ) -> None:
        self._base = base
        self._texts = texts
        self._made: dict[frozenset[str], list[bytes] | None] = {}
        self._dropped = tuple(dropped)  # never made: others lie beside them
        self.changes = tuple(changes)

    def lines(self, symbols: frozenset[str]) -> list[bytes] | None:
        """Return the file with these toggles on; None when a change of theirs stands on one that is off."""
        if symbols not in self._made:
            order = self._order(symbols)
            self._made[symbols] = None if order is None else [self._texts[line] for line in order]
        return self._made[symbols]

    def culprit(self, symbols: frozenset[str]) -> Change | None:
        """Return the first change that cannot be made with these toggles alone."""
        chain = _Chain(self._base)
        active = (change for change in self.changes if not change.symbol or change.symbol in symbols)
        return next((change for change in active if not chain.make(change)), None)

    def _order(self, symbols: frozenset[str]) -> list[int] | None:
        chain = _Chain(self._base)
        for change in self.changes:
            if (not change.symbol or change.symbol in symbols) and not chain.make(change):
                return None
        return list(chain)

    def owners(self, change: Change) -> tuple[str, ...]:
        """Return the symbols whose changes, made before it, added or removed what a change stands on."""
        near = {*change.removed, change.above, change.below}
        found = [
            other.symbol
            for other in self.changes[: self.changes.index(change)]
            if other.symbol != change.symbol
            and (near & {*other.added, *other.removed} or (other.start <= change.end and change.start <= other.end))
        ]
        return tuple(dict.fromkeys(found))

    def within(self, start: int, end: int) -> tuple[Replay, int, int]:
        """Return the replay of the changes in, or touching, these lines of the ground, and where all of it lies."""
        while True:
            chosen = [one for one in self.changes if not one.symbol or (one.start <= end and start <= one.end)]
            gated = [one for one in chosen if one.symbol]
            grown = (min([start, *(one.start for one in gated)]), max([end, *(one.end for one in gated)]))
            if grown == (start, end):
                return Replay(self._base, self._texts, chosen, self._dropped), start, end
            start, end = grown

    def settled(self, changes: Collection[Change], switched_on: Collection[str]) -> Replay:
        """Return the replay in which these changes are always made, or never, as their toggles stand now."""
        kept = [
            change._replace(symbol="") if change in changes else change
            for change in self.changes
            if change not in changes or change.symbol in switched_on
        ]
        dropped = [change for change in changes if change.symbol not in switched_on]
        return Replay(self._base, self._texts, kept, [*self._dropped, *dropped])

    def grounded(self) -> Replay | None:
        """Return the replay with the places of its changes filled in; None when an ungated change needs a toggle."""
        order = self._order(frozenset())
        if order is None:
            return None
        above = {_TOP: 0, **{line: place + 1 for place, line in enumerate(order)}}
        below = {_END: len(order), **{line: place for place, line in enumerate(order)}}
        for line in range(self._base):
            above.setdefault(line, above[line - 1])
        for line in reversed(range(self._base)):
            below.setdefault(line, below[line + 1] if line + 1 < self._base else len(order))
        makers = {line: change for change in (*self.changes, *self._dropped) for line in change.added}

        def place(change: Change) -> tuple[int, int]:
            if change.above not in above:
                above[change.above] = place(makers[change.above])[0]
            if change.below not in below:
                below[change.below] = place(makers[change.below])[1]
            start = above[change.above]
            return start, max(start, below[change.below])

        placed = [change._replace(start=start, end=end) for change in self.changes for start, end in [place(change)]]
        return Replay(self._base, self._texts, placed, self._dropped)


def record_changes(base: Sequence[bytes], steps: Sequence[tuple[str, list[bytes]]]) -> Replay:
    """Return the replay of steps: each a symbol ("" for none) and the whole file after it."""
    texts = list(base)
    state = list(range(len(base)))
    lines = list(base)
    changes = []
    for symbol, after in steps:
        made: list[int] = []
        done = 0
        for block in compare_lines(lines, after):
            added = tuple(range(len(texts), len(texts) + block.new_end - block.new_start))
            texts += after[block.new_start : block.new_end]
            changes.append(
                Change(
                    symbol,
                    removed=tuple(state[block.old_start : block.old_end]),
                    above=state[block.old_start - 1] if block.old_start else _TOP,
                    below=state[block.old_end] if block.old_end < len(state) else _END,
                    added=added,
                )
            )
            made += state[done : block.old_start]
            made += added
            done = block.old_end
        state, lines = made + state[done:], after
    return Replay(len(base), texts, changes)


class _Chain:
    """The lines as a chain: what follows what, where that is not the base's order."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._next: dict[int, int] = {}
        self._gone: set[int] = set()
        self._made: set[int] = set()

    def _after(self, line: int) -> int:
        if line in self._next:
            return self._next[line]
        return line + 1 if line + 1 < self._base else _END

    def _stands(self, line: int) -> bool:
        return line not in self._gone and (line < self._base or line in self._made)

    def make(self, change: Change) -> bool:
        """Make a change; False, and nothing made, when the lines it stands on are not there side by side."""
        above = change.above
        if not change.removed:
            if not self._stands(above) or self._after(above) != change.below:
                return False
        elif not all(self._stands(line) for line in change.removed) or not self._side_by_side(change.removed):
            return False
        elif not self._stands(above) or self._after(above) != change.removed[0]:
            above = self._before(change.removed[0])
        below = self._after(change.removed[-1]) if change.removed else change.below
        for line, following in zip((above, *change.added), (*change.added, below), strict=True):
            self._next[line] = following
        self._gone.update(change.removed)
        self._made.update(change.added)
        return True

    def _side_by_side(self, lines: Sequence[int]) -> bool:
        return all(self._after(line) == following for line, following in pairwise(lines))

    def _before(self, wanted: int) -> int:
        """Return the line above one, where its neighbour is not what it was when the change was recorded."""
        for line, following in self._next.items():
            if following == wanted and line not in self._gone:
                return line
        return wanted - 1

    def __iter__(self) -> Iterator[int]:
        breaks = sorted(line for line in self._next if 0 <= line < self._base)
        line = self._after(_TOP)
        while line != _END:
            if line >= self._base:
                yield line
                line = self._after(line)
                continue
            place = bisect_left(breaks, line)
            last = breaks[place] if place < len(breaks) else self._base - 1
            yield from range(line, last + 1)
            line = self._after(last)
