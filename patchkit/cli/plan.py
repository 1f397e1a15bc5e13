"""`patchkit plan`: what apply would do."""

from __future__ import annotations

from typing import Any

import click

from patchkit.cli.options import Choice, json_option, make_request, request_options, select_tree, tree_options
from patchkit.cli.show import edit_words, next_step, plan_document, show_plan
from patchkit.errors import ExitStatus
from patchkit.output import Output
from patchkit.session import open_session
from patchkit.workflow import changes_anything, foresee, plan_request


@click.command("plan", short_help="What apply would do. Writes nothing.")
@tree_options
@request_options
@click.option("--verbose", "-v", is_flag=True, help="Show every file and hunk, also the exact ones.")
@json_option
def command(*, choice: Choice, asked: dict[str, Any], verbose: bool, output: Output) -> int:
    """Show the verdict of every hunk and patch; write nothing. The exit status is the one that apply would have.

    \b
    Examples:
      patchkit plan --target vllm==0.6.3
      patchkit plan --target sglang --patch pr-1234.diff --package-only
      patchkit plan --target vllm==0.6.3 --fetch ./wheels --json
    """
    tree = select_tree(choice, output, asked)
    request = make_request(asked, tree)
    with open_session(tree, write=False, say=output.note) as session:
        plan = foresee(session, plan_request(session, request))
        changes = not plan.refused and changes_anything(session, plan)
    status = ExitStatus.REFUSED if plan.refused else ExitStatus.DONE
    if output.machine:
        output.document({**plan_document(plan, status=status, then=next_step(plan)), "changes": changes})
        return status
    show_plan(plan, output, verbose=verbose)
    if plan.refused:
        output.line("apply would refuse; nothing would be written", style="bad")
        output.next_step(next_step(plan))
    else:
        output.line(f"apply would change {edit_words(plan)}" if changes else "nothing to do", style="good")
    return status
