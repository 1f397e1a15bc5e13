"""The frame of an ELF file: header, segments, sections, and bounded reads by file offset and by address.

Layout of the structures: System V gABI, chapters 4 and 5. Only 64-bit little-endian files are read (x86-64, AArch64):
no engine has another. Everything is read with `pread`, never mapped: a file that shrinks while it is read is then an
error and not a SIGBUS, and pages of a 900 MB wheel do not count as our memory.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.errors import ObjectFormatError
from patchkit.record import dataclass

MACHINES = {62: "x86-64", 183: "aarch64"}
PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4
SHT_NOBITS, SHT_DYNSYM = 8, 11

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ELF64_LITTLE = b"\x7fELF\x02\x01\x01"
_ET_DYN, _ET_EXEC = 3, 2
_MOST_SEGMENTS = 512
_LARGEST_READ = 1 << 28
_LONGEST_NAME = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A program header. Offsets and sizes in bytes."""

    kind: int
    offset: int
    address: int
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section header. `size` is what it takes in the file: 0 for one without contents."""

    name: str
    kind: int
    address: int
    offset: int
    size: int


class ElfFile:
    """An open ELF file. Every read is checked against the size that the file had when it was opened."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name
        self.size = os.fstat(descriptor).st_size
        header = self.read(0, _HEADER.size, "header")
        fields = _HEADER.unpack(header)
        if not fields[0].startswith(_ELF64_LITTLE):
            raise self.fault(_not_ours(fields[0]))
        self.type, self.machine = fields[1], MACHINES.get(fields[2], "")
        if self.type not in (_ET_DYN, _ET_EXEC):
            raise self.fault(f"it is of type {fields[1]}: neither a shared object nor a program")
        if not self.machine:
            raise self.fault(f"it is for machine {fields[2]}: neither x86-64 nor AArch64")
        self.segments = tuple(self._segments(offset=fields[5], size=fields[9], count=fields[10]))
        self._section_table = (fields[6], fields[11], fields[12], fields[13])

    def fault(self, why: str) -> ObjectFormatError:
        """Return the error for this file."""
        return ObjectFormatError(
            f"{self.name}: not a readable ELF file", why=f"  {why}", hint="install or download the package again"
        )

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Return `size` bytes at a file offset; ObjectFormatError when they are not all there."""
        if offset < 0 or size < 0 or size > _LARGEST_READ or offset + size > self.size:
            raise self.fault(f"its {what} would be {size} bytes at {offset}, and the file has {self.size}")
        try:
            content = os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise self.fault(f"its {what} cannot be read: {error.strerror}") from error
        if len(content) != size:
            raise self.fault(f"its {what} ends after {len(content)} of {size} bytes")
        return content

    def offset_of(self, address: int, what: str) -> tuple[int, int]:
        """Return the file offset of an address, and how many bytes of its segment follow there in the file."""
        for segment in self.segments:
            if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
                inside = address - segment.address
                return segment.offset + inside, segment.size - inside
        raise self.fault(f"its {what} is at address {address:#x}, which no segment has")

    def read_at(self, address: int, size: int, what: str) -> bytes:
        """Return `size` bytes at an address of the loaded image."""
        offset, left = self.offset_of(address, what)
        if size > left:
            raise self.fault(f"its {what} would be {size} bytes at {address:#x}, and the segment ends after {left}")
        return self.read(offset, size, what)

    def require_whole(self) -> None:
        """Raise ObjectFormatError when the file ends before one of its segments does: it was cut."""
        for segment in self.segments:
            if segment.kind == PT_LOAD and segment.offset + segment.size > self.size:
                end = segment.offset + segment.size
                raise self.fault(f"it was cut: its segments end at byte {end}, and the file has {self.size}")

    def sections(self) -> tuple[Section, ...]:
        """Return the sections; none when there is no usable table: a stripped file needs none to be loaded."""
        offset, size, count, names = self._section_table
        if not offset or size != _SECTION.size or not count or names >= count:
            return ()
        if offset + size * count > self.size:
            return ()
        rows = list(_SECTION.iter_unpack(self.read(offset, size * count, "section table")))
        strings_at, strings_size = rows[names][4], rows[names][5]
        if strings_at + strings_size > self.size or strings_size > _LARGEST_READ:
            return ()
        strings = self.read(strings_at, strings_size, "section names")
        found = []
        for row in rows:
            extent = 0 if row[1] == SHT_NOBITS else row[5]
            if row[4] + extent <= self.size:
                name = strings[row[0] : row[0] + _LONGEST_NAME].partition(b"\0")[0].decode("ascii", "replace")
                found.append(Section(name=name, kind=row[1], address=row[3], offset=row[4], size=extent))
        return tuple(found)

    def _segments(self, *, offset: int, size: int, count: int) -> Iterator[Segment]:
        if count > _MOST_SEGMENTS or (count and size != _SEGMENT.size):
            raise self.fault(f"its program headers are {count} of {size} bytes")
        for row in _SEGMENT.iter_unpack(self.read(offset, size * count, "program headers")):
            kind, _, at, address, _, in_file, _, _ = row
            yield Segment(kind=kind, offset=at, address=address, size=in_file)


@contextmanager
def open_elf(path: Path, name: str = "") -> Iterator[ElfFile]:
    """Open a file for reading its ELF structures; `name` is what errors call it.

    ObjectFormatError when it is no regular file, cannot be opened, or is no ELF file of an engine's kind.
    """
    shown = name or str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise ObjectFormatError(f"{shown}: cannot be opened", why=f"  {error}", hint="check the path") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ObjectFormatError(f"{shown}: not a file", hint="name a shared object")
        yield ElfFile(descriptor, shown)
    finally:
        os.close(descriptor)


def _not_ours(identity: bytes) -> str:
    if identity[:4] != b"\x7fELF":
        return f"it begins with {identity[:4]!r}, not with an ELF header"
    return "it is not a 64-bit little-endian file: no engine has others"
