"""`patchkit apply`: put a series or a diff on a tree, all or nothing."""

from __future__ import annotations

from typing import Any

import click

from patchkit.cli.options import (
    Choice,
    json_option,
    make_request,
    request_options,
    select_tree,
    source_date_epoch,
    timestamp,
    tree_options,
)
from patchkit.cli.show import edit_words, next_step, result_document, show_plan
from patchkit.errors import ExitStatus
from patchkit.output import Output
from patchkit.session import open_session
from patchkit.workflow import Result, apply_request


@click.command("apply", short_help="Apply a series or a diff, all or nothing.")
@tree_options
@request_options
@json_option
def command(*, choice: Choice, asked: dict[str, Any], output: Output) -> int:
    """Apply the shipped series, your own (--patches), or a diff (--patch), all or nothing.

    A second time there is nothing to do. What is not in the tree (tests, docs, csrc of a pull request's diff) is named,
    and left out only with --package-only.

    \b
    Examples:
      patchkit apply --target vllm==0.6.3
      patchkit apply --target vllm --patches ./our-patches
      patchkit apply --root ./site-packages --patch pr-9034.diff --package-only
    """
    tree = select_tree(choice, output, asked)
    request = make_request(asked, tree)
    epoch = source_date_epoch()
    output.acting = True
    with open_session(tree, write=True, say=output.note) as session:
        result = apply_request(session, request, now=timestamp(epoch), epoch=epoch)
    status = ExitStatus.REFUSED if result.plan.refused else ExitStatus.DONE
    if output.machine:
        output.document(result_document(result, status=status, then=next_step(result.plan)))
        return status
    _show(result, output)
    return status


def _show(result: Result, output: Output) -> None:
    show_plan(result.plan, output)
    for warning in result.warnings:
        output.note(f"warning: {warning}", style="doubt")
    if result.plan.refused:
        output.line("refused: nothing was written", style="bad")
        output.next_step(next_step(result.plan))
    elif result.changed:
        output.line(f"applied: {edit_words(result.plan)} changed", style="good")
    else:
        output.line("nothing to do", style="good")
