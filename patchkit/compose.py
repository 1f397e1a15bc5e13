"""What the stack shall be: layers that are there, layers that are asked for, and layers taken out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from patchkit.counting import counted
from patchkit.diff.model import FilePatch, Patch
from patchkit.errors import RefusedError, TreeChangedError
from patchkit.left_out import NEEDS_NOTHING, TAKEN_OUT
from patchkit.overlay import Overlay
from patchkit.plan import Situation
from patchkit.receipt import AppliedLayer, AppliedPatch, Origin
from patchkit.record import dataclass, replace
from patchkit.series import parse_entry
from patchkit.stack import WantedLayer, WantedPatch, is_guard, render_stack, restated, restated_from_cut
from patchkit.trailers import parse_trailers

Stored = Callable[[str], bytes]
"""Returns the bytes of a stored patch by sha256; TreeChangedError when they are gone or damaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """A stack to be planned: `kept` stay below untouched, `layers` are rendered. Not `changed`: all is there."""

    kept: tuple[AppliedLayer, ...]
    layers: tuple[WantedLayer, ...]
    changed: bool


def put_layers(
    situation: Situation, wanted: Collection[WantedLayer], stored: Stored, *, afresh: bool = False
) -> Composition:
    """Put layers on the stack: one that is there as wanted stays, one that changed is replaced in its place. One that
    belongs above the shipped series, and stands below it or without it, is moved to the top.

    `afresh`: the files in the tree are more than the layers made of them (imports were supplied), so that nothing can
    be put on top of them: a stack that changes is rendered from pristine.
    """
    there = situation.receipt.layers if situation.receipt is not None else ()
    number = max((layer.number for layer in there), default=0)
    replaced: dict[int, WantedLayer] = {}
    added: list[WantedLayer] = []
    gone: set[int] = set()
    for layer in wanted:
        standing = _standing(layer, there)
        if standing is not None and layer.on_shipped and not _has_shipped_below(standing, there):
            gone.add(standing.number)
            standing = None
        if standing is None:
            number += 1
            added.append(replace(layer, number=number))
        elif not _same(layer, standing):
            replaced[standing.number] = replace(layer, number=standing.number)
    if replaced or gone or (afresh and added):
        rebuilt = _rebuilt(situation, there, replaced, stored, gone=gone)
        return Composition(kept=(), layers=(*rebuilt, *added), changed=True)
    return Composition(kept=there, layers=tuple(added), changed=bool(added))


def take_layers(situation: Situation, numbers: Collection[int], stored: Stored) -> Composition:
    """Take layers out of the stack; those above are rendered again on what is left."""
    there = situation.receipt.layers if situation.receipt is not None else ()
    left = tuple(layer for layer in there if layer.number not in numbers)
    rebuilt = tuple(layer for layer in _rebuilt(situation, there, {}, stored, gone=numbers)) if left else ()
    return Composition(kept=(), layers=rebuilt, changed=len(left) != len(there))


def take_patch(situation: Situation, number: int, name: str, stored: Stored) -> Composition:
    """Take one patch out of a layer; the layer stays, with the patch left out. RefusedError when others require it."""
    there = situation.receipt.layers if situation.receipt is not None else ()
    layer = next(layer for layer in there if layer.number == number)
    placed = _existing(layer, stored)
    needing = [patch.name for patch in placed.patches if patch.enabled and name in _requirements(patch)]
    if needing:
        raise RefusedError(
            f"{name}: required by {', '.join(needing)}",
            hint=f"take those out first, or the whole layer with --layer {number}",
        )
    patches = tuple(
        replace(patch, enabled=False, reason=TAKEN_OUT) if patch.name == name else patch for patch in placed.patches
    )
    if any(patch.name == name and is_guard(patch) for patch in patches):  # its lines in the context of others give way
        patches = restated_from_cut(patches)
    return Composition(
        kept=(), layers=_rebuilt(situation, there, {number: replace(placed, patches=patches)}, stored), changed=True
    )


def _requirements(patch: WantedPatch) -> tuple[str, ...]:
    return parse_trailers(patch.patch.preamble, source=patch.name).requires


def _rebuilt(
    situation: Situation,
    there: tuple[AppliedLayer, ...],
    replaced: Mapping[int, WantedLayer],
    stored: Stored,
    *,
    gone: Collection[int] = (),
) -> tuple[WantedLayer, ...]:
    """Return all layers for a rendering from pristine.

    Below the first change they stand exactly as they were placed; above it each has the tree that it was placed on as
    its base, so that its hunks are found where the lines moved. A series that is read anew was not placed: that tree
    proves nothing of it. What was left out because the tree had it is tried again: perhaps it was a lower layer that
    had it.
    """
    old = tuple(_existing(layer, stored) for layer in there)
    layers: list[WantedLayer] = []
    undisturbed = True
    for place, layer in enumerate(old):
        if layer.number in gone or layer.number in replaced:
            undisturbed = False
        if layer.number in gone:
            continue
        wanted = replaced.get(layer.number, layer)
        if undisturbed or not wanted.placed or wanted.artifact is not None:
            layers.append(wanted)
        else:
            patches = wanted.patches if layer.number in replaced else tuple(map(_tried_again, wanted.patches))
            layers.append(replace(wanted, patches=patches, trusted=False, base=_below(situation, old[:place])))
    return tuple(layers)


