"""A series taken out of a release again, patch by patch from the top: does it leave the pristine bytes?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from patchkit.decision import Decision, FileDecision, Outcome
from patchkit.diff.model import Change, FilePatch
from patchkit.diff.reverse import reverse_patch
from patchkit.locking import Rendered
from patchkit.overlay import PristineEntries
from patchkit.record import replace
from patchkit.stack import WantedPatch, render_stack
from patchkit.tree import TreeEntry, file_sha256


def undo_series(rendered: Rendered) -> Iterator[tuple[str, str]]:
    """Yield (patch or path, what is wrong) for all that does not come out as it was."""
    entries = rendered.artifact.entries
    decided = {one.patch: one for one in rendered.decisions if one.outcome is Outcome.APPLIES}
    reversed_patches = tuple(
        _undone(wanted, decided[wanted.name]) for wanted in reversed(rendered.layer.patches) if wanted.name in decided
    )
    patched = PristineEntries(entries, rendered.files)  # the other way round: the copies are what the series left
    layer = replace(rendered.layer, patches=reversed_patches, artifact=None, trusted=True)
    undone = render_stack(patched, (layer,), pristine=patched)
    for decision in undone.decisions:
        if decision.outcome is not Outcome.APPLIES and decision.files:
            yield decision.patch, f"cannot be taken out again: {decision.reason}"
    final = {**rendered.files, **{PurePosixPath(path): entry for path, entry in undone.files}}
    copies = set(_copied(rendered))
    for path, entry in sorted(final.items()):
        if path not in copies and not _same(entry, entries.get(path)):
            yield str(path), "is not as it was after taking the series out"


def _undone(wanted: WantedPatch, decision: Decision) -> WantedPatch:
    """Return the reversed patch, its hunks stated where they were placed.

    A copy is left out: reversed it would be a copy back, and what takes it out is a deletion.
    """
    kept = [
        (_as_placed(file, found), (new, old))
        for file, found, (old, new) in zip(wanted.patch.files, decision.files, wanted.paths, strict=True)
        if file.change is not Change.COPY
    ]
    patch = replace(wanted.patch, files=tuple(file for file, _ in kept))
    return replace(wanted, patch=reverse_patch(patch), paths=tuple(pair for _, pair in reversed(kept)), reverse=True)


def _as_placed(file: FilePatch, found: FileDecision) -> FilePatch:
    if len(found.placements) != len(file.hunks):
        return file
    hunks = tuple(
        replace(placement.hunk, new_start=hunk.new_start + placement.offset)
        for hunk, placement in zip(file.hunks, found.placements, strict=True)
    )
    return replace(file, hunks=hunks)


def _copied(rendered: Rendered) -> Iterator[PurePosixPath]:
    for wanted in rendered.layer.patches:
        for file, (_, new) in zip(wanted.patch.files, wanted.paths, strict=True):
            if file.change is Change.COPY and new:
                yield PurePosixPath(new)


def _same(one: TreeEntry | None, other: TreeEntry | None) -> bool:
    """Compare two files; where a directory stands there is none."""
    if file_sha256(one) != file_sha256(other):
        return False
    return one is None or other is None or (one.kind, one.mode & 0o100) == (other.kind, other.mode & 0o100)
