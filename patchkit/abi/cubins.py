"""Which GPU architectures a shared object carries code for, from the headers of its embedded fat binaries.

A `.nv_fatbin` section is a row of containers, each a row of entries: compiled code (a cubin) for one architecture, or
PTX. Only headers are read. The format is not published; its fields were found by others by comparing files with
`cuobjdump` (among them the readers in ZLUDA and gpgpu-sim, and LLVM's offload wrapper, which writes the first header).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from patchkit.abi.elf_file import ElfFile, Section
from patchkit.record import dataclass

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHI")
_MAGIC = 0xBA55ED50
_PTX, _CUBIN = 1, 2
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MOST_ENTRIES = 1 << 17
_LONGEST_GAP = 1 << 16
_ALIGNMENT = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """GPU code for one architecture: where it lies in the file, and its bytes, which may be compressed."""

    is_compiled: bool
    architecture: int
    offset: int
    size: int


def read_architectures(elf: ElfFile) -> tuple[str, ...]:
    """Return what the fat binaries hold, sorted: `sm_90` for compiled code, `compute_90` for PTX.

    The same name stands for 90 and 90a: the header does not tell them apart. Reading ends where an entry does not look
    like one.
    """
    found = {(one.is_compiled, one.architecture) for one in read_entries(elf)}
    names = {True: "sm", False: "compute"}
    return tuple(
        f"{names[compiled]}_{architecture}"
        for compiled, architecture in sorted(found, key=lambda one: (not one[0], one))
    )


def read_entries(elf: ElfFile) -> Iterator[Entry]:
    """Yield what the fat binaries of a file hold, in its order."""
    for section in elf.sections():
        if section.name in _SECTIONS and section.size:
            yield from _entries(elf, section)


def _entries(elf: ElfFile, section: Section) -> Iterator[Entry]:
    place, end = section.offset, section.offset + section.size
    seen = 0
    while (start := _next_container(elf, place, end)) is not None:
        _, _, header, length = _CONTAINER.unpack(elf.read(start, _CONTAINER.size, "fat binary"))
        place = max(start + _CONTAINER.size, start + header)
        stop = min(end, place + length)
        while place + _ENTRY.size <= stop:
            kind, _, header, size, _, _, _, _, architecture = _ENTRY.unpack(elf.read(place, _ENTRY.size, "fat binary"))
            if header < _ENTRY.size or kind not in (_PTX, _CUBIN) or seen > _MOST_ENTRIES:
                break
            yield Entry(is_compiled=kind == _CUBIN, architecture=architecture, offset=place + header, size=size)
            seen += 1
            place += header + size
        place = stop


def _next_container(elf: ElfFile, place: int, end: int) -> int | None:
    """Return where the next container begins; there may be padding before it."""
    gap = 0
    while place + _CONTAINER.size <= end and gap < _LONGEST_GAP:
        if int.from_bytes(elf.read(place, 4, "fat binary"), "little") == _MAGIC:
            return place
        place, gap = place + _ALIGNMENT - place % _ALIGNMENT, gap + _ALIGNMENT
    return None
