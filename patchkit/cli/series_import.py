"""`patchkit series import`: any diff as a patch of a series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from patchkit.archive import Artifact
from patchkit.author import NamePaths, Written, import_patch
from patchkit.catalogue import default_applies_to, series_directory
from patchkit.cli.ground import (
    free_work,
    ground_options,
    make_letterhead,
    on_shipped_option,
    open_grounds,
    patches_option,
    typed_release,
    writing,
)
from patchkit.cli.options import Choice, command_output
from patchkit.cli.reading import read_patch
from patchkit.diff.model import Patch
from patchkit.diff.parse import parse_patch
from patchkit.diff.render import render_file
from patchkit.errors import PatchkitError, UsageError
from patchkit.lint import Severity, lint_decision
from patchkit.locking import ground_of, render_series
from patchkit.naming import names_as_written, names_in_tree
from patchkit.output import Output
from patchkit.quoting import typed
from patchkit.series import Series, read_entries, read_series, stands_on_shipped
from patchkit.strip import outside_note
from patchkit.trailers import parse_trailers


@click.command("import", short_help="Add any diff as a patch.")
@click.argument("file", type=click.Path(path_type=Path))
@patches_option
@ground_options
@click.option("--subject", default="", help="The title, where the diff has none; its file name without.")
@click.option("--strip", "-p", type=click.IntRange(0, 99), help="Components to strip; found from the tree without.")
@click.option("--package-only", is_flag=True, help="Leave out what is not in the tree (tests, docs, csrc).")
@click.option(
    "--author", default="", metavar="'NAME <MAIL>'", help="Who made it, where the diff does not say; git's user."
)
@on_shipped_option
def command(  # noqa: PLR0913 -- an option each
    *,
    file: Path,
    patches: Path,
    choice: Choice,
    artifact: tuple[Path, ...],
    subject: str,
    strip: int | None,
    package_only: bool,
    author: str,
    on_shipped: bool,
) -> int:
    """Copy a diff (- for stdin) into a series: numbered, with a header, names as in a wheel. Hunks are never changed.

    With --target, --root or --artifact the names are looked for in that release, the patch is for that version where
    its header does not say otherwise, and the series is ENGINE/VERSION below --patches unless --patches is a series
    itself. Without, the names must be a/PACKAGE/... and b/PACKAGE/... With --on-shipped a series begins that is cut on
    top of the shipped one: a diff against the tree as the shipped series leaves it.

    \b
    Examples:
      patchkit series import pr-9034.diff --patches ./patches --target vllm==0.6.3 --package-only
      patchkit series import fix.patch --patches ./our-series --subject "Read the version from metadata"
      patchkit series import ours.diff --patches ./patches --target vllm==0.6.3 --on-shipped
    """
    output = command_output(acting=True)
    patch = _read(file, output)
    with open_grounds(choice, artifact, output) as grounds:
        ground = _at_most_one(grounds)
        tree = ground.tree if ground is not None else None
        directory = series_directory(patches, tree)
        names = _names(patch, _stood_on(ground, directory, on_shipped=on_shipped), strip, output)
        with writing(directory):
            written = import_patch(
                directory,
                patch,
                make_letterhead(subject, author),
                slug=_title(patch, subject) if str(file) == "-" or file.is_fifo() else "",
                name_paths=names,
                package_only=package_only,
                applies_to=default_applies_to(tree),
                on_shipped=on_shipped,
            )
        _show(written, output, left_out=package_only)
        release = typed_release(choice, artifact)
        if ground is not None:
            _show_unplaced(written, ground, output, anew=f"{_bare_edit(written.name, patches)} {release}")
    lint = f"{typed('patchkit', 'series', 'lint', patches)} {release}".rstrip()
    output.next_step(f"fill in its header, then {lint}", beside=True)
    return 0


def _at_most_one(grounds: Sequence[Artifact]) -> Artifact | None:
    if len(grounds) > 1:
        raise UsageError(f"{len(grounds)} releases named", hint="a diff is imported with the names of one")
    return grounds[0] if grounds else None


def _bare_edit(name: str, patches: Path) -> str:
    return typed("patchkit", "series", "edit", name, "--bare", "--patches", patches, "--work", free_work(name))


def _stood_on(release: Artifact | None, directory: Path, *, on_shipped: bool) -> Artifact | None:
    """Return what the names are looked for in: the release, or that with the shipped series on it."""
    if release is None or not (on_shipped or stands_on_shipped(directory)):
        return release
    begun = Series(engine=release.tree.engine, version="", directory=directory, entries=(), lock=None, on_shipped=True)
    return ground_of(begun, release)[0]


def _show(written: Written, output: Output, *, left_out: bool) -> None:
    output.line(f"imported: {written.path}", style="good")
    _show_twins(written.path.parent, written.name, output)
    _show_outside(written.outside, output, left_out=left_out)


def _show_unplaced(written: Written, release: Artifact, output: Output, *, anew: str) -> None:
    """Say for which hunks the release, with the series below on it, has no place; the patch is imported all the same.

    `anew` is the command that begins such a patch again.
    """
    directory, name = written.path.parent, written.name
    output.progress("placing it on the release")
    try:
        series = read_series(directory, engine=release.tree.engine, version=directory.name)
        placed = [one for one in render_series(series, release).decisions if one.patch == name]
    except PatchkitError as error:
        output.note(f"warning: {name}: not tried on the release: {error.what}", style="doubt")
        return
    found = [finding for one in placed for finding in lint_decision(series, one)]
    faults = [finding for finding in found if finding.severity is Severity.ERROR]
    for fault in faults:
        output.note(f"warning: {fault.place}: {fault.what}", style="doubt")
    if faults:
        output.note(f"to make it anew on this release: {anew}")


def _show_twins(directory: Path, name: str, output: Output) -> None:
    for twin in _twins(directory, name):
        words = f"warning: {twin} has the same change; delete {name} and its line in series if it is not meant"
        output.note(words, style="doubt")


def _twins(directory: Path, name: str) -> Iterator[str]:
    """Yield the patches of a series that change what one of them does; lint tells of those that cannot be read."""
    changes = {
        entry.name: b"".join(render_file(file) for file in entry.patch.files) for entry in read_entries(directory, [])
    }
    for other, change in changes.items():
        if other != name and change == changes.get(name):
            yield other


def _show_outside(outside: tuple[str, ...], output: Output, *, left_out: bool) -> None:
    for name in outside:
        output.note(f"{'left out' if left_out else 'warning'}: {name}: {outside_note(name)}", style="doubt")
    if outside and not left_out:
        output.note("apply will need --package-only, and series edit refuses such a patch", style="doubt")
        output.note(
            "series import --package-only leaves these files out; delete this patch and its line in series first"
        )


def _read(file: Path, output: Output) -> Patch:
    source, raw = read_patch(file, output.progress)
    return parse_patch(raw, source=str(source))


def _title(patch: Patch, subject: str) -> str:
    """Return what to call a patch that came through a pipe, which has no name."""
    return subject or parse_trailers(patch.preamble, source=patch.source).subject or "imported"


def _names(patch: Patch, ground: Artifact | None, strip: int | None, output: Output) -> NamePaths:
    if ground is None:
        if strip is not None:
            raise UsageError("--strip needs a tree", why="names are taken as they are", hint="give --target or --root")
        return names_as_written(patch)
    name_paths, words = names_in_tree(patch, ground, strip=strip)
    output.note(f"names: {words}")
    return name_paths
