"""Patches with `Toggle: guard`: their files as they go into the tree, with both variants in them.

Hunks are placed, and verdicts given, on the plain rendering, as everywhere. Beside it the stack is rendered once more
with every guard patch on; what each patch makes of a file there is a step, and the file's content is put together from
its steps (patchkit.config.guard_files), verified for all settings. Pure: records in, files and problems out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from patchkit.config.autoconf import MODULE
from patchkit.config.supply import C_SUFFIXES
from patchkit.decision import Decision
from patchkit.errors import UnsafePathError
from patchkit.generated import Generated
from patchkit.left_out import guarded_reason, unset_reason
from patchkit.overlay import Overlay
from patchkit.receipt import Receipt
from patchkit.record import dataclass, replace
from patchkit.stack import Rendering, WantedLayer, WantedPatch, is_guard, render_stack, restated_from_cut
from patchkit.target import TargetTree
from patchkit.travelling import PLACE
from patchkit.tree import Entries, Kind, TreeEntry, path_of
from patchkit.version import VERSION

if TYPE_CHECKING:
    from patchkit.config.guard_files import GuardedFile
    from patchkit.config.guard_settle import Terms


Step = tuple[WantedPatch, str, "TreeEntry | None"]
"""A patch, the symbol whose guards switch it ("" for none), and the file after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Guards:
    """The guarded files that stand in a tree: the receipt says what they are made of."""

    receipt: Receipt | None
    entries: Entries

    def find(self, path: str, made_of: str) -> TreeEntry | None:
        """Return the file, None when it is made of something else."""
        if self.receipt is None or (path, made_of) not in self.receipt.guards:
            return None
        try:
            entry = self.entries.get(path_of(path))
        except UnsafePathError:
            return None
        return entry if entry is not None and entry.kind is Kind.FILE else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """A place where no guard can stand: the file is rendered for the present values of these symbols.

    `line` is 0 for the whole file. `guarded` are the symbols of which guards stand elsewhere in it.
    """

    path: str
    line: int
    symbols: tuple[str, ...]
    reason: str
    guarded: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Guarded:
    """The files that guard patches change, as they shall be, and what speaks against it.

    `guards` are their paths with the digest of what they are made of, but for those in which `select` switches
    something: they are made anew. `selected` says of these where and why.
    """

    files: Mapping[PurePosixPath, TreeEntry]
    problems: tuple[str, ...]
    guards: tuple[tuple[str, str], ...] = ()
    selected: tuple[Selected, ...] = ()


def guard_stack(
    layers: tuple[WantedLayer, ...],
    rendering: Rendering,
    *,
    pristine: Entries,
    standing: Guards,
    generated: Generated | None,
    tree: TargetTree,
) -> Guarded:
    """Return the files that the guard patches of a stack change, whether these are switched on or off.

    `rendering` is the plain one; where it is refused there are none. Of a `standing` file that is made of the same only
    the mark of the values changes.
    """
    if rendering.problems or any(decision.refused for decision in rendering.decisions):
        return Guarded(files={}, problems=())
    guards = [patch for layer in layers for patch in layer.patches if _is_guard(patch)]
    if guards and generated is None:
        gates = ", ".join(sorted({f"CONFIG_{patch.config}" for patch in guards}))
        return Guarded(files={}, problems=(f"Toggle: guard needs a Kconfig that defines {gates}: there is none",))
    switched = {id(patch) for patch in guards if not _is_barred(patch, guards, generated)}
    if not switched or generated is None:
        return Guarded(files={}, problems=())
    recorder = _Recorder(switched)
    on = _all_on(layers, switched)
    whole = render_stack(pristine, on, pristine=pristine, watch=recorder.watch)
    problems = [_unfit(decision, on) for decision in whole.decisions if decision.refused]
    plain = dict(rendering.files)
    made = {
        path: _standing_file(
            _File(path, before := pristine.get(path_of(path)), recorder.steps[path], plain.get(path, before)),
            standing,
            generated,
            tree,
        )
        for path in (sorted(recorder.guarded) if not problems else ())
    }
    problems += [problem for one in made.values() for problem in one.problems]
    return Guarded(
        files={path_of(path): one.entry for path, one in made.items() if one.entry is not None},
        problems=tuple(problems),
        guards=tuple((path, one.made_of) for path, one in made.items() if one.entry is not None and one.made_of),
        selected=tuple(place for one in made.values() for place in one.selected),
    )


def _unfit(decision: Decision, layers: tuple[WantedLayer, ...]) -> str:
    from patchkit.unfit import missing_ground

    places = (one for file in decision.files if file.refusal for one in file.placements if one.reason)
    here = [f"patch line {one.hunk.line_number}: {one.reason}" for one in places][:1]
    why = "; ".join((decision.reason, *here, *missing_ground(layers, decision.number, decision.patch)))
    return f"{decision.patch}: does not fit beside the patches with `Toggle: guard`, all of them on: {why}"


