"""A shared object as the loader sees it: what it needs, offers and carries, read without loading it."""

from __future__ import annotations

from pathlib import Path

from patchkit.abi.cubins import read_architectures
from patchkit.abi.elf_dynamic import DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, Dynamic, NeededVersion, build_id
from patchkit.abi.elf_file import open_elf
from patchkit.abi.elf_symbols import Symbol, Use, read_export_names, read_symbols, read_uses
from patchkit.abi.schemas import read_schemas
from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedObject:
    """What is in a shared object.

    `name` is what messages call it; `rpath` and `runpath` are the directories as written; `symbols` those that others
    see; `architectures` as in `read_architectures`; `schemas` as in `read_schemas`. `uses` is empty unless asked for.
    """

    name: str
    machine: str
    soname: str
    build_id: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: tuple[NeededVersion, ...]
    symbols: tuple[Symbol, ...]
    binds_now: bool
    symbolic: bool
    architectures: tuple[str, ...]
    schemas: tuple[str, ...]
    uses: dict[str, Use]

    @property
    def imports(self) -> tuple[Symbol, ...]:
        """The symbols that others have to define."""
        return tuple(symbol for symbol in self.symbols if not symbol.defined)

    @property
    def exports(self) -> tuple[Symbol, ...]:
        """The symbols that it defines for others."""
        return tuple(symbol for symbol in self.symbols if symbol.defined)


def read_object(path: Path, name: str = "", *, symbols: bool = True, uses: bool = False) -> SharedObject:
    """Read a shared object; ObjectFormatError when it is damaged, or no 64-bit little-endian ELF file.

    `uses`: read its relocations too. Without `symbols` neither these nor schemas are read: torch's libraries are large.
    """
    with open_elf(path, name) as elf:
        dynamic = Dynamic(elf)
        return SharedObject(
            name=elf.name,
            machine=elf.machine,
            soname="".join(dynamic.names(DT_SONAME, "soname")[-1:]),
            build_id=build_id(elf),
            needed=dynamic.names(DT_NEEDED, "needed libraries"),
            rpath=_directories(dynamic.names(DT_RPATH, "RPATH")),
            runpath=_directories(dynamic.names(DT_RUNPATH, "RUNPATH")),
            versions=dynamic.needed_versions(),
            symbols=read_symbols(elf, dynamic) if symbols else (),
            binds_now=dynamic.binds_now,
            symbolic=dynamic.is_symbolic,
            architectures=read_architectures(elf),
            schemas=read_schemas(elf) if symbols else (),
            uses=read_uses(elf, dynamic) if uses else {},
        )


def read_exports(path: Path, name: str = "") -> list[bytes]:
    """Return the names that a library exports; the quick way for torch's, which have 100,000."""
    with open_elf(path, name) as elf:
        return read_export_names(elf, Dynamic(elf))


def _directories(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for text in texts for part in text.split(":") if part)
