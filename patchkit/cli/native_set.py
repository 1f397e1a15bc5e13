"""`patchkit native set`: change mode and arguments while the engine runs."""

from __future__ import annotations

import click

from patchkit.cli.native_status import watched_document
from patchkit.cli.options import json_option
from patchkit.errors import ExitStatus
from patchkit.native.monitor import require_words, segment_directory, tell
from patchkit.native.settings import settings_words
from patchkit.native.symbols import read_symbols
from patchkit.output import Output
from patchkit.resources import native_directory


@click.command("set", short_help="Change the mode while the engine runs.")
@click.argument("words", nargs=-1, metavar="NAME=VALUE...")
@click.option("--pid", type=click.IntRange(1), help="Only this process; without it all that run.")
@json_option
def command(*, words: tuple[str, ...], pid: int | None, output: Output) -> int:
    """Set mode=off|count|trace|transform|replace, qk_scale, window, rope_offset, rope_theta, every, tolerance.

    Seen by the next call of every thread. A CUDA graph that was captured keeps what it was captured with.

    \b
    Examples:
      patchkit native set mode=trace
      patchkit native set --pid 4711 mode=transform qk_scale=0.5
    """
    output.acting = True
    require_words(words)
    told = tell(segment_directory(), words, pid, read_symbols(native_directory()))
    if output.machine:
        output.document({"schema": 1, "processes": [watched_document(one) for one in told]})
    else:
        for one in told:
            output.line(f"{one.counted.pid}: {settings_words(one.counted.settings)}")
    return ExitStatus.DONE
