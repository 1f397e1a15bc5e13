"""Patched trees a little below a directory that is none: where somebody named the directory above the one he means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from patchkit.environment import directory_names, prefix_sites
from patchkit.errors import TargetError
from patchkit.quoting import typed_path
from patchkit.state import HOME, StateDirectory
from patchkit.target import Layout, TargetTree

_MOST_DIRECTORIES = 500
_SHOWN = 4


def patched_below(directory: Path) -> tuple[Path, ...]:
    """Return the patched trees among the first 500 directories one and two levels down, and in environments there."""
    return tuple(dict.fromkeys(place for place in _places(directory) if _is_patched(place)))


def meant_below(directory: Path) -> str:
    """Return the options that name the patched trees below a directory, "" when there is none."""
    return ", or ".join(f"--root {typed_path(place, 'DIR')}" for place in patched_below(directory)[:_SHOWN])


def misplaced(tree: TargetTree) -> TargetError | None:
    """Return what to say where a plain directory that is not patched was named, and a tree below it is patched."""
    if tree.layout is not Layout.PLAIN or StateDirectory(root=tree.root, engine=tree.engine).receipt.is_file():
        return None
    meant = meant_below(tree.root)
    if not meant:
        return None
    return TargetError(
        f"nothing is patched in {tree.root}, but a tree below it is",
        why="no engine lies there and patchkit keeps no state there",
        hint=f"did you mean {meant}",
    )


def place_warnings(tree: TargetTree) -> tuple[str, ...]:
    """Return the same for a command that only looks."""
    error = misplaced(tree)
    return () if error is None else (f"{error.what}: {error.hint}",)


def _places(directory: Path) -> Iterator[Path]:
    children = list(islice(_directories(directory), _MOST_DIRECTORIES))
    yield from children
    for child in children:
        yield from prefix_sites(child)
    yield from islice((below for child in children for below in _directories(child)), _MOST_DIRECTORIES)


def _directories(directory: Path) -> Iterator[Path]:
    for name in sorted(directory_names(directory)):
        if name not in (HOME, ".git") and (directory / name).is_dir() and not (directory / name).is_symlink():
            yield directory / name


def _is_patched(place: Path) -> bool:
    return any(os.path.isfile(place / HOME / name / "receipt.json") for name in directory_names(place / HOME))  # noqa: PTH113
