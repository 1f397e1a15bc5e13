"""`patchkit native doctor`: which way in reaches an entry point."""

from __future__ import annotations

import click

from patchkit.cli.native_ground import Ground, open_ground, target_options
from patchkit.cli.options import Choice, json_option
from patchkit.errors import ExitStatus, UsageError
from patchkit.native.doctor import Diagnosis, diagnose, missing
from patchkit.native.symbols import HOOKS
from patchkit.native.torch_tree import kernel_lookup
from patchkit.output import Output

_HOST = "`native build --target host` names its program; `native run --target host -- PROGRAM` starts it"


@click.command("doctor", short_help="Which way in reaches an entry point.")
@target_options
@json_option
def command(*, choice: Choice, symbols: tuple[str, ...], output: Output) -> int:
    """Say for every entry point of the release which method reaches it in these libraries, and why not the others.

    Read from the libraries; nothing is run. Exit status 1: none is reached from native code.

    \b
    Examples:
      patchkit native doctor --target vllm --python /opt/venv/bin/python
      patchkit native doctor --target vllm==0.6.3 --fetch ./wheels --json
    """
    ground = open_ground(choice, symbols, output)
    if ground.tree is None:
        raise UsageError("the host library needs no doctor", hint=_HOST)
    tree, kernels = ground.tree, kernel_lookup(ground.tree)
    found = diagnose(ground.rows, ground.found, version=tree.version, program=tree.python, kernels=kernels)
    if output.machine:
        output.document(_document(ground, found))
    else:
        _show(ground, found, output)
    return ExitStatus.DONE if any(_is_native(one) for one in found) else ExitStatus.REFUSED


def _is_native(diagnosis: Diagnosis) -> bool:
    return diagnosis.chosen not in ("", "torch dispatcher")


def _document(ground: Ground, found: tuple[Diagnosis, ...]) -> dict[str, object]:
    return {
        "schema": 1,
        "entry_points": [
            {
                "name": one.row.name,
                "symbol": one.row.symbol,
                "library": one.library,
                "identity": one.identity,
                "chosen": one.chosen or None,
                "ways": [{"method": way.method, "reaches": way.reaches, "why": way.why} for way in one.ways],
            }
            for one in found
        ],
        "missing": [{"name": row.name, "symbol": row.symbol} for row in missing(ground.rows, ground.found)],
        "unreadable": list(ground.found.unreadable),
    }


def _show(ground: Ground, found: tuple[Diagnosis, ...], output: Output) -> None:
    for one in found:
        output.line(f"{one.row.name} in {one.library}", style="head")
        output.line(f"  {one.row.symbol}")
        for way in one.ways:
            mark = "->" if way.method == one.chosen else "  "
            output.line(f"  {mark} {way.method}: {'yes' if way.reaches else 'no'}: {way.why}")
    reached = {one.row.name for one in found}
    for row in missing(ground.rows, ground.found):
        if row.name not in reached:
            where = f" as an operator: {HOOKS[row.hook].operator}" if row.hook in HOOKS else ""
            output.line(f"{row.name}: no library here exports {row.symbol}{where}", style="doubt")
    if not found and not ground.rows:
        output.line(
            "no entry point is known for this release; --symbol NAME counts any exported function", style="doubt"
        )
    for text in ground.found.unreadable:
        output.note(f"warning: {text}", style="doubt")
