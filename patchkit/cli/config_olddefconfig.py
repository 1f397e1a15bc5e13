"""`patchkit config olddefconfig`: an old .config brought up to a release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit.cli.config_diff import difference_lines, read_settings
from patchkit.cli.options import Choice, json_option, tree_options
from patchkit.cli.show import SCHEMA
from patchkit.cli.toggling import open_toggles, output_option, toggle_options, write_text
from patchkit.config.dotconfig import parse_dotconfig
from patchkit.errors import ExitStatus
from patchkit.output import Output
from patchkit.toggles import dotconfig_of


@click.command("olddefconfig", short_help="An old .config brought up to this release.")
@click.argument("old", metavar="FILE", type=click.Path(path_type=Path))
@output_option
@tree_options
@toggle_options
@json_option
def command(*, old: Path, file: Path | None, choice: Choice, asked: dict[str, Any], output: Output) -> int:
    """Write FILE as this release understands it: what is new gets its default, what means nothing any more is left out.

    Every line that changes is told on stderr. Nothing is an error here; `apply --config` is strict.

    \b
    Examples:
      patchkit config olddefconfig old.config --target vllm --output new.config
      patchkit config olddefconfig old.config --target vllm==0.6.3 --json
    """
    before = read_settings(old, output)
    opened = open_toggles(choice, {**asked, "config": (old, *asked["config"])}, output, kept=False)
    content = dotconfig_of(opened.toggles)
    new = parse_dotconfig(content.decode("utf-8", "surrogateescape"), "new")
    after = {one.symbol: one.value for one in new.assignments}
    lines = list(difference_lines(before, after))
    if output.machine:
        output.document({"schema": SCHEMA, "config": content.decode("utf-8", "replace"), "changes": lines})
        return ExitStatus.DONE
    for line in lines:
        output.note(line)
    write_text(content, file, output)
    return ExitStatus.DONE
