"""What a guard patch was cut on that is not there though all guards are on: switched off otherwise, or taken out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchkit.diff.model import Patch
from patchkit.left_out import TAKEN_OUT
from patchkit.receipt import Origin
from patchkit.record import replace
from patchkit.stack import WantedLayer, WantedPatch, is_away
from patchkit.stacking import Editing, find_edits


def mend(edit: Editing, own: tuple[str, str], other: tuple[str, str]) -> str:
    """Say on whose lines a patch was cut that a toggle takes out, and what to do; both come as name and gate."""
    (name, gate), (needed, switch) = own, other
    way = f"let {gate} `depends on {switch}` in the Kconfig" if gate else f"gate it: `Config: {switch}`"
    place = f"{name}:{edit.line_number} {edit.words} {needed} in {edit.path}"
    return f"{place}, which CONFIG_{switch} switches off: CONFIG_{switch}=y, or {way}"


def missing_ground(layers: Sequence[WantedLayer], number: int, name: str) -> Iterator[str]:
    """Yield on which patches, and where, a patch of a layer was cut that are not there."""
    layer = next(layer for layer in layers if layer.number == number)
    lower = [one for one in layers if one.origin is Origin.SHIPPED] if layer.on_shipped else []
    patches = [patch for one in (*lower, layer) for patch in one.patches]
    first = len(patches) - len(layer.patches)
    for edit in find_edits([(_by_path(patch), 0) for patch in patches]):
        own, other = patches[edit.patch], patches[edit.other]
        if edit.patch < first or own.name != name or not is_away(other):
            continue
        if other.reason.startswith(TAKEN_OUT):
            place = f"{own.name}:{edit.line_number} {edit.words} {other.name} in {edit.path}"
            yield f"{place}, which is taken out: `revert --layer {number}` takes both out"
        else:
            yield mend(edit, (own.name, own.config), (other.name, other.config))


def _by_path(wanted: WantedPatch) -> Patch:
    """Return a patch as it was cut, its files called by their paths in the tree."""
    patch = wanted.cut or wanted.patch
    files = (
        replace(file, old_name=old or None, new_name=new or None)
        for file, (old, new) in zip(patch.files, wanted.paths, strict=True)
    )
    return replace(patch, files=tuple(files))
