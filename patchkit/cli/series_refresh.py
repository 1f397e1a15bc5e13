"""`patchkit series refresh`: a patch made anew from its work directory."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.archive import Artifact
from patchkit.author import refresh_patch, split_series
from patchkit.catalogue import one_series
from patchkit.cli.ground import free_work, ground_options, open_ground, patches_option, work_option, writing
from patchkit.cli.options import Choice, command_output
from patchkit.counting import counted
from patchkit.diff.model import Patch
from patchkit.editing import check_note, edit_ground, edited_files, is_unedited, read_note
from patchkit.errors import ExitStatus
from patchkit.left_out import NO_CHANGE
from patchkit.lock import lock_command, release_options
from patchkit.locking import render_series
from patchkit.output import Output
from patchkit.quoting import typed
from patchkit.series import Series, read_series


@click.command("refresh", short_help="Make a patch anew from its work directory.")
@click.argument("patch")
@patches_option
@work_option
@ground_options
def command(*, patch: str, patches: Path, work: Path, choice: Choice, artifact: tuple[Path, ...]) -> int:
    """Make PATCH anew: what differs between the release with the patches below it and the work directory.

    The work directory is the one that `series edit` wrote; without --target, --root or --artifact the release is the
    one it was made from. It is required: an installed tree may hold other layers and edits, and nothing there tells
    which of them belong to this patch. The header stays byte for byte. Exit status 1 when a later patch does not apply
    any more; the refreshed patch stays. Rejects of `patch` (.rej) in the work directory are refused: remove them when
    they are worked in.

    \b
    Example:
      patchkit series refresh 0001-longer-timeout.patch --patches ./patches --work ./w
    """
    output = command_output(acting=True)
    note = read_note(work)
    with open_ground(choice, artifact, output, source=note.source) as found:
        series = one_series(patches, found.tree)
        ground = edit_ground(series, patch, found, bare=note.bare)
        check_note(note, series, patch, ground)
        package = found.tree.package.name
        changed = False
        before, after = edited_files(work, ground, package)
        if not is_unedited(work, ground, note, package):
            with writing(series.directory):
                changed = refresh_patch(series, patch, before, after)
        output.line(f"{'refreshed' if changed else 'unchanged'}: {series.directory / patch}", style="good")
        if not changed and not split_series(series, patch)[1].patch.files:
            output.note(f"{NO_CHANGE}: nothing below {work} is other than `series edit` wrote it", style="doubt")
            return ExitStatus.DONE
        return _check_later(series, patch, found, output, patches)


def _check_later(series: Series, name: str, artifact: Artifact, output: Output, patches: Path) -> int:
    """Place the whole series again and say which patches above the refreshed one do not apply any more."""
    again = read_series(series.directory, engine=series.engine, version=series.version)
    _, entry, above = split_series(again, name)
    _warn_of_less(split_series(series, name)[1].patch, entry.patch, output)
    later = {one.name for one in above}
    stuck = [one for one in render_series(again, artifact).refused if one.patch in later]
    for one in stuck:
        output.line(f"  {one.patch}: {one.outcome.value}: {one.reason}", style="bad")
    if again.lock is not None and dict(again.lock.patches).get(name) != entry.patch.sha256:
        output.note(f"the lock is stale, make it anew: {lock_command(series.directory, (artifact.tree,))}")
    if stuck:
        many = counted(len(stuck), "later patch does", "later patches do")
        output.note(f"{many} not apply any more; {name} stays as refreshed", style="bad")
        edit = typed("patchkit", "series", "edit", stuck[0].patch, "--bare", "--patches", patches)
        output.next_step(
            f"{edit} --work {typed(free_work(stuck[0].patch))} {release_options((artifact.tree,))}", beside=True
        )
        return ExitStatus.REFUSED
    if again.lock is None and artifact.file:
        output.next_step(lock_command(series.directory, (artifact.tree,)), beside=True)
    return ExitStatus.DONE


def _warn_of_less(before: Patch, now: Patch, output: Output) -> None:
    """Say that the patch has fewer files or hunks than it had: an edit may have lost them."""
    if len(now.files) < len(before.files) or _hunks(now) < _hunks(before):
        words = f"warning: it has {_extent(now)} now, {_extent(before)} before: look whether something is lost"
        output.note(words, style="doubt")


def _extent(patch: Patch) -> str:
    return f"{counted(_hunks(patch), 'hunk')} in {counted(len(patch.files), 'file')}"


def _hunks(patch: Patch) -> int:
    return sum(len(file.hunks) for file in patch.files)