def _tried_again(patch: WantedPatch) -> WantedPatch:
    left_out = not patch.enabled and patch.reason in NEEDS_NOTHING
    return replace(patch, enabled=True, reason="") if left_out else patch


def _below(situation: Situation, layers: tuple[WantedLayer, ...]) -> Overlay:
    """Return the tree as it was below a layer when it was placed."""
    overlay = Overlay(situation.pristine)
    for path, entry in render_stack(situation.pristine, layers, pristine=situation.pristine).files:
        overlay.put(path, entry)
    return overlay


def _existing(layer: AppliedLayer, stored: Stored) -> WantedLayer:
    cut = tuple(_cut_patch(patch, stored) for patch in layer.patches)
    return WantedLayer(
        number=layer.number,
        origin=layer.origin,
        name=layer.name,
        patches=tuple(map(_as_placed, cut, restated(cut), layer.patches)),
        artifact=None,
        strict=layer.origin is not Origin.AD_HOC,
        base=None,
        package_only=True,
        trusted=True,
        applied_at=layer.applied_at,
        locked=layer.locked,
        placed=True,
    )


def _cut_patch(applied: AppliedPatch, stored: Stored) -> WantedPatch:
    raw = stored(applied.sha256)
    patch = parse_entry(raw, source=applied.name)
    if applied.reverse:
        from patchkit.diff.reverse import reverse_patch

        patch = reverse_patch(patch)
    if len(applied.paths) != len(patch.files) or (applied.enabled and len(applied.lines) != len(patch.files)):
        raise TreeChangedError(
            f"{applied.name}: the receipt does not fit the stored patch",
            why=f"it places {counted(len(applied.paths), 'file')}, the patch has {len(patch.files)}",
            hint="reinstall the engine and apply again",
        )
    return WantedPatch(
        name=applied.name,
        sha256=applied.sha256,
        raw=raw,
        patch=patch,
        mapping=applied.mapping,
        paths=applied.paths,
        reverse=applied.reverse,
        config=applied.config,
        enabled=applied.enabled,
        reason=applied.reason,
        placed=applied.enabled,
    )


def _as_placed(cut: WantedPatch, here: WantedPatch, applied: AppliedPatch) -> WantedPatch:
    """Return a patch stated where it was placed; `here` is it as it is stated beside those that are left out."""
    if not applied.enabled:
        return cut
    offsets = [_offsets(*pair) for pair in zip(here.patch.files, applied.lines, strict=True)]
    return replace(here, patch=_moved(here.patch, offsets), cut=_moved(cut.patch, offsets))


def _offsets(file: FilePatch, lines: tuple[int, ...]) -> tuple[int, ...]:
    if len(lines) != len(file.hunks):
        return (0,) * len(file.hunks)
    return tuple(line - hunk.old_start if line else 0 for hunk, line in zip(file.hunks, lines, strict=True))


def _moved(patch: Patch, offsets: Sequence[tuple[int, ...]]) -> Patch:
    from patchkit.moving import move_hunk

    files = (
        replace(file, hunks=tuple(map(move_hunk, file.hunks, moves))) if any(moves) else file
        for file, moves in zip(patch.files, offsets, strict=True)
    )
    return replace(patch, files=tuple(files))


def _standing(layer: WantedLayer, there: tuple[AppliedLayer, ...]) -> AppliedLayer | None:
    """Return the layer that a wanted one takes the place of: the same series; a diff is always a layer of its own."""
    if layer.origin is Origin.AD_HOC:
        return None
    found = (standing for standing in there if standing.origin is layer.origin and standing.name == layer.name)
    return next(found, None)


def _has_shipped_below(standing: AppliedLayer, there: tuple[AppliedLayer, ...]) -> bool:
    return any(one.origin is Origin.SHIPPED for one in there[: there.index(standing)])


def _same(layer: WantedLayer, standing: AppliedLayer) -> bool:
    """Compare what is wanted with what is there; a patch that the release has already is there as well.

    One that was taken out is another than one whose toggle is off: of that its guards stand in the files.
    """
    wanted = [(*_key(patch), patch.enabled) for patch in layer.patches]
    have = [(*_key(patch), patch.enabled or patch.reason in NEEDS_NOTHING) for patch in standing.patches]
    return wanted == have


def _key(patch: WantedPatch | AppliedPatch) -> tuple[object, ...]:
    return patch.name, patch.sha256, patch.reverse, patch.reason == TAKEN_OUT
