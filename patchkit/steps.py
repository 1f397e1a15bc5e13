"""The steps of a journal, done and undone: each can be repeated by whoever follows one that was stopped."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress

from patchkit.errors import TreeChangedError, UnsafePathError
from patchkit.held import Directories, Seen, parents, see
from patchkit.journal import Act, Step
from patchkit.record import dataclass
from patchkit.staging import is_same, keep_entry
from patchkit.tree import FileState, Kind

_UNDO = "stage/undo"
_NO_LINK = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_FILES = (Act.REMOVE, Act.PLACE)


class _Standing(enum.Enum):
    """What stands at a step's path."""

    OLD = "as before"
    NEW = "as after"
    FOREIGN = "something else"


@dataclass(frozen=True, slots=True)
class Site:
    """Where steps are done: the tree's directories, and the state directory's path below its root."""

    directories: Directories
    state: str

    def kept(self, name: str) -> tuple[int, str]:
        """Return where a file of the state directory lies (`stage/3`)."""
        return self.directories.place(f"{self.state}/{name}")


def do_step(site: Site, step: Step, expected: Seen | None) -> None:
    """Do a step. A file is replaced or removed only while it is still what was `expected` there (None: anything)."""
    if step.act is Act.MAKE:
        with suppress(FileExistsError):
            site.directories.make(step.path, mode=step.mode, owner=step.owner)
        return
    if step.act is Act.UNMAKE:
        _unmake(site, step.path)
        return
    if step.act is Act.DROP:
        with suppress(FileNotFoundError, NotADirectoryError, UnsafePathError):
            directory, name = site.directories.place(step.path)
            os.unlink(name, dir_fd=directory)
        return
    directory, name = site.directories.place(step.path)
    if expected is not None and not is_same(directory, name, expected):
        raise _edited([step.path])
    if step.act is Act.PLACE:
        _place(site, step, directory, name)
    else:
        os.unlink(name, dir_fd=directory)


def undo_step(site: Site, step: Step) -> None:
    """Take a step back, if it was done. TreeChangedError when a file is neither what it was nor what it became."""
    if step.act is Act.MAKE:
        _unmake(site, step.path)
        return
    if step.act is Act.UNMAKE:
        with suppress(FileExistsError):
            site.directories.make(step.path, mode=step.mode, owner=step.owner)
        return
    if step.act is Act.DROP:
        if step.backup:
            _bring_back(site, step)
        return
    standing = _standing(site, step)
    if standing is _Standing.NEW:
        if step.before is None:
            directory, name = site.directories.place(step.path)
            os.unlink(name, dir_fd=directory)
        else:
            _bring_back(site, step)
    elif standing is _Standing.FOREIGN:
        raise _edited([step.path])


def left_to_do(site: Site, steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not done yet; raise one error that names all files that somebody else changed."""
    own = {step.path for step in steps if step.act in _FILES}
    left, foreign = [], []
    for step in steps:
        standing = _standing(site, step, own) if step.act in _FILES else _Standing.OLD
        if standing is _Standing.FOREIGN:
            foreign.append(step.path)
        elif standing is _Standing.OLD:
            left.append(step)
    if foreign:
        raise _edited(foreign)
    return left


def can_be_done(site: Site, steps: Iterable[Step]) -> bool:
    """Tell whether everything that the steps place is still staged."""
    for step in steps:
        if step.act is Act.PLACE:
            staged = site.directories.see(f"{site.state}/{step.stage}")
            if staged is None or not staged.has(step.after):
                return False
    return True


def touched(steps: Iterable[Step]) -> dict[str, None]:
    """Return the directories whose entries the steps change, each once."""
    paths: dict[str, None] = {}
    for step in steps:
        paths[step.path.rpartition("/")[0]] = None
        if step.act is Act.MAKE or step.act is Act.UNMAKE:
            paths[step.path] = None
    return paths


def _place(site: Site, step: Step, directory: int, name: str) -> None:
    stage, staged = site.kept(step.stage)
    if step.before is None:
        # A link cannot overwrite what came up here in the meantime, as a rename would.
        try:
            os.link(staged, name, src_dir_fd=stage, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            raise _edited([step.path]) from None
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            if see(directory, name) is not None:
                raise _edited([step.path]) from None
        else:
            return
    os.rename(staged, name, src_dir_fd=stage, dst_dir_fd=directory)


def _bring_back(site: Site, step: Step) -> None:
    """Put the old file back; its backup stays, so that a crash cannot lose both."""
    seen = site.directories.see(f"{site.state}/{step.backup}")
    if seen is None or (step.before is not None and not seen.has(step.before)):
        raise TreeChangedError(
            f"{step.path} cannot be put back", why=f"  its copy {site.state}/{step.backup} is gone or damaged"
        )
    undo = site.kept(_UNDO)
    with suppress(FileNotFoundError):
        os.unlink(undo[1], dir_fd=undo[0])
    keep_entry(site.kept(step.backup), undo, seen)
    directory, name = site.directories.place(step.path)
    os.rename(undo[1], name, src_dir_fd=undo[0], dst_dir_fd=directory)
    with suppress(FileNotFoundError):  # a rename between two names of one file leaves both
        os.unlink(undo[1], dir_fd=undo[0])


def _unmake(site: Site, path: str) -> None:
    """Remove a directory unless somebody put something into it."""
    try:
        site.directories.remove(path)
    except UnsafePathError:  # a link stands in its place, or above it, already
        pass
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise


def _standing(site: Site, step: Step, own: Container[str] = ()) -> _Standing:
    """Compare. Below a link that is one of our `own` paths (put there or to be removed) is nothing."""
    try:
        seen = site.directories.see(step.path)
    except UnsafePathError:
        if not any(parent in own for parent in parents(step.path)):
            raise
        seen = None
    if seen is None or seen.kind is Kind.DIRECTORY:
        if step.after is None:
            return _Standing.NEW
        return _Standing.OLD if step.before is None else _Standing.FOREIGN
    before, after = seen.has(step.before), seen.has(step.after)
    if before and after:  # only the mode changes
        return _Standing.NEW if _same_mode(seen, step.after) else _Standing.OLD
    if before:
        return _Standing.OLD
    return _Standing.NEW if after else _Standing.FOREIGN


def _same_mode(seen: Seen, state: FileState | None) -> bool:
    return state is None or seen.kind is Kind.SYMLINK or seen.mode == state.mode


def _edited(paths: Sequence[str]) -> TreeChangedError:
    first, others = paths[0], len(paths) - 1
    return TreeChangedError(
        f"{first} was edited meanwhile" + (f", and {others} more" if others else ""),
        why="\n".join(f"  {path}: neither as it was nor as patchkit makes it" for path in paths),
        hint="put the file back as it was (its copy is below .patchkit) and run the command again",
    )
