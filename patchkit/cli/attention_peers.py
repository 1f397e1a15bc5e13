"""`patchkit attention peers`: FlashAttention 3 of vLLM's wheel, packed for the machine with the GPU."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.cli.options import command_output
from patchkit.errors import ExitStatus


@click.command("peers", short_help="Fetch FlashAttention 3 and pack it small.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(*, directory: Path) -> int:
    """Download the wheel of vLLM (300 MB) with pip and leave its FlashAttention 3, one library, in DIRECTORY (11 MB).

    \b
    Examples:
      patchkit attention peers ./peers
      patchkit attention bench --device cuda --peers ./peers
    """
    from patchkit.attention.peers import pack_peers

    output = command_output(acting=True)
    output.line(str(pack_peers(directory, progress=output.progress)))
    return ExitStatus.DONE
