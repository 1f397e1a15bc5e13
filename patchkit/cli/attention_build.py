"""`patchkit attention build`: the CUDA library of the Hopper kernels."""

from __future__ import annotations

import click

from patchkit.cli.options import json_option
from patchkit.errors import ExitStatus
from patchkit.output import Output


@click.command("build", short_help="Compile the CUDA kernels for Hopper.")
@json_option
def command(*, output: Output) -> int:
    """Compile the kernels for Hopper with nvcc and print the library's path. Needs no GPU and no torch.

    What was built from the same sources by the same nvcc is kept: below PATCHKIT_NATIVE, else below the user's
    cache directory. nvcc is looked for on the PATH, then in CUDA_HOME, CUDA_PATH and /usr/local/cuda. The kernels are
    used where PATCHKIT_ATTENTION_LIBRARY names the library.

    \b
    Examples:
      patchkit attention build
      library=$(patchkit attention build) && export PATCHKIT_ATTENTION_LIBRARY=$library
    """
    from patchkit.attention.build import build_library
    from patchkit.native.cache import cache_directory
    from patchkit.resources import native_directory

    built = build_library(native_directory(), cache_directory(), on_start=lambda: _tell(output))
    if output.machine:
        output.document(
            {"schema": 1, "library": str(built.library), "fresh": built.fresh, "command": built.command or None}
        )
    else:
        output.line(str(built.library))
    return ExitStatus.DONE


def _tell(output: Output) -> None:
    if not output.machine:
        output.note("compiling with nvcc: less than a minute", style="dim")
