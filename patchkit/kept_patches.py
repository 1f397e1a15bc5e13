"""The bytes of applied patches below `patches/`: a file for one, a pack for all that a transaction brought at once.

A pack is a line of JSON, digest and length of each patch in their order, then the patches end to end. A series of
hundreds of patches is so one file to make, sync and remove. A pack stays as long as the receipt names a patch in it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchkit.diff.text import MAX_RAW, sha256_of_patch
from patchkit.errors import TreeChangedError
from patchkit.receipt import read_stored

SCHEMA = 1
_SUFFIX = ".pack"
_LARGEST_PACK = 1 << 30
_NO_FILE = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOENT})
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def files_to_keep(patches: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files that hold these patches, given by their SHA-256."""
    if len(patches) < 2 or sum(map(len, patches.values())) > _LARGEST_PACK // 2:  # noqa: PLR2004 -- one needs no pack
        yield from patches.items()
        return
    index = [(sha256, len(raw)) for sha256, raw in patches.items()]
    head = json.dumps({"schema": SCHEMA, "patches": index}).encode("ascii")
    yield hashlib.sha256(head).hexdigest() + _SUFFIX, b"".join((head, b"\n", *patches.values()))


def is_needed(directory: int, name: str, wanted: set[str]) -> bool:
    """Tell whether a file of `patches/` holds a patch that is wanted; a pack that cannot be read may, and is left."""
    if not name.endswith(_SUFFIX):
        return name in wanted
    try:
        return any(sha256 in wanted for sha256, _ in _index(_head(directory, name)))
    except OSError as error:  # a link, a fifo, a directory: none of ours
        return bool(wanted) and error.errno not in _NO_FILE
    except ValueError:
        return bool(wanted)


def _head(directory: int, name: str) -> bytes:
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, "not a regular file", name)
        with open(descriptor, "rb", closefd=False) as file:
            return file.readline(_LARGEST_PACK)
    finally:
        os.close(descriptor)


class KeptPatches:
    """Reads the patches that a receipt names; each pack is read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._packed: dict[str, bytes] | None = None
        self._unread: list[tuple[Path, str]] = []

    def read(self, sha256: str) -> bytes:
        """Return a patch by its digest. TreeChangedError when it is not there any more, or not what it was."""
        path = self._directory / sha256
        try:
            raw = self._in_packs().get(sha256)
            raw = read_stored(path, MAX_RAW) if raw is None else raw
        except (OSError, ValueError) as error:
            raise self._lost(path, error) from error
        if sha256_of_patch(raw, source=str(path)) != sha256:
            raise _lost(path, "its sha256 is another")
        return raw

    def _in_packs(self) -> dict[str, bytes]:
        """Return what the packs hold that can be read; one that cannot is named when a patch is not found."""
        if self._packed is None:
            self._packed = {}
            for pack in sorted(self._directory.glob(f"*{_SUFFIX}")):
                try:
                    self._packed.update(_unpack(read_stored(pack, _LARGEST_PACK)))
                except (OSError, ValueError) as error:
                    self._unread.append((pack, _words(error)))
        return self._packed

    def _lost(self, path: Path, error: OSError | ValueError) -> TreeChangedError:
        if self._unread and isinstance(error, FileNotFoundError):
            packs = "\n".join(f"{pack} cannot be read: {why}" for pack, why in self._unread)
            return _lost(path, f"{packs}\nit may be in there: no other file has it")
        return _lost(path, _words(error))


def _unpack(content: bytes) -> Iterator[tuple[str, bytes]]:
    place = content.find(b"\n") + 1
    for sha256, length in _index(content[:place]):
        yield sha256, content[place : place + length]
        place += length


def _index(head: bytes) -> list[tuple[str, int]]:
    """Read the first line of a pack; ValueError when it is none."""
    try:
        fields = json.loads(head)
        if fields["schema"] != SCHEMA:
            raise ValueError(f"the schema of a pack is {fields['schema']!r}, this patchkit reads {SCHEMA}")
        return [(str(sha256), int(length)) for sha256, length in fields["patches"]]
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError("a pack without an index") from error


def _words(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _lost(path: Path, why: str) -> TreeChangedError:
    hint = "reinstall the engine (pip install --force-reinstall --no-deps) and apply again"
    return TreeChangedError(f"{path}: the stored patch is damaged", why=why, hint=hint)
