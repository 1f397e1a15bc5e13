"""The acts of a user, from records to records: plan, apply, revert. Nothing here prints or asks the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath

from patchkit.applied import forgotten
from patchkit.asking import Asked, Request, followed, merged_configuration, wanted_layers
from patchkit.compose import Composition, put_layers, take_layers, take_patch
from patchkit.decision import Outcome
from patchkit.drift import check_workable
from patchkit.errors import TreeChangedError, UsageError
from patchkit.following import compile_anew, generated_files, is_stale
from patchkit.generated import Generated, generated_again
from patchkit.kept_patches import KeptPatches
from patchkit.left_out import TAKEN_OUT
from patchkit.plan import Plan, Situation, make_plan
from patchkit.preflight import foresee_refusals
from patchkit.receipt import AppliedLayer, Origin, Receipt
from patchkit.record import dataclass, replace
from patchkit.session import Session, Standing
from patchkit.state import StateDirectory
from patchkit.target import TargetTree
from patchkit.toggles import Settled
from patchkit.transaction import commit
from patchkit.tree import Kind, TreeEntry
from patchkit.version import VERSION
from patchkit.wanted import Terms


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What an act came to. `changed` is False when there was nothing to do, or when the plan was refused."""

    plan: Plan
    changed: bool
    warnings: tuple[str, ...]


def plan_request(session: Session, request: Request) -> Plan:
    """Decide what applying the request would do. Raises TreeChangedError for a tree that drifted or is half done."""
    check_workable(session)
    replaced = session.condition.standing is Standing.REPLACED
    situation, request = followed(_afresh(session.situation) if replaced else session.situation, request)
    asked = wanted_layers(situation, request)
    composition = _put(situation, asked, session.state)
    plan = _plan(situation, composition, request.terms, asked.settled, check_all_syntax=request.check_all_syntax)
    if not replaced:
        plan = replace(plan, warnings=(*_called_anew(session.situation.receipt, situation.receipt), *plan.warnings))
    if plan.refused:
        from patchkit.advice import advise

        plan = replace(plan, warnings=(*plan.warnings, *advise(plan, asked, request, situation)))
    if replaced and (plan.edits or plan.layers):
        return replace(plan, warnings=(_forgotten(session), *plan.warnings))
    return plan


def _called_anew(before: Receipt | None, now: Receipt | None) -> Iterator[str]:
    """Say which layers have another name than the receipt has."""
    for old, new in zip(before.layers if before else (), now.layers if now else (), strict=True):
        if old.name != new.name:
            yield f"layer {old.number} {old.name} is called {new.name} from now on: that directory has its patches"


def _forgotten(session: Session) -> str:
    """Say where the state of the installation that is gone goes, and what it had: nothing of it is asked for again."""
    from patchkit.history import next_place

    receipt, place = session.situation.receipt, next_place(session.state).relative_to(session.state.root)
    layers = () if receipt is None else receipt.layers
    settings = () if receipt is None else receipt.configuration
    had = (
        *(f"layer {layer.number} {layer.name} ({layer.origin.value})" for layer in layers),
        *(f"CONFIG_{symbol}={value}" for symbol, value in settings),
    )
    return (
        f"a reinstall replaced what was patched; apply archives the old state to {place}, which had "
        f"{', '.join(had) or 'no layer'}: name again what shall come back"
    )


def foresee(session: Session, plan: Plan) -> Plan:
    """Add to a plan what would refuse it when it is written: rights, mounts, links, as far as they show now."""
    if plan.refused or not plan.edits:
        return plan
    stored = session.situation.receipt if session.condition.standing is not Standing.REPLACED else None
    problems = foresee_refusals(
        session.state, plan.edits, stored=stored, removals=plan.removals, pristine=dict(plan.pristine)
    )
    return replace(plan, problems=(*plan.problems, *problems))


def apply_request(session: Session, request: Request, *, now: str, epoch: int | None) -> Result:
    """Apply a request, all or nothing. `now` is the UTC time for the receipt, `epoch` SOURCE_DATE_EPOCH or None."""
    plan = plan_request(session, request)
    if plan.refused:
        return Result(plan=plan, changed=False, warnings=())
    replaced = session.condition.standing is Standing.REPLACED
    if replaced and (plan.edits or plan.layers):
        from patchkit.history import archive_state

        archive_state(session.state)
    if not changes_anything(session, plan):
        return Result(plan=plan, changed=False, warnings=())
    warnings = _carry_out(session.state, plan, now=now, epoch=epoch)
    return Result(plan=plan, changed=True, warnings=warnings)


def changes_anything(session: Session, plan: Plan) -> bool:
    """Tell whether there is anything to do: without a file to edit, the receipt or what it shows may be another."""
    situation = _afresh(session.situation) if session.condition.standing is Standing.REPLACED else session.situation
    return not _is_done(plan, situation) or is_stale(session.state, plan)


