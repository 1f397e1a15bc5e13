"""How large a struct is that GPU kernels get by value, from the compiled code in a library.

A cubin has for each kernel a section `.nv.info.NAME`, a row of attributes; EIATTR_KPARAM_INFO tells a parameter's
number, its place and its size. The format is not published: its fields are those that CuAssembler lists. Code that is
compressed is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from patchkit.abi.cubins import Entry, read_entries
from patchkit.abi.elf_file import ElfFile, open_elf
from patchkit.pattern import compile_lazily

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ATTRIBUTE = struct.Struct("<BBH")
_PARAMETER = struct.Struct("<IHHI")
_ELF64_LITTLE = b"\x7fELF\x02\x01\x01"
_HAS_SIZE, _PARAMETER_INFO = 4, 0x17
_SIZE_SHIFT = 18
_KERNEL = ".nv.info."
_MOST_SECTIONS = 1 << 14
_LARGEST = 1 << 27
_LAST = compile_lazily(r"Ev(?:NS_)?([0-9]+)(\w+?)E?$")


def sizes_by_value(library: Path, struct_name: str) -> tuple[int, ...]:
    """Return the bytes in which kernels get a struct as their only parameter, a number for each kernel."""
    with open_elf(library) as elf:
        cubins = (entry for entry in read_entries(elf) if entry.is_compiled and entry.size <= _LARGEST)
        return tuple(
            size
            for entry in cubins
            for name, sizes in _kernels(elf, entry)
            if takes_value(name, struct_name) and len(sizes) == 1
            for size in sizes
        )


def takes_value(kernel: str, struct_name: str) -> bool:
    """Tell whether a mangled name is that of a kernel template with a struct of its own namespace by value."""
    match = _LAST.search(kernel)
    return match is not None and match[1] == str(len(struct_name)) and match[2] == struct_name


def _kernels(elf: ElfFile, entry: Entry) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the kernels of a cubin and the sizes of their parameters; nothing of one that cannot be read."""
    if entry.size < _HEADER.size:
        return
    content = elf.read(entry.offset, entry.size, "GPU code")
    if not content.startswith(_ELF64_LITTLE):
        return
    for name, attributes in _sections(content):
        if name.startswith(_KERNEL):
            yield name.removeprefix(_KERNEL), tuple(_parameters(attributes))


def _sections(content: bytes) -> Iterator[tuple[str, bytes]]:
    fields = _HEADER.unpack_from(content)
    offset, count, names = fields[6], fields[12], fields[13]
    if count > _MOST_SECTIONS or names >= count or offset + count * _SECTION.size > len(content):
        return
    rows = [_SECTION.unpack_from(content, offset + place * _SECTION.size) for place in range(count)]
    table = content[rows[names][4] : rows[names][4] + rows[names][5]]
    for row in rows:
        name = table[row[0] :].split(b"\0", 1)[0].decode("utf-8", "replace")
        yield name, content[row[4] : row[4] + row[5]]


def _parameters(attributes: bytes) -> Iterator[int]:
    place = 0
    while place + _ATTRIBUTE.size <= len(attributes):
        form, kind, size = _ATTRIBUTE.unpack_from(attributes, place)
        place += _ATTRIBUTE.size
        if form != _HAS_SIZE:
            continue
        if kind == _PARAMETER_INFO and place + _PARAMETER.size <= len(attributes):
            yield _PARAMETER.unpack_from(attributes, place)[3] >> _SIZE_SHIFT
        place += size
