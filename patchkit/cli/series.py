"""`patchkit series`: the commands with which a series is read, checked and written."""

from __future__ import annotations

from importlib import import_module

import click

from patchkit.cli.main import LazyGroup

COMMANDS = {
    "list": "Series that there are: engine, version, patches, locked releases.",
    "show": "Every patch of a series: subject, trailers, files, hunks.",
    "lint": "What is wrong with a series, as written and on a release.",
    "new": "Add an empty patch with a header.",
    "import": "Add any diff as a patch.",
    "edit": "Write a work directory in which a patch is edited.",
    "refresh": "Make a patch anew from its work directory.",
    "lock": "Write series.lock: what the series was proved against.",
}
"""Name and short help of every command; the module `patchkit.cli.series_<name>` holds it as `command`."""


class _SeriesGroup(LazyGroup):
    """The table above; its modules lie beside those of the other commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"patchkit.cli.series_{cmd_name}").command
        return command


@click.command("series", cls=_SeriesGroup, package="patchkit.cli", table=COMMANDS)
def command() -> None:
    """Author and keep a series of patches: ordered, named, locked to the releases it was proved against.

    \b
    Examples:
      patchkit series list
      patchkit series import pr-9034.diff --patches ./patches --target vllm==0.6.3
      patchkit series lint ./patches --target vllm==0.6.3
      patchkit series lock --patches ./patches --artifact vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl
    """
