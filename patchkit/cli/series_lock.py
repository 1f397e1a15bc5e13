"""`patchkit series lock`: what a series was proved against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from patchkit.archive import Artifact
from patchkit.author import write_lock
from patchkit.catalogue import is_for, named_series, one_series, take_down
from patchkit.cli.ground import ground_options, open_grounds, own_patches, writing
from patchkit.cli.options import Choice, command_output
from patchkit.counting import counted
from patchkit.errors import UsageError
from patchkit.lock import LOCK_NAME
from patchkit.locking import Relocked, check_released, make_section, relock, render_series, unproven_offsets
from patchkit.output import Output
from patchkit.series import Series


@click.command("lock", short_help="Write series.lock.")
@click.argument("name", required=False, default="", metavar="[SERIES]")
@click.option(
    "--patches",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of your series, or one with ENGINE/VERSION/ below it; pyproject.toml's without.",
)
@ground_options
def command(*, name: str, patches: Path | None, choice: Choice, artifact: tuple[Path, ...]) -> int:
    """Write series.lock: per release the hash of every file the series touches, before and after.

    A release is a wheel (--artifact, repeatable) or an installation (--target, --root), which is named by its dist-info
    directory and the sha256 of its RECORD. Sections of releases that are not given stay as long as no patch changed. A
    patch that does not apply is refused, and nothing is written.

    \b
    Examples:
      patchkit series lock --patches ./patches --artifact vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl
      patchkit series lock --patches ./our-series --target vllm==0.6.3
      patchkit series lock vllm/0.6.3 --artifact vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl
    """
    output = command_output(acting=True)
    with open_grounds(choice, artifact, output) as grounds:
        if not grounds:
            raise UsageError(
                "no release named", hint="give --artifact WHEEL, or --target ENGINE==VERSION, or --root DIR"
            )
        relocked = [_relock(series, own, output) for series, own in _grouped(name, patches, grounds)]
    for series, made in relocked:
        _write(series, made, output)
    return 0


def _grouped(name: str, patches: Path | None, grounds: Sequence[Artifact]) -> Sequence[tuple[Series, list[Artifact]]]:
    """Return each series with the releases that are for it."""
    if name and patches is not None:
        raise UsageError("which series?", why="expected SERIES or --patches, one of the two")
    patches = patches or (None if name else own_patches())
    groups: dict[Path, tuple[Series, list[Artifact]]] = {}
    for ground in grounds:
        check_released(ground)
        series = one_series(patches, ground.tree) if patches is not None else _named(name, ground)
        groups.setdefault(series.directory, (series, []))[1].append(ground)
    return list(groups.values())


def _named(name: str, ground: Artifact) -> Series:
    fitting = [series for series in map(take_down, named_series(name)) if is_for(series, ground.tree)]
    if len(fitting) != 1:
        what = f"{name}: {'several' if fitting else 'no'} series for {ground.tree.engine} {ground.tree.version}"
        raise UsageError(what, hint="name its directory")
    return fitting[0]


def _relock(series: Series, grounds: Sequence[Artifact], output: Output) -> tuple[Series, Relocked]:
    sections = []
    for ground in grounds:
        output.progress(f"placing the series on {ground.file}")
        rendered = render_series(series, ground)
        sections.append(make_section(rendered))
        for shift in unproven_offsets(rendered):
            place = f"{series.directory / shift.patch}:{shift.line_number}"
            output.note(f"warning: {place}: {shift.words}", style="doubt")
    return series, relock(series, sections)


def _write(series: Series, made: Relocked, output: Output) -> None:
    place = series.directory / LOCK_NAME
    with writing(series.directory):
        changed = write_lock(series.directory, made.lock)
    for file in made.dropped:
        output.note(f"warning: {file}: its section is gone, because patches changed; lock with it again", style="doubt")
    output.line(f"{'written' if changed else 'unchanged'}: {place}", style="good")
    for section in made.lock.artifacts:
        output.line(f"  {section.file}: {counted(len(section.files), 'file')}")
