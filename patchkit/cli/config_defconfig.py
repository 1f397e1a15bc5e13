"""`patchkit config defconfig`: the configuration that the defaults give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit.cli.options import Choice, json_option, tree_options
from patchkit.cli.show import SCHEMA
from patchkit.cli.toggling import open_toggles, output_option, toggle_options, write_text
from patchkit.errors import ExitStatus
from patchkit.output import Output
from patchkit.toggles import dotconfig_of, require


@click.command("defconfig", short_help="The configuration that the defaults give.")
@output_option
@tree_options
@toggle_options
@json_option
def command(*, file: Path | None, choice: Choice, asked: dict[str, Any], output: Output) -> int:
    """Write a whole .config: the defaults of this release, with the lines of --config and --set on top.

    What is set on a patched tree does not count here; `config show` tells of it.

    \b
    Examples:
      patchkit config defconfig --target vllm==0.6.3
      patchkit config defconfig --target vllm --config ours.defconfig --output .config
    """
    opened = open_toggles(choice, asked, output, kept=False)
    require(opened.toggles)
    content = dotconfig_of(opened.toggles)
    if output.machine:
        output.document({"schema": SCHEMA, "config": content.decode("utf-8", "replace")})
    else:
        write_text(content, file, output)
    return ExitStatus.DONE
