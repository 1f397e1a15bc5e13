"""What a user asks for, as layers: the shipped series, directories of patches, diffs; and what a tree has of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.applied import under_new_names
from patchkit.config.configuration import duplicates, written
from patchkit.config.dotconfig import Assignment, ValueKind
from patchkit.config.fault import Fault, by_place, refuse
from patchkit.diff.text import sha256_of_patch
from patchkit.errors import OtherReleaseError, PatchkitError, RefusedError, UsageError
from patchkit.guarding import without_barred
from patchkit.left_out import TAKEN_OUT
from patchkit.plan import Situation
from patchkit.receipt import AppliedLayer, Origin, Receipt
from patchkit.record import dataclass, replace
from patchkit.series import BELOW_NAME, Series, applies, available_series, find_series, read_entries
from patchkit.stack import WantedLayer
from patchkit.target import TargetTree
from patchkit.toggles import Settled, given_assignments, kept_assignments, settle
from patchkit.wanted import OTHER_RELEASE, Terms, TreeNames, ad_hoc_layer, series_layer


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What shall be put on a tree: the shipped series (`shipped` names its directory), the user's, and diffs.

    `patches` are paths with the bytes that were read from them. `lenient`: the user's directories too may have no
    series for the tree, as the shipped one may, as long as one has. `check_all_syntax` has every patched Python file
    checked, not only those with a hunk that was placed with an offset. `taken_stays`: a single patch that was taken out
    of the tree stays out. `found` are its series, where they were read already.
    """

    shipped: Path | None
    directories: tuple[Path, ...]
    patches: tuple[tuple[Path, bytes], ...]
    terms: Terms
    check_all_syntax: bool = False
    lenient: bool = False
    taken_stays: bool = False
    found: tuple[tuple[Path, Series, Origin], ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The layers that a request means, and the configuration that it resolves to; None for series without Kconfig.

    `found` are the series that were read for it.
    """

    layers: list[WantedLayer]
    settled: Settled | None
    found: list[tuple[Path, Series, Origin]]


def followed(situation: Situation, request: Request) -> tuple[Situation, Request]:
    """Return a situation whose layers are called as their directories are now, and the request with its series read."""
    found = series_of(request, situation.tree)
    receipt = receipt_for(situation.receipt, found, situation.tree)
    return replace(situation, receipt=receipt), replace(request, found=tuple(found))


def receipt_for(receipt: Receipt | None, found: list[tuple[Path, Series, Origin]], tree: TargetTree) -> Receipt | None:
    """Return the receipt of a tree with the names that the directories of these series have now."""
    own = [(directory, series, origin) for directory, series, origin in found if origin is Origin.USER]
    return receipt if receipt is None else under_new_names(receipt, named_series(own, tree))


def wanted_layers(situation: Situation, request: Request) -> Asked:
    """Make the layers that a request means; a diff that is on the tree already is not asked for again."""
    found = series_of(request, situation.tree)
    settled = _settle(situation, request.terms, found)
    resolved = settled.generated.configuration.assignments() if settled is not None else None
    merged = merged_configuration(situation, request.terms)
    terms = replace(request.terms, configuration=merged if resolved is None else resolved)
    names = TreeNames(situation.entries, situation.pristine)
    layers = [_layer_of(directory, series, origin, situation, terms, names) for directory, series, origin in found]
    layers = [
        _stood_on(layer, series, found, situation, terms, request)
        for layer, (_, series, _) in zip(layers, found, strict=True)
    ]
    layers = [_without_taken(layer, situation) for layer in layers] if request.taken_stays else layers
    _check_labels(layers)
    if settled is None:
        _check_gates(layers, request.terms)
    else:
        layers = without_barred(layers, settled.generated)
    there = _ad_hoc_patches(situation)
    for path, raw in request.patches:
        known = there.setdefault((sha256_of_patch(raw, source=str(path)), terms.reverse), [])
        if known and terms.strip is None:
            continue
        layer = ad_hoc_layer(raw, path, situation.tree, terms, names)
        if layer.patches[0].paths not in known:  # with another --strip it may mean other files
            known.append(layer.patches[0].paths)
            layers.append(layer)
    return Asked(layers=layers, settled=settled, found=found)


def _settle(situation: Situation, terms: Terms, found: list[tuple[Path, Series, Origin]]) -> Settled | None:
    tree, receipt = situation.tree, situation.receipt
    others = has_others(found, tree, receipt)
    return settle(tree, receipt, named_series(found, tree), terms, others=others)


def named_series(found: Sequence[tuple[Path, Series, Origin]], tree: TargetTree) -> list[tuple[str, Series]]:
    """Return series with the names of their layers."""
    return [(label_of(directory, series, origin, tree), series) for directory, series, origin in found]


def has_others(found: list[tuple[Path, Series, Origin]], tree: TargetTree, receipt: Receipt | None) -> bool:
    """Tell whether a tree has series besides those that are asked for."""
    return bool(_others(found, tree, receipt))


def _others(
    found: Sequence[tuple[Path, Series, Origin]], tree: TargetTree, receipt: Receipt | None
) -> list[AppliedLayer]:
    asked = {(origin, label_of(directory, series, origin, tree)) for directory, series, origin in found}
    there = receipt.layers if receipt is not None else ()
    return [one for one in there if one.origin is not Origin.AD_HOC and (one.origin, one.name) not in asked]


def unnamed_with_gaps(situation: Situation, request: Request) -> tuple[AppliedLayer, ...]:
    """Return the series on a tree of which a patch was taken out and that the request does not name.

    `apply` brings the patch back only where its series is named.
    """
    situation, request = followed(situation, request)
    others = _others(series_of(request, situation.tree), situation.tree, situation.receipt)
    return tuple(one for one in others if any(patch.reason == TAKEN_OUT for patch in one.patches))


def series_of(request: Request, tree: TargetTree) -> list[tuple[Path, Series, Origin]]:
    """Read the series that a request names. Raises TargetError for a directory that has none for the tree."""
    if request.found is not None:
        return list(request.found)
    asked = [(directory, Origin.USER) for directory in request.directories]
    if request.shipped is not None:
        asked.insert(0, (request.shipped, Origin.SHIPPED))
    read = [(directory, find_series(directory, tree), origin) for directory, origin in asked]
    found = [(directory, series, origin) for directory, series, origin in read if series is not None]
    without = [(directory, origin) for directory, series, origin in read if series is None]
    named = [directory for directory, origin in without if origin is Origin.USER and not request.lenient]
    if not asked or (found and not named):
        return found
    user = named or [directory for directory, origin in without if origin is Origin.USER]
    raise _none_for(tree, user[0], own=True) if user else _none_for(tree, without[0][0], own=False)


def _none_for(tree: TargetTree, directory: Path, *, own: bool) -> OtherReleaseError:
    """Return the error for a directory without a series for the tree: which ones it has, and what keeps them out."""
    there = available_series(directory, tree.engine)
    itself = bool(there) and there[0][1] == directory
    reasons = [f"{path}: {_other_release(path, tree, itself=itself)}" for _, path in there]
    version = tree.version or "(unknown version)"
    if not own:
        hint = "`patchkit series list` shows what there is; --patches DIR names a directory of your own"
        reasons = [f"shipped for {tree.engine} are: {', '.join(label for label, _ in there) or 'none'}"]
    elif not there:
        reasons = [f"neither `series` nor {tree.engine}/<version>/series is there"]
        hint = "`patchkit series new` or `patchkit series import` begins one"
    elif itself:
        hint = "name a directory with patches for this engine"
    else:
        release = f"{tree.engine}=={tree.version.partition('+')[0]}"
        hint = (
            f"where its patches hold, widen their Applies-To so that it has {release}, and plan with\n"
            f"--unlocked --base DIR (an unpatched tree of the old release); else copy {there[-1][1]} to\n"
            f"{directory / tree.engine / release.rpartition('=')[2]} without series.lock and port it: docs/upgrades.md"
        )
    return OtherReleaseError(
        f"no series in {directory} is for {tree.engine} {version}", why="\n".join(reasons), hint=hint
    )


def _other_release(directory: Path, tree: TargetTree, *, itself: bool) -> str:
    """Say why a series that does not carry the name of a release is not taken for it."""
    faults: list[PatchkitError] = []
    for entry in read_entries(directory, faults):
        if not entry.trailers.applies_to:
            return f"{entry.name} has no Applies-To: it is for the release that the directory is named after"
        if itself or not applies(entry, tree):
            return f"{entry.name} is for {entry.trailers.applies_to}"
    return faults[0].what if faults else "it has no patch"


def _layer_of(
    directory: Path, series: Series, origin: Origin, situation: Situation, terms: Terms, names: TreeNames
) -> WantedLayer:
    tree = situation.tree
    label = label_of(directory, series, origin, tree)
    layer = series_layer(series, origin, label, situation, terms, names)
    if layer.patches and all(patch.reason.startswith(OTHER_RELEASE) for patch in layer.patches):
        raise OtherReleaseError(
            f"{series.directory}: no patch of it is for {tree.engine} {tree.version}",
            why="\n".join(f"{patch.name}: {patch.reason}" for patch in layer.patches),
            hint="widen Applies-To in the patches and make the lock anew, when they hold for this release",
        )
    return layer


def _stood_on(
    layer: WantedLayer,
    series: Series,
    found: list[tuple[Path, Series, Origin]],
    situation: Situation,
    terms: Terms,
    request: Request,
) -> WantedLayer:
    """Give a series that stands on the shipped one its base; refused where that one is not there nor asked for."""
    if not series.on_shipped:
        return layer
    asked = request.shipped is not None
    shipped = next((one for _, one, origin in found if origin is Origin.SHIPPED), None)
    there = situation.receipt.layers if situation.receipt is not None else ()
    if shipped is None and not asked and not any(one.origin is Origin.SHIPPED for one in there):
        raise RefusedError(
            f"{series.directory}: stands on the shipped series, which is not in the tree and not asked for",
            why=f"its file `{BELOW_NAME}` says so",
            hint="apply both series without --patch and --no-shipped, then the diff"
            if request.patches
            else "leave out --no-shipped: both are applied then",
        )
    from patchkit.below import render_lower, stand_on_lower

    if shipped is None and asked:  # none is for this release, which is an error there
        render_lower(series, situation.tree, situation.pristine)
    return replace(stand_on_lower(layer, series, situation, terms, shipped), on_shipped=True)


def _without_taken(layer: WantedLayer, situation: Situation) -> WantedLayer:
    there = situation.receipt.layers if situation.receipt is not None else ()
    known = next((one for one in there if (one.origin, one.name) == (layer.origin, layer.name)), None)
    taken = {patch.name for patch in known.patches if patch.reason == TAKEN_OUT} if known is not None else set()
    patches = (
        replace(patch, enabled=False, reason=TAKEN_OUT) if patch.name in taken else patch for patch in layer.patches
    )
    return replace(layer, patches=tuple(patches))


def label_of(directory: Path, series: Series, origin: Origin, tree: TargetTree) -> str:
    """Return the name by which a layer of a series is known."""
    own = directory.absolute().name
    label = own if series.directory == directory else f"{tree.engine}/{series.version}"
    return f"{own}/{label}" if origin is Origin.USER and series.directory != directory else label


def _check_gates(layers: list[WantedLayer], terms: Terms) -> None:
    """Refuse settings that switch nothing, or are none of a gate: no Kconfig says that they mean anything else."""
    gates = {patch.config for layer in layers for patch in layer.patches if patch.config}
    there = f"its toggles are: {', '.join(f'CONFIG_{gate}' for gate in sorted(gates)) or 'none'}"
    given = given_assignments(terms)
    faults = [*terms.unread, *duplicates(given)]
    for one in given:
        if one.symbol not in gates:
            what = f"{written(one)} gates nothing in this series"
            faults.append(Fault(place=one.origin, what=what, why=there))
        elif one.kind is not ValueKind.BOOL:
            what, why = f"{written(one)}: not a value of this toggle", "expected y or n: no Kconfig says more of it"
            faults.append(Fault(place=one.origin, what=what, why=why))
    refuse(sorted(faults, key=by_place))


def _check_labels(layers: list[WantedLayer]) -> None:
    labels = [layer.name for layer in layers if layer.origin is Origin.USER]
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise UsageError(
            f"two directories of patches are called {min(twice)}",
            why="a layer is known by that name, also when the tree is copied elsewhere",
            hint="rename one of them",
        )


def _ad_hoc_patches(situation: Situation) -> dict[tuple[str, bool], list[tuple[tuple[str, str], ...]]]:
    """Return the diffs that are on the tree, each with the paths that its names became."""
    there: dict[tuple[str, bool], list[tuple[tuple[str, str], ...]]] = {}
    for layer in situation.receipt.layers if situation.receipt is not None else ():
        for patch in layer.patches if layer.origin is Origin.AD_HOC else ():
            there.setdefault((patch.sha256, patch.reverse), []).append(patch.paths)
    return there


def merged_configuration(situation: Situation, terms: Terms) -> dict[str, Assignment]:
    """Return what is given now, over what the tree was patched with."""
    merged = {one.symbol: one for one in kept_assignments(situation.receipt)}
    merged.update(terms.configuration or {})
    return merged
