"""What a transaction leaves in the state directory, kept in order: only what the receipt names stays."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from patchkit.errors import UnsafePathError
from patchkit.held import Directories, remove_tree
from patchkit.kept_patches import is_needed
from patchkit.receipt import Receipt, read_receipt
from patchkit.state import StateDirectory, pristine_name

WORK = ("stage", "backup")
_KEPT = ("pristine", "patches", "archive")
NEW_JOURNAL = "journal.json.new"


def stored_receipt(state: StateDirectory) -> Receipt | None:
    """Return the receipt of the stack as it is, None for an untouched tree."""
    try:
        return read_receipt(state.receipt)
    except FileNotFoundError:
        return None


def clear_leftovers(state: StateDirectory, directories: Directories) -> bool:
    """Remove what a writer left that was stopped before its journal or after it; tell whether there was any.

    Raises UnsafePathError where a symlink or a file stands for a directory of ours: nothing is written through it.
    """
    directory = directories.descriptor(state.relative)
    names = os.listdir(directory)  # noqa: PTH208 -- a descriptor
    for name in _KEPT:
        if name in names:
            _check_directory(state, directory, name)
    if not {NEW_JOURNAL, *WORK}.intersection(names):
        return False
    clear(directory, stored_receipt(state))
    return True


def _check_directory(state: StateDirectory, directory: int, name: str) -> None:
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        what = "a symlink" if stat.S_ISLNK(mode) else "not a directory"
        raise UnsafePathError(
            f"{state.directory / name} is {what}",
            why="  patchkit keeps its state in a directory of the tree itself; nothing was written",
            hint="put the directory itself in its place",
        )


def clear(directory: int, receipt: Receipt | None) -> None:
    """Remove work files and whatever is kept that the receipt does not name; stage goes last, as the sign of it all."""
    with suppress(FileNotFoundError):
        os.unlink(NEW_JOURNAL, dir_fd=directory)
    sweep(directory, receipt)
    for name in reversed(WORK):
        remove_tree(directory, name)


def sweep(directory: int, receipt: Receipt | None) -> None:
    """Remove pristine copies and patches that the receipt does not name."""
    files, layers = (receipt.files, receipt.layers) if receipt is not None else ((), ())
    copies = {pristine_name(str(file.path)) for file in files if file.pristine is not None}
    patches = {patch.sha256 for layer in layers for patch in layer.patches}
    _sweep(directory, "pristine", lambda _, name: name in copies)
    _sweep(directory, "patches", lambda held, name: is_needed(held, name, patches))


def _sweep(above: int, name: str, is_wanted: Callable[[int, str], bool]) -> None:
    """Remove what is not wanted in a directory; `is_wanted` gets the directory held open, and the name."""
    try:
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except FileNotFoundError:
        return
    try:
        for entry in os.listdir(directory):  # noqa: PTH208 -- a descriptor
            if not is_wanted(directory, entry):
                remove_tree(directory, entry)
    finally:
        os.close(directory)
