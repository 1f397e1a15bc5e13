"""The ELF reader against pyelftools and the compiler, on libraries made here and on the system's own."""

from __future__ import annotations

import struct
import sys
import sysconfig
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection, SymbolTableSection

from patchkit.abi.elf import SharedObject, read_exports, read_object
from patchkit.abi.elf_symbols import Use
from patchkit.errors import ObjectFormatError
from tests.abi.binaries import calling, compile_shared, needs_compiler, stub_library

_SYSTEM = [
    path
    for name in ("libstdc++.so.6", "libc.so.6", "libm.so.6", "libgcc_s.so.1")
    for directory in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/lib/aarch64-linux-gnu")
    if (path := Path(directory, name)).is_file()
]
# Modules of the interpreter that runs the tests: shared objects with few symbols of their own.
_MODULES = sorted(Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("_[c-j]*.so"))[:4]
REAL = [*dict.fromkeys(path.resolve() for path in _SYSTEM), *_MODULES]


def _peer_symbols(path: Path) -> set[tuple[str, bool, bool]]:
    """Return (name, defined, weak) of what pyelftools sees of the symbols that others see."""
    with path.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        found = set()
        for symbol in table.iter_symbols():
            bind, defined = symbol["st_info"]["bind"], symbol["st_shndx"] != "SHN_UNDEF"
            seen = symbol["st_other"]["visibility"] in ("STV_DEFAULT", "STV_PROTECTED") or not defined
            if symbol.name and bind != "STB_LOCAL" and seen:
                found.add((symbol.name, defined, bind == "STB_WEAK"))
        return found


