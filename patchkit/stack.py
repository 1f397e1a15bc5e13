"""The stack of layers as it shall be, and its rendering: every patch decided in order, every file made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from patchkit.commits import decide_files, known_on_base
from patchkit.counting import counted_of
from patchkit.decide import Known
from patchkit.decision import Decision, FileDecision, Outcome
from patchkit.diff.model import Patch
from patchkit.errors import UnsafePathError
from patchkit.left_out import NO_CHANGE, NOTHING_HERE, TAKEN_OUT, UPSTREAMED, left_out_as, unset_reason
from patchkit.lock import LockedArtifact
from patchkit.overlay import Overlay
from patchkit.receipt import Origin
from patchkit.record import dataclass, replace
from patchkit.strip import UNKNOWN
from patchkit.trailers import Toggle, parse_trailers
from patchkit.tree import Entries, TreeEntry, file_sha256

RUNTIME = "runtime: "
"""How the name of the patch begins that brings what `Needs-Runtime` names: no series has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedPatch:
    """A patch that the stack shall have. `patch` is as it will be placed (already reversed when `reverse`).

    `paths`, `mapping` and `config` are as in AppliedPatch; `enabled` is False with a `reason` when a toggle or
    Retires-When leaves it out; `retired` tells the two apart. `placed`: its hunks are stated where they were placed
    on the layer's base; `cut` is it then as it was cut, on all patches before it, as far from where it says.
    """

    name: str
    sha256: str
    raw: bytes
    patch: Patch
    mapping: str
    paths: tuple[tuple[str, str], ...]
    reverse: bool
    config: str
    enabled: bool
    reason: str
    retired: bool = False
    placed: bool = False
    cut: Patch | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedLayer:
    """A layer that the stack shall have.

    `artifact` is the section of the lock that the pristine tree agrees with, None without a lock; `strict` asks every
    hunk for its own proof; `base` is the tree its patches were cut against, where that is known; `package_only` allows
    what is not in this tree to be left out. `trusted` says that its patches stand as they were placed before, on what
    lies below them now. `applied_at` is "" for a layer that is new. `locked` says that a lock proved it before,
    `placed` that its patches are those of the receipt, `on_shipped` that its place is above the shipped series.
    """

    number: int
    origin: Origin
    name: str
    patches: tuple[WantedPatch, ...]
    artifact: LockedArtifact | None
    strict: bool
    base: Entries | Overlay | None
    package_only: bool
    trusted: bool
    applied_at: str
    locked: bool = False
    placed: bool = False
    on_shipped: bool = False


