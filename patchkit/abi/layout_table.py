"""A library's own table of struct layouts: native/include/patchkit/layout.h, written, and read by a child process."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patchkit.abi.elf_dynamic import Dynamic
from patchkit.abi.elf_file import open_elf
from patchkit.abi.elf_symbols import read_export_names
from patchkit.abi.layout import Field, StructLayout
from patchkit.abi.layout_load import SYMBOL, VERSION
from patchkit.errors import RefusedError
from patchkit.process import Completed, run_child

_PATIENCE_SECONDS = 60.0
# With our own search path: an isolated interpreter (-I) reads none from the environment.
_CHILD = (
    "import sys; sys.path[:] = sys.argv[2:]; from patchkit.abi.layout_load import print_table; print_table(sys.argv[1])"
)


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

    A child process loads it, once the file is seen to be whole and to export a table. The types of the fields are "",
    as C cannot tell them. RefusedError when it has no table, one of another version, or one that cannot be read.
    """
    _require_table(library)
    line = [sys.executable, "-I", "-c", _CHILD, str(library.resolve()), *sys.path]
    done = run_child(line, timeout=_PATIENCE_SECONDS, name=f"loading {library.name}")
    return tuple(_layout(*struct) for struct in _answer(done, library.name))


def _require_table(library: Path) -> None:
    """Look at the file without loading it. The loader maps a file: what is missing at its end would be a SIGBUS."""
    with open_elf(library) as elf:
        elf.require_whole()
        exports = read_export_names(elf, Dynamic(elf))
    if SYMBOL.encode() not in exports:
        raise RefusedError(
            f"{library.name} has no table of layouts",
            why=f"  it does not export {SYMBOL}",
            hint="docs/abi-layout.md says how a library gets one",
        )


def _answer(done: Completed, name: str) -> Sequence[Sequence[Any]]:
    if done.status != 0:
        raise RefusedError(
            f"{name}: loading it killed the process that did: {done.ended}",
            why=done.last_words,
            hint="the library or its table of layouts is damaged: build it again",
        )
    try:
        said = json.loads(done.stdout)
        structs: Sequence[Sequence[Any]] | None = said.get("structs")
        what, why = said["error"] if structs is None else ("", "")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise RefusedError(
            f"{name}: loading it ended the process that did",
            why="  exit status 0, before the table was read",
            hint="a constructor of the library does that: take it out",
        ) from error
    if structs is None:
        raise RefusedError(
            f"{name}: {what}", why=f"  {why}", hint="build the library with the headers of this patchkit"
        )
    return structs


def _layout(name: str, size: int, alignment: int, rows: Sequence[tuple[str, int, int, int]]) -> StructLayout:
    fields = tuple(Field(name=label, type="", offset=offset, size=extent) for label, offset, extent, _ in rows)
    needed = max((wanted for *_, wanted in rows), default=1)
    is_packed = alignment < needed or any(offset % (wanted or 1) for _, offset, _, wanted in rows)
    return StructLayout(name=name, size=size, alignment=alignment, packed=is_packed, fields=fields)
