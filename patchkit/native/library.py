"""A library of an engine, as far as the shim must know it: which entry points it has, who can stand before them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from patchkit.abi.elf_dynamic import DT_NEEDED, Dynamic, build_id
from patchkit.abi.elf_file import open_elf
from patchkit.abi.elf_symbols import Use, read_symbols, read_uses
from patchkit.record import dataclass

_HEAD_BYTES = 1 << 20
_DIGITS = 40
_TAKES_OLD_STRING = b"_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """An entry point that a library defines: `uses` says how the library itself reaches it."""

    symbol: str
    kind: str
    version: str
    protected: bool
    uses: Use


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A library: `identity` tells one build from another (the build-id, else length and digest of the first MiB)."""

    path: Path
    identity: str
    machine: str
    symbolic: bool
    needed: tuple[str, ...]
    exports: tuple[Exported, ...]


def read_library(path: Path, symbols: Collection[str]) -> Library:
    """Read what a library says of some symbols; ObjectFormatError when it is damaged."""
    with open_elf(path) as elf:
        dynamic = Dynamic(elf)
        wanted = [one for one in read_symbols(elf, dynamic) if one.defined and one.name in symbols]
        uses = read_uses(elf, dynamic) if wanted else {}
        exports = tuple(
            Exported(
                symbol=one.name,
                kind=one.kind,
                version=one.version,
                protected=one.protected,
                uses=uses.get(one.name, Use.NONE),
            )
            for one in wanted
        )
        return Library(
            path=path,
            identity=build_id(elf) or head_identity(path),
            machine=elf.machine,
            symbolic=dynamic.is_symbolic,
            needed=dynamic.names(DT_NEEDED, "needed libraries"),
            exports=exports,
        )


def identity_of(path: Path) -> str:
    """Return what tells one build of a library from another; native/shim/identity.c says the same at run time."""
    with open_elf(path) as elf:
        return build_id(elf) or head_identity(path)


def head_identity(path: Path) -> str:
    """Return the identity of a library without a build-id."""
    with path.open("rb") as file:
        return f"{hashlib.sha256(file.read(_HEAD_BYTES)).hexdigest()[:_DIGITS]}-{path.stat().st_size}"


def has_new_strings(path: Path) -> bool:
    """Tell whether a libc10.so was built with the new std::string (_GLIBCXX_USE_CXX11_ABI=1).

    One function that every release exports takes a string; one of the old kind has libstdc++'s new names in it as well.
    """
    with open_elf(path) as elf:
        return _TAKES_OLD_STRING not in Dynamic(elf).strings
