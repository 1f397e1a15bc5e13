"""`patchkit native build`: compile the shim for a target."""

from __future__ import annotations

import click

from patchkit.cli.native_ground import build_ground, open_ground, target_options
from patchkit.cli.options import Choice, json_option
from patchkit.errors import ExitStatus
from patchkit.native.build import BuildArtifact
from patchkit.output import Output


@click.command("build", short_help="Compile the shim for a target.")
@target_options
@json_option
def command(*, choice: Choice, symbols: tuple[str, ...], output: Output) -> int:
    """Compile stage 1 for the target's entry points, and stage 2 against the headers of its torch.

    What was built from the same sources, compiler, torch and libraries is kept: below PATCHKIT_NATIVE, else
    below the user's cache directory. A compiler that fails is shown with its command.

    \b
    Examples:
      patchkit native build --target vllm --python /opt/venv/bin/python
      patchkit native build --target host
    """
    output.acting = True
    artifact = build_ground(open_ground(choice, symbols, output), output)
    if output.machine:
        output.document(artifact_document(artifact))
    else:
        _show(artifact, output)
    return ExitStatus.DONE


def artifact_document(artifact: BuildArtifact) -> dict[str, object]:
    """Return what was built for JSON."""
    return {
        "schema": 1,
        "key": artifact.key,
        "fresh": artifact.fresh,
        "stage1": str(artifact.stage1),
        "stage2": str(artifact.stage2) if artifact.stage2 is not None else None,
        "program": str(artifact.program) if artifact.program is not None else None,
        "entry_points": [{"name": row.name, "symbol": row.symbol, "hook": row.hook} for row in artifact.rows],
        "commands": list(artifact.commands),
    }


def _show(artifact: BuildArtifact, output: Output) -> None:
    output.line(f"{'built' if artifact.fresh else 'kept'}: {artifact.directory}", style="head")
    output.line(f"  stage 1: {artifact.stage1.name}")
    output.line(f"  stage 2: {artifact.stage2.name if artifact.stage2 is not None else 'none'}")
    for row in artifact.rows:
        output.line(f"  {row.name}: {row.symbol}")
    if artifact.program is not None:
        output.line(f"  program: {artifact.program.name}")