def revert_layers(
    session: Session,
    *,
    patch: str,
    layer: int | None,
    now: str,
    epoch: int | None,
    save_edits: Callable[[bytes], None] | None = None,
) -> Result:
    """Take out everything, one layer by number, or one patch by name; the rest is rendered again, or the act refused.

    A tree that drifted is refused unless `save_edits` is given: it gets the edits as a diff, b"" for none, before
    anything is written.
    """
    drifted = session.condition.standing is Standing.DRIFTED
    if save_edits is None or not drifted:
        check_workable(session, patch=patch, layer=layer)
    if session.condition.standing is Standing.REPLACED:
        raise TreeChangedError(
            "nothing to revert: a reinstall replaced the patched files",
            why=session.condition.reason,
            hint="apply starts afresh; the state of the old installation is then kept in .patchkit as an archive",
        )
    composition = _taken(session, patch, layer)
    plan = _plan(session.situation, composition, Terms(), check_all_syntax=False)
    if plan.refused:
        return Result(plan=plan, changed=False, warnings=())
    if save_edits is not None:
        save_edits(_edits_diff(session) if drifted else b"")
    if not composition.changed:
        return Result(plan=plan, changed=False, warnings=())
    out_too = tuple(forgotten(composition.layers, plan.layers, plan.decisions))
    warnings = _carry_out(session.state, plan, now=now, epoch=epoch)
    return Result(plan=plan, changed=True, warnings=(*out_too, *warnings))


def _edits_diff(session: Session) -> bytes:
    """Return what was edited by hand since patchkit wrote the files: from the stack rendered again to what is there."""
    from patchkit.diff.produce import produce_diff

    situation = session.situation
    whole = take_layers(situation, frozenset(), KeptPatches(session.state.patches).read)
    before: dict[PurePosixPath, TreeEntry] = {}
    after: dict[PurePosixPath, TreeEntry] = {}
    for edit in _plan(situation, whole, Terms(), check_all_syntax=False).edits:  # what would undo the edits
        now = situation.entries.get(edit.path)
        if now is not None and now.kind not in (Kind.FILE, Kind.SYMLINK):
            raise TreeChangedError(
                f"{edit.path}: a {now.kind.value} stands in the place of a patched file",
                why="a diff cannot hold it",
                hint="move it away, then revert",
            )
        if edit.after is not None and edit.content is not None:
            before[edit.path] = TreeEntry(kind=edit.after.kind, mode=edit.after.mode, content=edit.content)
        if now is not None:
            after[edit.path] = now
    return produce_diff(before, after)


def _put(situation: Situation, asked: Asked, state: StateDirectory) -> Composition:
    """Compose the stack. Where a configuration changes, or stays in a stack that does, files are made from pristine."""
    before = situation.receipt.resolved if situation.receipt is not None else ()
    after = asked.settled.generated.resolved if asked.settled is not None else before
    stored = KeptPatches(state.patches).read
    composition = put_layers(situation, asked.layers, stored, afresh=bool(before or after))
    if before != after and composition.kept:
        whole = take_layers(situation, frozenset(), stored)
        return replace(whole, layers=(*whole.layers, *composition.layers), changed=True)
    return composition


def _plan(
    situation: Situation,
    composition: Composition,
    terms: Terms,
    settled: Settled | None = None,
    *,
    check_all_syntax: bool,
) -> Plan:
    tree = situation.tree
    merged = {symbol: assignment.value for symbol, assignment in merged_configuration(situation, terms).items()}
    generated = settled.generated if settled is not None else _generated_again(situation, composition)
    return make_plan(
        situation,
        composition.layers,
        kept=composition.kept,
        configuration=tuple(sorted(merged.items())) if settled is None else settled.requests,
        warnings=() if settled is None else settled.warnings,
        generated=generated,
        check_syntax=partial(_check_syntax, tree),
        check_all_syntax=check_all_syntax,
    )


def _generated_again(situation: Situation, composition: Composition) -> Generated | None:
    """Return the configuration that stays in a tree as long as a series does."""
    origins = {*(layer.origin for layer in composition.kept), *(layer.origin for layer in composition.layers)}
    if situation.receipt is None or not origins - {Origin.AD_HOC}:
        return None
    return generated_again(situation.receipt)


def _check_syntax(tree: TargetTree, files: Mapping[PurePosixPath, tuple[bytes, bytes]]) -> Mapping[PurePosixPath, str]:
    from patchkit.syntax import check_syntax

    return check_syntax(files, python=tree.python, python_version=tree.python_version)


