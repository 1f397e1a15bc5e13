"""`patchkit attention`: the attention operators that the patches switch on: checked, measured, listed."""

from __future__ import annotations

from importlib import import_module

import click

from patchkit.cli.main import LazyGroup

COMMANDS = {
    "check": "Hold every kernel against the float64 reference.",
    "bench": "Check, then time every kernel beside its peers.",
    "list": "The kernels, and which answers a case here.",
    "build": "Compile the CUDA kernel for Hopper.",
    "peers": "Fetch FlashAttention 3 and pack it small.",
}
"""Name and short help of every command; the module `patchkit.cli.attention_<name>` holds it as `command`."""


class _AttentionGroup(LazyGroup):
    """The table above; its modules lie beside those of the other commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"patchkit.cli.attention_{cmd_name}").command
        return command


@click.command("attention", cls=_AttentionGroup, package="patchkit.cli", table=COMMANDS)
def command() -> None:
    """Check, measure and list the attention kernels: window + anchors, dense, paged. Needs torch.

    \b
    Examples:
      patchkit attention check
      patchkit attention check --kernel eager --dtype float32
      patchkit attention bench --device cuda --plot out.svg
      patchkit attention list
    """