def _ours(shared: SharedObject) -> set[tuple[str, bool, bool]]:
    return {(symbol.name, symbol.defined, symbol.weak) for symbol in shared.symbols}


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_symbols_and_needs_are_those_of_pyelftools(path: Path) -> None:
    shared = read_object(path)
    assert _ours(shared) == _peer_symbols(path)
    with path.open("rb") as stream:
        dynamic = ELFFile(stream).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        tags = list(dynamic.iter_tags())
        wanted_libraries = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]  # type: ignore[attr-defined]
        assert list(shared.needed) == wanted_libraries
        note = ELFFile(stream).get_section_by_name(".note.gnu.build-id")
        wanted = next(iter(note.iter_notes()))["n_desc"] if isinstance(note, NoteSection) else ""
    assert shared.build_id == wanted


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_quick_way_gives_the_same_exports(path: Path) -> None:
    assert {name.decode() for name in read_exports(path)} == {one.name for one in read_object(path).exports}


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_version_needs_are_those_of_pyelftools(path: Path) -> None:
    with path.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".gnu.version_r")
        rows = section.iter_versions() if isinstance(section, GNUVerNeedSection) else []
        wanted = {(need.name, version.name) for need, versions in rows for version in versions}
    assert {(need.library, need.version) for need in read_object(path).versions} == wanted


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_without_section_headers_nothing_that_the_loader_uses_is_lost(path: Path, tmp_path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0x28:0x30] = bytes(8)  # e_shoff
    content[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    bare = tmp_path / "bare.so"
    bare.write_bytes(content)
    whole, less = read_object(path, uses=True), read_object(bare, uses=True)
    assert whole.symbols == less.symbols
    assert (whole.needed, whole.versions, whole.uses) == (less.needed, less.versions, less.uses)


def _peer_uses(path: Path, kinds: dict[int, Use]) -> dict[str, Use]:
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        symbols = elf.get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        found: dict[str, Use] = {}
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_link"] == elf.get_section_index(".dynsym"):
                for relocation in section.iter_relocations():
                    index, use = relocation["r_info_sym"], kinds.get(relocation["r_info_type"])
                    if index and use is not None:
                        name = symbols.get_symbol(index).name
                        found[name] = found.get(name, Use.NONE) | use
        return found


@pytest.mark.skipif(sys.platform != "linux" or not REAL, reason="needs the system's ELF libraries")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_uses_are_the_relocations_of_pyelftools(path: Path) -> None:
    from patchkit.abi.elf_symbols import _USES

    shared = read_object(path, uses=True)
    assert shared.uses == _peer_uses(path, _USES[shared.machine])


@pytest.fixture
def versioned(tmp_path: Path) -> Path:
    """A library with versioned, weak, ifunc, protected and thread-local symbols, that needs another one."""
    other = stub_library(tmp_path, "libother.so.3", ["other"], "OTHER_1.5")
    script = tmp_path / "map"
    script.write_text("ONE_1.0 { global: plain; soft; chosen; kept; own; }; \n")
    source = """
        extern int other(void); extern int perhaps(void) __attribute__((weak));
        int plain(void) { return other() + (perhaps ? perhaps() : 0); }
        __attribute__((weak)) int soft(void) { return 1; }
        __attribute__((visibility("protected"))) int kept(void) { return 2; }
        static int first(void) { return 3; }
        static int (*resolve(void))(void) { return first; }
        int chosen(void) __attribute__((ifunc("resolve")));
        __thread int own = 4;
        __attribute__((visibility("hidden"))) int unseen(void) { return 5; }
        int (*table[])(void) = { other };
    """
    flags = [f"-Wl,--version-script,{script}", str(other), "-Wl,-soname,libone.so.1", "-Wl,-z,now", "-Wl,-Bsymbolic"]
    return compile_shared(
        tmp_path, "libone.so.1", source, *flags, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../lib:/opt/x"
    )


@needs_compiler
def test_every_kind_of_symbol_is_told(versioned: Path) -> None:
    shared = read_object(versioned, uses=True)
    found = {symbol.name: symbol for symbol in shared.symbols}
    assert (found["plain"].version, found["plain"].kind, found["plain"].weak) == ("ONE_1.0", "function", False)
    assert found["soft"].weak
    assert found["chosen"].kind == "ifunc"
    assert found["own"].kind == "thread-local"
    assert found["kept"].protected
    assert "unseen" not in found
    assert (found["other"].defined, found["other"].version, found["other"].library) == (
        False,
        "OTHER_1.5",
        "libother.so.3",
    )
    assert found["perhaps"].weak
    assert not found["perhaps"].defined
    assert Use.TABLE in shared.uses["other"]


@needs_compiler
def test_surroundings_are_told(versioned: Path) -> None:
    shared = read_object(versioned)
    assert shared.soname == "libone.so.1"
    assert "libother.so.3" in shared.needed
    assert shared.runpath == ("$ORIGIN/../lib", "/opt/x")
    assert shared.rpath == ()
    assert shared.binds_now
    assert shared.symbolic


@needs_compiler
def test_old_rpath_is_told_from_runpath(tmp_path: Path) -> None:
    path = compile_shared(tmp_path, "a.so", calling(), "-Wl,--disable-new-dtags,-rpath,/opt/old")
    assert (read_object(path).rpath, read_object(path).runpath) == (("/opt/old",), ())


@needs_compiler
def test_object_without_exports_has_its_imports_counted_without_section_headers(tmp_path: Path) -> None:
    source = 'extern int far(void);\n__attribute__((visibility("hidden"))) int (*place)(void) = far;\n'
    path = compile_shared(tmp_path, "a.so", source, "-Wl,--hash-style=gnu", "-nostdlib")
    content = bytearray(path.read_bytes())
    content[0x28:0x30] = bytes(8)
    path.write_bytes(content)
    assert [one.name for one in read_object(path).imports] == ["far"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "header would be 64 bytes"),
        (b"#!/bin/sh\n" + bytes(64), "not with an ELF header"),
        (b"\x7fELF\x01\x01\x01" + bytes(64), "not a 64-bit little-endian file"),
        (b"\x7fELF\x02\x02\x01" + bytes(64), "not a 64-bit little-endian file"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 1, 62) + bytes(64), "neither a shared object"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 8) + bytes(64), "for machine 8"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 62) + bytes(64), "no dynamic section"),
    ],
)
def test_what_is_no_shared_object_is_said(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(ObjectFormatError) as caught:
        read_object(path)
    assert why in caught.value.why
    assert str(path) in caught.value.what


def test_directory_and_missing_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(ObjectFormatError, match=r"cannot be opened|not a file"):
        read_object(tmp_path)
    with pytest.raises(ObjectFormatError, match="cannot be opened"):
        read_object(tmp_path / "gone.so")
