"""States of earlier installations, put aside when a reinstall replaced a patched tree: nothing of them is lost."""

from __future__ import annotations

import os
from pathlib import Path

from patchkit.errors import RefusedError
from patchkit.state import GENERATED, StateDirectory

_KEPT = ("receipt.json", "pristine", "patches", *GENERATED)


def archive_state(state: StateDirectory) -> Path:
    """Move the receipt and all it names to `archive/<n>/`, the receipt first: from then on the tree is unpatched.

    Needs the exclusive lock and no pending journal. What an interruption leaves behind is swept by the next writer.
    """
    try:
        return _archive(state)
    except OSError as error:
        raise RefusedError(
            f"cannot put the old state aside in {state.archive}", why=f"{error.strerror}; the tree is as it was"
        ) from error


def next_place(state: StateDirectory) -> Path:
    """Return where `archive_state` would put a state now."""
    there = state.archive.iterdir() if state.archive.is_dir() else ()
    return state.archive / str(1 + max((int(path.name) for path in there if path.name.isdecimal()), default=0))


def _archive(state: StateDirectory) -> Path:
    place = next_place(state)
    state.archive.mkdir(exist_ok=True)
    place.mkdir()
    for name in _KEPT:
        if os.path.lexists(state.directory / name):
            (state.directory / name).rename(place / name)
    for directory in (place, state.archive, state.directory):
        _sync(directory)
    return place


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
