"""Read the facts of a distribution from its files: an installed or unpacked tree, or a .whl file. Nothing is run."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from patchkit.abi.elf import SharedObject, read_exports, read_object
from patchkit.abi.facts import Import, ObjectFacts, VersionNeed, WheelFacts
from patchkit.abi.snapshot import TORCH, Snapshot
from patchkit.abi.symbol_table import hash_name
from patchkit.dist import record_rows, unzip_errors
from patchkit.engine import normalise_name
from patchkit.environment import directory_names, read_small
from patchkit.errors import ObjectFormatError, TargetError
from patchkit.pattern import compile_lazily
from patchkit.record import replace

if TYPE_CHECKING:
    from zipfile import ZipFile

    Progress = Callable[[str], None]

_SHARED = compile_lazily(r"\.so(?:\.[0-9]+)*$")
TORCH_LIBRARIES = ("libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so")
_LARGEST_RECORD = 1 << 24
_MOST_OBJECTS = 512
_CHUNK = 1 << 20
_LARGEST_WHEEL = 1 << 34  # unpacked: the largest that engines ship take 4 GB


def inspect_tree(root: Path, dist_info: str, *, file: str = "", sha256: str = "", symbols: bool = True) -> WheelFacts:
    """Read the distribution whose dist-info directory lies below `root`. A damaged shared object has a `fault`.

    Without `symbols` neither symbols nor schemas are read.
    """
    home = root / dist_info
    headers = read_metadata(home / "METADATA")
    if not headers.get("name"):
        raise TargetError(f"{home}: no METADATA that names a distribution", hint="install the package again")
    wheel = read_metadata(home / "WHEEL")
    name = normalise_name(headers["name"][0])
    paths = [path for path in _recorded(home) if is_shared_object(path)]
    if name == TORCH:
        paths = [path for path in paths if path.name in TORCH_LIBRARIES]
    if len(paths) > _MOST_OBJECTS:
        raise TargetError(f"{home}: RECORD lists {len(paths)} shared objects", hint="install the package again")
    return WheelFacts(
        distribution=name,
        version="".join(headers.get("version", [])[:1]),
        file=file,
        sha256=sha256,
        tags=tuple(wheel.get("tag", ())),
        requires_python="".join(headers.get("requires-python", [])[:1]),
        requires=tuple(headers.get("requires-dist", ())),
        extras=tuple(headers.get("provides-extra", ())),
        objects=tuple(inspect_object(root, path, symbols=symbols) for path in paths),
    )


def inspect_torch(root: Path, dist_info: str) -> WheelFacts:
    """Read torch's libraries without their symbols, which are too many for records; a damaged library is an error."""
    wheel = inspect_tree(root, dist_info, symbols=False)
    for facts in wheel.objects:
        if facts.fault:
            raise ObjectFormatError(f"{facts.path}: cannot be read", why=f"  {facts.fault}", hint="install torch again")
    if not wheel.objects:
        raise TargetError(f"{root / dist_info}: lists none of torch's libraries", hint="install torch again")
    return wheel


def inspect_object(root: Path, path: PurePosixPath, *, symbols: bool = True) -> ObjectFacts:
    """Read one shared object of a tree."""
    try:
        return object_facts(read_object(root / path, str(path), symbols=symbols), str(path))
    except ObjectFormatError as error:
        missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
        fault = "RECORD lists it, and it is not there" if missing else error.why.strip() or error.what
        return ObjectFacts(path=str(path), fault=fault)


def object_facts(shared: SharedObject, path: str) -> ObjectFacts:
    """Return what is compared of a shared object."""
    return ObjectFacts(
        path=path,
        machine=shared.machine,
        soname=shared.soname,
        build_id=shared.build_id,
        needed=shared.needed,
        search=shared.runpath or shared.rpath,
        versions=tuple(
            VersionNeed(library=need.library, version=need.version) for need in shared.versions if not need.weak
        ),
        imports=tuple(Import(name=one.name, version=one.version, weak=one.weak) for one in shared.imports),
        exports=tuple(sorted({one.name for one in shared.exports})),
        architectures=shared.architectures,
        schemas=shared.schemas,
    )


def take_snapshot(root: Path, dist_info: str, *, file: str = "", sha256: str = "") -> Snapshot:
    """Read what a snapshot keeps. Of torch's libraries the exports are hashed, and imports are left out."""
    if normalise_name(dist_info.partition("-")[0]) != TORCH:
        return Snapshot(wheel=inspect_tree(root, dist_info, file=file, sha256=sha256), exports={}, layouts={})
    wheel = inspect_torch(root, dist_info)
    exports = {
        one.name: tuple(sorted(map(hash_name, read_exports(root / one.path, one.path)))) for one in wheel.objects
    }
    return Snapshot(wheel=replace(wheel, file=file, sha256=sha256), exports=exports, layouts={})


