"""`patchkit config set`: another configuration for a patched tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit.cli.options import (
    Choice,
    base_option,
    json_option,
    make_request,
    select_tree,
    source_date_epoch,
    timestamp,
    tree_options,
)
from patchkit.cli.show import edit_words, next_step, placements_of, result_document, show_plan
from patchkit.cli.toggling import toggle_options
from patchkit.errors import ExitStatus, UsageError
from patchkit.output import Output, one_line
from patchkit.plan import Plan
from patchkit.reconfigure import Change, Reconfigured, reconfigure
from patchkit.running import processes_with
from patchkit.session import open_session

_LONGEST_COMMAND = 100


@click.command("set", short_help="Change the configuration of a patched tree.")
@click.argument("assignments", nargs=-1, metavar="CONFIG_X=VALUE...")
@tree_options
@toggle_options
@base_option
@json_option
def command(
    *, assignments: tuple[str, ...], base: Path | None, choice: Choice, asked: dict[str, Any], output: Output
) -> int:
    """Change settings of the series that are applied, in one transaction, and show all symbols that change with them.

    Only files of patches whose gate changes are written, and the constants that patched code reads. A setting that
    cannot be as asked for changes nothing. A tree that is not patched has no configuration: give --set to `apply`.

    \b
    Examples:
      patchkit config set CONFIG_QK_SCALE=y CONFIG_QK_SCALE_VALUE=0.5 --target vllm
      patchkit config set CONFIG_X=n --root ./site-packages --patches ./patches
      patchkit config set CONFIG_X=y --patches ./patches --base ./vllm-0.6.3
    """
    if not assignments and not asked["config"] and not asked["settings"]:
        raise UsageError("nothing to set", hint="as in: patchkit config set CONFIG_X=y --target vllm")
    tree = select_tree(choice, output)
    request = make_request({**asked, "base": base, "settings": (*asked["settings"], *assignments)}, tree)
    epoch = source_date_epoch()
    output.acting = True
    with open_session(tree, write=True, say=output.note) as session:
        done = reconfigure(session, request, now=timestamp(epoch), epoch=epoch)
    status = ExitStatus.REFUSED if done.result.plan.refused else ExitStatus.DONE
    if output.machine:
        output.document(_document(done, status))
    else:
        show_change(done, output)
    return status


def show_change(done: Reconfigured, output: Output) -> None:
    """Write which symbols changed, and how many files."""
    plan = done.result.plan
    if plan.refused:
        show_plan(plan, output)
    for warning in (*(() if plan.refused else plan.warnings), *done.result.warnings):  # a plan shows its own
        output.note(f"warning: {warning}", style="doubt")
    for change in done.changes:
        output.line(_words(change))
    for symbol in done.rebuild:
        output.line(f"CONFIG_{symbol}: rebuild: required", style="doubt")
    if plan.refused:
        output.line("refused: nothing was written", style="bad")
        output.next_step(_next_step(plan))
    elif not done.result.changed:
        output.line("nothing to do", style="good")
    else:
        output.line(f"set: {edit_words(plan)} changed", style="good")
        _show_processes(done, output)


def _next_step(plan: Plan) -> str:
    """Return what to do where a patch is refused; `config menu` itself takes no tree that a series was cut against."""
    if any("--base" in text for text in (*plan.problems, *(one.reason for one in placements_of(plan)))):
        return "`patchkit config set` takes it with --base DIR: the tree that the series was cut against"
    return next_step(plan)


def _show_processes(done: Reconfigured, output: Output) -> None:
    """Write which processes have the old values; one may have them that shows nothing of it."""
    output.line("processes that run keep the old values until they are started again")
    for one in processes_with(done.result.plan.tree):
        output.line(f"  {one.pid}: {one_line(one.command)[:_LONGEST_COMMAND]}  ({one.evidence})", style="doubt")


def _words(change: Change) -> str:
    return (
        f"CONFIG_{change.symbol}: {change.before or '(no value)'} -> {change.after or '(no value)'}  ({change.origin})"
    )


def _document(done: Reconfigured, status: int) -> dict[str, object]:
    changed = [
        {"symbol": one.symbol, "before": one.before, "after": one.after, "origin": one.origin} for one in done.changes
    ]
    return {
        **result_document(done.result, status=status, then=_next_step(done.result.plan)),
        "changes": changed,
        "rebuild": list(done.rebuild),
        "processes": [
            {"pid": one.pid, "command": one.command, "evidence": one.evidence}
            for one in (processes_with(done.result.plan.tree) if done.result.changed else ())
        ],
    }
