"""A tree opened for work: its lock held, its journal looked at, its receipt compared with what stands there."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath

from patchkit.counting import counted
from patchkit.dist import recorded_sha256
from patchkit.errors import TreeChangedError
from patchkit.overlay import KeptEntries, PristineEntries
from patchkit.plan import Situation
from patchkit.receipt import Receipt, TouchedFile, read_receipt
from patchkit.record import dataclass
from patchkit.state import StateDirectory, open_state, pristine_name
from patchkit.target import TargetTree
from patchkit.transaction import Direction, pending, recover
from patchkit.tree import Entries, FileState, Kind, TreeEntry, open_entries, path_of


class Standing(enum.Enum):
    """What a tree is, compared with its receipt."""

    UNPATCHED = "not patched"
    PATCHED = "patched"
    DRIFTED = "drifted"
    REPLACED = "replaced by reinstall"
    PENDING = "interrupted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """How a tree stands. `files` are those that are not as patchkit left them, `gone` those of them that are not there.

    `reason` says it in words.
    """

    standing: Standing
    files: tuple[PurePosixPath, ...]
    reason: str
    gone: frozenset[PurePosixPath] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A tree with its lock held while the session lasts. `recovered` says what recovery did, "" for nothing."""

    state: StateDirectory
    situation: Situation
    condition: Condition
    recovered: str


@contextmanager
def open_session(tree: TargetTree, *, write: bool, say: Callable[[str], None] = lambda _: None) -> Iterator[Session]:
    """Open a tree; a writer first finishes what an interrupted one left, a reader only reports it.

    Raises TreeChangedError when the journal cannot be finished, RefusedError when the lock is not to be had.
    """
    with open_state(tree.root, tree.engine, write=write, waiting=say) as state:
        recovered = ""
        if write:
            recovery = recover(state)
            if recovery is not None:
                done = "finished" if recovery.direction is Direction.FORWARD else "taken back"
                recovered = f"an interrupted run was {done}: {counted(len(recovery.files), 'file')}"
                say(recovered)
        yield _open(tree, state, recovered)


def _open(tree: TargetTree, state: StateDirectory, recovered: str) -> Session:
    entries = KeptEntries(open_entries(tree.root))
    receipt = _read_receipt(state)
    pristine: Entries = entries
    if receipt is not None:
        pristine = KeptEntries(PristineEntries(entries, PristineCopies(state, receipt)))
    if pending(state):
        condition = Condition(
            standing=Standing.PENDING, files=(), reason="an interrupted run left a journal; apply or revert finishes it"
        )
    else:
        condition = examine(tree, entries, receipt)
    situation = Situation(tree=tree, entries=entries, receipt=receipt, pristine=pristine)
    return Session(state=state, situation=situation, condition=condition, recovered=recovered)


def _read_receipt(state: StateDirectory) -> Receipt | None:
    try:
        return read_receipt(state.receipt)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TreeChangedError(
            f"the receipt {state.receipt} cannot be read",
            why=str(error.strerror),
            hint="make it readable for you, or bring it back from a copy",
        ) from error


class PristineCopies(Mapping[PurePosixPath, "TreeEntry | None"]):
    """The kept copies of the files that the stack changed, each checked against the receipt when it is read."""

    def __init__(self, state: StateDirectory, receipt: Receipt) -> None:
        self._state = state
        self._files = {file.path: file.pristine for file in receipt.files}
        self._copies: Entries = open_entries(state.pristine) if state.pristine.is_dir() else {}

    def __getitem__(self, path: PurePosixPath) -> TreeEntry | None:
        """Return the file as it was, None when it was not there. Raises TreeChangedError for a damaged copy."""
        was = self._files[path]
        if was is None:
            return None
        copy = self._copies.get(path_of(pristine_name(str(path))))
        if copy is None or hashlib.sha256(copy.content).hexdigest() != was.sha256:
            raise TreeChangedError(
                f"{self._state.pristine_copy(path)}: the pristine copy is damaged",
                why="it is missing, or its sha256 is not the receipt's",
                hint="reinstall the engine (pip install --force-reinstall --no-deps) and apply again",
            )
        return TreeEntry(kind=was.kind, mode=was.mode, content=copy.content)

    def __iter__(self) -> Iterator[PurePosixPath]:
        """Iterate over the paths."""
        return iter(self._files)

    def __len__(self) -> int:
        """Count the paths."""
        return len(self._files)


