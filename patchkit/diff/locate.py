"""Where each hunk of a file patch goes: exact at the stated line, else the one other place that its scope allows.

No fuzz: every context and removed line must be there, byte for byte. git's anchors hold for hunks with context: one
that begins at line 0 or 1 stands only at the start of the file, one without context behind its last change only at
the end. Hunks are placed on the file as it was before all of them, so the stated line is `old_start`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.diff.aim import (
    UNKNOWN,
    Agreement,
    conflict_of,
    list_lines,
    moved_to,
    place_at,
    present_at,
    read_aims,
    span_of,
)
from patchkit.diff.image import Image, Sides, split_lines, without_carriage_returns
from patchkit.diff.model import Placement, Proof, Verdict
from patchkit.diff.overlap import Spans
from patchkit.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from patchkit.diff.aim import Aim
    from patchkit.diff.judge import Judge
    from patchkit.diff.model import FilePatch, Hunk

_ADRIFT = "it was cut on lines of a patch that is left out"

__all__ = ["Evidence", "accepted", "place_hunks", "split_lines"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What is known beside the patch and the file.

    `base` is the file the patch was cut against (after the patches before it), when known; `proven` says that the
    file to be patched is known by its hash to be that file. `python`: scopes are judged by syntax tree. `strict`: an
    offset whose scope is not proven is not accepted. `crlf` is the patch's: all its lines were converted to CRLF.
    """

    base: bytes | None
    proven: bool
    python: bool
    strict: bool
    crlf: bool


def accepted(placement: Placement, *, strict: bool) -> bool:
    """True when the hunk may be applied, or is there already; strict: an offset needs the proof of its scope."""
    if placement.verdict is Verdict.OFFSET:
        return not strict or placement.proof in (Proof.LOCK, Proof.SCOPE)
    return placement.verdict in (Verdict.EXACT, Verdict.PRESENT)


def place_hunks(file: FilePatch, lines: Sequence[bytes], evidence: Evidence) -> tuple[Placement, ...]:
    """Return a placement for every hunk, in the order of the hunks. A missing file has no lines.

    The `hunk` of a placement is the hunk as it is to be applied: of a patch that was converted to CRLF as a whole,
    the CR are gone unless the file has them. A hunk without lines on its old side has the `line` it is inserted after.

    A hunk is EXACT at its stated line though the same lines occur elsewhere. But when its postimage stands there too
    (one more of several equal lines was inserted, or one of them removed), nobody can tell whether it was applied
    already: without the proof of a hash this is a conflict. The same when the hunk fits at an offset and its postimage
    stands in the file: applying would insert twice. When the two line numbers of a hunk contradict each other (edited
    by hand), git looks around the new one; then the stated line has no privilege and the place must be the only one.
    One that is adrift has no place, but where it is PRESENT: repeated lines would tempt it to one of another's.
    """
    hunks = _converted(file.hunks, lines) if evidence.crlf else file.hunks
    return _Placing(file, hunks, lines, evidence).place_all()


def _converted(hunks: tuple[Hunk, ...], lines: Sequence[bytes]) -> tuple[Hunk, ...]:
    """Give up the CR of a converted patch where the file has none; a new file keeps them, as in git."""
    everywhere = bool(lines) and not any(line.endswith(b"\r\n") for line in lines)
    return tuple(without_carriage_returns(hunk, everywhere=everywhere) for hunk in hunks)


