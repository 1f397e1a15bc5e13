"""A tree of files seen as a mapping from path to entry, read without following a symlink."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath


class Kind(enum.Enum):
    """What stands at a path."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEntry:
    """What stands at a path: `mode` is the permission bits (0o644), `content` the bytes or the link's target."""

    kind: Kind
    mode: int
    content: bytes

    @property
    def state(self) -> FileState:
        """Return the entry's digest form."""
        return FileState(kind=self.kind, mode=self.mode, sha256=hashlib.sha256(self.content).hexdigest())


@dataclass(frozen=True, kw_only=True, slots=True)
class FileState:
    """A file or a symlink by digest. Absence is None, never a FileState."""

    kind: Kind
    mode: int
    sha256: str


Entries = Mapping[PurePosixPath, TreeEntry]
"""What `plan` reads a tree through: KeyError when nothing stands at the path, UnsafePathError beyond a symlink."""
