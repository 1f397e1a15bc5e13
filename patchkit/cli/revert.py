"""`patchkit revert`: take patches out again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from patchkit.cli.lost import lost_receipt
from patchkit.cli.options import Choice, json_option, select_tree, source_date_epoch, timestamp, tree_options
from patchkit.cli.show import edit_words, result_document, show_plan
from patchkit.counting import counted
from patchkit.errors import ExitStatus, UsageError
from patchkit.nearby import misplaced
from patchkit.output import Output
from patchkit.plan import Plan
from patchkit.quoting import typed, typed_path
from patchkit.session import open_session
from patchkit.target import TargetTree
from patchkit.typed import typed_tree
from patchkit.workflow import revert_layers


@click.command("revert", short_help="Take out everything, a layer, or a patch.")
@click.argument("patch", default="")
@click.option("--layer", type=click.IntRange(1), metavar="N", help="Take out this layer; `status` numbers them.")
@click.option(
    "--save-edits",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Revert although files were edited by hand since; the edits are written to FILE as a diff first.",
)
@tree_options
@json_option
def command(*, patch: str, layer: int | None, save_edits: Path | None, choice: Choice, output: Output) -> int:
    """Take out everything, the layer --layer N, or the patch PATCH. The bytes are as before.

    What lies above a layer that is taken out is rendered again without it, or the revert is refused and names the
    conflict. The configuration that was in force when the patches were applied does not matter.

    \b
    Examples:
      patchkit revert --target vllm
      patchkit revert --target vllm pr-9034.diff
      patchkit revert --root ./site-packages --layer 2
    """
    if patch and layer is not None:
        raise UsageError("PATCH and --layer name two things", hint="give one of them")
    tree = select_tree(choice, output, plain=True)
    elsewhere = misplaced(tree)
    if elsewhere is not None:
        raise elsewhere
    epoch = source_date_epoch()
    output.acting = True
    with open_session(tree, write=True, say=output.note) as session:
        gone = lost_receipt(session, lambda text: output.note(f"warning: {text}", style="doubt"))
        if gone is not None:
            raise gone
        saver = None if save_edits is None else partial(_save, save_edits, tree, output)
        result = revert_layers(session, patch=patch, layer=layer, now=timestamp(epoch), epoch=epoch, save_edits=saver)
    status = ExitStatus.REFUSED if result.plan.refused else ExitStatus.DONE
    if output.machine:
        output.document(result_document(result, status=status, then=_upper_first(result.plan)))
        return status
    for warning in result.warnings:
        output.note(f"warning: {warning}", style="doubt")
    if result.plan.refused:
        show_plan(result.plan, output)
        output.line("refused: what lies above cannot stand without it; nothing was written", style="bad")
        output.next_step(_upper_first(result.plan))
    elif result.changed:
        left = len(result.plan.layers)
        output.line(f"reverted: {edit_words(result.plan)} changed, {counted(left, 'layer')} left", style="good")
    else:
        output.line("nothing to do: the tree is not patched", style="good")
    return status


def _upper_first(plan: Plan) -> str:
    """Return the command that takes out the uppermost of what cannot stand, by its name where one patch has it."""
    names = [one.patch for one in plan.decisions]
    refused = [one for one in plan.decisions if one.refused]
    if not refused:
        return ""
    one = refused[-1]
    plain = names.count(one.patch) == 1 and not one.patch.startswith("-")
    which = typed(one.patch) if plain else f"--layer {one.number}"
    return f"take that out first: `patchkit revert {typed_tree(plan.tree)} {which}`"


def _save(path: Path, tree: TargetTree, output: Output, diff: bytes) -> None:
    """Write the edits to a file that is not there yet, and say how they come back."""
    if not diff:
        output.note(f"no edits by hand: {path} was not made")
        return
    try:
        with path.open("xb") as stream:
            stream.write(diff)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written", why=str(error.strerror), hint="name a file that is not there"
        ) from error
    from patchkit.diff.parse import parse_patch

    many, file = len(parse_patch(diff, source=str(path)).files), typed_path(path, "FILE")
    output.note(f"edits saved: {path} ({counted(many, 'file')})")
    output.note(
        f"  on the same stack `patchkit apply {typed_tree(tree)} --patch {file}` or `git apply` brings them back"
    )