Watch = Callable[[WantedPatch, Overlay], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendering:
    """What the stack came to: decisions in the order of the patches, and the files it makes (None: taken away).

    `proven` are the paths whose content is the lock's; `problems` name those whose content should be, and is not.
    """

    decisions: tuple[Decision, ...]
    files: tuple[tuple[str, TreeEntry | None], ...]
    proven: frozenset[str]
    problems: tuple[str, ...]


def render_stack(
    start: Entries,
    layers: tuple[WantedLayer, ...],
    *,
    pristine: Entries,
    touched: frozenset[str] = frozenset(),
    watch: Watch | None = None,
) -> Rendering:
    """Render the layers on `start`: the pristine tree, or the tree as it is, where layers below have `touched` files.

    A patch that is refused changes nothing, and the next ones are still decided. `watch` sees every patch that is in,
    and the tree with it.
    """
    overlay = Overlay(start)
    decisions: list[Decision] = []
    proven: set[str] = set()
    problems: list[str] = []
    for layer in layers:
        below = touched.union(path for path, _ in overlay.changes())
        own, unproven = _render_layer(layer, overlay, pristine, below, watch)
        decisions.extend(own)
        proven -= {path for wanted in layer.patches for pair in wanted.paths for path in pair}
        if not any(decision.refused for decision in own):
            proven |= _compare_with_lock(layer, overlay, unproven, problems)
    return Rendering(
        decisions=tuple(decisions), files=tuple(overlay.changes()), proven=frozenset(proven), problems=tuple(problems)
    )


def _compare_with_lock(layer: WantedLayer, overlay: Overlay, unproven: set[str], problems: list[str]) -> set[str]:
    """Return the locked files that came out as the lock says; one that did not, unexplained, is a problem."""
    if layer.artifact is None:
        return set()
    good = set()
    for file in layer.artifact.files:
        if file.path in unproven:
            continue
        if _sha256_at(overlay, file.path) == file.patched:
            good.add(file.path)
        else:
            problems.append(
                f"{file.path}: not what series.lock says it becomes; make the lock anew (patchkit series lock)"
            )
    return good


def restated(patches: tuple[WantedPatch, ...]) -> tuple[WantedPatch, ...]:
    """Return the patches of a layer, as they were cut, stated for a tree without those that are switched off."""
    away = [is_away(patch) for patch in patches]
    if not _has_ground_away(patches, away):
        return patches
    from patchkit.restating import Stacked, restate_patches

    stack = [
        Stacked(patch=patch.patch, paths=patch.paths, there=not gone, guard=is_guard(patch))
        for patch, gone in zip(patches, away, strict=True)
    ]
    return tuple(replace(old, patch=new) for old, new in zip(patches, restate_patches(stack), strict=True))


def restated_from_cut(patches: tuple[WantedPatch, ...]) -> tuple[WantedPatch, ...]:
    """Return placed patches stated anew, where others are switched on or off than when they were placed."""
    return restated(tuple(replace(patch, patch=patch.cut or patch.patch, placed=patch.enabled) for patch in patches))


def _has_ground_away(patches: Sequence[WantedPatch], away: Sequence[bool]) -> bool:
    """Tell whether a patch that is there names a path of one before it that is away."""
    missing: set[str] = set()
    for patch, gone in zip(patches, away, strict=True):
        paths = {path for pair in patch.paths for path in pair if path}
        if gone:
            missing |= paths
        elif not missing.isdisjoint(paths):
            return True
    return False


def is_away(patch: WantedPatch) -> bool:
    """Tell whether the patches above were cut on one that is left out: its toggle is off, or it was taken out."""
    return not patch.enabled and patch.reason.startswith((TAKEN_OUT, unset_reason(patch.config)))


def is_guard(patch: WantedPatch) -> bool:
    """Tell whether a patch says that guards switch it."""
    return bool(patch.config) and parse_trailers(patch.patch.preamble, source=patch.name).toggle is Toggle.GUARD


def stands_in(entries: Entries, layer: WantedLayer, wanted: WantedPatch) -> bool:
    """Tell whether a tree alone, without the layers below, has all that a patch changes."""
    base = Overlay(entries)
    known = Known(base=None, pristine=base, proven=lambda _: False, strict=layer.strict, moved=False)
    files, _ = decide_files(wanted.patch, wanted.paths, base, known)
    return _fold(files, package_only=layer.package_only)[0] is Outcome.UPSTREAMED


def _render_layer(
    layer: WantedLayer, overlay: Overlay, pristine: Entries, below: frozenset[str], watch: Watch | None
) -> tuple[list[Decision], set[str]]:
    """Decide the layer's patches in order; also return the paths about which its lock can say nothing."""
    otherwise = _otherwise(layer, overlay, below)
    base = _layer_base(layer, pristine, otherwise)
    unproven: set[str] = set(otherwise)
    proven = _prover(layer, unproven)
    decisions = []
    patches = layer.patches if layer.placed else restated(layer.patches)
    for given, wanted in zip(layer.patches, patches, strict=True):
        if not wanted.enabled:
            unproven.update(path for pair in wanted.paths for path in pair)
            outcome = Outcome.RETIRED if wanted.retired else left_out_as(wanted.config, wanted.reason)
            decisions.append(_decision(layer, wanted, outcome, wanted.reason, ()))
        else:
            moved = layer.placed and wanted.placed and not layer.trusted
            known = Known(base=base, pristine=Overlay(pristine), proven=proven, strict=layer.strict, moved=moved)
            decisions.append(_render_patch(layer, wanted, overlay, known))
            if watch is not None:
                watch(given, overlay)
        if base is not None and wanted is not patches[-1] and _is_in_base(layer, wanted):
            base.merge(decide_files(wanted.patch, wanted.paths, base, known_on_base(base))[1])
    return decisions, unproven


def _otherwise(layer: WantedLayer, overlay: Overlay, below: frozenset[str]) -> frozenset[str]:
    """Return the paths that are not as the layer's lock has them, because lower layers change them or should have."""
    if layer.artifact is None or not (below or layer.artifact.below):
        return below
    ground = layer.artifact.ground
    lower = below.union(path for path, _ in layer.artifact.below.files) if layer.artifact.below else below
    return frozenset(path for path in lower if path not in ground or _sha256_at(overlay, path) != ground[path])


def _sha256_at(overlay: Overlay, path: str) -> str | None:
    try:
        return file_sha256(overlay.lookup(path))
    except UnsafePathError:  # a lower layer put a link in the way: nothing that a lock names is there
        return ""


def _is_in_base(layer: WantedLayer, wanted: WantedPatch) -> bool:
    """Tell whether the next patch stands on this one: as it is stated now, or as the receipt has it."""
    return wanted.placed if layer.placed else wanted.enabled


def _layer_base(layer: WantedLayer, pristine: Entries, below: frozenset[str]) -> Overlay | None:
    """Return the tree the layer was cut against: the one given, or the locked one where lower layers changed it."""
    if layer.base is not None:
        return Overlay(layer.base)
    changed_below = below or not all(wanted.enabled for wanted in layer.patches)
    return Overlay(pristine) if layer.artifact is not None and changed_below else None


def _prover(layer: WantedLayer, unproven: set[str]) -> Callable[[str], bool]:
    """Tell of a path whether the lock proves it; `unproven` grows while the layer is rendered."""
    if layer.trusted:
        return lambda _: True
    locked = frozenset(file.path for file in layer.artifact.files) if layer.artifact is not None else frozenset()
    return lambda path: path in locked and path not in unproven


def _render_patch(layer: WantedLayer, wanted: WantedPatch, overlay: Overlay, known: Known) -> Decision:
    files, above = decide_files(wanted.patch, wanted.paths, overlay, known)
    outcome, reason = _fold(files, package_only=layer.package_only)
    if outcome is Outcome.APPLIES:
        overlay.merge(above)
    return _decision(layer, wanted, outcome, reason, files)


def _fold(files: tuple[FileDecision, ...], *, package_only: bool) -> tuple[Outcome, str]:
    """Fold what became of the files into what becomes of the patch."""
    inside = [file for file in files if file.path is not None]
    skipped = len(files) - len(inside)
    refused = [file for file in inside if file.refusal]
    present = [file for file in inside if file.present]
    if refused:
        partly = present or any("there already" in file.refusal for file in refused)
        return (Outcome.PARTLY_APPLIED if partly else Outcome.REFUSED), refused[0].refusal
    if not inside and any(file.note == UNKNOWN for file in files):
        return Outcome.REFUSED, "none of its files is in this tree: is it for another project or release?"
    if skipped and not package_only:
        away = counted_of(skipped, len(files), "file", "is not", "are not")
        return Outcome.REFUSED, f"{away} in this tree (allow with --package-only)"
    if not inside:
        return Outcome.NOTHING_HERE, NOTHING_HERE if files else NO_CHANGE
    if len(present) == len(inside):
        return Outcome.UPSTREAMED, UPSTREAMED
    if present:
        names = ", ".join(str(file.path) for file in present[:3])
        having = counted_of(len(present), len(inside), "file", "has", "have")
        return Outcome.PARTLY_APPLIED, f"{having} it already: {names}"
    return Outcome.APPLIES, ""


def _decision(
    layer: WantedLayer, wanted: WantedPatch, outcome: Outcome, reason: str, files: tuple[FileDecision, ...]
) -> Decision:
    return Decision(
        number=layer.number,
        layer=layer.name,
        patch=wanted.name,
        outcome=outcome,
        reason=reason,
        mapping=wanted.mapping,
        files=files,
    )