@contextmanager
def unpacked_objects(wheel: Path, *, tell: Progress) -> Iterator[tuple[Path, str]]:
    """Unpack metadata and shared objects of a .whl file for a while; give the directory and the dist-info's name."""
    import tempfile
    from zipfile import ZipFile

    if not wheel.is_file():
        raise TargetError(f"{wheel}: not a file", hint="name a .whl file")
    with tempfile.TemporaryDirectory(prefix="patchkit-abi-") as scratch:
        root = Path(scratch)
        try:
            with ZipFile(wheel) as archive:
                dist_info = _unpack(archive, root, wheel.name, tell=tell)
        except unzip_errors(OSError, ValueError) as error:
            raise TargetError(
                f"{wheel}: not a wheel that can be read", why=f"  {error}", hint="download it again with pip"
            ) from error
        yield root, dist_info


def snapshot_of_wheel(wheel: Path, *, tell: Progress) -> Snapshot:
    """Read what a snapshot keeps from a .whl file."""
    with unpacked_objects(wheel, tell=tell) as (root, dist_info):
        return take_snapshot(root, dist_info, file=wheel.name, sha256=_digest(wheel))


def is_shared_object(path: PurePosixPath) -> bool:
    """Tell by its name whether a file is a shared object."""
    return bool(_SHARED.search(path.name))


def find_dist_info(root: Path, distribution: str) -> str:
    """Return the dist-info directory of a distribution below a site directory; TargetError unless there is one."""
    wanted = normalise_name(distribution)
    found = [
        name
        for name in directory_names(root)
        if name.endswith(".dist-info") and normalise_name(name.removesuffix(".dist-info").rpartition("-")[0]) == wanted
    ]
    if len(found) != 1:
        shown = ", ".join(sorted(found)) or "none"
        raise TargetError(f"{len(found)} distributions {distribution} in {root}", why=f"  found {shown}")
    return found[0]


def read_metadata(path: Path) -> dict[str, list[str]]:
    """Return all values of every header of METADATA or WHEEL by lower-case name; nothing when it cannot be read."""
    headers: dict[str, list[str]] = {}
    for line in (read_small(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if not line:  # a blank line within a header is written with blanks in front: setuptools does so with licences
            break
        if colon and not line[0].isspace():
            headers.setdefault(name.lower(), []).append(value.strip())
    return headers


def _recorded(home: Path) -> list[PurePosixPath]:
    """Return the paths that RECORD lists below the root, sorted."""
    text = read_small(home / "RECORD", limit=_LARGEST_RECORD)
    if text is None:
        raise TargetError(f"{home}: no RECORD", why="  it lists what belongs to the package", hint="install it again")
    paths = [PurePosixPath(path) for path in record_rows(text.encode("utf-8", "surrogateescape"))]
    return sorted(path for path in paths if not path.is_absolute() and ".." not in path.parts)


def _unpack(archive: ZipFile, root: Path, name: str, *, tell: Progress) -> str:
    homes = set()
    members = [(PurePosixPath(member.filename), member) for member in archive.infolist()]
    wanted = [(path, member) for path, member in members if not member.is_dir() and _is_inside(path, member.filename)]
    wanted = [(path, member) for path, member in wanted if _is_metadata(path) or _is_wanted(path)]
    _check_room(sum(member.file_size for _, member in wanted), root, name)
    for path, member in wanted:
        if _is_metadata(path):
            homes.add(path.parts[0])
        else:
            tell(f"unpacking {path}: {member.file_size >> 20} MiB")
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)
    if len(homes) != 1:
        raise ValueError(f"{name} has {len(homes)} dist-info directories, expected one")
    return homes.pop()


def _check_room(size: int, scratch: Path, name: str) -> None:
    """Refuse what does not fit on the disk, and what no engine has: a small file may promise terabytes."""
    room = min(_LARGEST_WHEEL, shutil.disk_usage(scratch).free)
    if size > room:
        raise TargetError(
            f"{name}: too large to unpack",
            why=f"  its shared objects take {size >> 20} MiB, and {scratch.parent} has room for {room >> 20} MiB",
            hint="TMPDIR=DIR names another place; an unpacked wheel is read with --root DIR",
        )


def _is_inside(path: PurePosixPath, filename: str) -> bool:
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\\" not in filename


def _is_metadata(path: PurePosixPath) -> bool:
    return len(path.parts) == 2 and path.parts[0].endswith(".dist-info")  # noqa: PLR2004 - directory, file


def _is_wanted(path: PurePosixPath) -> bool:
    if path.parts[0] == TORCH:
        return path.name in TORCH_LIBRARIES
    return is_shared_object(path)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