class _File(NamedTuple):
    """A file before all patches, what each makes of it, and what plain patching makes with the present values."""

    path: str
    before: TreeEntry | None
    steps: list[Step]
    plain: TreeEntry | None


def _standing_file(file: _File, standing: Guards, generated: Generated, tree: TargetTree) -> _Made:
    """Return the file that stands in the tree with the mark of the values, or a new one where it is made of else."""
    made_of = _digest(file.before, file.steps, generated, tree)
    there = standing.find(file.path, made_of)
    if there is None:
        made = _guard_file(file, generated, tree)
        return made if made.selected else replace(made, made_of=made_of)
    from patchkit.config.guard_constants import remarked

    values = {value.symbol: value.text for value in generated.configuration.values}
    return _Made(entry=replace(there, content=remarked(there.content, values)), made_of=made_of)


def _digest(before: TreeEntry | None, steps: Sequence[Step], generated: Generated, tree: TargetTree) -> str:
    """Return the digest of all that decides about a guarded file, but for the values."""
    entries = [("", before), *((symbol, entry) for _, symbol, entry in steps)]
    states = [
        (symbol, "" if entry is None else f"{entry.state.mode:o} {entry.state.sha256}") for symbol, entry in entries
    ]
    names = sorted(value.symbol for value in generated.configuration.values)
    text = json.dumps([VERSION, str(tree.package), states, sorted(generated.needs), names])
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """What became of a file: None where `select` switches all of it, or where there are problems."""

    entry: TreeEntry | None = None
    problems: tuple[str, ...] = ()
    selected: tuple[Selected, ...] = ()
    made_of: str = ""


def told(layers: Sequence[WantedLayer], selected: Sequence[Selected]) -> tuple[WantedLayer, ...]:
    """Say of guard patches that are off where no guard of theirs stands in the files."""
    if not selected:
        return tuple(layers)
    return tuple(replace(layer, patches=tuple(_told(patch, selected) for patch in layer.patches)) for layer in layers)


def _told(patch: WantedPatch, selected: Sequence[Selected]) -> WantedPatch:
    if patch.enabled or not _is_guard(patch):
        return patch
    paths = tuple(dict.fromkeys(path for pair in patch.paths for path in pair if path))
    here = [one for one in selected if one.path in paths and patch.config in one.symbols]
    without = {one.path for one in here if patch.config not in one.guarded}
    if not here:
        return patch
    if without.issuperset(paths):
        return replace(patch, reason=unset_reason(patch.config))
    places = ", ".join(dict.fromkeys(one.path for one in here))
    return replace(patch, reason=f"{guarded_reason(patch.config)}, but not everywhere in {places}")


def selected_warnings(selected: Sequence[Selected]) -> Iterator[str]:
    """Yield where guard patches have no guards, and are switched by rendering the file anew."""
    for one in selected:
        place = f"{one.path}:{one.line}" if one.line else one.path
        names = ", ".join(f"CONFIG_{symbol}" for symbol in one.symbols)
        verb = "is" if len(one.symbols) == 1 else "are"
        yield f"{place}: {names} {verb} switched as by `Toggle: select`: {one.reason}"


def without_barred(layers: Sequence[WantedLayer], generated: Generated) -> list[WantedLayer]:
    """Say of guard patches that cannot be switched on in this tree that they are not in its files."""
    guards = [patch for layer in layers for patch in layer.patches if _is_guard(patch)]
    barred = {id(patch) for patch in guards if _is_barred(patch, guards, generated)}
    return [
        replace(
            layer,
            patches=tuple(
                replace(patch, reason=unset_reason(patch.config)) if id(patch) in barred else patch
                for patch in layer.patches
            ),
        )
        for layer in layers
    ]


def _is_barred(patch: WantedPatch, guards: Sequence[WantedPatch], generated: Generated | None) -> bool:
    """Tell whether a patch is off and stands on one that no guard switches, which is off too: it may not even fit."""
    if patch.enabled or generated is None:
        return False
    on = {value.symbol for value in generated.configuration.values if value.text == "y"}
    switched = {guard.config for guard in guards}
    return any(gate == patch.config and needed not in on | switched for gate, needed in generated.needs)


def _is_guard(patch: WantedPatch) -> bool:
    """Tell whether a patch is switched by guards, and not left out for another reason than its toggle."""
    if not patch.config or patch.retired:
        return False
    if not patch.enabled and not patch.reason.startswith(unset_reason(patch.config)):
        return False
    return is_guard(patch)


