"""`patchkit native`: the shim that stands between an engine and its attention entry points."""

from __future__ import annotations

from importlib import import_module

import click

from patchkit.cli.main import LazyGroup

COMMANDS = {
    "build": "Compile the shim for a target; what was built from the same is kept.",
    "doctor": "Per entry point: which way in reaches it, and why the others do not.",
    "run": "Start an engine with the shim.",
    "env": "The variables that `run` sets, as lines for a Dockerfile or a unit file.",
    "status": "Where it is loaded, what it is bound to, how often it was called.",
    "top": "Calls a second, time a call and shapes, while the engine runs.",
    "set": "Change the mode and the arguments while the engine runs.",
}
"""Name and short help of every command; the module `patchkit.cli.native_<name>` holds it as `command`."""


class _NativeGroup(LazyGroup):
    """The table above; its modules lie beside those of the other commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"patchkit.cli.native_{cmd_name}").command
        return command


@click.command("native", cls=_NativeGroup, package="patchkit.cli", table=COMMANDS)
def command() -> None:
    """Stand between an engine and its attention entry points: count, trace, change arguments, while it runs.

    The target `host` is the project's own library and program, on which the shim runs anywhere.

    \b
    Examples:
      patchkit native doctor --target vllm
      patchkit native run --target vllm -- vllm serve MODEL
      patchkit native status
      patchkit native set mode=transform qk_scale=0.5
    """
