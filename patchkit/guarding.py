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
from typing import TYPE_CHECKING

from patchkit.config.autoconf import MODULE
from patchkit.config.supply import C_SUFFIXES
from patchkit.errors import UnsafePathError
from patchkit.generated import Generated
from patchkit.overlay import Overlay
from patchkit.receipt import Receipt
from patchkit.record import dataclass, replace
from patchkit.stack import Rendering, WantedLayer, WantedPatch, guarded_reason, render_stack, unset_reason
from patchkit.target import TargetTree
from patchkit.trailers import Toggle, parse_trailers
from patchkit.travelling import PLACE
from patchkit.tree import Entries, Kind, TreeEntry, path_of
from patchkit.version import VERSION

if TYPE_CHECKING:
    from patchkit.config.guard_files import GuardedFile, Terms


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
class Guarded:
    """The files that guard patches change, as they shall be, and what speaks against it.

    `guards` are their paths with the digest of what they are made of; the values are part of it only where some
    lines are those of the present values.
    """

    files: Mapping[PurePosixPath, TreeEntry]
    problems: tuple[str, ...]
    guards: tuple[tuple[str, str], ...] = ()


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
    whole = render_stack(pristine, _all_on(layers, switched), pristine=pristine, watch=recorder.watch)
    problems = [
        f"{decision.patch}: does not fit beside the patches with `Toggle: guard`, all of them on: {decision.reason}"
        for decision in whole.decisions
        if decision.refused
    ]
    files: dict[PurePosixPath, TreeEntry] = {}
    made_of_all = []
    for path in sorted(recorder.guarded) if not problems else ():
        before, steps = pristine.get(path_of(path)), recorder.steps[path]
        made_of = _digest(before, steps, generated, tree)
        with_values = _with_values(made_of, steps, generated)
        there = _standing(path, standing, (made_of, with_values), generated)
        made = there or _guard_file(path, before, steps, generated, tree)
        if isinstance(made, _Made):
            files[path_of(path)] = made.entry
            made_of_all.append((path, with_values if made.settled else made_of))
        else:
            problems += made
    return Guarded(files=files, problems=tuple(problems), guards=tuple(made_of_all))


def _digest(before: TreeEntry | None, steps: Sequence[Step], generated: Generated, tree: TargetTree) -> str:
    """Return the digest of all that decides about a guarded file, but for the values."""
    entries = [("", before), *((symbol, entry) for _, symbol, entry in steps)]
    states = [
        (symbol, "" if entry is None else f"{entry.state.mode:o} {entry.state.sha256}") for symbol, entry in entries
    ]
    names = sorted(value.symbol for value in generated.configuration.values)
    text = json.dumps([VERSION, str(tree.package), states, sorted(generated.needs), names])
    return hashlib.sha256(text.encode()).hexdigest()


def _with_values(made_of: str, steps: Sequence[Step], generated: Generated) -> str:
    """Return the digest for a file in which some lines are those of the present values."""
    values = {value.symbol: value.text for value in generated.configuration.values}
    text = json.dumps([made_of, sorted({(symbol, values.get(symbol, "")) for _, symbol, _ in steps if symbol})])
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """A guarded file. `settled`: some of its lines are those of the present values, other values make another file."""

    entry: TreeEntry
    settled: bool = False


def _standing(path: str, standing: Guards, digests: tuple[str, str], generated: Generated) -> _Made | None:
    """Return a file that stands in the tree with the mark of the values; `digests` are those without and with them."""
    there = next((entry for one in digests if (entry := standing.find(path, one)) is not None), None)
    if there is None:
        return None
    from patchkit.config.guard_constants import remarked

    values = {value.symbol: value.text for value in generated.configuration.values}
    entry = TreeEntry(kind=Kind.FILE, mode=there.mode, content=remarked(there.content, values))
    return _Made(entry=entry, settled=standing.find(path, digests[0]) is None)


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
    if not patch.enabled and patch.reason not in (unset_reason(patch.config), guarded_reason(patch.config)):
        return False
    return parse_trailers(patch.patch.preamble, source=patch.name).toggle is Toggle.GUARD


def _all_on(layers: tuple[WantedLayer, ...], switched: set[int]) -> tuple[WantedLayer, ...]:
    return tuple(
        replace(
            layer,
            patches=tuple(
                _switched_on(patch, recorded=switched) if id(patch) in switched else patch for patch in layer.patches
            ),
        )
        for layer in layers
    )


def _switched_on(patch: WantedPatch, *, recorded: set[int]) -> WantedPatch:
    on = patch if patch.enabled else replace(patch, enabled=True, reason="")
    recorded.add(id(on))
    return on


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


def _guard_file(
    path: str,
    before: TreeEntry | None,
    steps: list[Step],
    generated: Generated,
    tree: TargetTree,
) -> _Made | list[str]:
    """Return the file with all variants in it, or why that cannot be."""
    entries = [entry for _, _, entry in steps]
    if before is None:  # it comes with the first patch, and stands there whatever the toggle says
        before, steps = entries[0], steps[1:]
    known = [entry for entry in (before, *entries) if entry is not None and entry.kind is Kind.FILE]
    if before is None or len(known) <= len(entries):
        return [f"{path}: {_name(steps)} takes it away, moves it or makes a link of it: let it be `Toggle: select`"]
    if len({entry.mode for entry in known}) > 1:
        return [f"{path}: {_name(steps)} changes its mode: let it be `Toggle: select`"]
    suffix = PurePosixPath(path).suffix
    if not steps and suffix != ".py":
        return _Made(entry=before)
    if suffix != ".py" and suffix not in C_SUFFIXES:
        return [f"{path}: no guard can stand in it: let {_name(steps)} be `Toggle: select`"]
    from patchkit.config.guard_files import GuardStep, guard_c, guard_python

    guard = guard_python if suffix == ".py" else guard_c
    made = [GuardStep(symbol=symbol, content=entry.content) for _, symbol, entry in steps if entry is not None]
    guarded = guard(before.content, made, _terms(generated, tree))
    if guarded.content is None:
        return list(_refusals(path, guarded))
    return _Made(
        entry=TreeEntry(kind=Kind.FILE, mode=before.mode, content=guarded.content), settled=bool(guarded.selected)
    )


def _terms(generated: Generated, tree: TargetTree) -> Terms:
    from patchkit.config.guard_files import Terms

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
