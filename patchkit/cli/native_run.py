"""`patchkit native run`: start an engine with the shim."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from patchkit.cli.native_ground import build_ground, open_ground, plan_ground, setting_options, target_options
from patchkit.cli.options import Choice, command_output
from patchkit.errors import UsageError
from patchkit.native.launch import launch_environment
from patchkit.native.settings import Settings


@click.command("run", short_help="Start an engine with the shim.")
@target_options
@setting_options
@click.argument("line", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
def command(
    *,
    choice: Choice,
    symbols: tuple[str, ...],
    settings: Settings,
    programs: tuple[Path, ...],
    replacement: Path | None,
    way: str,
    line: tuple[str, ...],
) -> int:
    """Build what is missing and become the command, with the shim preloaded.

    The shim is awake in the target's interpreter only; in every other program that the engine starts it does
    nothing, and below the engine it takes itself out of LD_PRELOAD. What is preloaded already stays, in front.

    \b
    Examples:
      patchkit native run --target vllm --python /opt/venv/bin/python -- /opt/venv/bin/vllm serve MODEL
      patchkit native run --target vllm --mode transform --set qk_scale=0.5 -- python serve.py
    """
    output = command_output(acting=True)
    ground = open_ground(choice, symbols, output)
    artifact = build_ground(ground, output)
    plan = plan_ground(
        ground, artifact, settings, programs=programs, replacement=replacement, way=way, surroundings=os.environ
    )
    executable = shutil.which(line[0])
    if executable is None:
        raise UsageError(f"no program {line[0]}", hint="the command stands behind --")
    output.flush()
    try:
        os.execve(executable, list(line), launch_environment(plan, os.environ))  # noqa: S606 -- no shell, on purpose
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{executable} cannot be run", why=f"  {error}", hint="a script needs a first line like #!/bin/sh"
        ) from error
