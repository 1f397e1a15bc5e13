"""The structs that the built libraries share: what they say themselves, the header, and who differs is named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from patchkit.abi.layout_agree import header_disagreements, library_disagreements
from patchkit.native.build import HOST_LIBRARY, BuildRequest, build
from patchkit.native.compiler import find_toolchain
from patchkit.native.layout import ATTENTION_HEADER, SHIM_HEADER, shared_layout
from patchkit.native.settings import Settings
from patchkit.native.symbols import HOST, read_symbols
from patchkit.resources import native_directory
from tests.native.workshop import Workshop, run

pytestmark = pytest.mark.xdist_group("native")

INCLUDE = native_directory() / "include"
CC = find_toolchain().cc[0]
FLIPS = {
    "field": ("    int32_t rope_offset;", "    int64_t rope_offset;", "pk_settings.rope_offset"),
    "packing": (
        "    uint16_t symbol;",
        "    uint8_t packed; uint16_t symbol __attribute__((packed));",
        "pk_record.symbol",
    ),
    "order": (
        "    uint8_t dtype;  /* c10::ScalarType */\n    uint8_t device;",
        "    uint8_t device, dtype;",
        "pk_record.d",
    ),
    "another size": ("PK_RECORDS = 256, PK_NAME = 512", "PK_RECORDS = 256, PK_NAME = 256", "pk_symbol.name"),
}


def changed(directory: Path, old: str, new: str) -> Path:
    """Return a copy of the native sources in which shim.h has another struct and no compiler to say so."""
    native = directory / "native"
    shutil.copytree(native_directory(), native)
    header = native / "include" / SHIM_HEADER
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(re.sub(r"static_assert[^;]*;", "", text.replace(old, new)))
    return native


@pytest.mark.parametrize("header", [SHIM_HEADER, ATTENTION_HEADER])
def test_cffi_the_compiler_and_dwarf_agree(header: str) -> None:
    assert header_disagreements(INCLUDE / header, CC, [INCLUDE]) == ()


def test_what_was_built_says_what_the_headers_say(workshop: Workshop) -> None:
    shim = workshop.host_shim()
    assert library_disagreements(shim.stage1, INCLUDE / SHIM_HEADER, CC, [INCLUDE]) == ()
    assert library_disagreements(shim.directory / HOST_LIBRARY, INCLUDE / ATTENTION_HEADER, CC, [INCLUDE]) == ()


@pytest.mark.parametrize("flip", FLIPS)
def test_a_flip_in_the_header_is_named(workshop: Workshop, tmp_path: Path, flip: str) -> None:
    old, new, name = FLIPS[flip]
    include = changed(tmp_path, old, new) / "include"
    found = library_disagreements(workshop.host_shim().stage1, include / SHIM_HEADER, CC, [include])
    assert any(one.words.startswith(name) for one in found), [one.words for one in found]


def test_a_stage_2_with_other_structs_is_not_opened(workshop: Workshop, segments: Path, tmp_path: Path) -> None:
    shim = workshop.host_shim()
    swapped = changed(tmp_path, "    int32_t window;      /* a query sees so many keys; 0: as called */\n", "")
    header = swapped / "include" / SHIM_HEADER
    header.write_text(header.read_text().replace("    uint64_t era; ", "    int64_t window;\n    uint64_t era; "))
    rows = tuple(row for row in read_symbols(swapped) if row.engine == HOST)
    request = BuildRequest(native=swapped, rows=rows, libraries=(), torch=None, toolchain=find_toolchain())
    other = build(request, tmp_path / "cache")
    wanted = shared_layout(swapped, SHIM_HEADER, CC).digest
    ran = run(
        [shim.program, 20, 2],
        segments,
        shim,
        Settings(mode="transform", qk_scale=0.5),
        PATCHKIT_SHIM_STAGE2=str(other.stage2),
    )
    assert (ran.status, ran.out) == (0, run([shim.program, 20, 2], segments).out)
    assert f"it was built for shared structs with the layout {wanted}, stage 1 for " in ran.err