class _Placing:
    """The hunks of one file patch on their way to their places."""

    def __init__(self, file: FilePatch, hunks: tuple[Hunk, ...], lines: Sequence[bytes], evidence: Evidence) -> None:
        self._image = Image(lines)
        self._evidence = evidence
        base = evidence.base
        self._proven = evidence.proven or (base is not None and base == b"".join(self._image.lines))
        self._name = file.new_name or file.old_name or ""
        self._judge: Judge | None = None
        self._base_says_nothing = self._proven or base is None or not evidence.python
        self._aims = read_aims(hunks)
        self._doubtful: dict[int, list[tuple[int, Agreement]]] = {}

    def _judged(self) -> Judge:
        """Return the judge of this file; most hunks fit where they say and never ask for it."""
        if self._judge is None:
            from patchkit.diff.judge import Judge

            self._judge = Judge(
                name=self._name,
                image=self._image,
                base=None if self._proven else self._evidence.base,
                python=self._evidence.python,
            )
        return self._judge

    def place_all(self) -> tuple[Placement, ...]:
        placements = [self._place_exactly(aim) for aim in self._aims]
        taken = Spans() if None in placements else None
        for number, (aim, placed) in enumerate(zip(self._aims, placements, strict=True)):
            if taken is None:
                break
            if placed is None:
                placements[number] = self._search(aim, taken)
            elif placed.verdict is Verdict.EXACT and taken.rival(*span_of(aim, placed)) is None:
                taken.add(*span_of(aim, placed), number)
        if self._doubtful:
            from patchkit.diff.presence import follow_neighbours

            follow_neighbours(self._aims, placements, self._doubtful)
        placed_all = [placed for placed in placements if placed is not None]
        return tuple(placed_all) if _in_order(self._aims, placed_all) else _without_overlaps(self._aims, placed_all)

    def _place_exactly(self, aim: Aim) -> Placement | None:
        """Return the verdict at the stated line, None when the hunk must be looked for."""
        sides = aim.sides
        if aim.hunk.adrift:
            return conflict_of(aim, _ADRIFT) if self._proven or not sides.context else None
        if not sides.context:
            return self._place_bare(aim)
        if not aim.firm and not self._proven:
            return None
        if not self._image.fits(sides.old, aim.stated) or not self._anchored(aim, aim.stated):
            return None
        if not self._proven and self._stands_too(aim):
            line = aim.stated + 1
            return conflict_of(
                aim, f"line {line} reads as before and as after the change (repeated lines): needs --base"
            )
        agreement = (
            UNKNOWN if self._base_says_nothing else self._judged().compare_with_base(aim.hunk, sides, aim.stated)
        )
        if agreement.agrees is False:
            return moved_to(aim, aim.stated, agreement)
        proof = Proof.LOCK if self._proven else Proof.LINE if agreement.agrees is None else Proof.SCOPE
        return place_at(aim, Verdict.EXACT, aim.stated, agreement, proof=proof)

    def _place_bare(self, aim: Aim) -> Placement:
        """Place a hunk without any context: at the stated line of a proven file, or as the whole of a file."""
        sides, lines = aim.sides, self._image.lines
        proof = Proof.LOCK if self._proven else Proof.LINE
        if sides.old == lines and (lines or not aim.stated):
            whole = "its old side is the whole file"
            kind, reason = (Verdict.OFFSET, whole) if aim.stated else (Verdict.EXACT, "")
            return place_at(aim, kind, 0, UNKNOWN, proof=proof, reason=reason)
        if sides.new == lines and lines and not self._proven:
            return place_at(
                aim, Verdict.PRESENT, 0, UNKNOWN, proof=Proof.LINE, reason="the file has this content already"
            )
        if not self._proven:
            return conflict_of(aim, "no context: needs --base or a lock")
        if aim.stated > len(lines) or not self._image.fits(sides.old, aim.stated) or self._glues(sides, aim.stated):
            return conflict_of(aim, f"no context, and not at line {aim.hunk.old_start}")
        return place_at(aim, Verdict.EXACT, aim.stated, UNKNOWN, proof=proof)

    def _anchored(self, aim: Aim, index: int) -> bool:
        """True when git's anchors allow the index, and no line without LF would come to stand inside the file.

        At the stated line of a proven file nothing has to be anchored: `-U0` cuts hunks with lines between two changes.
        """
        known = self._proven and index == aim.stated
        if aim.at_start and index and not known:
            return False
        if aim.at_end and not known and index + len(aim.sides.old) != len(self._image.lines):
            return False
        return not (aim.sides.unterminated and self._glues(aim.sides, index))

    def _glues(self, sides: Sides, index: int) -> bool:
        """True when the hunk, put at the index, would join two lines for want of an LF."""
        end = index + len(sides.old)
        before = self._image.lines[index - 1 : index] if index and not sides.old else []
        ends = [*before, *sides.new[:-1], *(sides.new[-1:] if end < len(self._image.lines) else [])]
        return not all(line.endswith(b"\n") for line in ends)

    def _stands_too(self, aim: Aim) -> bool:
        """True when the postimage stands where the preimage stands, as among repeated lines."""
        sides = aim.sides
        if not self._image.fits(sides.new, aim.stated):
            return False
        return bool(sides.trailing) or aim.stated + len(sides.new) == len(self._image.lines)

    def _search(self, aim: Aim, taken: Spans) -> Placement:
        """Look for a hunk that is not at its stated line; `taken` are the spans of exact hunks before it."""
        if aim.hunk.adrift:
            return self._unplaced(aim, [], self._standing(aim))
        places, complete = self._image.places(aim.sides.old, at_start=aim.at_start, at_end=aim.at_end)
        if not complete:
            return conflict_of(aim, "its lines are repeated too often in the file to tell where it belongs")
        here = [
            (index, self._judge_place(aim, index))
            for index in places
            if self._anchored(aim, index) and taken.rival(index, index + len(aim.sides.old)) is None
        ]
        fitting = [place for place in here if place[1].agrees is not False]
        fitting = [place for place in fitting if place[1].agrees] or fitting
        present = self._standing(aim)
        if len(fitting) > 1:
            return conflict_of(aim, f"ambiguous: fits at lines {list_lines([index + 1 for index, _ in fitting])}")
        if fitting:
            return self._offset(aim, *fitting[0], present)
        return self._unplaced(aim, here, present)

    def _unplaced(self, aim: Aim, here: list[tuple[int, Agreement]], present: list[tuple[int, Agreement]]) -> Placement:
        """Tell what became of a hunk that has no place: `here` it fits in other scopes, `present` it stands already."""
        from patchkit.diff.presence import only_removes, refuse_removal, shows_removal

        removes = bool(present) and only_removes(aim.hunk)
        if shows_removal(aim, present, self._image, self._judged()) if removes else len(present) == 1:
            return present_at(aim, *present[0])
        if here:
            return moved_to(aim, *min(here, key=lambda place: abs(place[0] - aim.stated)))
        if removes:
            from patchkit.diff.explain import explain_misfit

            self._doubtful[aim.number] = present
            return refuse_removal(aim, present, explain_misfit(aim.sides, self._image, aim.stated))
        if present:
            lines = list_lines([index + 1 for index, _ in present])
            return conflict_of(aim, f"does not fit, and what it would leave stands at lines {lines}")
        if aim.hunk.adrift:
            return conflict_of(aim, _ADRIFT)
        from patchkit.diff.explain import explain_misfit

        return conflict_of(aim, explain_misfit(aim.sides, self._image, aim.stated))

    def _judge_place(self, aim: Aim, index: int) -> Agreement:
        """Compare scopes; a section heading contradicts neither the stated line nor for one that is in doubt itself."""
        agreement = self._judged().compare(aim.hunk, aim.sides, index)
        heading_alone = agreement.proof is Proof.HEADING and (index == aim.stated or not aim.firm)
        return UNKNOWN if heading_alone else agreement

    def _offset(self, aim: Aim, index: int, agreement: Agreement, present: list[tuple[int, Agreement]]) -> Placement:
        """Decide on the only place that is left."""
        if present and not self._proven:
            return conflict_of(
                aim,
                f"fits at line {index + 1}, but the change stands already at line {present[0][0] + 1}: applied twice?",
            )
        proof = Proof.LOCK if self._proven else agreement.proof
        if index == aim.stated:
            return place_at(aim, Verdict.EXACT, index, agreement, proof=Proof.LINE if proof is Proof.NONE else proof)
        reason = "" if proof in (Proof.LOCK, Proof.SCOPE) else "scope unproven"
        if reason and agreement.doubt:
            reason += f" ({agreement.doubt})"
        elif reason and agreement.agrees is None and agreement.before:
            reason += f" ({agreement.before}, where it was cut, is not in the file)"
        if reason and self._evidence.strict:
            reason += ": not accepted in a series (give --base)"
        return place_at(aim, Verdict.OFFSET, index, agreement, proof=proof, reason=reason)

    def _standing(self, aim: Aim) -> list[tuple[int, Agreement]]:
        """Return where the postimage stands, but in another scope; only the stated new line if it is there."""
        sides, stated = aim.sides, max(aim.hunk.new_start - 1, 0)
        if sides.new == sides.old or not sides.new:
            return []
        places, complete = self._image.places(sides.new, at_start=aim.hunk.new_start <= 1, at_end=aim.at_end)
        if stated in places or (not complete and self._image.fits(sides.new, stated)):
            places = [stated]
        judged = [(index, self._judged().compare_standing(aim.hunk, sides, index)) for index in places]
        return [place for place in judged if place[1].agrees is not False]


def _in_order(aims: Sequence[Aim], placements: Sequence[Placement]) -> bool:
    """True in the plain case: every hunk exact, each behind the one before it."""
    end = 0
    for aim, placed in zip(aims, placements, strict=True):
        if placed.verdict is not Verdict.EXACT or aim.stated < end:
            return False
        end = aim.stated + len(aim.sides.old)
    return True


def _without_overlaps(aims: Sequence[Aim], placements: list[Placement]) -> tuple[Placement, ...]:
    """Turn the weaker of two hunks that share a line into a conflict: exact before offset, then the patch's order."""
    rank = {Verdict.EXACT: 0, Verdict.OFFSET: 1, Verdict.PRESENT: 2}
    ranked = sorted(
        (rank[placed.verdict], number) for number, placed in enumerate(placements) if placed.verdict in rank
    )
    kept = Spans()
    for _, number in ranked:
        placed = placements[number]
        span = span_of(aims[number], placed)
        rival = kept.rival(*span)
        if rival is None:
            kept.add(*span, number)
        else:
            reason = f"overlaps hunk {rival + 1}, which stands at line {placements[rival].line}"
            placements[number] = conflict_of(aims[number], reason)
    return tuple(placements)
