"""`patchkit config`: the commands with which toggles are looked at and switched."""

from __future__ import annotations

from importlib import import_module

import click

from patchkit.cli.main import LazyGroup

COMMANDS = {
    "show": "Every symbol: value, where the value comes from, which patches it gates.",
    "set": "Change the configuration of a patched tree.",
    "why": "Why a symbol is what it is, and what to type to change it.",
    "menu": "The menu that kernel people know, in the terminal.",
    "defconfig": "The configuration that the defaults give, as a .config.",
    "savedefconfig": "Only the lines that differ from the defaults: what to keep.",
    "olddefconfig": "An old .config brought up to this release.",
    "diff": "What differs between two configurations.",
}
"""Name and short help of every command; the module `patchkit.cli.config_<name>` holds it as `command`."""


class _ConfigGroup(LazyGroup):
    """The table above; its modules lie beside those of the other commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"patchkit.cli.config_{cmd_name}").command
        return command


@click.command("config", cls=_ConfigGroup, package="patchkit.cli", table=COMMANDS)
def command() -> None:
    """Look at the toggles of a series, and switch them. Symbols are written CONFIG_X, as in a .config file.

    \b
    Examples:
      patchkit config show --target vllm==0.6.3
      patchkit config set CONFIG_QK_SCALE=y CONFIG_QK_SCALE_VALUE=0.5 --target vllm
      patchkit config why CONFIG_QK_SCALE_VALUE --target vllm
      patchkit config menu --target vllm --output prod.config
    """
