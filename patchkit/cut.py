"""A series on the tree that it is cut against: its gates on, retired patches and those for other releases left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from patchkit.config.dotconfig import Assignment, ValueKind
from patchkit.decision import Decision
from patchkit.diff.model import Verdict
from patchkit.lock import LockedArtifact, LockedFile
from patchkit.plan import Situation
from patchkit.receipt import Origin
from patchkit.record import replace
from patchkit.series import PatchEntry, Series
from patchkit.stack import Rendering, WantedLayer, render_stack
from patchkit.target import TargetTree
from patchkit.tree import Entries
from patchkit.wanted import Terms, TreeNames, series_layer


def released_situation(tree: TargetTree, release: Entries) -> Situation:
    """Return the situation of a release on which nothing was put yet."""
    return Situation(tree=tree, entries=release, receipt=None, pristine=release)


def place_cut(
    series: Series,
    tree: TargetTree,
    entries: Entries,
    patches: Sequence[PatchEntry],
    *,
    switched_on: Collection[str] | None = None,
) -> tuple[WantedLayer, Rendering]:
    """Place patches of a series as `apply` will once `entries` stand in the lock: they are what it was cut against.

    An offset contradicts that, and then the file counts as proven by nothing. `switched_on` are the gates that are on,
    None for all.
    """
    wanted = replace(series, lock=None, entries=tuple(patches))
    situation = released_situation(tree, entries)
    terms = Terms(unlocked=True, package_only=True, configuration=_gates(patches, switched_on))
    layer = series_layer(wanted, Origin.USER, series.version, situation, terms, TreeNames(entries))
    everything = layer_paths(layer)
    proven = replace(layer, strict=False, artifact=_provisional(tree, everything))
    rendering = render_stack(entries, (proven,), pristine=entries)
    shifted = set(_shifted_paths(rendering.decisions))
    if shifted:
        proven = replace(proven, artifact=_provisional(tree, [path for path in everything if path not in shifted]))
        rendering = render_stack(entries, (proven,), pristine=entries)
    return proven, rendering


def layer_paths(layer: WantedLayer) -> list[str]:
    """Return the paths that the enabled patches of a layer name, sorted."""
    return sorted({path for wanted in layer.patches if wanted.enabled for pair in wanted.paths for path in pair} - {""})


def _gates(entries: Sequence[PatchEntry], switched_on: Collection[str] | None) -> Mapping[str, Assignment]:
    symbols = {entry.trailers.config for entry in entries} - {""}
    if switched_on is not None:
        symbols &= set(switched_on)
    return {
        symbol: Assignment(symbol=symbol, value="y", kind=ValueKind.BOOL, origin="series lock") for symbol in symbols
    }


def _provisional(tree: TargetTree, paths: Collection[str]) -> LockedArtifact:
    """Return a section that only says which files are those that the patches were cut against."""
    files = tuple(LockedFile(path=path, pristine=None, patched=None) for path in paths)
    return LockedArtifact(file="", sha256="", version=tree.version, files=files)


def _shifted_paths(decisions: Sequence[Decision]) -> Iterator[str]:
    for decision in decisions:
        for file in decision.files:
            if file.path is not None and any(one.verdict is Verdict.OFFSET for one in file.placements):
                yield str(file.path)
