"""`patchkit series edit`: a work directory for one patch."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.catalogue import one_series
from patchkit.cli.ground import ground_options, open_ground, patches_option, work_option, writing
from patchkit.cli.options import Choice, command_output
from patchkit.counting import counted
from patchkit.editing import edit_ground, make_note, write_work
from patchkit.quoting import typed


@click.command("edit", short_help="Write a work directory for a patch.")
@click.argument("patch")
@patches_option
@work_option
@click.option("--bare", is_flag=True, help="Leave PATCH's own change out: to make it anew where it does not apply.")
@ground_options
def command(*, patch: str, patches: Path, work: Path, bare: bool, choice: Choice, artifact: tuple[Path, ...]) -> int:
    """Write the package's text files as the series up to and including PATCH leaves them into a new directory.

    Edit there, then `patchkit series refresh` makes the patch anew. The release's own files are never touched; they
    come from a wheel (--artifact) or from a tree (--target, --root), as it was before patchkit. A patch that does not
    apply any more, because a patch before it changed, is made anew from a directory that is written with --bare.

    \b
    Examples:
      patchkit series edit 0001-longer-timeout.patch --patches ./patches --work ./w --target vllm==0.6.3
      patchkit series edit 0001-fix.patch --patches ./our-series --work ./w --artifact vllm-0.6.3-cp38-abi3-linux.whl
    """
    output = command_output(acting=True)
    with open_ground(choice, artifact, output) as found:
        series = one_series(patches, found.tree)
        output.progress("rendering the package")
        ground = edit_ground(series, patch, found, bare=bare)
        note = make_note(series, patch, found, ground, bare=bare)
    with writing(work):
        write_work(work, ground, note)
    output.line(f"{counted(len(ground.with_patch), 'file')} in {work}", style="good")
    refresh = typed("patchkit", "series", "refresh", patch, "--patches", patches, "--work", work)
    output.next_step(f"edit below {work}, then {refresh}", beside=True)
    return 0
