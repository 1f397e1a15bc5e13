"""`patchkit series list`: which series there are."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.catalogue import Shelved, shelf, take_down
from patchkit.cli.options import json_option
from patchkit.counting import counted
from patchkit.errors import ExitStatus, PatchkitError
from patchkit.output import Output
from patchkit.resources import patches_directory, user_directories
from patchkit.series import Series, stale_entries


@click.command("list", short_help="Series that there are.")
@click.option(
    "--patches",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory with series of your own. Repeatable.",
)
@json_option
def command(*, patches: tuple[Path, ...], output: Output) -> int:
    """List the shipped series and those of your directories (--patches, else [tool.patchkit] in pyproject.toml).

    Exit status 1 when one of them cannot be read.

    \b
    Examples:
      patchkit series list
      patchkit series list --patches ./patches --json
    """
    own = patches or user_directories(Path.cwd())
    places = [("shipped", one) for one in shelf(patches_directory())]
    places += [("user", one) for directory in own for one in shelf(directory)]
    rows = [(origin, one, _read(one)) for origin, one in places]
    if output.machine:
        output.document({"schema": 1, "series": [_document(*row) for row in rows]})
    else:
        for row in rows:
            _show(*row, output)
    broken = any(isinstance(series, PatchkitError) for _, _, series in rows)
    return ExitStatus.REFUSED if broken else ExitStatus.DONE


def _read(shelved: Shelved) -> Series | PatchkitError:
    try:
        return take_down(shelved)
    except PatchkitError as error:
        return error


def _show(origin: str, shelved: Shelved, series: Series | PatchkitError, output: Output) -> None:
    if isinstance(series, PatchkitError):
        output.line(f"{shelved.name} ({origin})  unreadable: {series.what}", style="bad")
        return
    name = f"{series.engine or '(any engine)'}/{series.version}"
    patches = counted(len(series.entries), "patch", "patches")
    output.line(f"{name} ({origin}), {patches}, in {series.directory}", style="head")
    if series.on_shipped:
        output.line("  stands on the shipped series")
    releases = _locked(series)
    for release in releases:
        output.line(f"  locked: {release}")
    stale = stale_entries(series)
    if stale:
        output.line(f"  the lock is stale, it differs for {', '.join(stale)}", style="doubt")
    if not releases:
        output.line("  not locked", style="doubt")


def _locked(series: Series) -> list[str]:
    return [one.file for one in series.lock.artifacts] if series.lock is not None else []


def _document(origin: str, shelved: Shelved, series: Series | PatchkitError) -> dict[str, object]:
    readable = isinstance(series, Series)
    return {
        "origin": origin,
        "engine": series.engine if isinstance(series, Series) else shelved.engine,
        "version": shelved.version,
        "directory": str(shelved.directory),
        "patches": [entry.name for entry in series.entries] if isinstance(series, Series) else None,
        "on_shipped": series.on_shipped if isinstance(series, Series) else None,
        "locked": _locked(series) if isinstance(series, Series) else None,
        "stale": list(stale_entries(series)) if isinstance(series, Series) else None,
        "error": "" if readable else str(series),
    }
