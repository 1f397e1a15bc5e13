"""`patchkit series show`: what was understood of a series."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from patchkit.catalogue import named_series, one_series, shelf, take_down
from patchkit.cli.options import Choice, json_option, names_a_tree, select_tree, tree_options
from patchkit.counting import counted
from patchkit.diff.model import FilePatch
from patchkit.errors import UsageError
from patchkit.output import Output
from patchkit.resources import patches_directory, user_directories
from patchkit.series import PatchEntry, Series, stale_entries
from patchkit.strip import strip_name

_SIGNS = ((b"+", "added"), (b"-", "removed"))


@click.command("show", short_help="Every patch of a series.")
@click.argument("name", required=False, default="", metavar="[SERIES]")
@tree_options
@json_option
def command(*, name: str, choice: Choice, output: Output) -> int:
    """Show every patch of a series: subject, trailers, files and hunks. SERIES is a name or a directory.

    Without SERIES the shipped series that fits --target or --root is shown; without these the one of [tool.patchkit] in
    pyproject.toml.

    \b
    Examples:
      patchkit series show vllm/0.6.3
      patchkit series show ./patches/vllm/0.6.3 --json
      patchkit series show --root ./site-packages
    """
    series = _chosen(name, choice, output)
    if output.machine:
        output.document({"schema": 1, **_document(series)})
        return 0
    locked = [one.file for one in series.lock.artifacts] if series.lock is not None else []
    stale = ", ".join(stale_entries(series))
    note = f"; the lock is stale, it differs for {stale}" if stale else ""
    output.line(f"{series.engine or '(any engine)'}/{series.version} in {series.directory}", style="head")
    if series.on_shipped:
        output.line("stands on the shipped series")
    output.line(f"locked: {', '.join(locked) or 'for no release'}{note}")
    for entry in series.entries:
        _show(entry, output)
    return 0


def _chosen(name: str, choice: Choice, output: Output) -> Series:
    if names_a_tree(choice) and not name:
        return one_series(patches_directory(), select_tree(choice, output))
    found = named_series(name) if name else [one for place in user_directories(Path.cwd()) for one in shelf(place)]
    if len(found) == 1:
        return take_down(found[0])
    if not found:
        raise UsageError("no series named", hint="`patchkit series list` shows what there is; or give --target, --root")
    names = "\n".join(f"{one.name} in {one.directory}" for one in found)
    raise UsageError(f"{name or 'pyproject.toml'}: {len(found)} series", why=names, hint="name one of them")


def _show(entry: PatchEntry, output: Output) -> None:
    output.line()
    output.line(entry.name, style="head")
    output.line(f"  {entry.trailers.subject or '(no subject)'}")
    for name, value in _trailers(entry).items():
        if name != "subject" and value:
            output.line(f"  {name.replace('_', '-')}: {', '.join(value) if isinstance(value, list) else value}")
    for file in entry.patch.files:
        document = _file_document(file, entry.strip)
        counts = f"+{document['added']} -{document['removed']}"
        output.line(f"  {document['name']}  {file.change.value}, {counted(len(file.hunks), 'hunk')}, {counts}")
        for hunk in file.hunks:
            output.line(f"    {hunk.header.decode('utf-8', 'backslashreplace')}", style="dim")
    if not entry.patch.files:
        output.line("  no change yet", style="doubt")


def _trailers(entry: PatchEntry) -> dict[str, str | list[str]]:
    trailers = asdict(entry.trailers)
    trailers["toggle"] = entry.trailers.toggle.value if entry.trailers.config else ""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in trailers.items()}


def _document(series: Series) -> dict[str, object]:
    return {
        "engine": series.engine,
        "version": series.version,
        "directory": str(series.directory),
        "on_shipped": series.on_shipped,
        "locked": [one.file for one in series.lock.artifacts] if series.lock is not None else [],
        "stale": list(stale_entries(series)),
        "patches": [
            {
                "name": entry.name,
                "strip": entry.strip,
                "sha256": entry.patch.sha256,
                **_trailers(entry),
                "files": [_file_document(file, entry.strip) for file in entry.patch.files],
            }
            for entry in series.entries
        ],
    }


def _file_document(file: FilePatch, strip: int) -> dict[str, object]:
    counts = {word: sum(line.startswith(sign) for hunk in file.hunks for line in hunk.lines) for sign, word in _SIGNS}
    hunks = [
        {
            "patch_line": hunk.line_number,
            "old": [hunk.old_start, hunk.old_count],
            "new": [hunk.new_start, hunk.new_count],
            "section": hunk.section.decode("utf-8", "backslashreplace"),
        }
        for hunk in file.hunks
    ]
    written = (file.new_name or file.old_name or "").encode("utf-8", "surrogateescape")
    split = strip_name(written.decode("utf-8", "backslashreplace"), strip)
    name = split[1] if split is not None else written.decode("utf-8", "backslashreplace")
    return {"name": name, "change": file.change.value, "binary": file.binary is not None, **counts, "hunks": hunks}