def _taken(session: Session, patch: str, layer: int | None) -> Composition:
    there = session.situation.receipt.layers if session.situation.receipt is not None else ()
    stored = KeptPatches(session.state.patches).read
    if layer is not None:
        _known_layer(layer, there)
        return take_layers(session.situation, {layer}, stored)
    if not patch:
        return take_layers(session.situation, {one.number for one in there}, stored)
    found = [one for one in there if patch in (one.name, *(own.name for own in one.patches if own.enabled))]
    if len(found) != 1:
        names = [own.name for one in there for own in one.patches if own.enabled]
        raise UsageError(
            f"{patch}: {'in several layers' if found else 'not applied to this tree'}",
            why=f"applied are: {', '.join(names) or 'none'}",
            hint=f"{_meant(patch, names)}`patchkit status` lists the layers; --layer N takes one of them",
        )
    if found[0].origin is Origin.AD_HOC or found[0].name == patch:
        return take_layers(session.situation, {found[0].number}, stored)
    return take_patch(session.situation, found[0].number, patch, stored)


def _meant(patch: str, names: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = [name for name in names if name.startswith(f"{patch}.")] or get_close_matches(patch, names, 1)
    return f"did you mean {near[0]}? " if near and patch not in names else ""


def _known_layer(number: int, there: tuple[AppliedLayer, ...]) -> None:
    if number not in {one.number for one in there}:
        numbers = ", ".join(f"{one.number} ({one.name})" for one in there) or "none"
        raise UsageError(f"no layer {number} in this tree", why=f"applied are: {numbers}")


def _carry_out(state: StateDirectory, plan: Plan, *, now: str, epoch: int | None) -> tuple[str, ...]:
    """Write the plan and return warnings; the bytecode that was there is made anew by the tree's interpreter."""
    receipt = _receipt(plan, now) if plan.layers else None
    report = commit(
        state,
        edits=plan.edits,
        receipt=receipt,
        pristine=dict(plan.pristine) if receipt is not None else {},
        patches=dict(plan.patches) if receipt is not None else {},
        removals=plan.removals,
        record_epoch=epoch,
        generated=generated_files(plan),
    )
    return (*report.warnings, *compile_anew(plan, report.bytecode, epoch))


def _is_done(plan: Plan, situation: Situation) -> bool:
    there = situation.receipt.layers if situation.receipt is not None else ()
    return not plan.edits and plan.layers == there


def _receipt(plan: Plan, now: str) -> Receipt:
    return Receipt(
        engine=plan.tree.engine,
        version=plan.tree.version,
        distribution=plan.tree.distribution,
        record_sha256=plan.record_sha256,
        layers=tuple(replace(layer, applied_at=layer.applied_at or now) for layer in plan.layers),
        configuration=plan.configuration,
        files=plan.files,
        directories=plan.directories,
        plan_sha256=plan.sha256,
        tool_version=VERSION,
        resolved=plan.generated.resolved if plan.generated is not None else (),
        needs=plan.generated.needs if plan.generated is not None else (),
        guards=plan.guards,
    )


def _afresh(situation: Situation) -> Situation:
    """Forget the receipt of an installation that is gone."""
    return Situation(tree=situation.tree, entries=situation.entries, receipt=None, pristine=situation.entries)


def missing_from(session: Session, request: Request) -> tuple[str, ...]:
    """Return what the request asks for and the tree does not have, in words; nothing when apply has nothing to do.

    A patch that the receipt says was taken out is missing as well, whoever asks.
    """
    if session.condition.standing not in (Standing.PATCHED, Standing.UNPATCHED):
        return (session.condition.reason,)
    situation = session.situation
    there = situation.receipt.layers if situation.receipt is not None else ()
    gone = tuple(
        f"{layer.name}: {patch.name} was taken out"
        for layer in there
        for patch in layer.patches
        if patch.reason == TAKEN_OUT
    )
    situation, request = followed(situation, request)
    asked = wanted_layers(situation, request)
    composition = _put(situation, asked, session.state)
    if gone or not composition.changed:
        return gone
    plan = _plan(situation, composition, request.terms, asked.settled, check_all_syntax=False)
    if not plan.refused and _is_done(plan, situation):
        return ()
    done = (Outcome.ALREADY_APPLIED, Outcome.UPSTREAMED, Outcome.RETIRED, Outcome.DISABLED, Outcome.GUARDED_OFF)
    return tuple(
        f"{decision.layer}: {decision.patch} is not applied"
        for decision in plan.decisions
        if decision.outcome not in done
    ) or tuple(_differing(plan, there))


def _differing(plan: Plan, there: tuple[AppliedLayer, ...]) -> Iterator[str]:
    """Say how the stack is another than asked for, though every patch that is asked for is in it."""
    standing = {(layer.origin, layer.name): layer for layer in there}
    names = " and ".join(f"layer {layer.number} {layer.name}" for layer in there) or "no layer"
    for layer in plan.layers:
        known = standing.get((layer.origin, layer.name))
        if known is None:
            words = "; a directory is known by its name" if layer.origin is Origin.USER else ""
            yield f"layer {layer.name} ({layer.origin.value}) is not in the tree, which has {names}{words}"
        elif known != layer:
            yield f"layer {layer.number} {layer.name}: its patches are others than those in the tree"
    if plan.layers == there:
        yield "the configuration in the tree is another than asked for"
