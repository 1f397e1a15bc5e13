"""`patchkit attention bench`: every kernel and its peers, checked and then timed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchkit.cli.attention_check import SEED
from patchkit.cli.options import json_option
from patchkit.errors import ExitStatus, RefusedError
from patchkit.output import Output
from patchkit.quoting import typed

if TYPE_CHECKING:
    from patchkit.attention.bench import BenchResult

_FILE = click.Path(dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command("bench", short_help="Check, then time every kernel beside its peers.")
@click.option("--kernel", "names", multiple=True, metavar="NAME", help="Only this kernel; repeatable.")
@click.option("--case", "text", default="", metavar="TEXT", help="Only workloads with this text in their name.")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default=None, help="Default: CUDA where there is some.")
@click.option("--calls", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Timed calls of each.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="What the inputs are drawn from.")
@click.option("--peers", type=_DIRECTORY, help="Where `attention peers` left FlashAttention 3.")
@click.option("--plot", "picture", type=_FILE, metavar="FILE.svg", help="Write a bar chart.")
@click.option("--record", type=_DIRECTORY, help="Write a JSON record per workload there.")
@json_option
def command(  # noqa: PLR0913 -- an option each
    *,
    names: tuple[str, ...],
    text: str,
    device: str | None,
    calls: int,
    seed: int,
    peers: Path | None,
    picture: Path | None,
    record: Path | None,
    output: Output,
) -> int:
    """Check every kernel, then time it: median and spread, beside the peers, in one process.

    A kernel that is wrong is not timed. On a CPU only PyTorch's own operations are timed, on short workloads. Status 1:
    a kernel is wrong, or one that was asked for by name took no workload.

    \b
    Examples:
      patchkit attention bench
      patchkit attention bench --device cuda --peers ./peers --record ./records
      patchkit attention bench --device cuda --case decode --plot decode.svg
    """
    from patchkit.attention.here import prepare

    where = prepare(device or "")
    from patchkit.attention.benching import run_bench
    from patchkit.attention.device import device_facts
    from patchkit.attention.peers import load_peers

    _require_places(picture, record)
    if peers is not None:
        load_peers(peers)
    results = run_bench(names=names, text=text, device=where, calls=calls, seed=seed, tell=output.progress)
    facts = device_facts(where)
    status = _show(results, facts, output, asked=names)
    _write(results, facts, picture, record)
    return status


def _command_line() -> str:
    import sys

    return typed("patchkit", *sys.argv[1:])


def _require_places(picture: Path | None, record: Path | None) -> None:
    """Refuse to measure for minutes what could not be written then."""
    try:
        if picture is not None:
            _try_to_write(picture)
        if record is not None:
            record.mkdir(parents=True, exist_ok=True)
            _try_to_write(record / "a-record.json")
    except OSError as error:
        raise _unwritten(error) from error


def _try_to_write(file: Path) -> None:
    """Raise OSError where a file could not be written; leaves what is there as it is."""
    there = file.exists()
    with file.open("ab"):
        pass
    if not there:
        file.resolve().unlink()


def _write(results: list[BenchResult], facts: dict[str, object], picture: Path | None, record: Path | None) -> None:
    from patchkit.attention.plot import plot
    from patchkit.attention.report import write_records

    try:
        if picture is not None:
            picture.write_text(plot(results, title=f"{facts['device']}, torch {facts['torch']}"), encoding="utf-8")
        if record is not None:
            write_records(results, facts, _command_line(), record)
    except OSError as error:
        raise _unwritten(error) from error


def _unwritten(error: OSError) -> RefusedError:
    return RefusedError(f"the results could not be written: {error.filename}", why=f"  {error.strerror}")


def _show(results: list[BenchResult], facts: dict[str, object], output: Output, *, asked: tuple[str, ...]) -> int:
    from patchkit.attention.report import bench_document, table

    if output.machine:
        output.document(bench_document(results, facts, _command_line()))
    else:
        output.line(", ".join(f"{name} {value}" for name, value in facts.items() if value is not None))
        for line, style in table(results):
            output.line(line, style=style)
    timed = {result.kernel for result in results if result.timing}
    wrong = any(result.fault for result in results) or not timed.issuperset(asked)
    return ExitStatus.REFUSED if wrong else ExitStatus.DONE
