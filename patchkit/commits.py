"""All files of a patch against a tree: those of a mailbox commit after commit, each on what the one before it left.

git itself reads a mailbox as one patch: there a rename takes the file along as it was before the first commit.
"""

from __future__ import annotations

from itertools import groupby

from patchkit.decide import Finding, Ground, Known, decide_file
from patchkit.decision import FileDecision
from patchkit.diff.model import Change, FilePatch, Hunk, Patch, Placement, Proof, Verdict
from patchkit.overlay import Overlay
from patchkit.record import replace
from patchkit.strip import outside_note
from patchkit.tree import path_of

_Paths = tuple[str, str]


def known_on_base(base: Overlay) -> Known:
    """Return what is known of a patch on the very tree that it was cut against."""
    return Known(base=None, pristine=base, proven=lambda _: True, strict=False, moved=False)


def decide_files(
    patch: Patch, paths: tuple[_Paths, ...], below: Overlay, known: Known
) -> tuple[tuple[FileDecision, ...], Overlay]:
    """Return what becomes of every file of the patch, and the tree with what can be done."""
    above = Overlay(below)
    decided: list[FileDecision] = []
    cut: tuple[tuple[FilePatch, _Paths], ...] = ()
    for _, files in groupby(zip(patch.files, paths, strict=True), key=lambda pair: pair[0].commit):
        if cut and known.base is not None:  # this commit was cut on top of the one before it
            base = Overlay(known.base)
            base.merge(_decide_commit(cut, known.base, known_on_base(known.base), crlf=patch.crlf)[1])
            known = replace(known, base=base)
        cut = tuple(files)
        found, now = _decide_commit(cut, above, known, crlf=patch.crlf)
        decided += found
        above.merge(now)
    return tuple(decided), above


def _decide_commit(
    files: tuple[tuple[FilePatch, _Paths], ...], before: Overlay, known: Known, *, crlf: bool
) -> tuple[list[FileDecision], Overlay]:
    leaving = (Change.RENAME, Change.DELETE, Change.MODIFY)
    ground = Ground(
        before=before,
        now=Overlay(before),
        known=known,
        crlf=crlf,
        vacated=frozenset(old for file, (old, new) in files if old and old != new and file.change in leaving),
    )
    return [_decide(file, old, new, ground) for file, (old, new) in files], ground.now


def _decide(file: FilePatch, old: str, new: str, ground: Ground) -> FileDecision:
    name = (file.old_name if file.change is Change.DELETE else file.new_name) or file.old_name or ""
    if not old and not new:
        note = outside_note(name)
        placements = tuple(_outside(hunk, note) for hunk in file.hunks)
        return FileDecision(
            name=name, path=None, change=file.change, placements=placements, refusal="", note=note, present=False
        )
    found: Finding = decide_file(file, old, new, ground)
    return FileDecision(
        name=name,
        path=path_of(new or old),
        change=file.change,
        placements=found.placements,
        refusal=found.refusal,
        note="",
        present=found.present,
    )


def _outside(hunk: Hunk, note: str) -> Placement:
    return Placement(
        hunk=hunk,
        verdict=Verdict.NOT_IN_TREE,
        line=None,
        offset=0,
        reason=note,
        scope_before=None,
        scope_after=None,
        proof=Proof.NONE,
    )
