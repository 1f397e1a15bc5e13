"""`patchkit config savedefconfig`: only what differs from the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit.cli.options import Choice, json_option, tree_options
from patchkit.cli.show import SCHEMA
from patchkit.cli.toggling import open_toggles, output_option, toggle_options, write_text
from patchkit.errors import ExitStatus
from patchkit.generated import render_settings
from patchkit.output import Output
from patchkit.toggles import require


@click.command("savedefconfig", short_help="Only what differs from the defaults.")
@output_option
@tree_options
@toggle_options
@json_option
def command(*, file: Path | None, choice: Choice, asked: dict[str, Any], output: Output) -> int:
    """Write the shortest .config that gives the configuration of the tree: the lines to keep in version control.

    \b
    Examples:
      patchkit config savedefconfig --target vllm --output ours.defconfig
      patchkit config savedefconfig --target vllm==0.6.3 --config whole.config
    """
    opened = open_toggles(choice, asked, output)
    require(opened.toggles)
    from patchkit.config.written import render_defconfig

    unnamed = opened.toggles.unnamed  # of these the defaults are not known: what was asked for stands for what differs
    in_force = {value.symbol for value in unnamed.values if unnamed.requests.get(value.symbol) == value.text}
    content = render_defconfig(opened.toggles.menu) + render_settings(unnamed.values, in_force)
    if output.machine:
        output.document({"schema": SCHEMA, "config": content.decode("utf-8", "replace")})
    else:
        write_text(content, file, output)
    return ExitStatus.DONE
