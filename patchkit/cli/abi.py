"""`patchkit abi`: the commands that tell whether binaries fit each other."""

from __future__ import annotations

from importlib import import_module

import click

from patchkit.cli.main import LazyGroup

COMMANDS = {
    "check": "Whether an engine's shared objects fit a torch and a system.",
    "explain": "What a symbol or a pasted ImportError means, and which torch has it.",
    "layout": "A struct drawn, and what differs in another release, a header or a library.",
    "matrix": "Engines by torch releases: how many symbols are missing.",
    "env": "Whether engines can share one environment: what pins what.",
    "diff": "What differs between two releases, and whether it breaks.",
    "probe": "Read struct layouts from a torch's headers.",
    "snapshot": "Write down what is known about a wheel.",
}
"""Name and short help of every command; the module `patchkit.cli.abi_<name>` holds it as `command`."""


class _AbiGroup(LazyGroup):
    """The table above; its modules lie beside those of the other commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"patchkit.cli.abi_{cmd_name}").command
        return command


@click.command("abi", cls=_AbiGroup, package="patchkit.cli", table=COMMANDS)
def command() -> None:
    """Tell whether binaries fit: symbols, system versions, layouts, operators. No engine is ever imported.

    \b
    Examples:
      patchkit abi check --target vllm --against torch==2.8.0
      patchkit abi explain _ZN5torch3jit17parseSchemaOrNameERKSs
      patchkit abi layout Flash_fwd_params --of vllm==0.6.3
      patchkit abi matrix --engines vllm==0.6.3,sglang==0.5.1 --torch 2.4.0,2.8.0
    """
