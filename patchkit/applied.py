"""What a rendering leaves in the receipt, and what the receipt explains of a rendering."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from patchkit.decision import Decision, Outcome
from patchkit.left_out import left_out_as
from patchkit.receipt import AppliedLayer, AppliedPatch, Origin, Receipt
from patchkit.record import replace
from patchkit.series import Series
from patchkit.stack import RUNTIME, WantedLayer, WantedPatch, stands_in
from patchkit.tree import Entries


def stays(layer: WantedLayer, decisions: tuple[Decision, ...], *, lowest: bool) -> bool:
    """Tell whether the stack remembers a layer: the lowest one leaves no trace when it is wholly upstream.

    Any other may be there already because a layer below has it, and is needed when that one is taken out.
    """
    outcomes = {decision.outcome for decision in decisions if decision.number == layer.number}
    if not lowest and Outcome.UPSTREAMED in outcomes:
        return True
    return not outcomes <= {Outcome.UPSTREAMED, Outcome.NOTHING_HERE, Outcome.RETIRED}


def applied_layers(
    layers: tuple[WantedLayer, ...], decisions: tuple[Decision, ...], *, lowest: bool
) -> Iterator[AppliedLayer]:
    """Yield the layers that stay, as the receipt keeps them; `lowest`: the first of them is the stack's lowest."""
    for place, layer in enumerate(layers):
        if stays(layer, decisions, lowest=lowest and not place):
            yield applied_layer(layer, decisions)


def forgotten(
    layers: Iterable[WantedLayer], kept: Iterable[AppliedLayer], decisions: Iterable[Decision]
) -> Iterator[str]:
    """Say which layers the stack does not remember, and why: `kept` are those that it does."""
    remembered = {layer.number for layer in kept}
    reasons: dict[int, dict[str, None]] = {}
    for decision in decisions:
        reasons.setdefault(decision.number, {})[decision.reason] = None
    for layer in layers:
        if layer.number not in remembered:
            yield f"layer {layer.number} {layer.name} is out too: {'; '.join(reasons.get(layer.number, ()))}"


def applied_layer(layer: WantedLayer, decisions: tuple[Decision, ...]) -> AppliedLayer:
    """Return a layer as the receipt keeps it: with the lines at which its hunks were placed."""
    own = {decision.patch: decision for decision in decisions if decision.number == layer.number}
    return AppliedLayer(
        number=layer.number,
        origin=layer.origin,
        name=layer.name,
        patches=tuple(_applied_patch(wanted, own[wanted.name]) for wanted in layer.patches),
        locked=layer.artifact is not None or layer.locked,
        applied_at=layer.applied_at,
    )


def kept_decisions(kept: tuple[AppliedLayer, ...]) -> Iterator[Decision]:
    """Yield what is said of layers that stay as they are."""
    for layer in kept:
        for patch in layer.patches:
            yield Decision(
                number=layer.number,
                layer=layer.name,
                patch=patch.name,
                outcome=Outcome.ALREADY_APPLIED if patch.enabled else left_out_as(patch.config, patch.reason),
                reason=patch.reason,
                mapping=patch.mapping,
                files=(),
            )


def left_out_again(decisions: Iterable[Decision], layers: Iterable[WantedLayer]) -> Iterator[Decision]:
    """Yield decisions with what the layers say by now of patches whose toggle is off."""
    wanted = {(layer.number, patch.name): patch for layer in layers for patch in layer.patches}
    for decision in decisions:
        patch = wanted[decision.number, decision.patch]
        if decision.outcome in (Outcome.DISABLED, Outcome.GUARDED_OFF) and patch.reason != decision.reason:
            yield replace(decision, outcome=left_out_as(patch.config, patch.reason), reason=patch.reason)
        else:
            yield decision


def _applied_patch(wanted: WantedPatch, decision: Decision) -> AppliedPatch:
    left_out = decision.outcome in (Outcome.UPSTREAMED, Outcome.NOTHING_HERE)
    return AppliedPatch(
        name=wanted.name,
        sha256=wanted.sha256,
        mapping=wanted.mapping,
        paths=wanted.paths,
        lines=tuple(tuple(placement.line or 0 for placement in file.placements) for file in decision.files),
        reverse=wanted.reverse,
        config=wanted.config,
        enabled=wanted.enabled and not left_out,
        reason=decision.reason if left_out else wanted.reason,
    )


