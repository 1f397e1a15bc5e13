"""`patchkit config show`: every symbol, its value, and where the value comes from."""

from __future__ import annotations

from typing import Any

import click

from patchkit.cli.options import Choice, json_option, tree_options
from patchkit.cli.show import SCHEMA, tree_document, tree_words
from patchkit.cli.toggling import (
    Opened,
    fault_documents,
    gate_words,
    open_toggles,
    show_faults,
    toggle_options,
)
from patchkit.config.configuration import setting_line
from patchkit.config.dotconfig import ValueKind
from patchkit.errors import ExitStatus
from patchkit.output import Output


@click.command("show", short_help="Every symbol and its value.")
@tree_options
@toggle_options
@json_option
def command(*, choice: Choice, asked: dict[str, Any], output: Output) -> int:
    """Show every symbol with its value, where the value comes from, and the patches that it gates.

    For a patched tree these are the values that it has; --set and --config show what they would change. Without a tree
    (`--target vllm==0.6.3` alone) the defaults of that release. Exit status 1 when a setting cannot be as asked for.

    \b
    Examples:
      patchkit config show --target vllm==0.6.3
      patchkit config show --root ./site-packages --patches ./patches --set CONFIG_X=y --json
    """
    opened = open_toggles(choice, asked, output)
    faults = opened.toggles.resolution.faults
    if output.machine:
        output.document(_document(opened))
    else:
        _show(opened, output)
    return ExitStatus.REFUSED if faults else ExitStatus.DONE


def _show(opened: Opened, output: Output) -> None:
    resolution, usage = opened.toggles.resolution, opened.toggles.usage
    named = str(opened.tree.root) == "."
    output.line(f"{opened.tree.engine} {opened.tree.version}" if named else tree_words(opened.tree), style="head")
    for value, origin in zip(resolution.configuration.values, resolution.configuration.origins, strict=True):
        there = value.text or (value.kind is ValueKind.STRING and not origin.startswith("depends on"))
        words = setting_line(value) if there else f"CONFIG_{value.symbol} has no value"
        output.line(f"{words}  ({origin})", style="good" if value.text == "y" else "")
        prompt, place = _about(opened, value.symbol)
        output.line(f"    {prompt or 'no prompt: others decide'}  ({place})", style="dim")
        for patch in usage.gates.get(value.symbol, ()):
            output.line(f"    {gate_words(patch, usage)}")
        if value.symbol in usage.rebuild:
            output.line("    rebuild: required")
    for home in sorted({*opened.toggles.unnamed.homes.values()}):
        output.note(f"{home} has symbols of its own: --patches, with its directory, shows them too")
    if opened.stale:
        output.note("the tree was patched with another Kconfig: `patchkit plan` shows what changes", style="doubt")
    if not resolution.configuration.values:
        output.line("no toggles")
    for warning in resolution.warnings:
        output.note(f"warning: {warning}", style="doubt")
    show_faults(resolution.faults, output)


def _about(opened: Opened, name: str) -> tuple[str, str]:
    from patchkit.config.why import place_of, prompt_of

    symbol = opened.toggles.menu.kconf.syms[name]
    return prompt_of(symbol), place_of(symbol)


def _document(opened: Opened) -> dict[str, object]:
    resolution, usage = opened.toggles.resolution, opened.toggles.usage
    rows = []
    for value, origin in zip(resolution.configuration.values, resolution.configuration.origins, strict=True):
        prompt, place = _about(opened, value.symbol)
        rows.append(
            {
                "symbol": value.symbol,
                "kind": value.kind.value,
                "value": value.text,
                "origin": origin,
                "prompt": prompt,
                "place": place,
                "gates": list(usage.gates.get(value.symbol, ())),
                "guards": [patch for patch in usage.gates.get(value.symbol, ()) if patch in usage.guarded],
                "read": value.symbol in usage.read,
                "rebuild": value.symbol in usage.rebuild,
            }
        )
    return {
        "schema": SCHEMA,
        "tree": tree_document(opened.tree),
        "symbols": rows,
        "kconfig": dict(opened.toggles.kconfigs),
        "stale": opened.stale,
        "unnamed": dict(sorted(opened.toggles.unnamed.homes.items())),
        "warnings": list(resolution.warnings),
        "faults": fault_documents(resolution.faults),
    }
