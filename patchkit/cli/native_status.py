"""`patchkit native status`: where the shim is, and how often it was called."""

from __future__ import annotations

import click

from patchkit.cli.options import json_option
from patchkit.counting import counted
from patchkit.errors import ExitStatus
from patchkit.native.monitor import Sight, Watched, forget, look, segment_directory
from patchkit.native.settings import settings_document, settings_words
from patchkit.output import Output, one_line

_NEXT = "`patchkit native run --target ENGINE -- PROGRAM` starts one with it"


@click.command("status", short_help="Where it is loaded, how often it was called.")
@click.option("--pid", type=click.IntRange(1), help="Only this process.")
@click.option("--forget", "forgetting", is_flag=True, help="Remove what ended processes left in shared memory.")
@json_option
def command(*, pid: int | None, forgetting: bool, output: Output) -> int:
    """Show every process with the shim: what it is bound to, calls, mode; those that have ended too.

    Exit status 1: no process has it, or none was called. CUDA graphs call no host function when they are replayed:
    what a graph does is not counted, and a captured graph keeps the mode of its capture.

    \b
    Examples:
      patchkit native status
      patchkit native status --pid 4711 --json
      patchkit native status --forget
    """
    directory = segment_directory()
    sight = look(directory, pid)
    gone = forget(directory) if forgetting else ()
    called = any(one.counted.calls for one in sight.watched)
    if output.machine:
        output.document(sight_document(sight, called=called))
    else:
        _show(sight, output)
        if forgetting:
            output.line(f"removed: {len(gone)} of ended processes")
    return ExitStatus.DONE if called or forgetting else ExitStatus.REFUSED


def sight_document(sight: Sight, *, called: bool) -> dict[str, object]:
    """Return what was seen for JSON."""
    processes = [watched_document(one) for one in sight.watched]
    return {
        "schema": 1,
        "called": called,
        "processes": processes,
        "unreadable": list(sight.unreadable),
        "next": "" if sight.watched else _NEXT,
    }


def watched_document(one: Watched) -> dict[str, object]:
    """Return a process for JSON."""
    seen = one.counted
    return {
        "pid": seen.pid,
        "running": one.running,
        "program": seen.program,
        "verdict": one.verdict,
        "settings": dict(settings_document(seen.settings)),
        "stage2": {"state": seen.stage2 or "none", "message": seen.message},
        "threads": seen.threads,
        "records": {"written": seen.written, "unrecorded": seen.unrecorded},
        "replace": {"replaced": seen.replaced, "compared": seen.compared, "differed": seen.differed},
        "entry_points": [
            {
                "symbol": symbol.name,
                "object": symbol.object,
                "way": symbol.way,
                "typed": symbol.typed,
                "calls": symbol.calls,
            }
            for symbol in seen.symbols
        ],
    }


def _show(sight: Sight, output: Output) -> None:
    for one in sight.watched:
        seen = one.counted
        state = "" if one.running else " (ended)"
        style = "good" if seen.calls else "doubt"
        output.line(f"{seen.pid}{state} {one_line(seen.program)}: {one.verdict}", style=style)
        threads, records = counted(seen.threads, "thread"), counted(seen.written, "record")
        output.line(f"  {settings_words(seen.settings)}, {threads}, {records}")
        for symbol in seen.symbols:
            if symbol.way:
                typed = "typed" if symbol.typed else "counted only"
                place = f"{one_line(symbol.object)} by {symbol.way}, {typed}"
                output.line(f"  {one_line(symbol.name[:60])}: {counted(symbol.calls, 'call')}, {place}")
        if seen.compared or seen.replaced:
            output.line(f"  replaced {seen.replaced}, compared {seen.compared}, differed {seen.differed}")
        if seen.message:
            output.line(f"  {one_line(seen.message)}", style="bad")
    if not sight.watched:
        output.line("no process has the shim", style="doubt")
        output.note(f"next: {_NEXT}")
    for text in sight.unreadable:
        output.note(f"warning: {text}", style="doubt")
