"""The structs that stage 1 and stage 2 share, as cffi reads them from the header: a table to compile in, and a digest.

native/shim/layout.c says the same digest of the table that was compiled in, and is the one to refuse another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from patchkit.abi.declarations import read_declarations
from patchkit.abi.layout import StructLayout
from patchkit.abi.layout_cffi import stated_layouts
from patchkit.abi.layout_table import table_source
from patchkit.record import dataclass

SHIM_HEADER = "patchkit/shim.h"
ATTENTION_HEADER = "patchkit/attention.h"


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedLayout:
    """What is compiled into a library for its structs, and the digest of their layout."""

    source: str
    digest: str


def shared_layout(native: Path, header: str, compiler: str) -> SharedLayout:
    """Read one of the shared headers below the directory of native sources."""
    include = native / "include"
    layouts = stated_layouts(read_declarations(include / header, compiler, [include]))
    return SharedLayout(source=table_source([header], layouts), digest=layout_digest(layouts))


def layout_digest(layouts: Sequence[StructLayout]) -> str:
    """Return the SHA-256 of the lines that tell these layouts."""
    lines = []
    for layout in layouts:
        lines.append(f"{layout.name} {layout.size} {layout.alignment}\n")
        lines += [f"{field.name} {field.offset} {field.size}\n" for field in layout.fields]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
