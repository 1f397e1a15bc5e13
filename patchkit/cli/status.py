"""`patchkit status`: how a tree stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from patchkit.asking import Request, unnamed_with_gaps
from patchkit.audit import Audit, audit_package
from patchkit.cli.lost import lost_receipt
from patchkit.cli.options import (
    Choice,
    given_options,
    json_option,
    make_request,
    request_options,
    select_tree,
    tree_options,
    typed_request,
)
from patchkit.cli.show import layer_lines, status_document, tree_words
from patchkit.counting import counted, counted_of
from patchkit.drift import changed_lines
from patchkit.errors import ExitStatus, TargetError, UsageError, WrongTreeError
from patchkit.generated import Definitions
from patchkit.nearby import place_warnings
from patchkit.output import Output
from patchkit.receipt import Origin, Receipt
from patchkit.remains import find_remains
from patchkit.session import Condition, Session, Standing, open_session
from patchkit.target import TargetTree, parse_target
from patchkit.typed import typed_tree
from patchkit.unnamed import read_definitions
from patchkit.workflow import missing_from

_STATUS = {
    Standing.UNPATCHED: ExitStatus.DONE,
    Standing.PATCHED: ExitStatus.DONE,
    Standing.DRIFTED: ExitStatus.TREE_CHANGED,
    Standing.REPLACED: ExitStatus.TREE_CHANGED,
    Standing.PENDING: ExitStatus.TREE_CHANGED,
}
_APPLICABLE = (Standing.UNPATCHED, Standing.PATCHED, Standing.REPLACED)


@click.command("status", short_help="How a tree stands.")
@tree_options
@request_options
@click.option("--require-applied", is_flag=True, help="Exit 0 only when what the options ask for is wholly there.")
@json_option
def command(*, choice: Choice, asked: dict[str, Any], require_applied: bool, output: Output) -> int:
    """Say whether a tree is as installed, patched (layers, when, configuration), drifted, or replaced by a reinstall.

    With --require-applied, for image builds and start scripts: exit 0 only when the wanted stack (the shipped series,
    or what --patches and --patch name) is wholly in the tree.

    \b
    Examples:
      patchkit status --target vllm
      patchkit status --target vllm==0.6.3 --require-applied
      patchkit status --root ./site-packages --json
    """
    if not require_applied:
        _check_nothing_asked(asked)
    try:
        tree = select_tree(choice, output, asked, plain=not require_applied)
    except TargetError:
        left = _what_is_left(choice)
        if left is None:
            raise
        tree = left
    with open_session(tree, write=False, say=output.note) as session:
        audit = audit_package(tree, session.situation.entries) if session.situation.receipt is None else None
        status = _STATUS[session.condition.standing]
        request = make_request(asked, tree) if require_applied else None
        missing = missing_from(session, request) if request is not None else ()
        if missing and status is ExitStatus.DONE:
            status = ExitStatus.REFUSED
        helps = missing and session.condition.standing in _APPLICABLE
        then = _applying(session, request, asked) if request is not None and helps else ""
        _show(session, audit, status, output, missing=missing if require_applied else None, then=then)
    return status


def _applying(session: Session, request: Request, asked: dict[str, Any]) -> str:
    """Return the command that puts on what is missing; a series that the request does not name is named in it."""
    gaps = unnamed_with_gaps(session.situation, request)
    if any(layer.origin is Origin.SHIPPED for layer in gaps):
        asked = {**asked, "no_shipped": False}
    own = [layer.name for layer in gaps if layer.origin is Origin.USER]
    directories = " --patches DIR" * len(own)
    words = f"`patchkit apply {typed_tree(session.situation.tree)}{typed_request(asked)}{directories}`"
    return f"{words}, DIR for the directory of {', of '.join(own)}" if own else words


def _check_nothing_asked(asked: dict[str, Any]) -> None:
    """Refuse options that would be ignored: somebody counts on an answer to them."""
    given = given_options(asked)
    if given:
        raise UsageError(
            f"{given[0]} goes with --require-applied",
            why="without it `status` says how the tree stands, whatever was asked for",
            hint="add --require-applied, or `patchkit plan` shows what apply would do",
        )


def _what_is_left(choice: Choice) -> TargetTree | None:
    """Return the place of an engine that was uninstalled although it was patched."""
    if not choice.target:
        return None
    return find_remains(parse_target(choice.target, root=choice.root, python=choice.python))


def _show(
    session: Session, audit: Audit | None, status: int, output: Output, *, missing: tuple[str, ...] | None, then: str
) -> None:
    """Write how the tree stands; `missing` is None when nothing was required, `then` what to do about it."""
    situation, condition = session.situation, session.condition
    warnings = [*place_warnings(situation.tree)]
    gone = lost_receipt(session, warnings.append)
    then = then if gone is None else gone.hint
    if output.machine:
        document = {**status_document(situation.tree, condition, situation.receipt), "status": int(status)}
        document["warnings"] = [*warnings, *([f"{gone.what}: {gone.why}"] if gone is not None else ())]
        output.document({**document, "next": then, "audit": _audit_document(audit), "missing": list(missing or ())})
        return
    output.line(tree_words(situation.tree), style="head")
    for warning in warnings:
        output.note(f"warning: {warning}", style="doubt")
    _show_standing(condition, gone, output)
    if situation.receipt is not None:
        for line, style in layer_lines(situation.receipt.layers):
            output.line(line, style=style)
        for line, style in _asked_lines(situation.receipt, read_definitions(session.state)):
            output.line(line, style=style)
    if audit is not None:
        _show_audit(audit, output)
    if missing is not None:
        output.line("required: " + ("applied" if status == ExitStatus.DONE else "NOT applied"), style="head")
        for line in missing:
            output.line(f"  {line}", style="bad")
    output.next_step(then)


def _show_standing(condition: Condition, gone: WrongTreeError | None, output: Output) -> None:
    if gone is not None:
        output.line(gone.what, style="bad")
        output.line(f"  {gone.why}", style="bad")
        return
    bad = condition.standing in (Standing.DRIFTED, Standing.REPLACED, Standing.PENDING)
    output.line(f"{condition.standing.value}: {condition.reason}", style="bad" if bad else "good")
    for line in changed_lines(condition):
        output.line(f"  {line}", style="bad")


def _asked_lines(receipt: Receipt, definitions: Mapping[str, Definitions]) -> Iterator[tuple[str, str]]:
    """Yield (line, style) for what was set, and say where it is not what holds."""
    there = {layer.name for layer in receipt.layers}
    homes: dict[str, list[str]] = {}
    for name, one in definitions.items():
        for symbol in one.symbols:
            homes.setdefault(symbol, []).append(name)
    values = {name: text for name, _, text in receipt.resolved}
    for symbol, asked in receipt.configuration:
        value, home = values.get(symbol, ""), homes.get(symbol, [])
        if home and there.isdisjoint(home):
            yield f"CONFIG_{symbol}={asked} was set; {home[0]}, which has it, was taken out", "dim"
        elif not receipt.resolved or value == asked:
            yield f"CONFIG_{symbol}={asked}", ""
        else:
            yield f"CONFIG_{symbol}={asked} was set; it {f'is {value}' if value else 'has no value'}", "dim"


def _show_audit(audit: Audit, output: Output) -> None:
    rest = "; not compared: other packages' and installers' files, rows without a hash, files above 4 MiB"
    compared = counted_of(audit.compared, audit.listed, "file")
    words = f"{compared} compared with RECORD, {counted(len(audit.edited), 'differs', 'differ')}"
    output.line(f"{words}{rest if audit.compared < audit.listed else ''}")
    for path in audit.edited:
        output.line(f"  not as installed: {path}", style="doubt")


def _audit_document(audit: Audit | None) -> dict[str, object] | None:
    if audit is None:
        return None
    return {"listed": audit.listed, "compared": audit.compared, "edited": [str(path) for path in audit.edited]}