def without_release(
    decisions: tuple[Decision, ...], kept: tuple[AppliedLayer, ...], layers: tuple[WantedLayer, ...], pristine: Entries
) -> Iterator[Decision]:
    """Say `upstreamed` only of what the release has: what the layers below make is theirs, and named so."""
    wanted = {(layer.number, patch.name): (layer, patch) for layer in layers for patch in layer.patches}
    left_out = {(one.number, one.patch) for one in decisions if one.outcome is not Outcome.APPLIES}
    for decision in decisions:
        if decision.outcome is Outcome.UPSTREAMED:
            layer, patch = wanted[decision.number, decision.patch]
            having = tuple(_having(layer, patch, kept, layers, left_out))
            if having and not stands_in(pristine, layer, patch):
                reason = f"{' and '.join(having)} {'has' if len(having) == 1 else 'have'} all of it"
                yield replace(decision, outcome=Outcome.ALREADY_APPLIED, reason=reason)
                continue
        yield decision


def renamed(layers: tuple[WantedLayer, ...], receipt: Receipt | None) -> Iterator[str]:
    """Say which new layers of a user look like one that is there: a layer is known by its directory's name only."""
    there = [one for one in receipt.layers if one.origin is Origin.USER] if receipt is not None else []
    known = {one.name for one in there}
    for layer in layers:
        names = [patch.name for patch in layer.patches]
        if layer.origin is not Origin.USER or layer.name in known or not names:
            continue
        for old in there:
            if [patch.name for patch in old.patches] == names:
                yield (
                    f"layer {layer.number} {layer.name} looks like layer {old.number} {old.name} under another name: "
                    f"if its directory was renamed, give the old name back, or `patchkit revert --layer {old.number}` "
                    "and apply"
                )


def under_new_names(receipt: Receipt, named: Sequence[tuple[str, Series]]) -> Receipt:
    """Return a receipt whose layers have the names that a user's directories have now: `named` are those asked for.

    A directory under a new name has, patch for patch, what one layer of a name that nobody asks for has, and the rest
    of its name is the same. Whose patches changed as well is not known for the same.
    """
    asked = {name for name, _ in named}
    known = {layer.name for layer in receipt.layers if layer.origin is Origin.USER}
    new = [(name, _rest(name), _patches(series)) for name, series in named if name not in known and series.entries]
    layers = []
    for layer in receipt.layers:
        names = []
        if layer.origin is Origin.USER and layer.name not in asked:
            own = [(patch.name, patch.sha256) for patch in layer.patches if not patch.name.startswith(RUNTIME)]
            names = [name for name, rest, patches in new if (rest, patches) == (_rest(layer.name), own)]
        layers.append(replace(layer, name=names[0]) if len(names) == 1 else layer)
    taken = [layer.name for layer in layers if layer.origin is Origin.USER]
    return replace(receipt, layers=tuple(layers)) if len(set(taken)) == len(taken) else receipt


def _patches(series: Series) -> list[tuple[str, str]]:
    return [(entry.name, entry.patch.sha256) for entry in series.entries]


def _rest(name: str) -> str:
    """Return what stands behind the directory's own name: the engine and the version of a series below it."""
    return name.partition("/")[2]


def _having(
    layer: WantedLayer,
    patch: WantedPatch,
    kept: tuple[AppliedLayer, ...],
    layers: tuple[WantedLayer, ...],
    left_out: Collection[tuple[int, str]],
) -> Iterator[str]:
    """Name the layers below a patch, and the patches of its own layer before it, that change one of its files."""
    paths = {path for pair in patch.paths for path in pair if path}
    lower: tuple[AppliedLayer | WantedLayer, ...] = (*kept, *layers[: layers.index(layer)])
    for below in lower:
        changing = (one for one in below.patches if one.enabled and (below.number, one.name) not in left_out)
        if any(not paths.isdisjoint(pair) for one in changing for pair in one.paths):
            yield f"layer {below.number} {below.name}"
    for one in layer.patches[: layer.patches.index(patch)]:
        if (layer.number, one.name) not in left_out and any(not paths.isdisjoint(pair) for pair in one.paths):
            yield one.name


def explained(
    decisions: Iterable[Decision], layers: tuple[WantedLayer, ...], receipt: Receipt | None
) -> tuple[Decision, ...]:
    """Say `already applied` of what the receipt knows to be in the tree."""
    decisions = tuple(decisions)
    if receipt is None:
        return decisions
    there = {
        (layer.number, patch.name): (patch.sha256, patch.reverse)
        for layer in receipt.layers
        for patch in layer.patches
        if patch.enabled
    }
    wanted = {(layer.number, patch.name): (patch.sha256, patch.reverse) for layer in layers for patch in layer.patches}
    explained = []
    for decision in decisions:
        key = (decision.number, decision.patch)
        same = decision.outcome is Outcome.APPLIES and there.get(key) == wanted.get(key)
        explained.append(replace(decision, outcome=Outcome.ALREADY_APPLIED) if same else decision)
    return tuple(explained)
