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
from patchkit.state import StateDirectory

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
    copies = {str(file.path) for file in files if file.pristine is not None}
    patches = {patch.sha256 for layer in layers for patch in layer.patches}
    _sweep_below(directory, "pristine", "", lambda _, path: path in copies)
    _sweep_below(directory, "patches", "", lambda held, name: is_needed(held, name, patches))


def _sweep_below(above: int, name: str, prefix: str, is_wanted: Callable[[int, str], bool]) -> bool:
    """Sweep a directory; tell whether anything stays in it. `is_wanted` gets the directory held open, and the path."""
    try:
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except FileNotFoundError:
        return False
    stays = False
    try:
        for entry in os.listdir(directory):  # noqa: PTH208 -- a descriptor
            path = prefix + entry
            if is_wanted(directory, path):
                stays = True
            elif stat.S_ISDIR(os.stat(entry, dir_fd=directory, follow_symlinks=False).st_mode):
                stays = _sweep_below(directory, entry, f"{path}/", is_wanted) or stays
            else:
                os.unlink(entry, dir_fd=directory)
    finally:
        os.close(directory)
    if not stays and prefix:
        os.rmdir(name, dir_fd=above)
    return stays
