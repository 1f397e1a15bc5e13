"""`patchkit native top`: what the engine does now."""

from __future__ import annotations

import time

import click

from patchkit.cli.options import json_option
from patchkit.counting import counted
from patchkit.errors import ExitStatus
from patchkit.native.monitor import segment_directory
from patchkit.native.rates import Gauge, Rate
from patchkit.output import Output, one_line


@click.command("top", short_help="Calls a second, time a call, shapes.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=1.0, help="Between two looks (default: 1).")
@click.option("--times", type=click.IntRange(1), help="So many looks; without it until it is interrupted.")
@json_option
def command(*, seconds: float, times: int | None, output: Output) -> int:
    """Show the running processes again and again. Times and shapes are there in the modes trace and transform.

    With --json one look, of one interval. Exit status 1: the shim is bound in no
    running process.

    \b
    Examples:
      patchkit native top
      patchkit native top --times 1 --json
    """
    gauge = Gauge(segment_directory())
    gauge.measure(0)
    left = 1 if output.machine else times
    rates: tuple[Rate, ...] = ()
    while left is None or left > 0:
        began = time.monotonic()
        time.sleep(seconds)
        rates = gauge.measure(time.monotonic() - began)
        left = None if left is None else left - 1
        if not output.machine:
            _show(rates, output)
    gauge.close()
    if output.machine:
        output.document({"schema": 1, "rates": [_document(one) for one in rates]})
    return ExitStatus.DONE if rates else ExitStatus.REFUSED


def _document(rate: Rate) -> dict[str, object]:
    return {
        "pid": rate.pid,
        "symbol": rate.symbol,
        "calls": rate.calls,
        "calls_per_second": rate.calls_per_second,
        "traced": rate.traced,
        "lost": rate.lost,
        "median_ns": rate.median_ns,
        "time_of": rate.device,
        "shapes": [list(shape) for shape in rate.shapes],
    }


def _show(rates: tuple[Rate, ...], output: Output) -> None:
    if not rates:
        output.line("the shim is bound in no running process; `patchkit native status` shows all", style="doubt")
    for rate in rates:
        line = f"{rate.pid} {one_line(rate.symbol[:48])}  {rate.calls_per_second:.0f}/s"
        if rate.traced:
            shapes = " ".join("x".join(map(str, shape)) for shape in rate.shapes)
            line += f"  {rate.device} {rate.median_ns / 1000:.1f} us  q {shapes}  ({counted(rate.lost, 'record')} lost)"
        output.line(line)
    output.flush()
