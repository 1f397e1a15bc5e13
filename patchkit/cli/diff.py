"""`patchkit diff`: what differs from pristine."""

from __future__ import annotations

from pathlib import PurePosixPath

import click

from patchkit.cli.options import Choice, json_option, select_tree, tree_options
from patchkit.diff.produce import produce_diff
from patchkit.drift import check_workable
from patchkit.errors import TreeChangedError
from patchkit.nearby import place_warnings
from patchkit.output import Output, one_line
from patchkit.session import Session, Standing, open_session
from patchkit.tree import Kind, TreeEntry


@click.command("diff", short_help="What differs from pristine, as a unified diff.")
@tree_options
@json_option
def command(*, choice: Choice, output: Output) -> int:
    """Write a unified diff of the tree against its pristine files, as patches and hands left it.

    `git apply` and patchkit read it. The distribution's RECORD is left out.

    \b
    Examples:
      patchkit diff --target vllm
      patchkit diff --root ./site-packages > all-changes.diff
    """
    tree = select_tree(choice, output, plain=True)
    for warning in place_warnings(tree):
        output.note(f"warning: {warning}", style="doubt")
    with open_session(tree, write=False, say=output.note) as session:
        if session.condition.standing is Standing.PENDING:
            check_workable(session)
        if session.condition.standing is Standing.REPLACED:
            raise TreeChangedError(
                "no diff: a reinstall replaced the patched files",
                why=session.condition.reason,
                hint="`patchkit apply` starts afresh",
            )
        before, after = _changed(session)
    text = produce_diff(before, after)
    if output.machine:
        paths = sorted(str(path) for path in before.keys() | after.keys())
        output.document({"schema": 1, "files": paths, "diff": text.decode("utf-8", errors="backslashreplace")})
    else:
        output.raw(text)
    return 0


def _changed(session: Session) -> tuple[dict[PurePosixPath, TreeEntry], dict[PurePosixPath, TreeEntry]]:
    """Return what the touched files were and what they are now, those that are not there left out."""
    situation = session.situation
    record = PurePosixPath(situation.tree.distribution, "RECORD")
    before: dict[PurePosixPath, TreeEntry] = {}
    after: dict[PurePosixPath, TreeEntry] = {}
    for file in situation.receipt.files if situation.receipt is not None else ():
        if file.path == record:
            continue
        was, now = situation.pristine.get(file.path), situation.entries.get(file.path)
        if was is not None:
            before[file.path] = was
        if now is not None and not (file.current is None and now.kind is Kind.DIRECTORY):
            after[file.path] = _writable(file.path, now)
    return before, after


def _writable(path: PurePosixPath, entry: TreeEntry) -> TreeEntry:
    if entry.kind in (Kind.FILE, Kind.SYMLINK):
        return entry
    what = "a directory" if entry.kind is Kind.DIRECTORY else "a fifo, a socket or a device"
    raise TreeChangedError(
        f"{one_line(str(path))}: {what} stands in the place of a patched file",
        why="a diff cannot say that",
        hint="move it away, then `patchkit status`",
    )
