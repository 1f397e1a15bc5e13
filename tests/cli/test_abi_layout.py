"""`patchkit abi layout` and `patchkit abi probe`: what they write, and how they end."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.abi.declarations import read_declarations
from patchkit.abi.layout_cffi import stated_layouts
from patchkit.abi.layout_facts import read_types
from patchkit.abi.layout_table import table_source
from patchkit.resources import native_directory
from tests.cli.said import Patchkit

INCLUDE = native_directory() / "include"
HEADER = "struct call { int heads; char *name; };\n"


def test_a_struct_is_drawn_with_its_padding_and_its_evidence(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "Flash_fwd_params", "--of", "vllm==0.6.3")
    lines = said.out.splitlines()
    assert said.status == 0
    assert lines[0] == "Flash_fwd_params  456 bytes, alignment 8"
    assert "     392    24  philox_args                 at::PhiloxCudaState" in lines
    assert "     450     6  (padding)" in lines
    assert any(line.startswith("  proves: vllm_flash_attn_c.abi3.so: all 41 stores") for line in lines)


@pytest.mark.parametrize("name", ["c10::TensorImpl", "TensorImpl"])
def test_two_releases_are_compared_and_a_break_is_status_1(name: str, patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", name, "--of", "torch==2.8.0", "--against", "torch==2.13.0")
    assert said.status == 1
    assert "  c10::TensorImpl: size: 184 bytes -> 176 bytes" in said.out.splitlines()


def test_two_releases_that_agree_are_status_0(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "at::Tensor", "--of", "torch==2.8.0", "--against", "torch==2.13.0")
    assert said.status == 0
    assert "the same: 8 bytes, 1 field" in said.out


def test_json_has_fields_padding_and_evidence(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "PhiloxCudaState", "--of", "torch==2.11.0", "--json")
    document = said.document
    assert (said.status, document["changes"]) == (0, [])
    (struct,) = document["structs"]
    assert (struct["name"], struct["size"], struct["alignment"]) == ("at::PhiloxCudaState", 32, 8)
    assert struct["fields"][-1] == {"name": "captured_", "type": "bool", "offset": 24, "size": 1}
    assert struct["padding"][-1] == {"offset": 25, "size": 7}
    assert struct["evidence"]["source"].startswith("torch/include of torch-2.11.0")


def test_json_lists_changes(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "Device", "--of", "torch==2.8.0", "--against", "torch==2.11.0", "--json")
    assert (said.status, said.document["changes"]) == (0, [])
    said = patchkit("abi", "layout", "StorageImpl", "--of", "torch==2.5.1", "--against", "torch==2.6.0", "--json")
    first = said.document["changes"][0]
    assert said.status == 1
    assert first == {
        "struct": "c10::StorageImpl",
        "field": "",
        "kind": "size",
        "before": "88 bytes",
        "after": "96 bytes",
        "breaking": True,
    }


def test_without_a_name_the_structs_are_listed(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "--of", "torch==2.8.0")
    assert said.status == 0
    assert "    184 bytes  c10::TensorImpl" in said.out.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ("x",),
        ("x", "--of", "torch==2.8.0"),
        ("x", "--of", "torch==0"),
        ("x", "--of", "nobody"),
        ("Layout", "--of", "torch==2.8.0"),
    ],
    ids=["no source", "no such struct", "no such version", "no such release", "an enumeration"],
)
def test_what_cannot_be_meant_is_a_usage_error(arguments: tuple[str, ...], patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", *arguments)
    assert (said.status, said.err.startswith("error: ")) == (2, True)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "call.h").write_text(HEADER)
    layouts = stated_layouts(read_declarations(tmp_path / "call.h", "gcc"))
    (tmp_path / "table.c").write_text(table_source(["call.h"], layouts))
    line = ["gcc", "-shared", "-fPIC", f"-I{INCLUDE}", "-I.", "table.c", "-o", "libcall.so"]
    subprocess.run(line, cwd=tmp_path, check=True)
    return tmp_path / "libcall.so"


def test_a_library_is_compared_with_a_header(library: Path, patchkit: Patchkit) -> None:
    header = library.with_name("call.h")
    assert patchkit("abi", "layout", "call", "--library", library, "--header", header, "--compiler", "gcc").status == 0
    header.write_text(HEADER.replace("char *name;", "char flag; char *name; int more;"))
    said = patchkit("abi", "layout", "call", "--library", str(library), "--header", str(header), "--compiler", "gcc")
    assert said.status == 1
    assert "  call.flag: added: not there -> 1 byte at offset 4" in said.out.splitlines()


def test_a_header_is_drawn(library: Path, patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "call", "--header", str(library.with_name("call.h")), "--compiler", "gcc")
    assert said.status == 0
    assert said.out.splitlines()[0] == "call  16 bytes, alignment 8"


def test_a_header_that_does_not_compile_is_refused(library: Path, patchkit: Patchkit) -> None:
    library.with_name("call.h").write_text('#include "nothing.h"\n')
    said = patchkit("abi", "layout", "call", "--header", library.with_name("call.h"), "--compiler", "gcc")
    assert (said.status, "nothing.h" in said.err) == (1, True)


def test_probe_of_a_directory_without_headers_is_refused(tmp_path: Path, patchkit: Patchkit) -> None:
    (tmp_path / "version.py").write_text("__version__ = '2.8.0+cu126'\n")
    said = patchkit("abi", "probe", tmp_path)
    assert (said.status, "no torch headers" in said.err) == (1, True)


def test_probe_of_a_flash_header_wants_the_name_of_a_release(tmp_path: Path, patchkit: Patchkit) -> None:
    (tmp_path / "flash.h").write_text("struct Flash_fwd_params { int b; };\n")
    said = patchkit("abi", "probe", tmp_path, "--flash", tmp_path / "flash.h")
    assert (said.status, "--release" in said.err) == (2, True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_probe_writes_what_layout_reads(tmp_path: Path, patchkit: Patchkit) -> None:
    philox = tmp_path / "torch" / "include" / "ATen" / "cuda" / "PhiloxCudaState.h"
    philox.parent.mkdir(parents=True)
    philox.write_text(
        "#pragma once\nnamespace at { struct PhiloxCudaState { unsigned long seed, offset; bool captured; }; }\n"
    )
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.8.0'\n")
    header = tmp_path / "flash.h"
    header.write_text(
        '#include <cuda.h>\n#include "namespace_config.h"\nnamespace FLASH_NAMESPACE {\n'
        "struct Qkv_params { void *q_ptr; };\n"
        "struct Flash_fwd_params : public Qkv_params { int b; at::PhiloxCudaState philox_args; };\n}\n"
    )
    facts = tmp_path / "facts.z"
    flash = ("--flash", str(header), "--release", "flash-attn==9", "--into", str(facts), "--json")
    said = patchkit("abi", "probe", str(tmp_path / "torch"), *flash)
    layout = said.document["types"]["Flash_fwd_params"]["layout"]
    assert said.status == 0
    assert (layout["size"], [row[0] for row in layout["fields"]]) == (40, ["Qkv_params::q_ptr", "b", "philox_args"])
    assert read_types(facts).of("flash-attn==9")["Flash_fwd_params"].layout is not None


def test_without_a_source_an_example_is_shown(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "TensorImpl")
    assert said.status == 2
    assert "next: patchkit abi layout Flash_fwd_params --of vllm==0.6.3" in said.err


def _shared(directory: Path, header: str, *, of: str = "") -> Path:
    """Build a library that tells of the structs of a header: one of ours, or the text of another."""
    path = INCLUDE / "patchkit" / header if not of else directory / header
    if of:
        path.write_text(of)
    layouts = stated_layouts(read_declarations(path, "gcc", [INCLUDE]))
    (directory / "table.c").write_text(table_source([str(path)], layouts))
    line = ["gcc", "-shared", "-fPIC", "-std=gnu11", f"-I{INCLUDE}", "table.c", "-o", "libtable.so"]
    subprocess.run(line, cwd=directory, check=True)
    return directory / "libtable.so"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
class TestLibrary:
    def test_a_struct_of_ours_is_drawn_from_the_library(self, tmp_path: Path, patchkit: Patchkit) -> None:
        library = _shared(tmp_path, "attention.h")
        said = patchkit("abi", "layout", "patchkit_attention", "--of", library)
        assert said.status == 0
        assert said.out.startswith("patchkit_attention  ")
        assert "  proves: its own patchkit_layout_table" in said.out.splitlines()

    def test_all_structs_of_ours_agree_with_their_header(self, tmp_path: Path, patchkit: Patchkit) -> None:
        library, header = _shared(tmp_path, "attention.h"), INCLUDE / "patchkit" / "attention.h"
        arguments = ("abi", "layout", "--of", library, "--header", header, "--include", INCLUDE, "--compiler", "gcc")
        said = patchkit(*arguments, "--json")
        assert (said.status, said.document["changes"]) == (0, [])
        names = [one["name"] for one in said.document["structs"] if one["origin"] == "libtable.so"]
        assert "patchkit_attention" in names

    def test_a_struct_that_the_library_leaves_out_is_refused(self, tmp_path: Path, patchkit: Patchkit) -> None:
        library = _shared(tmp_path, "small.h", of="struct point { int x; };\nstruct line { int a; };\n")
        header = tmp_path / "large.h"
        header.write_text("struct point { int x; };\nstruct line { int a; };\nstruct call { int b; };\n")
        said = patchkit("abi", "layout", "--of", library, "--header", header, "--compiler", "gcc")
        assert said.status == 1
        assert "libtable.so does not tell of call" in said.err

    def test_bits_that_no_table_can_tell_are_no_difference(self, tmp_path: Path, patchkit: Patchkit) -> None:
        library = _shared(tmp_path, "bits.h", of="struct flags { int whole; unsigned a : 1, b : 3; };\n")
        said = patchkit("abi", "layout", "--of", library, "--header", tmp_path / "bits.h", "--compiler", "gcc")
        assert (said.status, "the same" in said.out) == (0, True)

    def test_a_library_that_is_not_there_is_a_misuse(self, tmp_path: Path, patchkit: Patchkit) -> None:
        said = patchkit("abi", "layout", "call", "--of", tmp_path / "libnothing.so")
        assert (said.status, "libnothing.so: cannot be read\n  there is no such file" in said.err) == (2, True)

    @pytest.mark.parametrize("option", ["--of", "--library"])
    def test_a_library_whose_table_points_nowhere_is_refused(
        self, tmp_path: Path, patchkit: Patchkit, option: str
    ) -> None:
        library = _shared(tmp_path, "small.h", of="struct point { int x; };\n")
        table = tmp_path / "table.c"
        table.write_text(table.read_text().replace("1, all_structs", "1, (const void *)0x41414141"))
        line = ["gcc", "-shared", "-fPIC", f"-I{INCLUDE}", "table.c", "-o", "libtable.so"]
        subprocess.run(line, cwd=tmp_path, check=True)
        said = patchkit("abi", "layout", "point", option, library)
        assert (said.status, "libtable.so: loading it killed the process that did: signal 11" in said.err) == (1, True)


def test_a_struct_that_only_one_release_has_is_not_said_to_be_the_same(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "Flash_fwd_params", "--of", "vllm==0.8.5", "--against", "vllm==0.6.3")
    assert "  not in vllm==0.8.5" in said.out.splitlines()
    assert "the same" not in said.out


def test_variants_of_a_struct_are_compared_by_their_names(patchkit: Patchkit) -> None:
    said = patchkit("abi", "layout", "Flash_fwd_params", "--of", "vllm==0.10.2", "--against", "vllm==0.33.0")
    assert said.status == 1
    assert "  Flash_fwd_params (_vllm_fa3_C): size: 656 bytes -> 704 bytes" in said.out.splitlines()
