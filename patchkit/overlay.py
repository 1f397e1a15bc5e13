"""A tree as it would be: changes held in memory over a mapping that is only read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from patchkit.errors import RefusedError, UnsafePathError
from patchkit.tree import Entries, Kind, TreeEntry, path_of

_UNSEEN: Any = object()
_LONGEST_LINK = 4095  # bytes: PATH_MAX without its NUL


class KeptEntries(Mapping[PurePosixPath, TreeEntry]):
    """A tree that is read once per path: what was seen first is what everybody sees."""

    __slots__ = ("_below", "_seen")

    def __init__(self, below: Entries) -> None:
        self._below = below
        self._seen: dict[PurePosixPath, TreeEntry | None] = {}

    def __getitem__(self, path: PurePosixPath) -> TreeEntry:
        """Return the entry as it was when it was first asked for."""
        try:
            entry = self._seen[path]
        except KeyError:
            entry = self._seen[path] = self._below.get(path)
        if entry is None:
            raise KeyError(path)
        return entry

    def get(self, path: PurePosixPath, default: Any = None) -> Any:
        """Return the entry or the default, at the cost of one lookup where the path was asked for before."""
        entry = self._seen.get(path, _UNSEEN)
        if entry is _UNSEEN:
            entry = self._seen[path] = self._below.get(path)
        return default if entry is None else entry

    def __iter__(self) -> Iterator[PurePosixPath]:
        """Iterate over what lies below."""
        return iter(self._below)

    def __len__(self) -> int:
        """Count what lies below."""
        return len(self._below)


class PristineEntries(Mapping[PurePosixPath, TreeEntry]):
    """A patched tree as it was before: the kept copies where patchkit changed a file, the tree elsewhere."""

    __slots__ = ("_copies", "_tree")

    def __init__(self, tree: Entries, copies: Mapping[PurePosixPath, TreeEntry | None]) -> None:
        self._tree = tree
        self._copies = copies

    def __getitem__(self, path: PurePosixPath) -> TreeEntry:
        """Return the entry as it was before patchkit."""
        if path not in self._copies:
            return self._tree[path]
        entry = self._copies[path]
        if entry is None:
            raise KeyError(path)
        return entry

    def __iter__(self) -> Iterator[PurePosixPath]:
        """Iterate over what was there before."""
        yield from (path for path, entry in self._copies.items() if entry is not None)
        yield from (path for path in self._tree if path not in self._copies)

    def __len__(self) -> int:
        """Count what was there before."""
        return sum(1 for _ in self)


class Overlay:
    """Changes over a tree, or over another overlay. A path set to None is not there.

    Looking a path up below a link or a file that the overlay itself put in the way is refused, as it is on disk.
    """

    __slots__ = ("_below", "_changed", "_odd", "_sound")

    def __init__(self, below: Entries | Overlay) -> None:
        self._below = below
        self._changed: dict[str, TreeEntry | None] = {}
        # Nothing but contents of files was changed: then no parent can have gone or come.
        self._odd: bool = isinstance(below, Overlay) and below._odd  # noqa: SLF001 -- of the same class
        # Parents that were found to be directories, which holds as long as nothing odd was put.
        self._sound: set[str] = below._sound if isinstance(below, Overlay) else set()  # noqa: SLF001

    def lookup(self, path: str) -> TreeEntry | None:
        """Return what stands at the path, or None. Raises UnsafePathError beyond a link."""
        if path in self._changed:
            return self._changed[path]
        if self._odd and self._changed:
            blocker = self._blocker(path)
            if blocker is not None:
                return None
        if isinstance(self._below, Overlay):
            return self._below.lookup(path)
        return self._below.get(path_of(path))

    def put(self, path: str, entry: TreeEntry | None) -> None:
        """Let the path be this entry; None takes it away. RefusedError for a link that no system makes."""
        if entry is not None and entry.kind is Kind.SYMLINK:
            _check_link(path, entry.content)
        if not self._odd:
            standing = self.lookup(path)
            self._odd = not (_is_file(entry) and _is_file(standing))
        self._changed[path] = entry

    def check_parents(self, path: str, *, leaving: Collection[str] = ()) -> None:
        """Refuse a path whose parent is not, and will not be, a directory; a file that is `leaving` makes room."""
        for parent in _parents(path):
            if not self._odd and parent in self._sound:
                continue
            entry = self.lookup(parent)
            if not self._odd and entry is not None and entry.kind is Kind.DIRECTORY:
                self._sound.add(parent)
            if entry is None or entry.kind is Kind.DIRECTORY or (parent in leaving and entry.kind is Kind.FILE):
                continue
            if entry.kind is Kind.SYMLINK:
                raise UnsafePathError(f"{path}: passes through a symlink", why=f"{parent} is a symlink")
            raise RefusedError(f"{path}: a file is in the way", why=f"{parent} is not a directory")

    def merge(self, above: Overlay) -> None:
        """Take over the changes of an overlay that was laid on this one."""
        self._changed.update(above._changed)
        self._odd = self._odd or above._odd

    def changes(self) -> Iterator[tuple[str, TreeEntry | None]]:
        """Yield what is changed, sorted by path."""
        yield from sorted(self._changed.items())

    def changed(self, path: str) -> bool:
        """Tell whether the overlay says something of this path."""
        return path in self._changed

    def vacates(self, path: str) -> bool:
        """Tell whether something below the path is taken away, here or in an overlay below."""
        inside = f"{path}/"
        here = any(entry is None and gone.startswith(inside) for gone, entry in self._changed.items())
        return here or (isinstance(self._below, Overlay) and self._below.vacates(path))

    def _blocker(self, path: str) -> str | None:
        """Return the parent that is gone or replaced here, so that nothing below it can be there."""
        for parent in _parents(path):
            if parent not in self._changed:
                continue
            entry = self._changed[parent]
            if entry is not None and entry.kind is Kind.SYMLINK:
                raise UnsafePathError(f"{path}: passes through a symlink", why=f"the patch makes {parent} a symlink")
            return parent
        return None


def _is_file(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.kind is Kind.FILE


def _check_link(path: str, leads_to: bytes) -> None:
    if 0 < len(leads_to) <= _LONGEST_LINK and b"\0" not in leads_to:
        return
    long = f"{len(leads_to)} bytes, and {_LONGEST_LINK} is the most"
    why = "it holds a NUL byte" if b"\0" in leads_to else long if leads_to else "it is empty"
    raise RefusedError(f"{path}: a symlink cannot lead there", why=why)


def _parents(path: str) -> Iterator[str]:
    place = path.find("/")
    while place >= 0:
        yield path[:place]
        place = path.find("/", place + 1)
