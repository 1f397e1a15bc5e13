"""Which toggles have guards in one place, and which of them meets most others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchkit.config.guard_edit import GuardEdit


def most_that_meet(edits: Sequence[GuardEdit], needs: Mapping[str, frozenset[str]]) -> int:
    """Return how many symbols that need no other have guards on one line."""
    free = [one for one in edits if not needs.get(one.symbols[0])]
    on_line = (
        {one.symbols[0] for one in free if one.start <= edit.start < max(one.end, one.start + 1)} for edit in free
    )
    return max(map(len, on_line), default=0)


def meeting_most(edits: Sequence[GuardEdit], candidates: Sequence[str]) -> str:
    """Return the symbol whose guards touch those of most others, of several the first."""
    met: dict[str, set[str]] = {symbol: set() for symbol in candidates}
    for place, one in enumerate(edits):
        for other in edits[:place]:
            if one.touches(other):
                met[one.symbols[0]].add(other.symbols[0])
                met[other.symbols[0]].add(one.symbols[0])
    return max(candidates, key=lambda symbol: len(met[symbol]))
