"""`patchkit native env`: the variables that `native run` sets."""

from __future__ import annotations

import os
from pathlib import Path

import click

from patchkit.cli.native_ground import build_ground, open_ground, plan_ground, setting_options, target_options
from patchkit.cli.options import Choice, json_option
from patchkit.errors import ExitStatus, UsageError
from patchkit.native.launch import export_lines, path_file
from patchkit.native.plugin import WAYS
from patchkit.native.settings import Settings
from patchkit.output import Output


@click.command("env", short_help="The variables that `run` sets.")
@target_options
@setting_options
@click.option("--pth", is_flag=True, help="The line of a .pth file instead: a way in without LD_PRELOAD.")
@json_option
def command(
    *,
    choice: Choice,
    symbols: tuple[str, ...],
    settings: Settings,
    programs: tuple[Path, ...],
    replacement: Path | None,
    way: str,
    pth: bool,
    output: Output,
) -> int:
    """Build what is missing and write the variables as export lines.

    With --pth the line of a .pth file for the engine's site-packages: it opens stage 1 before the engine is
    imported, only where PATCHKIT_SHIM_PTH=1 is set, and imports no torch.

    \b
    Examples:
      eval "$(patchkit native env --target vllm --python /opt/venv/bin/python)"
      patchkit native env --target vllm --pth > /opt/venv/lib/python3.11/site-packages/patchkit_shim.pth
    """
    if pth and way != WAYS[0]:
        raise UsageError(f"--pth and --way {way} are two ways in", hint="choose one")
    ground = open_ground(choice, symbols, output)
    artifact = build_ground(ground, output)
    plan = plan_ground(
        ground, artifact, settings, programs=programs, replacement=replacement, way=way, surroundings=os.environ
    )
    if output.machine:
        output.document({"schema": 1, "variables": dict(plan.variables), "programs": list(plan.programs)})
    elif pth:
        output.raw(path_file(plan, artifact.stage1).encode())
    else:
        for line in export_lines(plan):
            output.line(line)
    return ExitStatus.DONE
