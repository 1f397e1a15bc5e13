"""`patchkit attention check`: every kernel against the reference in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchkit.cli.options import json_option
from patchkit.errors import ExitStatus, UsageError
from patchkit.output import Output

if TYPE_CHECKING:
    from patchkit.attention.check import CheckResult

DTYPES = ("float32", "float16", "bfloat16")
SEED = click.IntRange(0, 2**63 - 1)


@click.command("check", short_help="Hold every kernel against the float64 reference.")
@click.option("--kernel", "names", multiple=True, metavar="NAME", help="Only this kernel; repeatable.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="Only this dtype; repeatable.")
@click.option("--case", "text", default="", metavar="TEXT", help="Only cases with this text in their name.")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default=None, help="Default: CUDA where there is some.")
@click.option("--compile", "compiling", is_flag=True, help="Compile the Triton kernels for sm_90; needs no GPU.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="What the inputs are drawn from.")
@json_option
def command(
    *,
    names: tuple[str, ...],
    dtypes: tuple[str, ...],
    text: str,
    device: str | None,
    compiling: bool,
    seed: int,
    output: Output,
) -> int:
    """Run every kernel on every case that it takes, and compare with the reference in float64.

    Outputs hold NaN before and are guarded on both sides. Status 1: a kernel is wrong, or one that was asked for by
    name took no case.

    \b
    Examples:
      patchkit attention check
      patchkit attention check --kernel eager --dtype float32 --case prime
      patchkit attention check --device cuda --json
      patchkit attention check --compile
    """
    from patchkit.attention.here import prepare, require_torch

    if compiling:
        _require_none(kernel=names, dtype=dtypes, case=text, device=device, seed=seed)
        require_torch()
        return _compile(output)
    where = prepare(device or "")
    from patchkit.attention.run import run_checks

    results: list[CheckResult] = []
    for result in run_checks(names=names, dtypes=dtypes or DTYPES, text=text, device=where, seed=seed):
        if not results or result.case != results[-1].case:
            output.progress(f"{result.case.name} ({result.case.dtype})")
        results.append(result)
    return _show(results, where, seed, output, asked=bool(names))


def _require_none(**given: object) -> None:
    """Refuse what chooses cases or kernels beside --compile, which compiles every Triton kernel."""
    named = [f"--{option}" for option, value in given.items() if value]
    if named:
        raise UsageError(
            f"--compile compiles every Triton kernel, whatever {' and '.join(named)} may be",
            hint=f"leave out {' and '.join(named)}",
        )


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


def _compile(output: Output) -> int:
    from patchkit.attention.compile import compile_kernels

    made = []
    for one in compile_kernels():
        output.progress(one.name)
        made.append(one)
    if output.machine:
        rows = [{"kernel": one.name, "shared": one.shared, "code": one.code, "fault": one.fault} for one in made]
        output.document({"schema": 1, "target": "sm_90", "kernels": rows})
    else:
        for one in made:
            words = one.fault or f"{one.code} bytes of code, {one.shared} bytes of shared memory"
            output.line(f"{one.name}: {words}", style="bad" if one.fault else "good")
    return ExitStatus.REFUSED if any(one.fault for one in made) or not made else ExitStatus.DONE
