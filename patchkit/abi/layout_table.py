"""A loaded library's own table of struct layouts: native/include/patchkit/layout.h, written and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patchkit.abi.layout import Field, StructLayout
from patchkit.errors import RefusedError

VERSION = 1
SYMBOL = "patchkit_layout_table"
_MOST = 4096  # structs of a table, and fields of a struct
_LONGEST_NAME = 256
# The structs of layout.h. A test holds the two against each other.
CDEF = """
struct patchkit_layout_field {
    const char *name;
    uint32_t offset, size;
    uint32_t alignment;
    uint32_t reserved;
};
struct patchkit_layout {
    const char *name;
    const struct patchkit_layout_field *fields;
    uint32_t count;
    uint32_t size, alignment;
    uint32_t reserved;
};
struct patchkit_layout_table {
    uint32_t version;
    uint32_t count;
    const struct patchkit_layout *structs;
};
"""


def table_source(headers: Sequence[str], layouts: Sequence[StructLayout]) -> str:
    """Return the C source of a library's table: compile it into the library, with the library's own options.

    `headers` are included, `layouts` name the structs and fields; the numbers are the compiler's. A bit-field has no
    offset that C could tell, and is left out.
    """
    lines = ['#include "patchkit/layout.h"', *(f'#include "{name}"' for name in headers)]
    rows = []
    for layout in layouts:
        fields = f"fields_of_{layout.name}"
        named = [field.name for field in layout.fields if field.bit_size is None and field.name and field.size]
        members = [f"    PATCHKIT_LAYOUT_FIELD(struct {layout.name}, {name})," for name in named]
        lines += [f"static const struct patchkit_layout_field {fields}[] = {{", *members, "};"]
        rows.append(f'    PATCHKIT_LAYOUT_STRUCT("{layout.name}", struct {layout.name}, {fields}),')
    lines += ["static const struct patchkit_layout all_structs[] = {", *rows, "};"]
    lines += [f"const struct patchkit_layout_table {SYMBOL} = {{", f"    {VERSION}, {len(rows)}, all_structs", "};"]
    return "\n".join(lines) + "\n"


def library_layouts(library: Path) -> tuple[StructLayout, ...]:
    """Return what a library says of its structs. It is loaded for that, which runs its constructors: only for our own.

    The types of the fields are "", as C cannot tell them. RefusedError when it has no table, or one of another version.
    """
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(f"{CDEF} extern struct patchkit_layout_table {SYMBOL};")
    try:
        loaded = ffi.dlopen(str(library.resolve()))
        table = getattr(loaded, SYMBOL)
    except (OSError, AttributeError, KeyError) as error:
        raise RefusedError(
            f"{library.name} has no table of layouts",
            why=f"  {error}",
            hint=f"only a library that exports {SYMBOL} has one: docs/abi-layout.md",
        ) from error
    if table.version != VERSION or table.count > _MOST:
        raise RefusedError(
            f"{library.name}: a table of layouts that is not version {VERSION}",
            why=f"  it says version {table.version}, {table.count} structs",
            hint="build the library with the headers of this patchkit",
        )
    return tuple(_layout(ffi, table.structs[place]) for place in range(table.count))


def _layout(ffi: Any, struct: Any) -> StructLayout:
    name = _name(ffi, struct.name)
    if struct.count > _MOST:
        raise RefusedError(f"struct {name}: a table with {struct.count} fields")
    rows = [struct.fields[place] for place in range(struct.count)]
    fields = tuple(Field(name=_name(ffi, row.name), type="", offset=row.offset, size=row.size) for row in rows)
    needed = max((row.alignment for row in rows), default=1)
    is_packed = struct.alignment < needed or any(row.offset % (row.alignment or 1) for row in rows)
    return StructLayout(name=name, size=struct.size, alignment=struct.alignment, packed=is_packed, fields=fields)


def _name(ffi: Any, pointer: Any) -> str:
    if pointer == ffi.NULL:
        raise RefusedError("a table of layouts with a struct or field that has no name")
    name: str = ffi.string(pointer, _LONGEST_NAME).decode("utf-8", "backslashreplace")
    return name
