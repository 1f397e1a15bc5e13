"""The bytes of applied patches below `patches/`: a file for one, a pack for all that a transaction brought at once.

A pack is a line of JSON, digest and length of each patch in their order, then the patches end to end. A series of
hundreds of patches is so one file to make, sync and remove. A pack stays as long as the receipt names a patch in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchkit.diff.text import MAX_RAW, sha256_of_patch
from patchkit.errors import TreeChangedError
from patchkit.receipt import read_stored

SCHEMA = 1
_SUFFIX = ".pack"
_LARGEST_PACK = 1 << 30
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
    """Tell whether a file of `patches/` holds a patch that is wanted; a damaged pack may, and is left alone."""
    if not name.endswith(_SUFFIX):
        return name in wanted
    try:
        return any(sha256 in wanted for sha256, _ in _index(_head(directory, name)))
    except OSError:  # a link, a directory: none of ours
        return False
    except ValueError:
        return bool(wanted)


def _head(directory: int, name: str) -> bytes:
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        with open(descriptor, "rb", closefd=False) as file:
            return file.readline(_LARGEST_PACK)
    finally:
        os.close(descriptor)


class KeptPatches:
    """Reads the patches that a receipt names; each pack is read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._packed: dict[str, bytes] | None = None

    def read(self, sha256: str) -> bytes:
        """Return a patch by its digest. TreeChangedError when it is not there any more, or not what it was."""
        path = self._directory / sha256
        try:
            raw = self._in_packs().get(sha256)
            raw = read_stored(path, MAX_RAW) if raw is None else raw
        except (OSError, ValueError) as error:
            raise _lost(path, getattr(error, "strerror", None) or str(error)) from error
        if sha256_of_patch(raw, source=str(path)) != sha256:
            raise _lost(path, "its sha256 is another")
        return raw

    def _in_packs(self) -> dict[str, bytes]:
        if self._packed is None:
            self._packed = {}
            for pack in sorted(self._directory.glob(f"*{_SUFFIX}")):
                self._packed.update(_unpack(read_stored(pack, _LARGEST_PACK)))
        return self._packed


def _unpack(content: bytes) -> Iterator[tuple[str, bytes]]:
    place = content.find(b"\n") + 1
    for sha256, length in _index(content[:place]):
        yield sha256, content[place : place + length]
        place += length


def _index(head: bytes) -> list[tuple[str, int]]:
    """Read the first line of a pack; ValueError when it is none."""
    fields = json.loads(head)
    try:
        if fields["schema"] != SCHEMA:
            raise ValueError(f"the schema of a pack is {fields['schema']!r}, this patchkit reads {SCHEMA}")
        return [(str(sha256), int(length)) for sha256, length in fields["patches"]]
    except (KeyError, TypeError) as error:
        raise ValueError("a pack without an index") from error


def _lost(path: Path, why: str) -> TreeChangedError:
    hint = "reinstall the engine (pip install --force-reinstall --no-deps) and apply again"
    return TreeChangedError(f"{path}: the stored patch is damaged", why=why, hint=hint)
