"""What may help where a plan is refused: what the user probably meant, said beside the verdicts."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.asking import Asked, Request, named_series
from patchkit.decision import Outcome
from patchkit.diff.parse import parse_patch
from patchkit.errors import PatchkitError
from patchkit.plan import Plan, Situation
from patchkit.receipt import Origin
from patchkit.series import PatchEntry, applies, retired
from patchkit.stacking import Editing, find_edits
from patchkit.strip import file_paths, find_map
from patchkit.unfit import mend
from patchkit.wanted import TreeNames

_Named = tuple[str, str]  # a patch by its layer's name and its own


def advise(plan: Plan, asked: Asked, request: Request, situation: Situation) -> Iterator[str]:
    """Yield advice for a refused plan."""
    yield from _cut_on_release(plan, asked)
    off, refused = _off_and_refused(plan)
    if off and refused:
        yield from _switched_off_below(plan, asked, off, refused)
        yield from _switched_off_beside(plan, asked, off, refused)
    if request.terms.strip is not None:
        yield from _other_strip(plan, request, situation)


def _cut_on_release(plan: Plan, asked: Asked) -> Iterator[str]:
    """Name the patches of a user's series that meet the shipped one, and were cut without it."""
    shipped = [layer for layer in plan.layers if layer.origin is Origin.SHIPPED]
    patches = [patch for layer in shipped for patch in layer.patches if patch.enabled]
    below = {path for patch in patches for pair in patch.paths for path in pair}
    users = [one for one in asked.found if one[2] is Origin.USER and not one[1].on_shipped]
    labels = {label for label, _ in named_series(users, plan.tree)}
    for decision in plan.decisions:
        refused = [str(file.path) for file in decision.files if file.refusal and str(file.path) in below]
        if decision.layer in labels and refused:
            yield (
                f"{decision.patch} is cut on the release, and {shipped[0].name} below it changes {refused[0]}: "
                "a series that begins with `series new --on-shipped` may edit its lines; --no-shipped leaves it out"
            )


def _switched_off_below(plan: Plan, asked: Asked, off: set[_Named], refused: set[_Named]) -> Iterator[str]:
    """Name the toggles of the shipped series that take out the lines which refused patches above it edit."""
    shipped = named_series([one for one in asked.found if one[2] is Origin.SHIPPED], plan.tree)
    entries = (one for _, series in shipped for one in series.entries)
    lower = [one for one in entries if applies(one, plan.tree) and not retired(one, plan.tree)]
    users = [one for one in asked.found if one[2] is Origin.USER and one[1].on_shipped]
    for label, series in named_series(users, plan.tree):
        stack = (*lower, *series.entries)
        for edit in find_edits([(entry.patch, entry.strip) for entry in stack]):
            own, other = stack[edit.patch], stack[edit.other]
            is_off = any((below, other.name) in off for below, _ in shipped)
            if edit.other < len(lower) <= edit.patch and is_off and (label, own.name) in refused:
                yield _mend(edit, own, other)


def _switched_off_beside(plan: Plan, asked: Asked, off: set[_Named], refused: set[_Named]) -> Iterator[str]:
    """Name the toggles of a series that take out lines which its refused patches were cut on."""
    for label, series in named_series(asked.found, plan.tree):
        stack = series.entries
        for edit in find_edits([(entry.patch, entry.strip) for entry in stack]):
            own, other = stack[edit.patch], stack[edit.other]
            if (label, own.name) in refused and (label, other.name) in off:
                yield _mend(edit, own, other)


def _off_and_refused(plan: Plan) -> tuple[set[_Named], set[_Named]]:
    """Return layer and name of the patches whose toggles are off, and of those that may have needed them.

    Where guards cannot be made, that may be for a patch whose lines are there without it.
    """
    left_out, there = (Outcome.DISABLED, Outcome.GUARDED_OFF), Outcome.UPSTREAMED
    off = {(one.layer, one.patch) for one in plan.decisions if one.outcome in left_out}
    refused = {
        (one.layer, one.patch) for one in plan.decisions if one.refused or (plan.problems and one.outcome is there)
    }
    return off, refused


def _mend(edit: Editing, own: PatchEntry, other: PatchEntry) -> str:
    return mend(edit, (own.name, own.trailers.config), (other.name, other.trailers.config))


def _other_strip(plan: Plan, request: Request, situation: Situation) -> Iterator[str]:
    """Say which strip level would have been found for a diff of which nothing is in the tree at the one given."""
    names = TreeNames(situation.entries, situation.pristine)
    lost = {one.patch for one in plan.decisions if one.files and all(file.path is None for file in one.files)}
    for path, raw in request.patches:
        if path.name not in lost:
            continue
        patch = parse_patch(raw, source=str(path))
        try:
            found = find_map(patch, situation.tree, names.exist, strip=None)
        except PatchkitError:  # nothing fits, and this is only advice
            continue
        if any(any(map(names.exist, filter(None, file_paths(file, found, names.exist)))) for file in patch.files):
            yield f"{path.name}: without --strip {request.terms.strip} its files are found with {found.words}"
