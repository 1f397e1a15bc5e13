"""`patchkit attention check`: every kernel against the reference in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchkit.cli.options import json_option
from patchkit.errors import ExitStatus
from patchkit.output import Output

if TYPE_CHECKING:
    from patchkit.attention.check import CheckResult

DTYPES = ("float32", "float16", "bfloat16")


@click.command("check", short_help="Hold every kernel against the float64 reference.")
@click.option("--kernel", "names", multiple=True, metavar="NAME", help="Only this kernel; repeatable.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="Only this dtype; repeatable.")
@click.option("--case", "text", default="", metavar="TEXT", help="Only cases with this text in their name.")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default=None, help="Default: CUDA where there is some.")
@click.option("--seed", type=int, default=0, show_default=True, help="What the inputs are drawn from.")
@json_option
def command(
    *, names: tuple[str, ...], dtypes: tuple[str, ...], text: str, device: str | None, seed: int, output: Output
) -> int:
    """Run every kernel on every case that it takes, and compare with the reference in float64.

    Outputs hold NaN before and are guarded on both sides. Status 1: a kernel is wrong, or one that was asked for by
    name took no case.

    \b
    Examples:
      patchkit attention check
      patchkit attention check --kernel eager --dtype float32 --case prime
      patchkit attention check --device cuda --json
    """
    from patchkit.attention.here import prepare

    where = prepare(device or "")
    from patchkit.attention.run import run_checks

    results = []
    for result in run_checks(names=names, dtypes=dtypes or DTYPES, text=text, device=where, seed=seed):
        output.progress(f"{result.kernel}: {result.case.name} ({result.case.dtype})")
        results.append(result)
    return _show(results, where, seed, output, asked=bool(names))


def _show(results: list[CheckResult], device: str, seed: int, output: Output, *, asked: bool) -> int:
    from patchkit.attention.run import check_document, summaries

    rows = summaries(results)
    wrong = any(row.wrong for row in rows) or (asked and any(not row.ran for row in rows))
    if output.machine:
        output.document(check_document(results, device=device, seed=seed))
        return ExitStatus.REFUSED if wrong else ExitStatus.DONE
    for row in rows:
        style = "bad" if row.wrong else "good" if row.ran else "doubt"
        output.line(f"{row.kernel}: {row.ran - row.wrong} of {row.ran} right, {row.refused} refused", style=style)
        if row.ran:
            output.line(f"  largest error, as a part of what is allowed: {row.worst:.2f} ({row.worst_case})")
        for reason, count in row.reasons:
            output.line(f"  refused {count}: {reason}", style="dim")
    for result in results:
        for fault in result.faults:
            output.line(f"  {result.kernel}: {result.case.name} ({result.case.dtype}): {fault}", style="bad")
    return ExitStatus.REFUSED if wrong else ExitStatus.DONE
