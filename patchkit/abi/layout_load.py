"""The child process that loads a library for its table of layouts and prints that as JSON.

Loading runs the library's constructors, and its pointers are followed as they are: a library that is damaged, or not
what it says, ends this process and not the one that asked.
"""

from __future__ import annotations

from typing import Any

from patchkit.counting import counted

VERSION = 1
SYMBOL = "patchkit_layout_table"
# The structs of native/include/patchkit/layout.h. A test holds the two against each other.
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
_MOST = 4096  # structs of a table, and fields of a struct
_MOST_FIELDS = 1 << 16  # of all structs: they may all point to the same ones
_LONGEST_NAME = 256


class _TableError(Exception):
    """The library has no table that can be read: what, why."""


def print_table(library: str) -> None:
    """Print {"structs": [[name, size, alignment, [[field, offset, size, alignment]]]]} or {"error": [what, why]}."""
    import json
    import os
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # who asked says how it ended; a core file helps nobody
    answer = os.dup(1)
    os.dup2(2, 1)  # what a constructor prints is no part of the answer
    try:
        said: dict[str, Any] = {"structs": _read(library)}
    except _TableError as error:
        said = {"error": list(error.args)}
    with os.fdopen(answer, "w", encoding="ascii") as stream:
        json.dump(said, stream)
    os._exit(0)  # its destructors are not run


def _read(library: str) -> list[list[Any]]:
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(f"{CDEF} extern struct patchkit_layout_table {SYMBOL};")
    try:
        table = getattr(ffi.dlopen(library), SYMBOL)
    except (OSError, AttributeError) as error:
        raise _TableError("the loader does not take it", str(error)) from error
    if table.version != VERSION or table.count > _MOST:
        said = f"it says version {table.version}, {counted(table.count, 'struct')}"
        raise _TableError(f"a table of layouts that is not version {VERSION}", said)
    _require_rows(ffi, table.structs, table.count, "structs of the table")
    structs = [table.structs[place] for place in range(table.count)]
    if sum(struct.count for struct in structs) > _MOST_FIELDS:
        raise _TableError("a table of layouts with too many fields", f"more than {_MOST_FIELDS}")
    return [_struct(ffi, struct) for struct in structs]


def _struct(ffi: Any, struct: Any) -> list[Any]:
    name = _name(ffi, struct.name)
    if struct.count > _MOST:
        raise _TableError(f"struct {name}: a table with {struct.count} fields", f"more than {_MOST}")
    _require_rows(ffi, struct.fields, struct.count, f"fields of struct {name}")
    rows = [struct.fields[place] for place in range(struct.count)]
    fields = [[_name(ffi, row.name), row.offset, row.size, row.alignment] for row in rows]
    return [name, struct.size, struct.alignment, fields]


def _require_rows(ffi: Any, rows: Any, count: int, what: str) -> None:
    if count and rows == ffi.NULL:
        raise _TableError("a table of layouts that points nowhere", f"the {what} are {count}, at address 0")


def _name(ffi: Any, pointer: Any) -> str:
    if pointer == ffi.NULL:
        raise _TableError("a table of layouts with a struct or field that has no name", "its name is at address 0")
    name: str = ffi.string(pointer, _LONGEST_NAME).decode("utf-8", "backslashreplace")
    return name
