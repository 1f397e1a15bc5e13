"""A released wheel read as a tree, straight from the file: for locks and lint, which need no unpacked copy."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from patchkit.engine import Engine, find_engine
from patchkit.errors import RefusedError, TargetError
from patchkit.target import Layout, TargetTree
from patchkit.tree import Entries, Kind, TreeEntry

_LARGEST_MEMBER = 64 << 20
_LARGEST_METADATA = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """A released file: the tree in it, and its own name and sha256."""

    file: str
    sha256: str
    tree: TargetTree
    entries: Entries


def open_artifact(path: Path) -> Artifact:
    """Open a wheel of a known engine. Raises TargetError for another file or another distribution."""
    try:
        archive = ZipFile(path)
    except (OSError, BadZipFile) as error:
        raise TargetError(f"{path}: not a wheel", why=str(error), hint="expected a released .whl file") from error
    names = {info.filename: info for info in archive.infolist()}
    distribution = _dist_info(path, names)
    headers = HeaderParser().parsestr(
        _read(archive, names[f"{distribution}/METADATA"], _LARGEST_METADATA).decode("utf-8", errors="replace")
    )
    engine = _engine(path, str(headers["Name"] or ""))
    tree = TargetTree(
        engine=engine.name,
        version=str(headers["Version"] or ""),
        root=path,
        package=PurePosixPath(engine.package),
        layout=Layout.WHEEL,
        distribution=distribution,
        python=None,
        python_version="",
        evidence=(f"read from {path.name}",),
    )
    with path.open("rb") as stream:
        sha256 = _digest(stream)
    return Artifact(file=path.name, sha256=sha256, tree=tree, entries=_WheelEntries(archive, names))


class _WheelEntries(Mapping[PurePosixPath, TreeEntry]):
    """The members of a wheel by path; directories are those that members imply."""

    def __init__(self, archive: ZipFile, members: Mapping[str, ZipInfo]) -> None:
        self._archive = archive
        self._members = {name: info for name, info in members.items() if not info.is_dir()}
        self._directories = {str(parent) for name in self._members for parent in PurePosixPath(name).parents}

    def __getitem__(self, path: PurePosixPath) -> TreeEntry:
        info = self._members.get(str(path))
        if info is not None:
            mode = stat.S_IMODE(info.external_attr >> 16) or 0o644
            return TreeEntry(kind=Kind.FILE, mode=mode, content=_read(self._archive, info, _LARGEST_MEMBER))
        if str(path) in self._directories:
            return TreeEntry(kind=Kind.DIRECTORY, mode=0o755, content=b"")
        raise KeyError(path)

    def __iter__(self) -> Iterator[PurePosixPath]:
        return (PurePosixPath(name) for name in self._members)

    def __len__(self) -> int:
        return len(self._members)


def _dist_info(path: Path, names: Mapping[str, ZipInfo]) -> str:
    found = sorted(
        name.partition("/")[0] for name in names if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
    )
    if len(found) != 1:
        raise TargetError(f"{path}: not a wheel", why=f"found {len(found)} dist-info directories, expected one")
    return found[0]


def _engine(path: Path, name: str) -> Engine:
    engine = find_engine(name)
    if engine is None:
        raise TargetError(f"{path}: {name or 'unnamed'} is no engine that patchkit knows")
    return engine


def _read(archive: ZipFile, info: ZipInfo, limit: int) -> bytes:
    if info.file_size > limit:
        raise RefusedError(f"{info.filename}: larger than {limit >> 20} MiB", why=f"it has {info.file_size} bytes")
    with archive.open(info) as stream:
        return stream.read(limit + 1)


def _digest(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
