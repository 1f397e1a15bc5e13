"""Another configuration for a tree that is patched: only what stands in it is rendered again, on its own terms."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from patchkit.asking import Request, followed, label_of, series_of
from patchkit.drift import check_workable
from patchkit.errors import RefusedError
from patchkit.left_out import TAKEN_OUT
from patchkit.plan import Plan, Situation
from patchkit.receipt import Origin, Receipt
from patchkit.record import dataclass, replace
from patchkit.series import Series
from patchkit.session import Session
from patchkit.toggles import usage_of
from patchkit.workflow import Result, apply_request


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A symbol that has another value. "" before or after: it was not there, or has no value. `origin`: why now."""

    symbol: str
    before: str
    after: str
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconfigured:
    """What another configuration came to. `rebuild` are changed symbols whose patches change what is compiled."""

    result: Result
    changes: tuple[Change, ...]
    rebuild: tuple[str, ...]


def standing_request(situation: Situation, request: Request) -> tuple[Request, tuple[Series, ...]]:
    """Return the part of a request that is on the tree, and its series: nothing new comes with another configuration.

    Raises RefusedError when no series of the request is on the tree.
    """
    situation, request = followed(situation, replace(request, lenient=True))
    layers = situation.receipt.layers if situation.receipt is not None else ()
    standing = {(layer.origin, layer.name): layer for layer in layers}
    found = [
        (directory, series, origin, standing.get((origin, label_of(directory, series, origin, situation.tree))))
        for directory, series, origin in series_of(request, situation.tree)
    ]
    there = [(directory, series, origin, layer) for directory, series, origin, layer in found if layer is not None]
    if not there:
        tree = situation.tree
        names = ", ".join(layer.name for layer in layers if layer.origin is not Origin.AD_HOC)
        raise RefusedError(
            f"{tree.engine} {tree.version} in {tree.root}: none of these series is applied",
            why=f"applied are: {names}" if names else "it is not patched: there is nothing to configure",
            hint="name the directory of an applied series with --patches"
            if names
            else "`patchkit apply` takes the same settings with --set and --config",
        )
    part = replace(
        request,
        shipped=request.shipped if any(origin is Origin.SHIPPED for _, _, origin, _ in there) else None,
        directories=tuple(directory for directory, _, origin, _ in there if origin is Origin.USER),
        patches=(),
        lenient=False,
        taken_stays=True,
        found=tuple((directory, series, origin) for directory, series, origin, _ in there),
        terms=replace(request.terms, package_only=True, unlocked=not all(layer.locked for *_, layer in there)),
    )
    return part, tuple(series for _, series, _, _ in there)


def reconfigure(session: Session, request: Request, *, now: str, epoch: int | None) -> Reconfigured:
    """Give the series that are on a tree another configuration, in one transaction; nothing else changes."""
    check_workable(session)
    situation = session.situation
    standing, series = standing_request(situation, request)
    usage = usage_of(series, situation.tree)
    before = situation.receipt
    result = apply_request(session, standing, now=now, epoch=epoch)
    changed = tuple(_changes(before, result.plan))
    warnings = (*result.plan.warnings, *_without_patch(changed, result.plan))
    return Reconfigured(
        result=replace(result, plan=replace(result.plan, warnings=warnings)),
        changes=changed,
        rebuild=tuple(one.symbol for one in changed if one.symbol in usage.rebuild),
    )


def _without_patch(changes: Collection[Change], plan: Plan) -> Iterator[str]:
    """Yield warnings about symbols that are switched on while a patch of theirs was taken out."""
    on = {change.symbol for change in changes if change.after == "y"}
    for layer in plan.layers:
        for patch in layer.patches:
            if patch.config in on and patch.reason == TAKEN_OUT:
                gate = f"CONFIG_{patch.config}"
                yield f"{patch.name}, which {gate} switches, was taken out: `patchkit apply` brings it back"


def _changes(receipt: Receipt | None, plan: Plan) -> Iterator[Change]:
    """Compare the configuration that a plan brings with that of the tree: derived symbols too."""
    if receipt is None:
        return
    if plan.generated is None:  # a series without Kconfig: what was asked for is all there is
        before, after = dict(receipt.configuration), dict(plan.configuration)
        origins = dict.fromkeys(after, "asked for")
    else:
        configuration = plan.generated.configuration
        before = {name: text for name, _, text in receipt.resolved}
        after = {value.symbol: value.text for value in configuration.values}
        origins = dict(zip(after, configuration.origins, strict=True))
    for symbol, value in sorted(after.items()):
        if before.get(symbol, "") != value:
            yield Change(symbol=symbol, before=before.get(symbol, ""), after=value, origin=origins[symbol])
