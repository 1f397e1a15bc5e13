"""`patchkit config why`: why a symbol is what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from patchkit.cli.options import Choice, json_option, tree_options
from patchkit.cli.show import SCHEMA
from patchkit.cli.toggling import Opened, command_for, gate_words, open_toggles, show_faults, toggle_options
from patchkit.errors import ExitStatus, RefusedError
from patchkit.output import Output

if TYPE_CHECKING:
    from patchkit.config.why import Block, Explanation


@click.command("why", short_help="Why a symbol is what it is.")
@click.argument("symbol", metavar="CONFIG_X")
@tree_options
@toggle_options
@json_option
def command(*, symbol: str, choice: Choice, asked: dict[str, Any], output: Output) -> int:
    """Explain a symbol: where its value comes from, which term blocks it, who selects it, what to type.

    Works on a configuration that apply refuses: give it the same --set, --config and --patches.

    \b
    Examples:
      patchkit config why CONFIG_QK_SCALE_VALUE --target vllm==0.6.3
      patchkit config why CONFIG_X --root ./site-packages --config prod.config
    """
    from patchkit.config.why import explain

    opened = open_toggles(choice, asked, output)
    toggles = opened.toggles
    name = symbol.removeprefix("CONFIG_")
    found = explain(toggles.menu, name, toggles.resolution.requests, toggles.usage)
    home = toggles.unnamed.homes.get(name)
    if home is not None:
        from patchkit.config.symbols import not_named

        raise RefusedError(f"CONFIG_{name}: it is of a series that is not named", why=not_named(home))
    if found is None:
        from patchkit.config.symbols import near_names

        raise RefusedError(f"CONFIG_{name}: there is no such symbol", why=near_names(toggles.menu, name))
    typed = command_for(choice, asked, found.advice, patched=opened.receipt is not None) if found.advice else ""
    if output.machine:
        output.document({"schema": SCHEMA, **_document(found), "origin": _origin(found, opened), "next": typed})
    else:
        _show(found, opened, typed, output)
    return ExitStatus.DONE


def _show(found: Explanation, opened: Opened, typed: str, output: Output) -> None:
    from patchkit.config.why import PLACEHOLDER, words_of

    origin = _origin(found, opened)
    comes_from = f"  ({origin})" if origin else ""
    output.line(f"CONFIG_{found.symbol}={found.value or '(no value)'}{comes_from}  {found.place}", style="head")
    if found.prompt:
        output.line(f"  {found.prompt}")
    for line in found.help.splitlines():
        output.line(f"    {line}".rstrip(), style="dim")
    if found.requested is not None:
        output.line(f"  asked for: {found.requested[0]}, {found.requested[1]}")
    for line in (line for block in found.blocks for line in words_of(block)):
        output.line(f"  {line}", style="bad")
    _show_uses(found, opened, output)
    if not found.within_reach:
        output.line("no setting changes that: it is for another release or engine")
    output.next_step(typed)
    if typed and found.to_fill:
        output.line(f"      {PLACEHOLDER} stands for {found.to_fill}")


def _origin(found: Explanation, opened: Opened) -> str:
    """Return where the value comes from, "" for what patchkit gives itself."""
    one = opened.toggles.resolution.configuration.assignments().get(found.symbol)
    return one.origin if one is not None else ""


def _show_uses(found: Explanation, opened: Opened, output: Output) -> None:
    """Write what a symbol is for, and what else is wrong about it."""
    for selector in found.forced:
        output.line(f"  selected by CONFIG_{selector}")
    for patch in found.gates:
        output.line(f"  {gate_words(patch, opened.toggles.usage)}")
    if found.symbol in opened.toggles.usage.read:
        output.line("  patched code reads it")
    if found.symbol in opened.toggles.usage.rebuild:
        output.line("  rebuild: required")
    words = f"CONFIG_{found.symbol}="
    own = (one for one in opened.toggles.resolution.faults if words in one.what or f"{found.symbol} " in one.what)
    show_faults((one for one in own if "is not what comes of it" not in one.what), output)


def _document(found: Explanation) -> dict[str, object]:
    return {
        "symbol": found.symbol,
        "value": found.value,
        "place": found.place,
        "prompt": found.prompt,
        "help": found.help,
        "requested": None if found.requested is None else {"value": found.requested[0], "origin": found.requested[1]},
        "blocked_by": [_block(block) for block in found.blocks],
        "selected_by": list(found.forced),
        "gates": list(found.gates),
        "advice": list(found.advice),
        "to_fill": found.to_fill,
        "within_reach": found.within_reach,
    }


def _block(block: Block) -> dict[str, object]:
    return {"term": block.term, "values": list(block.values), "because": [_block(inner) for inner in block.inner]}
