"""`patchkit abi diff`: what differs between two releases, and whether it breaks."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.abi.difference import Difference
from patchkit.abi.facts import WheelFacts
from patchkit.abi.snapshot import Facts
from patchkit.cli.options import json_option
from patchkit.cli.reading import require_file
from patchkit.errors import ExitStatus, UsageError
from patchkit.output import Output

_MOST_SHOWN = 40


@click.command("diff", short_help="What differs between two releases, and whether it breaks.")
@click.argument("before")
@click.argument("after")
@click.option("--verbose", "-v", is_flag=True, help="Show every change, not the first of a kind.")
@json_option
def command(*, before: str, after: str, verbose: bool, output: Output) -> int:
    """Compare two releases symbol by symbol, operator by operator, struct by struct. Exit status 1 when it breaks.

    BEFORE and AFTER are NAME==VERSION from the stored facts, a snapshot's .json file, or a shared object (.so).

    \b
    Examples:
      patchkit abi diff vllm==0.6.3 vllm==0.8.5
      patchkit abi diff torch==2.8.0 torch==2.11.0
      patchkit abi diff vllm==0.33.0 my-build.json
    """
    from patchkit.abi.difference import compare_torches, compare_wheels, is_torch
    from patchkit.abi.explain import known_names
    from patchkit.abi.snapshot import stored_facts

    facts = stored_facts()
    old, new = _side(before, facts), _side(after, facts)
    if is_torch(old) != is_torch(new):
        raise UsageError(f"{old.title} and {new.title} are different things", hint="name two releases of one")
    if is_torch(old):
        for wheel in (old, new):
            if facts.find("torch", wheel.version) is None:
                raise UsageError(
                    f"no facts are stored about {wheel.title}", why=f"  stored: {', '.join(facts.torches)}"
                )
        difference = compare_torches(old, new, facts, known_names(facts))
    else:
        difference = compare_wheels(old, new)
    if output.machine:
        output.document(_document(difference))
    else:
        _show(difference, output, most=0 if verbose else _MOST_SHOWN)
    return ExitStatus.REFUSED if difference.breaking else ExitStatus.DONE


def _side(text: str, facts: Facts) -> WheelFacts:
    from patchkit.abi.elf import read_object
    from patchkit.abi.inspect_wheel import object_facts
    from patchkit.abi.matrix import stored_wheel
    from patchkit.abi.snapshot import read_snapshot

    if text.endswith(".json"):
        return read_snapshot(require_file(Path(text))).wheel
    if "==" in text:
        return stored_wheel(text, facts)
    one = object_facts(read_object(require_file(Path(text))), "the shared object")
    return WheelFacts(
        distribution=text,
        version="",
        file="",
        sha256="",
        tags=(),
        requires_python="",
        requires=(),
        extras=(),
        objects=(one,),
    )


def _show(difference: Difference, output: Output, *, most: int) -> None:
    output.line(f"{difference.before} -> {difference.after}", style="head")
    for title, breaking in (("breaking", True), ("not breaking", False)):
        changes = [change for change in difference.changes if change.breaking is breaking]
        if not changes:
            continue
        output.line(f"{title}: {len(changes)}", style="bad" if breaking else "good")
        for change in changes[: most or None]:
            first, *rest = change.words.split("\n")
            output.line(f"  {change.kind.value}, {change.place}: {first}")
            for line in rest:
                output.line(f"    {line}")
        if most and len(changes) > most:
            output.line(f"  and {len(changes) - most} more: --verbose shows them", style="dim")
    for note in difference.notes:
        output.line(note, style="doubt")
    output.line("verdict: breaking" if difference.breaking else "verdict: not breaking", style="head")


def _document(difference: Difference) -> dict[str, object]:
    return {
        "schema": 1,
        "status": 1 if difference.breaking else 0,
        "before": difference.before,
        "after": difference.after,
        "breaking": difference.breaking,
        "changes": [
            {
                "kind": change.kind.value,
                "place": change.place,
                "symbol": change.name,
                "words": change.words,
                "breaking": change.breaking,
            }
            for change in difference.changes
        ],
        "notes": list(difference.notes),
    }
