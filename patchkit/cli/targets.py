"""`patchkit targets`: the engines that are here."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.cli.options import json_option
from patchkit.cli.show import tree_document, tree_words
from patchkit.counting import counted
from patchkit.errors import ExitStatus, PatchkitError
from patchkit.output import Output
from patchkit.resources import patches_directory
from patchkit.series import Series, find_series
from patchkit.session import Condition, Standing, open_session
from patchkit.target import TargetTree, find_targets


@click.command("targets", short_help="Engines found here.")
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Look in this tree.")
@click.option(
    "--python", type=click.Path(path_type=Path), metavar="EXE", help="Look in this interpreter's environment."
)
@json_option
def command(*, root: Path | None, python: Path | None, output: Output) -> int:
    """List the engines of an environment or a tree: version, layout, the series that fits, patched or not.

    \b
    Examples:
      patchkit targets
      patchkit targets --python /opt/venv/bin/python
      patchkit targets --root ./site-packages --json
    """
    rows = [_look(tree) for tree in find_targets(root=root, python=python)]
    unsound = any(isinstance(how, PatchkitError) or how.standing is Standing.PENDING for _, _, how in rows)
    if output.machine:
        output.document({"schema": 1, "targets": [_document(*row) for row in rows]})
    elif not rows:
        output.line("no engine found; --python EXE looks in another environment, --root DIR in a tree")
    else:
        for tree, series, how in rows:
            output.line(tree_words(tree), style="head")
            output.line(f"  series: {_series_words(series, tree)}")
            output.line(f"  {': '.join(_standing(how))}")
    return ExitStatus.TREE_CHANGED if unsound else ExitStatus.DONE


def _standing(how: Condition | PatchkitError) -> tuple[str, str]:
    return ("unreadable", how.what) if isinstance(how, PatchkitError) else (how.standing.value, how.reason)


def _look(tree: TargetTree) -> tuple[TargetTree, Series | PatchkitError | None, Condition | PatchkitError]:
    """Return a tree with its series and how it stands, or with what is wrong with either."""
    series: Series | PatchkitError | None
    try:
        series = find_series(patches_directory(), tree)
    except PatchkitError as error:
        series = error
    try:
        with open_session(tree, write=False) as session:
            return tree, series, session.condition
    except PatchkitError as error:
        return tree, series, error


def _series_words(series: Series | PatchkitError | None, tree: TargetTree) -> str:
    if series is None:
        return "none shipped for this release"
    if isinstance(series, PatchkitError):
        return f"unreadable: {series.what}"
    patches = counted(len(series.entries), "patch", "patches")
    return f"{tree.engine}/{series.version}, {patches}{'' if series.lock else ', no lock'}"


def _document(
    tree: TargetTree, series: Series | PatchkitError | None, how: Condition | PatchkitError
) -> dict[str, object]:
    standing, reason = _standing(how)
    return {
        **tree_document(tree),
        "series": series.version if isinstance(series, Series) else None,
        "standing": standing,
        "reason": reason,
    }
