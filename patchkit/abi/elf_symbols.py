"""The dynamic symbols of an ELF file, and how relocations use them."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator

from patchkit.abi.elf_dynamic import (
    DT_GNU_HASH,
    DT_HASH,
    DT_JMPREL,
    DT_PLTRELSZ,
    DT_RELA,
    DT_RELACOUNT,
    DT_RELASZ,
    DT_SYMTAB,
    DT_VERSYM,
    Dynamic,
)
from patchkit.abi.elf_file import SHT_DYNSYM, ElfFile
from patchkit.record import dataclass

_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_KINDS = {0: "untyped", 1: "object", 2: "function", 6: "thread-local", 10: "ifunc"}
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_DEFAULT, _PROTECTED = 0, 3
_ABSOLUTE_ONLY = (0, 3, 4)  # sections and files are no names to link against
_HIDDEN_VERSION = 0x8000
_LOCAL_VERSION, _BASE_VERSION = 0, 1
_MOST_SYMBOLS = 1 << 23
_MOST_RELOCATIONS = 1 << 23
_LONGEST_CHAIN = 1 << 16
_WORD = 4


class Use(enum.Flag):
    """How relocations use a symbol: called through the PLT, address taken, address in a table, copied, thread-local."""

    NONE = 0
    CALL = enum.auto()  # R_X86_64_JUMP_SLOT
    ADDRESS = enum.auto()  # R_X86_64_GLOB_DAT
    TABLE = enum.auto()  # R_X86_64_64
    COPY = enum.auto()
    THREAD_LOCAL = enum.auto()


# psABI of x86-64, table 4.10; ELF for the Arm 64-bit Architecture, table 5.
_USES = {
    "x86-64": {7: Use.CALL, 6: Use.ADDRESS, 1: Use.TABLE, 5: Use.COPY, 16: Use.THREAD_LOCAL, 18: Use.THREAD_LOCAL},
    "aarch64": {
        1026: Use.CALL,
        1025: Use.ADDRESS,
        257: Use.TABLE,
        1024: Use.COPY,
        1028: Use.THREAD_LOCAL,
        1029: Use.THREAD_LOCAL,
        1030: Use.THREAD_LOCAL,
        1031: Use.THREAD_LOCAL,
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """A dynamic symbol as others see it: `library` and `version` are "" where it has none.

    `kind` is function, object, ifunc, thread-local or untyped.
    """

    name: str
    version: str
    library: str
    kind: str
    weak: bool
    defined: bool
    protected: bool


def read_symbols(elf: ElfFile, dynamic: Dynamic) -> tuple[Symbol, ...]:
    """Return every global and weak dynamic symbol that is undefined, or defined and visible."""
    needs = {need.index: need for need in dynamic.needed_versions()}
    defined = dynamic.defined_versions()
    table = _symbol_table(elf, dynamic)
    versions = _versions(elf, dynamic, len(table) // _SYMBOL.size)
    found = []
    for index, (at, kind, bind, visibility, section) in _rows(table):
        name = dynamic.string(at, "symbols")
        number = versions[index] & ~_HIDDEN_VERSION if index < len(versions) else _BASE_VERSION
        need = needs.get(number) if section == 0 else None
        version = need.version if need else defined.get(number, "") if section and number > _BASE_VERSION else ""
        found.append(
            Symbol(
                name=name,
                version=version,
                library=need.library if need else "",
                kind=_KINDS.get(kind, "untyped"),
                weak=bind == _WEAK,
                defined=section != 0,
                protected=visibility == _PROTECTED,
            )
        )
    return tuple(found)


def read_export_names(elf: ElfFile, dynamic: Dynamic) -> list[bytes]:
    """Return the names of the symbols that a file defines for others: the quick way for a library with 100,000."""
    rows = _rows(_symbol_table(elf, dynamic))
    return [dynamic.name(at, "symbols") for _, (at, _, _, _, section) in rows if section]


def read_uses(elf: ElfFile, dynamic: Dynamic) -> dict[str, Use]:
    """Return how relocations use each named symbol."""
    table = _symbol_table(elf, dynamic)
    kinds = _USES[elf.machine]
    found: dict[int, Use] = {}
    for info in _relocations(elf, dynamic):
        use = kinds.get(info & 0xFFFFFFFF)
        if info >> 32 and use is not None:
            found[info >> 32] = found.get(info >> 32, Use.NONE) | use
    named = {}
    for index, use in found.items():
        if (index + 1) * _SYMBOL.size > len(table):
            raise elf.fault(f"a relocation is for symbol {index}, which is not there")
        at = _SYMBOL.unpack_from(table, index * _SYMBOL.size)[0]
        named[dynamic.string(at, "symbols")] = use
    return named


def _rows(table: bytes) -> Iterator[tuple[int, tuple[int, int, int, int, int]]]:
    """Yield index and (name offset, type, binding, visibility, section) of the symbols that others see."""
    for index, (at, info, other, section, _, _) in enumerate(_SYMBOL.iter_unpack(table)):
        bind, kind, visibility = info >> 4, info & 15, other & 3
        if not at or bind not in (_GLOBAL, _WEAK, _UNIQUE) or kind in (3, 4):
            continue
        if section == 0 or visibility in (_DEFAULT, _PROTECTED):
            yield index, (at, kind, bind, visibility, section)


def _symbol_table(elf: ElfFile, dynamic: Dynamic) -> bytes:
    address = dynamic.value(DT_SYMTAB)
    if address is None:
        return b""
    count = _symbol_count(elf, dynamic, address)
    if count > _MOST_SYMBOLS:
        raise elf.fault(f"it would have {count} symbols")
    return elf.read_at(address, count * _SYMBOL.size, "symbol table")


def _symbol_count(elf: ElfFile, dynamic: Dynamic, address: int) -> int:
    """Return the number of dynamic symbols, which the dynamic section itself does not say.

    The section table says it; without one DT_HASH does; DT_GNU_HASH knows only of defined symbols, and relocations of
    the others.
    """
    for section in elf.sections():
        if section.kind == SHT_DYNSYM and section.address == address:
            return section.size // _SYMBOL.size
    if (hashed := dynamic.value(DT_HASH)) is not None:
        return int.from_bytes(elf.read_at(hashed + _WORD, _WORD, "hash table"), "little")
    return max([_gnu_hash_count(elf, dynamic), *((info >> 32) + 1 for info in _relocations(elf, dynamic))])


def _gnu_hash_count(elf: ElfFile, dynamic: Dynamic) -> int:
    """Return one more than the last symbol that the GNU hash table leads to: the end of the last bucket's chain."""
    address = dynamic.value(DT_GNU_HASH)
    if address is None:
        return 0
    buckets, first, blooms, _ = struct.unpack("<4I", elf.read_at(address, 16, "hash table"))
    at = address + 16 + 8 * blooms
    table = memoryview(elf.read_at(at, _WORD * buckets, "hash table")).cast("I")
    last = int(max(table, default=0))
    if last < first:
        return int(first)
    offset, left = elf.offset_of(at + _WORD * (buckets + last - first), "hash table")
    chain = elf.read(offset, min(left, _WORD * _LONGEST_CHAIN) // _WORD * _WORD, "hash table")
    for place in range(0, len(chain), _WORD):
        if chain[place] & 1:
            return last + place // _WORD + 1
    raise elf.fault("a chain of its hash table does not end")


def _versions(elf: ElfFile, dynamic: Dynamic, count: int) -> memoryview:
    address = dynamic.value(DT_VERSYM)
    if address is None:
        return memoryview(b"").cast("H")
    return memoryview(elf.read_at(address, 2 * count, "symbol versions")).cast("H")


def _relocations(elf: ElfFile, dynamic: Dynamic) -> Iterator[int]:
    """Yield the info word of every relocation with a symbol; those without stand first and are skipped unread."""
    plain = dynamic.value(DT_RELACOUNT) or 0
    for table, length, skipped in ((DT_RELA, DT_RELASZ, plain), (DT_JMPREL, DT_PLTRELSZ, 0)):
        address, size = dynamic.value(table), dynamic.value(length)
        if address is None or not size:
            continue
        count = size // _RELOCATION.size
        if count > _MOST_RELOCATIONS or skipped > count:
            raise elf.fault(f"it would have {count} relocations")
        if count > skipped:
            start, extent = address + skipped * _RELOCATION.size, (count - skipped) * _RELOCATION.size
            for _, info, _ in _RELOCATION.iter_unpack(elf.read_at(start, extent, "relocations")):
                yield info