def examine(tree: TargetTree, entries: Entries, receipt: Receipt | None) -> Condition:
    """Compare the tree with its receipt."""
    if receipt is None:
        return Condition(standing=Standing.UNPATCHED, files=(), reason="no receipt")
    changed = tuple(file for file in receipt.files if not _is(entries.get(file.path), file.current))
    if receipt.distribution != tree.distribution or (tree.distribution and receipt.version != tree.version):
        was = f"{receipt.distribution or receipt.version}, now {tree.distribution or tree.version or 'uninstalled'}"
        return Condition(standing=Standing.REPLACED, files=(), reason=f"the receipt is for {was}")
    if not changed:
        return Condition(standing=Standing.PATCHED, files=(), reason="every touched file is as patchkit left it")
    gone = frozenset(file.path for file in changed if _is_absent(entries.get(file.path)))
    if _all_pristine(entries, receipt) or _is_reinstalled(tree, entries, receipt):
        again = "the files are the distribution's again" if receipt.distribution else "the files are as before patchkit"
        return Condition(standing=Standing.REPLACED, files=_paths(changed), reason=again, gone=gone)
    many = counted(len(changed), "file was", "files were")
    return Condition(standing=Standing.DRIFTED, files=_paths(changed), reason=f"{many} changed since", gone=gone)


def _paths(files: tuple[TouchedFile, ...]) -> tuple[PurePosixPath, ...]:
    return tuple(file.path for file in files)


def _is(entry: TreeEntry | None, state: FileState | None) -> bool:
    """Compare kind, bytes and whether it is executable: other permission bits change when a tree is copied."""
    if entry is None or state is None:
        return _is_absent(entry) and state is None
    return _same_content(entry, state) and (entry.kind is Kind.SYMLINK or (entry.mode ^ state.mode) & 0o100 == 0)


def _all_pristine(entries: Entries, receipt: Receipt) -> bool:
    return all(_same_content(entries.get(file.path), file.pristine) for file in receipt.files)


def _is_reinstalled(tree: TargetTree, entries: Entries, receipt: Receipt) -> bool:
    """Tell whether an installer wrote a RECORD of its own, and the touched files as that RECORD lists them.

    A file that patchkit brought may be left over; where RECORD is all that differs, somebody edited it.
    """
    path = PurePosixPath(tree.distribution, "RECORD")
    record = entries.get(path) if receipt.record_sha256 else None
    if record is None or record.kind is not Kind.FILE or record.state.sha256 == receipt.record_sha256:
        return False
    others = [file for file in receipt.files if file.path != path]
    if all(_is(entries.get(file.path), file.current) for file in others):
        return False
    brought = [file for file in others if file.pristine is not None]
    return bool(brought) and all(_as_listed(record.content, file.path, entries) for file in brought)


def _as_listed(record: bytes, path: PurePosixPath, entries: Entries) -> bool:
    entry, listed = entries.get(path), recorded_sha256(record, path)
    if _is_absent(entry):
        return listed is None
    return entry is not None and entry.kind is Kind.FILE and entry.state.sha256 == listed


def _is_absent(entry: TreeEntry | None) -> bool:
    """Tell whether no file stands there; a directory in its place holds other files, which have states of their own."""
    return entry is None or entry.kind is Kind.DIRECTORY


def _same_content(entry: TreeEntry | None, state: FileState | None) -> bool:
    """Compare kind and bytes."""
    if entry is None or state is None:
        return _is_absent(entry) and state is None
    return entry.kind is state.kind and entry.kind in (Kind.FILE, Kind.SYMLINK) and entry.state.sha256 == state.sha256
