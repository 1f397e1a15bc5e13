"""cffi, the compiler, DWARF and the loaded library: they agree on every shared struct, and who does not is named."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.abi.declarations import read_declarations, struct_names
from patchkit.abi.layout import ChangeKind, StructLayout, compare_layouts
from patchkit.abi.layout_agree import (
    disagreements,
    dwarf_layouts,
    header_disagreements,
    library_disagreements,
)
from patchkit.abi.layout_cffi import header_layouts, stated_layouts
from patchkit.abi.layout_load import CDEF
from patchkit.abi.layout_table import library_layouts, table_source
from patchkit.errors import RefusedError
from patchkit.resources import native_directory

CC = shutil.which("gcc") or "gcc"
INCLUDE = native_directory() / "include"
SHARED = sorted((INCLUDE / "patchkit").glob("*.h"))

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

# A header with what the shared ones have: pointers, arrays, an enum as a length, doubles, bits, a nested struct.
HEADER = """
#include <stdint.h>
enum { LENGTH = 3 };
struct point { double x, y; };
struct flags {
    unsigned causal : 1, paged : 3;
};
struct call {
    uint32_t size, version;
    const float *q;
    int64_t stride[LENGTH];
    struct point where;
    uint8_t dtype;
    int32_t window;
    uint64_t scale;
};
typedef void record_function(const struct call *);
void patchkit_run(const struct call *);
"""
CHANGES = {
    "field": ("int32_t window;", "int64_t window;"),
    "packing": ("    uint64_t scale;\n};", "    uint64_t scale;\n} __attribute__((packed));"),
    "order": ("    uint8_t dtype;\n    int32_t window;", "    int32_t window;\n    uint8_t dtype;"),
    "missing": ("    int32_t window;\n", ""),
    "bits": ("causal : 1, paged : 3", "causal : 2, paged : 3"),
}

READERS: dict[str, Callable[[Path], tuple[StructLayout, ...]]] = {
    "cffi": lambda path: stated_layouts(read_declarations(path, CC)),
    "offsetof": lambda path: header_layouts(path, CC),
    "DWARF": lambda path: dwarf_layouts(path, CC, names=("point", "flags", "call")),
}


@pytest.fixture
def header(tmp_path: Path) -> Path:
    path = tmp_path / "call.h"
    path.write_text(HEADER)
    return path


def _changed(tmp_path: Path, change: str) -> Path:
    old, new = CHANGES[change]
    assert HEADER.count(old) == 1
    path = tmp_path / f"{change}.h"
    path.write_text(HEADER.replace(old, new))
    return path


def _library(tmp_path: Path, header: Path) -> Path:
    layouts = stated_layouts(read_declarations(header, CC))
    source, built = tmp_path / "table.c", tmp_path / f"lib{header.stem}.so"
    source.write_text(table_source([header.name], layouts))
    arguments = [CC, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-std=gnu11", f"-I{INCLUDE}"]
    subprocess.run([*arguments, f"-I{header.parent}", str(source), "-o", str(built)], check=True)
    return built


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_all_agree_on_every_struct_that_is_shared(path: Path) -> None:
    assert struct_names(read_declarations(path, CC, [INCLUDE]))
    assert header_disagreements(path, CC, [INCLUDE]) == ()


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_a_library_agrees_with_the_shared_header_it_was_built_from(tmp_path: Path, path: Path) -> None:
    layouts = stated_layouts(read_declarations(path, CC, [INCLUDE]))
    source, built = tmp_path / "table.c", tmp_path / "libtable.so"
    source.write_text(table_source([f"patchkit/{path.name}"], layouts))
    subprocess.run([CC, "-shared", "-fPIC", "-std=gnu11", f"-I{INCLUDE}", str(source), "-o", str(built)], check=True)
    assert [layout.name for layout in library_layouts(built)] == [layout.name for layout in layouts]
    assert library_disagreements(built, path, CC, [INCLUDE]) == ()


def test_the_table_is_read_with_the_structs_of_its_header() -> None:
    stated = {one.text for one in read_declarations(INCLUDE / "patchkit" / "layout.h", CC)}
    ours = {" ".join(part.split()) + "};" for part in CDEF.split("};") if part.strip()}
    assert {re.sub(r"\s", "", text) for text in ours} == {re.sub(r"\s", "", text) for text in stated}


def test_all_agree_on_the_header_of_the_tests(header: Path) -> None:
    assert header_disagreements(header, CC) == ()


def test_offsets_are_those_that_a_program_prints(tmp_path: Path, header: Path) -> None:
    (layout,) = [one for one in header_layouts(header, CC) if one.name == "call"]
    named = [field for field in layout.fields if field.bit_size is None]
    prints = "".join(f'printf("%zu ", offsetof(struct call, {field.name}));' for field in named)
    main = f'#include "call.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ {prints} return 0; }}\n'
    (tmp_path / "main.c").write_text(main)
    subprocess.run([CC, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout
    assert [field.offset for field in named] == [int(word) for word in printed.split()]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("field", {("window", ChangeKind.MOVED), ("window", ChangeKind.RESIZED), ("scale", ChangeKind.MOVED)}),
        ("packing", {("", ChangeKind.PACKED), ("", ChangeKind.ALIGNMENT), ("window", ChangeKind.MOVED)}),
        ("order", {("", ChangeKind.REORDERED), ("dtype", ChangeKind.MOVED), ("window", ChangeKind.MOVED)}),
        ("missing", {("window", ChangeKind.REMOVED)}),
        ("bits", {("causal", ChangeKind.RESIZED), ("paged", ChangeKind.MOVED)}),
    ],
)
@pytest.mark.parametrize("source", READERS)
def test_one_flip_in_a_header_is_caught_and_named(
    tmp_path: Path, header: Path, change: str, kinds: set[tuple[str, ChangeKind]], source: str
) -> None:
    read = READERS[source]
    before, after = read(header), read(_changed(tmp_path, change))
    found = [change for one, other in zip(before, after, strict=True) for change in compare_layouts(one, other)]
    assert kinds <= {(one.field, one.kind) for one in found}
    assert {one.struct for one in found} == {"flags" if change == "bits" else "call"}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("field", {("window", ChangeKind.MOVED), ("window", ChangeKind.RESIZED), ("scale", ChangeKind.MOVED)}),
        ("packing", {("", ChangeKind.PACKED), ("", ChangeKind.ALIGNMENT), ("window", ChangeKind.MOVED)}),
        ("order", {("", ChangeKind.REORDERED), ("dtype", ChangeKind.MOVED), ("window", ChangeKind.MOVED)}),
        ("missing", {("window", ChangeKind.ADDED)}),
    ],
)
def test_a_loaded_library_that_was_built_from_a_flipped_header_is_caught(
    tmp_path: Path, header: Path, change: str, kinds: set[tuple[str, ChangeKind]]
) -> None:
    library = _library(tmp_path, _changed(tmp_path, change))
    found = library_disagreements(library, header, CC)
    assert kinds <= {(one.change.field, one.change.kind) for one in found}
    assert all(one.words.startswith("call") for one in found)


def test_a_library_built_from_the_header_agrees(tmp_path: Path, header: Path) -> None:
    assert library_disagreements(_library(tmp_path, header), header, CC) == ()


def test_a_declaration_with_a_field_that_the_header_lacks_is_refused_by_name(tmp_path: Path, header: Path) -> None:
    theirs = read_declarations(header, CC)
    with pytest.raises(RefusedError, match="failed") as raised:
        header_layouts(_changed(tmp_path, "missing"), CC, declarations=theirs)
    assert "window" in raised.value.why


def test_a_declaration_with_another_type_than_the_header_is_refused_by_name(tmp_path: Path, header: Path) -> None:
    theirs = read_declarations(header, CC)
    with pytest.raises(RefusedError) as raised:
        header_layouts(_changed(tmp_path, "field"), CC, declarations=theirs)
    assert "window" in str(raised.value)


def test_a_library_without_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run([CC, "-shared", "-fPIC", "empty.c", "-o", "libempty.so"], cwd=tmp_path, check=True)
    with pytest.raises(RefusedError, match="no table of layouts"):
        library_layouts(tmp_path / "libempty.so")


@pytest.mark.parametrize("table", ["{2, 0, 0}", "{1, 100000, 0}"], ids=["version", "count"])
def test_a_table_of_another_version_is_refused(tmp_path: Path, table: str) -> None:
    source = f'#include "patchkit/layout.h"\nconst struct patchkit_layout_table patchkit_layout_table = {table};\n'
    (tmp_path / "other.c").write_text(source)
    arguments = [CC, "-shared", "-fPIC", f"-I{INCLUDE}", "other.c", "-o", "libother.so"]
    subprocess.run(arguments, cwd=tmp_path, check=True)
    with pytest.raises(RefusedError, match="not version 1"):
        library_layouts(tmp_path / "libother.so")


def test_a_struct_that_the_table_leaves_out_is_told(tmp_path: Path, header: Path) -> None:
    small = tmp_path / "small.h"
    small.write_text("struct point { double x, y; };\n")
    with pytest.raises(RefusedError, match="does not tell of call, flags"):
        library_disagreements(_library(tmp_path, small), header, CC)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#pragma pack(1)\nstruct s { char c; };\n", "pragma pack"),
        ("struct s { char c; } __attribute__((aligned(16)));\n", "aligned"),
        ("struct s { char c; \n", "cannot|failed"),
    ],
)
def test_what_cffi_has_no_words_for_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "odd.h"
    path.write_text(text)
    with pytest.raises(RefusedError, match=what):
        header_layouts(path, CC)


def test_two_structs_of_one_size_are_told_apart(tmp_path: Path) -> None:
    one, other = tmp_path / "one.h", tmp_path / "other.h"
    one.write_text("struct params { long a; int num_sm; int pad; void *rng_state; };\n")
    other.write_text("struct params { long a; void *rng_state; int num_sm; int pad; };\n")
    first, second = header_layouts(one, CC), header_layouts(other, CC)
    assert first[0].size == second[0].size
    found = disagreements("one", first, "other", second)
    assert {one.change.field for one in found} == {"", "num_sm", "pad", "rng_state"}
