"""`patchkit config diff`: what differs between two configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from patchkit.cli.options import Choice, json_option, names_a_tree, tree_options
from patchkit.cli.reading import read_text
from patchkit.cli.show import SCHEMA
from patchkit.cli.toggling import open_toggles, toggle_options
from patchkit.config.dotconfig import merge, parse_dotconfig
from patchkit.config.fault import refuse
from patchkit.errors import ExitStatus, UsageError
from patchkit.generated import render_settings
from patchkit.output import Output
from patchkit.toggles import written_symbols_of


@click.command("diff", short_help="What differs between two configurations.")
@click.argument("old", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("new", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@tree_options
@toggle_options
@json_option
def command(*, old: Path, new: Path | None, choice: Choice, asked: dict[str, Any], output: Output) -> int:
    """Compare two .config files, or one with the configuration of a tree: -X was, +X is new, `X a -> b` changed.

    \b
    Examples:
      patchkit config diff old.config new.config
      patchkit config diff prod.config --target vllm
    """
    before = read_settings(old, output)
    if new is None and not names_a_tree(choice):
        raise UsageError("nothing to compare with", hint="give a second FILE, or a tree with --target or --root")
    if new is not None:
        after = read_settings(new, output)
    else:
        toggles = open_toggles(choice, asked, output).toggles
        values = (*toggles.resolution.configuration.values, *toggles.unnamed.values)
        whole = render_settings(values, written_symbols_of(toggles) | toggles.unnamed.written)
        after = _settings(whole.decode("utf-8", "surrogateescape"), "the tree")
    lines = list(difference_lines(before, after))
    if output.machine:
        output.document({"schema": SCHEMA, "changes": lines})
    for line in () if output.machine else lines:
        output.line(line)
    return ExitStatus.DONE


def read_settings(path: Path, output: Output) -> dict[str, str]:
    """Read a .config as a mapping from symbol to value; RefusedError tells all lines that set nothing."""
    return _settings(read_text(path, output.progress), str(path))


def _settings(text: str, source: str) -> dict[str, str]:
    settings = parse_dotconfig(text, source)
    refuse(settings.faults)
    return {name: one.value for name, one in merge(settings.assignments).items()}


def difference_lines(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for every symbol that is gone, new or changed, as the kernel's diffconfig writes it."""
    for symbol in sorted(before.keys() | after.keys()):
        if symbol not in after:
            yield f"-CONFIG_{symbol} {before[symbol]}"
        elif symbol not in before:
            yield f"+CONFIG_{symbol} {after[symbol]}"
        elif before[symbol] != after[symbol]:
            yield f" CONFIG_{symbol} {before[symbol]} -> {after[symbol]}"
