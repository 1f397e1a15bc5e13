"""`patchkit attention list`: the kernels, and for each workload which can, which not and why, and which is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchkit.cli.options import json_option
from patchkit.errors import ExitStatus
from patchkit.output import Output

if TYPE_CHECKING:
    from patchkit.attention.listing import Listed


@click.command("list", short_help="Kernels, and which answers a case here.")
@click.option("--case", "text", default="", metavar="TEXT", help="Only workloads with this text in their name.")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default=None, help="Default: CUDA where there is some.")
@json_option
def command(*, text: str, device: str | None, output: Output) -> int:
    """Say for each measured workload which kernels can run it here, why the others cannot, and which is chosen.

    \b
    Examples:
      patchkit attention list
      patchkit attention list --case decode --json
    """
    from patchkit.attention.here import prepare

    where = prepare(device or "")
    from patchkit.attention.listing import list_document, list_workloads

    listed = list_workloads(where, text)
    if output.machine:
        output.document(list_document(listed, where))
    else:
        _show(listed, output)
    return ExitStatus.DONE


def _show(listed: list[Listed], output: Output) -> None:
    for one in listed:
        output.line(one.workload, style="head")
        output.line(f"  chosen: {one.chosen} ({one.reason})", style="good" if one.chosen != "none" else "bad")
        for verdict in one.verdicts:
            time = (
                "" if verdict.milliseconds is None else f", {verdict.milliseconds:g} ms at the nearest measured lengths"
            )
            output.line(f"  {verdict.kernel}: {verdict.refusal or 'can'}{time}", style="dim" if verdict.refusal else "")
