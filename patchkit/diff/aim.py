"""A hunk with what its header says of its place, and the records of what became of it."""

from __future__ import annotations

from typing import NamedTuple

from patchkit.diff.image import Sides, hunk_sides
from patchkit.diff.model import Hunk, Placement, Proof, Verdict
from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """What comparing two scopes came to: `agrees` is None when there was nothing to compare.

    `doubt` says why it is None though the base was compared: nobody can tell which of several twins is meant.
    """

    agrees: bool | None
    before: str | None
    after: str | None
    proof: Proof
    doubt: str = ""


UNKNOWN = Agreement(agrees=None, before=None, after=None, proof=Proof.NONE)


class Aim(NamedTuple):
    """A hunk (number from 0) with its sides and the index it is stated at; `firm`: both its line numbers mean that."""

    number: int
    hunk: Hunk
    sides: Sides
    stated: int
    firm: bool

    @property
    def at_start(self) -> bool:
        """True when git lets it stand only at the start of the file."""
        return self.hunk.old_start <= 1

    @property
    def at_end(self) -> bool:
        """True when git lets it stand only at the end of the file."""
        return not self.sides.trailing


def read_aims(hunks: tuple[Hunk, ...]) -> list[Aim]:
    """Work out which index each hunk names, and whether git would begin to look at the same one."""
    aims = []
    shift = furthest = 0
    for number, hunk in enumerate(hunks):
        sides = hunk_sides(hunk)
        stated = hunk.old_start if not sides.old else max(hunk.old_start - 1, 0)
        # git looks at the new line in the file as the hunks before this one in the patch have left it.
        expected = (hunk.new_start if not sides.new else max(hunk.new_start - 1, 0)) - shift
        aims.append(Aim(number=number, hunk=hunk, sides=sides, stated=stated, firm=expected == stated >= furthest))
        shift += len(sides.new) - len(sides.old)
        furthest = max(furthest, stated)
    return aims


def place_at(
    aim: Aim, verdict: Verdict, index: int, agreement: Agreement, *, proof: Proof, reason: str = ""
) -> Placement:
    """Return a placement at an index of the file; that of a hunk without old lines is the line it stands behind."""
    inserted = not aim.sides.old and verdict is not Verdict.PRESENT
    line = index if inserted else index + 1
    offset = line - (aim.hunk.old_start if inserted else max(aim.hunk.old_start, 1))
    return Placement(
        hunk=aim.hunk,
        verdict=verdict,
        line=line,
        offset=0 if verdict is Verdict.EXACT else offset,
        reason=reason,
        scope_before=agreement.before,
        scope_after=agreement.after,
        proof=proof,
    )


def present_at(aim: Aim, index: int, agreement: Agreement) -> Placement:
    """Return the placement of a hunk whose postimage stands at the index."""
    proof = Proof.LINE if agreement.agrees is None and index + 1 == aim.hunk.new_start else agreement.proof
    reason = f"the change stands at line {index + 1}"
    return place_at(aim, Verdict.PRESENT, index, agreement, proof=proof, reason=reason)


def moved_to(aim: Aim, index: int, agreement: Agreement) -> Placement:
    """Return the placement of a hunk whose preimage stands at the index, in another scope."""
    before, after = agreement.before or "module level", agreement.after or "module level"
    reason = f"cut in {before}, but its context stands in {after} at line {index + 1}"
    return place_at(aim, Verdict.MOVED, index, agreement, proof=agreement.proof, reason=reason)


def conflict_of(aim: Aim, reason: str) -> Placement:
    """Return the placement of a hunk that has no place."""
    return Placement(
        hunk=aim.hunk,
        verdict=Verdict.CONFLICT,
        line=None,
        offset=0,
        reason=reason,
        scope_before=None,
        scope_after=None,
        proof=Proof.NONE,
    )


def list_lines(numbers: list[int]) -> str:
    """Return `12, 40 and 71`, at most six of them."""
    shown = [str(number) for number in numbers[:6]]
    rest = len(numbers) - len(shown)
    tail = f"{rest} more" if rest else shown.pop()
    return f"{', '.join(shown)} and {tail}" if shown else tail


def span_of(aim: Aim, placed: Placement) -> tuple[int, int]:
    """Return the range of indices that a placed hunk covers in the file."""
    covered = aim.sides.new if placed.verdict is Verdict.PRESENT else aim.sides.old
    line = placed.line or 0
    index = line - 1 if covered else line
    return index, index + len(covered)
