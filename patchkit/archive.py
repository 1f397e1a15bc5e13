"""A released wheel read as a tree, straight from the file: for locks and lint, which need no unpacked copy."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from zipfile import ZipFile, ZipInfo

from patchkit.dist import unzip_errors
from patchkit.engine import KNOWN_NAMES, Engine, find_engine
from patchkit.errors import RefusedError, TargetError, UnsafePathError
from patchkit.record import dataclass
from patchkit.target import Layout, TargetTree
from patchkit.tree import Entries, Kind, TreeEntry

_LARGEST_MEMBER = 64 << 20
_LARGEST_METADATA = 1 << 20
_LARGEST_NAMES = 1 << 18  # members; the largest wheel of an engine has 3,306
_EXPECTED = "expected a released .whl file, as `pip download --no-deps` gets it"
_UNREADABLE = unzip_errors(OSError, ValueError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """Something released, read as a tree: `file` and `sha256` are a wheel's own, or an installed tree's dist-info
    directory and the digest of its RECORD ("" both for a source tree). `touched` are paths that patchkit itself made or
    took away in an installed tree, so that a listing of the disk does not tell of them.
    """

    file: str
    sha256: str
    tree: TargetTree
    entries: Entries
    touched: tuple[PurePosixPath, ...] = ()


def open_artifact(path: Path) -> Artifact:
    """Open a wheel of a known engine. Raises TargetError for another file or another distribution."""
    try:
        with path.open("rb") as stream:
            _check_regular(path, stream)
            sha256 = _digest(stream)
        archive = ZipFile(path)
        members = _members(path, archive.infolist())
    except _UNREADABLE as error:
        raise TargetError(f"{path}: not a wheel", why=_reason(error), hint=_EXPECTED) from error
    distribution = _dist_info(path, members)
    metadata = _read(archive, members[f"{distribution}/METADATA"], _LARGEST_METADATA)
    headers = HeaderParser().parsestr(metadata.decode("utf-8", errors="replace"))
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
    if not any(name.startswith(f"{engine.package}/") for name in members):
        raise TargetError(f"{path}: has no {engine.package}/", why=f"it is {distribution}, without the package")
    return Artifact(file=path.name, sha256=sha256, tree=tree, entries=_WheelEntries(archive, members))


class _WheelEntries(Mapping[PurePosixPath, TreeEntry]):
    """The members of a wheel by path; directories are those that members imply."""

    def __init__(self, archive: ZipFile, members: Mapping[str, ZipInfo]) -> None:
        self._archive = archive
        self._files = {name: info for name, info in members.items() if not info.is_dir()}
        self._directories = {str(parent) for name in self._files for parent in PurePosixPath(name).parents}

    def __getitem__(self, path: PurePosixPath) -> TreeEntry:
        if path.is_absolute() or ".." in path.parts:
            raise UnsafePathError(
                f"{path} leaves the tree", hint="names in a patch are relative to the root of the tree"
            )
        info = self._files.get(str(path))
        if info is not None:
            mode = stat.S_IMODE(info.external_attr >> 16) or 0o644
            return TreeEntry(kind=Kind.FILE, mode=mode, content=_read(self._archive, info, _LARGEST_MEMBER))
        if str(path) in self._directories:
            return TreeEntry(kind=Kind.DIRECTORY, mode=0o755, content=b"")
        raise KeyError(path)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, PurePosixPath) and (str(path) in self._files or str(path) in self._directories)

    def __iter__(self) -> Iterator[PurePosixPath]:
        return (PurePosixPath(name) for name in self._files)

    def __len__(self) -> int:
        return len(self._files)


def _check_regular(path: Path, stream: BinaryIO) -> None:
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        raise TargetError(f"{path}: not a wheel", why="it is not a file", hint=_EXPECTED)


def _members(path: Path, infos: list[ZipInfo]) -> dict[str, ZipInfo]:
    """Return the members by name; a wheel with odd names is refused, as installers refuse it or guess."""
    members = {info.filename: info for info in infos}
    odd = [name for name in members if _is_odd(name)]
    if odd or len(members) != len(infos) or len(infos) > _LARGEST_NAMES:
        why = f"it has the member {odd[0]!r}" if odd else f"{len(infos)} members, {len(members)} names"
        raise TargetError(f"{path}: not a wheel that can be trusted", why=why, hint=_EXPECTED)
    return members


def _is_odd(name: str) -> bool:
    parts = name.removesuffix("/").split("/")
    return "\0" in name or "\\" in name or bool({"", ".", ".."} & set(parts))


def _dist_info(path: Path, names: Mapping[str, ZipInfo]) -> str:
    ending = ".dist-info/METADATA"
    found = sorted(name.partition("/")[0] for name in names if name.count("/") == 1 and name.endswith(ending))
    if len(found) != 1:
        why = f"found {len(found)} dist-info directories, expected one"
        raise TargetError(f"{path}: not a wheel", why=why, hint=_EXPECTED)
    return found[0]


def _engine(path: Path, name: str) -> Engine:
    engine = find_engine(name)
    if engine is None:
        known = ", ".join(KNOWN_NAMES)
        raise TargetError(f"{path}: {name or 'unnamed'} is no engine that patchkit knows", why=f"it knows {known}")
    return engine


def _read(archive: ZipFile, info: ZipInfo, limit: int) -> bytes:
    place = f"{archive.filename}: {info.filename}"
    if info.file_size > limit:
        raise RefusedError(f"{place}: larger than {limit >> 20} MiB", why=f"it has {info.file_size} bytes")
    try:
        with archive.open(info) as stream:
            content = stream.read(limit + 1)
    except _UNREADABLE as error:
        raise RefusedError(f"{place}: cannot be read", why=_reason(error), hint="download the wheel again") from error
    if len(content) != info.file_size:
        raise RefusedError(f"{place}: its size is not the one stated", hint="download the wheel again")
    return content


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _digest(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
