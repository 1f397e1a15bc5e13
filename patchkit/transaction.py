"""Taking a tree from one state to the next, wholly or not at all, whatever stops us on the way.

Everything new is staged and synced, then a journal says what will be done, then it is done: what is killed in
between is finished, or taken back, by whoever comes next.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from patchkit.bytecode import find_bytecode
from patchkit.errors import RefusedError, TreeChangedError
from patchkit.held import Directories, Seen, remove_tree
from patchkit.journal import Act, Journal, Step, read_journal, render_journal
from patchkit.preflight import Preflight, check_edits
from patchkit.prepare import Keeping, prepare
from patchkit.receipt import Receipt, render_receipt
from patchkit.record import dataclass, replace
from patchkit.staging import Dress, write_synced
from patchkit.state import HOME, StateDirectory
from patchkit.steps import Site, can_be_done, do_step, left_to_do, touched, undo_step
from patchkit.store import NEW_JOURNAL, clear, clear_leftovers, stored_receipt

if TYPE_CHECKING:
    from patchkit.plan import FileEdit

_JOURNAL, _JOURNAL_BACK = "journal.json", "journal-back.json"
_FINISH_HINT = "the next apply or revert finishes this; until then the tree may be half of each"


class Direction(enum.Enum):
    """Where an interrupted transaction was brought to."""

    FORWARD = "forward"
    BACK = "back"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitReport:
    """What was done. `receipt` is as stored; `bytecode` are the .pyc files that were dropped.

    `warnings` name what was left lying about in the state directory; the next writer clears it.
    """

    receipt: Receipt | None
    made: tuple[PurePosixPath, ...]
    emptied: tuple[PurePosixPath, ...]
    bytecode: tuple[PurePosixPath, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """An interrupted transaction that was finished or taken back, with the files it is about."""

    direction: Direction
    files: tuple[PurePosixPath, ...]


def pending(state: StateDirectory) -> bool:
    """Tell whether a transaction was interrupted in the middle: the tree may be half of each. Reads only."""
    return os.path.lexists(state.journal) or os.path.lexists(state.journal_back)


def commit(
    state: StateDirectory,
    *,
    edits: Sequence[FileEdit],
    receipt: Receipt | None,
    pristine: Mapping[PurePosixPath, bytes],
    patches: Mapping[str, bytes],
    removals: Sequence[PurePosixPath] = (),
    record_epoch: int | None = None,
    generated: Mapping[str, bytes] | None = None,
) -> CommitReport:
    """Take the tree from `before` to `after` of every edit, or raise and leave it as it was.

    Needs the exclusive lock. `pristine` are the files as they were that are not kept yet, `patches` patches by their
    SHA-256; what `receipt` does not name is dropped. Without a receipt the stack is empty: all state goes, and the
    directory when open_state ends. `removals` are directories that patchkit made and that go when they are empty.
    `record_epoch` is the value of SOURCE_DATE_EPOCH: the time that new files get. `generated` are the files of the
    state directory that show the configuration, by name (None: they stay). A TreeChangedError that speaks of a journal
    is the one case in which the tree may be half of each.
    """
    if pending(state):
        raise TreeChangedError("an interrupted run has to be finished first", hint=_FINISH_HINT)
    with Directories(state.root) as directories:
        site = Site(directories, state.relative)
        with _as_it_was("look at the tree"):
            clear_leftovers(state, directories)
            stored = stored_receipt(state)
            found = check_edits(state, directories, edits, stored=stored, removals=removals, pristine=pristine)
        receipt = None if receipt is None else _completed(receipt, stored, found)
        content = None if receipt is None else render_receipt(receipt)
        keeping = Keeping(pristine=pristine, patches=patches, receipt=content, stored=stored, generated=generated)
        try:
            with _as_it_was("stage the change"):
                prepared = prepare(site, found, keeping, engine=state.engine, seconds=record_epoch)
        except BaseException:
            _clear_quietly(directories.descriptor(state.relative), stored)
            raise
        _carry_out(site, prepared.journal, prepared.expected, stored)
        warnings = _finish(state, site, receipt)
    return CommitReport(
        receipt=receipt,
        made=tuple(PurePosixPath(folder.path) for folder in found.made),
        emptied=tuple(PurePosixPath(folder.path) for folder in found.emptied),
        bytecode=tuple(map(PurePosixPath, found.bytecode)),
        warnings=warnings,
    )


def recover(state: StateDirectory) -> Recovery | None:
    """Finish what an interrupted transaction began, or take it back; None when there was nothing to do.

    Needs the exclusive lock. Can itself be interrupted anywhere. Raises TreeChangedError, and touches nothing, when
    somebody edited a file in the meantime.
    """
    with Directories(state.root) as directories:
        site = Site(directories, state.relative)
        with _as_pending("read the state"):
            found = read_journal(state)
            if found is None:
                clear_leftovers(state, directories)
                return None
            journal, back = found
            left = left_to_do(site, journal.steps)
            forward = not back and can_be_done(site, left)
        if forward:
            _carry_on(site, journal, left)
        else:
            with _as_pending("drop bytecode"):
                kept = {step.path for step in journal.steps if step.backup}
                for step in _stale_bytecode(site, journal):
                    if step.path not in kept:
                        do_step(site, step, None)
            _take_back(site, journal, [step for step in journal.steps if step not in left or _is_folder(step)])
        receipt = stored_receipt(state)
        _finish(state, site, receipt)
    files = (step.path for step in journal.steps if step.act in (Act.PLACE, Act.REMOVE))
    return Recovery(
        direction=Direction.FORWARD if forward else Direction.BACK,
        files=tuple(PurePosixPath(path) for path in files if not path.startswith(f"{HOME}/")),
    )


def _completed(receipt: Receipt, stored: Receipt | None, found: Preflight) -> Receipt:
    """Return the receipt with the directories that this transaction makes and empties."""
    known = () if stored is None else stored.emptied
    before = {path for path, _ in known}
    gone = {PurePosixPath(folder.path): folder.mode for folder in found.emptied}
    ours = set(receipt.directories) | {PurePosixPath(folder.path) for folder in found.made}
    emptied = dict(known)
    emptied.update((path, mode) for path, mode in gone.items() if path not in ours and path.name != "__pycache__")
    return replace(
        receipt, directories=tuple(sorted(ours - set(gone) - before)), emptied=tuple(sorted(emptied.items()))
    )


def _carry_out(site: Site, journal: Journal, expected: Mapping[str, Seen], stored: Receipt | None) -> None:
    """Write the journal and do its steps; whatever fails is taken back before it is raised."""
    attempted: list[Step] = []
    try:
        with _as_it_was("write the change"):
            _write_journal(site, journal, fresh=stored is None)
            _do_steps(site, journal.steps, expected, attempted)
    except BaseException:
        _take_back(site, journal, attempted)
        _clear_quietly(site.directories.descriptor(site.state), stored)
        raise


def _do_steps(site: Site, steps: Sequence[Step], expected: Mapping[str, Seen], attempted: list[Step]) -> None:
    receipt = f"{site.state}/receipt.json"
    body = [step for step in steps if step.path != receipt]
    _check_places(site)
    for step in body:
        attempted.append(step)
        try:
            do_step(site, step, expected.get(step.path))
        except TreeChangedError:
            attempted.pop()  # it is somebody else's now
            raise
    site.directories.sync(touched(body))
    _check_places(site)
    for step in steps[len(body) :]:
        attempted.append(step)
        do_step(site, step, expected.get(step.path))
    os.fsync(site.directories.descriptor(site.state))


def _check_places(site: Site) -> None:
    swapped = site.directories.swapped()
    if swapped is not None:
        raise TreeChangedError(f"{swapped} was replaced or moved while patchkit worked", why="  the tree is as it was")


def _carry_on(site: Site, journal: Journal, left: Sequence[Step]) -> None:
    """Do what is left; what fails even now is taken back."""
    try:
        with _as_it_was("finish the interrupted change"):
            _do_steps(site, [*_stale_bytecode(site, journal), *left], {}, [])
            site.directories.sync(touched(journal.steps))
    except BaseException:
        left = left_to_do(site, journal.steps)
        done = [step for step in journal.steps if step not in left or _is_folder(step)]
        _take_back(site, journal, done)
        raise


def _take_back(site: Site, journal: Journal, steps: Sequence[Step]) -> None:
    """Undo the steps, last first, and drop the journal. If that fails too the journal stays."""
    directory = site.directories.descriptor(site.state)
    with _as_pending("take the change back"):
        with suppress(OSError):  # only a note of the direction: the steps can be undone without it
            os.rename(_JOURNAL, _JOURNAL_BACK, src_dir_fd=directory, dst_dir_fd=directory)
        for step in reversed(steps):
            undo_step(site, step)
        site.directories.sync(touched(journal.steps))
        _drop_journal(directory)
    with suppress(OSError):
        os.fsync(directory)


def _finish(state: StateDirectory, site: Site, receipt: Receipt | None) -> tuple[str, ...]:
    """Drop the journal of what is done and synced, then everything that is not needed any more.

    The archive of earlier installations stays: it is the user's to remove.
    """
    directory = site.directories.descriptor(site.state)
    with _as_pending("drop the journal"):
        _drop_journal(directory)
    try:
        os.fsync(directory)
        clear(directory, receipt)
        if receipt is None:
            remove_tree(directory, state.pristine.name)
            remove_tree(directory, state.patches.name)
    except OSError as error:
        return (f"{state.directory} could not be cleared: {error.strerror}",)
    return ()


def _stale_bytecode(site: Site, journal: Journal) -> list[Step]:
    """Return steps that drop what an interpreter compiled of the half tree since the interruption."""
    modules = [step.path for step in journal.steps if step.act in (Act.PLACE, Act.REMOVE) and step.path.endswith(".py")]
    return [Step(Act.DROP, path) for path in find_bytecode(site.directories, modules)]


def _drop_journal(directory: int) -> None:
    for name in (_JOURNAL, _JOURNAL_BACK):
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _write_journal(site: Site, journal: Journal, *, fresh: bool) -> None:
    directory = site.directories.descriptor(site.state)
    write_synced(directory, NEW_JOURNAL, render_journal(journal), Dress(0o644))
    os.rename(NEW_JOURNAL, _JOURNAL, src_dir_fd=directory, dst_dir_fd=directory)
    site.directories.sync((site.state, *((HOME, "") if fresh else ())))


def _clear_quietly(directory: int, receipt: Receipt | None) -> None:
    with suppress(OSError):  # the next writer clears it
        clear(directory, receipt)


def _is_folder(step: Step) -> bool:
    return step.act in (Act.MAKE, Act.UNMAKE, Act.DROP)


@contextmanager
def _as_it_was(doing: str) -> Iterator[None]:
    """Turn what the system refuses into an answer; the caller sees to it that the tree is as it was."""
    try:
        yield
    except OSError as error:
        raise RefusedError(f"cannot {doing}", why=f"  {_reason(error)}; the tree is as it was") from error


@contextmanager
def _as_pending(doing: str) -> Iterator[None]:
    """Turn what fails into the one error after which a journal stays."""
    try:
        yield
    except OSError as error:
        raise TreeChangedError(
            f"cannot {doing}", why=f"  {_reason(error)}; the journal stays", hint=_FINISH_HINT
        ) from error


def _reason(error: OSError) -> str:
    place = error.filename2 or error.filename
    return f"{error.strerror}: {place!r}" if place else str(error.strerror)
