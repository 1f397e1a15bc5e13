"""The dynamic section of an ELF file: what it needs, where it looks for it, and which symbol versions it asks for.

Read as the loader reads it, through the program headers; section headers may be missing or lie. Format: System V gABI
chapter 5, and the GNU symbol versioning of the LSB, 10.7.
"""

from __future__ import annotations

import struct

from patchkit.abi.elf_file import PT_DYNAMIC, PT_NOTE, ElfFile
from patchkit.record import dataclass

DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ = 1, 4, 5, 6, 7, 8, 10
DT_SONAME, DT_RPATH, DT_SYMBOLIC, DT_PLTRELSZ, DT_TEXTREL, DT_JMPREL, DT_BIND_NOW = 14, 15, 16, 2, 22, 23, 24
DT_RUNPATH, DT_FLAGS = 29, 30
DT_GNU_HASH, DT_VERSYM, DT_RELACOUNT, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFF9, 0x6FFFFFFB
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF

_ENTRY = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")
_NEED_VERSION = struct.Struct("<IHHII")
_DEFINITION = struct.Struct("<HHHHIII")
_NOTE = struct.Struct("<III")
_NT_GNU_BUILD_ID = 3
_DF_SYMBOLIC, _DF_BIND_NOW, _DF_1_NOW = 2, 8, 1
_MOST_ENTRIES = 1 << 14
_MOST_VERSIONS = 1 << 14
_LONGEST_STRING = 1 << 16
_MOST_NAMES = 1 << 28  # bytes of all names together: a table may be pointed into again and again
_LARGEST_NOTES = 1 << 16
_VERSION_INDEX = 0x7FFF


@dataclass(frozen=True, kw_only=True, slots=True)
class NeededVersion:
    """A symbol version that a file asks of a library: `libc.so.6` has to have `GLIBC_2.32`."""

    library: str
    version: str
    weak: bool
    index: int


class Dynamic:
    """The entries of a dynamic section by tag, and the string table that they point into."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._left = _MOST_NAMES
        self.entries: dict[int, list[int]] = {}
        segment = next((one for one in elf.segments if one.kind == PT_DYNAMIC), None)
        if segment is None:
            raise elf.fault("it has no dynamic section: it is not a shared object")
        size = min(segment.size, _MOST_ENTRIES * _ENTRY.size) // _ENTRY.size * _ENTRY.size
        for tag, value in _ENTRY.iter_unpack(elf.read(segment.offset, size, "dynamic section")):
            if tag == 0:
                break
            self.entries.setdefault(tag, []).append(value)
        self.strings = self._string_table()

    def value(self, tag: int) -> int | None:
        """Return the value of an entry (the last counts, as for the loader), None without one."""
        values = self.entries.get(tag)
        return values[-1] if values else None

    def string(self, offset: int, what: str) -> str:
        """Return a string of the table; ObjectFormatError when it is outside or does not end."""
        return self.name(offset, what).decode("utf-8", "backslashreplace")

    def name(self, offset: int, what: str) -> bytes:
        """Return the bytes of a string of the table."""
        end = self.strings.find(b"\0", offset, offset + _LONGEST_STRING) if offset < len(self.strings) else -1
        if end < 0:
            raise self._elf.fault(f"the name of its {what} is not in its string table")
        self._left -= end - offset
        if self._left < 0:
            raise self._elf.fault(f"the names of its {what} would be more than {_MOST_NAMES >> 20} MiB")
        return self.strings[offset:end]

    def names(self, tag: int, what: str) -> tuple[str, ...]:
        """Return the strings that the entries of a tag name."""
        return tuple(self.string(value, what) for value in self.entries.get(tag, ()))

    @property
    def binds_now(self) -> bool:
        """Tell whether every symbol is bound at load, however the file is opened."""
        flags, more = self.value(DT_FLAGS) or 0, self.value(DT_FLAGS_1) or 0
        return DT_BIND_NOW in self.entries or bool(flags & _DF_BIND_NOW) or bool(more & _DF_1_NOW)

    @property
    def is_symbolic(self) -> bool:
        """Tell whether it looks its own symbols up in itself first (-Bsymbolic)."""
        return DT_SYMBOLIC in self.entries or bool((self.value(DT_FLAGS) or 0) & _DF_SYMBOLIC)

    def needed_versions(self) -> tuple[NeededVersion, ...]:
        """Return the version needs of every library, in the file's order."""
        address, count = self.value(DT_VERNEED), self.value(DT_VERNEEDNUM) or 0
        found: list[NeededVersion] = []
        for _ in range(min(count, _MOST_VERSIONS) if address else 0):
            assert address is not None  # noqa: S101 -- for the type checker
            _, versions, file, first, following = _NEED.unpack(self._elf.read_at(address, _NEED.size, "version needs"))
            library, place = self.string(file, "version needs"), address + first
            for _ in range(versions):
                row = _NEED_VERSION.unpack(self._elf.read_at(place, _NEED_VERSION.size, "version needs"))
                _, flags, index, name, step = row
                found.append(
                    NeededVersion(
                        library=library,
                        version=self.string(name, "version needs"),
                        weak=bool(flags & 2),
                        index=index & _VERSION_INDEX,
                    )
                )
                if len(found) > _MOST_VERSIONS:
                    raise self._elf.fault("it asks for more symbol versions than any file")
                if not step:
                    break
                place += step
            if not following:
                break
            address += following
        return tuple(found)

    def defined_versions(self) -> dict[int, str]:
        """Return the versions that the file defines for its own symbols by index (1 is its own name)."""
        address, count = self.value(DT_VERDEF), self.value(DT_VERDEFNUM) or 0
        found: dict[int, str] = {}
        for _ in range(min(count, _MOST_VERSIONS) if address else 0):
            assert address is not None  # noqa: S101 -- for the type checker
            row = _DEFINITION.unpack(self._elf.read_at(address, _DEFINITION.size, "version definitions"))
            _, _, index, names, _, first, following = row
            if names:
                at = self._elf.read_at(address + first, 4, "version definitions")
                found[index & _VERSION_INDEX] = self.string(int.from_bytes(at, "little"), "version definitions")
            if not following:
                break
            address += following
        return found

    def _string_table(self) -> bytes:
        address, size = self.value(DT_STRTAB), self.value(DT_STRSZ)
        if address is None or size is None:
            raise self._elf.fault("its dynamic section names no string table")
        return self._elf.read_at(address, size, "string table")


def build_id(elf: ElfFile) -> str:
    """Return the build-id in hex, "" without one."""
    for segment in elf.segments:
        if segment.kind != PT_NOTE or segment.size > _LARGEST_NOTES:
            continue
        notes = elf.read(segment.offset, segment.size, "notes")
        place = 0
        while place + _NOTE.size <= len(notes):
            name_size, size, kind = _NOTE.unpack_from(notes, place)
            name_at = place + _NOTE.size
            at = name_at + (name_size + 3 & ~3)
            if kind == _NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
                return notes[at : at + size].hex()
            place = at + (size + 3 & ~3)
    return ""