def _all_on(layers: tuple[WantedLayer, ...], switched: set[int]) -> tuple[WantedLayer, ...]:
    """Return the layers with these patches on, by id, and take note of the ids that they have then."""
    return tuple(replace(layer, patches=_patches_on(layer, switched)) for layer in layers)


def _patches_on(layer: WantedLayer, switched: set[int]) -> tuple[WantedPatch, ...]:
    off = [id(patch) in switched and not patch.enabled for patch in layer.patches]
    patches = tuple(
        replace(patch, enabled=True, reason="") if is_off else patch
        for patch, is_off in zip(layer.patches, off, strict=True)
    )
    if layer.placed and any(off):  # they stand as they were placed, where other patches were off
        patches = restated_from_cut(patches)
    switched.update(id(new) for old, new in zip(layer.patches, patches, strict=True) if id(old) in switched)
    return patches


class _Recorder:
    """What each patch makes of each file, in order; `guarded` are the paths that guard patches change."""

    def __init__(self, switched: set[int]) -> None:
        self._switched = switched
        self._alive: list[WantedPatch] = []  # ids hold only as long as the patches do
        self.guarded: set[str] = set()
        self.steps: dict[str, list[Step]] = {}

    def watch(self, patch: WantedPatch, overlay: Overlay) -> None:
        """Take note of a patch that was put on the overlay."""
        self._alive.append(patch)
        symbol = patch.config if id(patch) in self._switched else ""
        for path in dict.fromkeys(path for pair in patch.paths for path in pair if path):
            self.steps.setdefault(path, []).append((patch, symbol, overlay.lookup(path)))
            if symbol:
                self.guarded.add(path)


def _guard_file(file: _File, generated: Generated, tree: TargetTree) -> _Made:
    """Return the file with all variants in it, or why that cannot be."""
    path, before, steps, plain = file
    entries = [entry for _, _, entry in steps]
    if before is None:  # it comes with the first patch, and stands there whatever the toggle says
        before, steps = entries[0], steps[1:]
    known = [entry for entry in (before, *entries) if entry is not None and entry.kind is Kind.FILE]
    if before is None or len(known) <= len(entries):
        return _whole(path, steps, f"{_name(steps)} takes it away, moves it or makes a link of it")
    if len({entry.mode for entry in known}) > 1:
        return _whole(path, steps, f"{_name(steps)} changes its mode")
    suffix = PurePosixPath(path).suffix
    if not steps and suffix != ".py":
        return _Made(entry=before)
    if suffix != ".py" and suffix not in C_SUFFIXES:
        return _whole(path, steps, "no guard can stand in it")
    from patchkit.config.guard_files import guard_c, guard_python
    from patchkit.config.guard_settle import GuardStep

    guard = guard_python if suffix == ".py" else guard_c
    made = [GuardStep(symbol=symbol, content=entry.content) for _, symbol, entry in steps if entry is not None]
    guarded = guard(before.content, made, _terms(generated, tree), None if plain is None else plain.content)
    if guarded.content is None:
        if all(refusal.by_select for refusal in guarded.refusals):
            return _whole(path, steps, "; ".join(dict.fromkeys(one.reason for one in guarded.refusals)))
        return _Made(problems=tuple(_refusals(path, guarded)))
    there = frozenset(symbol for region in guarded.regions for symbol in region.symbols)
    return _Made(
        entry=TreeEntry(kind=Kind.FILE, mode=before.mode, content=guarded.content),
        selected=tuple(
            Selected(path=path, line=one.line, symbols=one.symbols, reason=one.reason, guarded=there)
            for one in guarded.selected
        ),
    )


def _whole(path: str, steps: list[Step], reason: str) -> _Made:
    symbols = tuple(dict.fromkeys(symbol for _, symbol, _ in steps if symbol))
    return _Made(selected=(Selected(path=path, line=0, symbols=symbols, reason=reason),))


def _terms(generated: Generated, tree: TargetTree) -> Terms:
    from patchkit.config.guard_settle import Terms

    values = {value.symbol: value.text for value in generated.configuration.values}
    needs: dict[str, frozenset[str]] = {}
    for symbol, needed in generated.needs:
        needs[symbol] = needs.get(symbol, frozenset()) | {needed}
    return Terms(
        module=f"{tree.package.name}.{PLACE}.{MODULE}", needs=needs, values=values, constants=frozenset(values)
    )


def _refusals(path: str, guarded: GuardedFile) -> Iterator[str]:
    for refusal in guarded.refusals:
        place = f"{path}:{refusal.line}" if refusal.line else path
        names = ", ".join(f"CONFIG_{symbol}" for symbol in refusal.symbols)
        yield f"{place}: {names or 'the file'} cannot be guarded here: {refusal.reason}; `Toggle: select` can switch it"


def _name(steps: list[Step]) -> str:
    return next((patch.name for patch, symbol, _ in steps if symbol), "a patch")
