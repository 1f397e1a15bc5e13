"""What a machine offers to a binary: the versions of glibc and of the C++ runtime, and where its libraries lie."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from patchkit.abi.elf_dynamic import Dynamic
from patchkit.abi.elf_file import open_elf
from patchkit.errors import ObjectFormatError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

# Where loaders look without being told: ld.so(8), Debian's and Red Hat's names for it.
_DIRECTORIES = (
    "/lib/{0}-linux-gnu",
    "/usr/lib/{0}-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/usr/lib",
)
_VERSION = compile_lazily(r"([A-Z]+)_([0-9]+(?:\.[0-9]+)*)")
_FAMILIES = {"GLIBC": "glibc", "GLIBCXX": "libstdc++", "CXXABI": "libstdc++"}


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """What is there: family -> highest version (`GLIBC` -> `2.36`), for those that are known.

    `directories` are those in which the loader finds libraries, none when another system is meant than this one.
    """

    title: str
    versions: dict[str, str]
    directories: tuple[Path, ...]


def read_system(extra: Iterable[Path] = ()) -> System:
    """Look at this machine; `extra` directories come first (those of a conda environment)."""
    machine = os.uname().machine
    listed = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part.startswith("/")]
    standard = [Path(pattern.format(machine)) for pattern in _DIRECTORIES]
    directories = tuple(one for one in dict.fromkeys((*extra, *listed, *standard)) if one.is_dir())
    versions = {}
    library = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    if library and library.startswith("glibc "):
        versions["GLIBC"] = library.removeprefix("glibc ")
    for directory in directories:
        if (directory / "libstdc++.so.6").is_file():
            versions.update(_defined(directory / "libstdc++.so.6"))
            break
    return System(title="this machine", versions=versions, directories=directories)


def other_system(glibc: str) -> System:
    """Return another system of which only the version of glibc is known."""
    return System(title=f"glibc {glibc}", versions={"GLIBC": glibc}, directories=())


def version_key(version: str) -> tuple[int, ...]:
    """Return what orders `2.9` before `2.28`; a version that is none comes first."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal() and len(part) < 10)  # noqa: PLR2004


def split_version(symbol_version: str) -> tuple[str, str]:
    """Split `GLIBC_2.28` into family and version; ("", "") for what orders by no number (`GLIBC_PRIVATE`)."""
    match = _VERSION.fullmatch(symbol_version)
    return (match[1], match[2]) if match else ("", "")


def package_of(family: str) -> str:
    """Return what a user calls the library of a family of versions."""
    return _FAMILIES.get(family, family)


def _defined(path: Path) -> dict[str, str]:
    """Return the highest version of each family that a library defines."""
    try:
        with open_elf(path) as elf:
            names = Dynamic(elf).defined_versions().values()
    except ObjectFormatError:
        return {}
    found: dict[str, str] = {}
    for family, version in map(split_version, names):
        if family and version_key(version) > version_key(found.get(family, "")):
            found[family] = version
    return found
