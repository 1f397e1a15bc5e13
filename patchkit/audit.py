"""Whether the files of an installed distribution are those that its RECORD lists: who edited them, if not patchkit."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

from patchkit.dist import record_rows, recorded_sha256
from patchkit.errors import PatchkitError
from patchkit.record import dataclass
from patchkit.target import TargetTree
from patchkit.tree import Entries, Kind

_LARGEST_COMPARED = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What a comparison with RECORD came to: `compared` files by their hash, of `listed`; `edited` ones differ.

    Files above 4 MiB (compiled extensions) and rows without a hash are listed, not compared.
    """

    listed: int
    compared: int
    edited: tuple[PurePosixPath, ...]


def audit_package(tree: TargetTree, entries: Entries) -> Audit | None:
    """Compare the package's files with RECORD; None for a tree without one."""
    record = entries.get(PurePosixPath(tree.distribution, "RECORD")) if tree.distribution else None
    if record is None or record.kind is not Kind.FILE:
        return None
    rows = record_rows(record.content)
    package = f"{tree.package}/"
    wanted = sorted(
        path for path, (digest, size) in rows.items() if path.startswith(package) and _comparable(digest, size)
    )
    edited = tuple(PurePosixPath(path) for path in wanted if not _as_recorded(record.content, path, entries))
    return Audit(listed=len(rows), compared=len(wanted), edited=edited)


def _comparable(digest: str, size: int | None) -> bool:
    return digest.startswith("sha256=") and (size is None or size <= _LARGEST_COMPARED)


def _as_recorded(record: bytes, path: str, entries: Entries) -> bool:
    try:
        entry = entries.get(PurePosixPath(path))
    except PatchkitError:  # unreadable, beyond a symlink, or a row that leads out of the tree
        return False
    if entry is None or entry.kind is not Kind.FILE:
        return False
    return hashlib.sha256(entry.content).hexdigest() == recorded_sha256(record, path)
