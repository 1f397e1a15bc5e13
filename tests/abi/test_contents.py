"""What lies in sections: architectures of embedded GPU code, schemas of operators."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.abi.elf import read_object
from patchkit.abi.schemas import operator_name
from tests.abi.binaries import compile_shared, needs_compiler

pytestmark = needs_compiler
_MAGIC = 0xBA55ED50


def _entry(kind: int, architecture: int, size: int = 32) -> bytes:
    """An entry as nvcc writes it: a header of 64 bytes, then the code."""
    header = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, size, 0, 0, 0, 0, architecture, 0, 0, 0, 0, 0)
    assert len(header) == 64
    return header + bytes(size)


def _container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", _MAGIC, 1, 16, len(content)) + content


def _with_section(tmp_path: Path, content: bytes, section: str) -> Path:
    numbers = ",".join(map(str, content))
    attribute = f'__attribute__((section("{section}"), used, aligned(8)))'
    return compile_shared(tmp_path, "a.so", f"{attribute} static const unsigned char blob[] = {{{numbers}}};\n")


def test_architectures_of_all_containers_are_read(tmp_path: Path) -> None:
    content = _container(_entry(2, 80), _entry(2, 90)) + bytes(24) + _container(_entry(1, 90), _entry(2, 80, size=8))
    assert read_object(_with_section(tmp_path, content, ".nv_fatbin")).architectures == ("sm_80", "sm_90", "compute_90")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(64),
        struct.pack("<IHHQ", _MAGIC, 1, 16, 1 << 60),
        struct.pack("<IHHQ", _MAGIC, 1, 0, 0) * 4,
        _container(_entry(2, 80))[:-40],
        _container(struct.pack("<HHIQIIHHI", 2, 0, 0, 0, 0, 0, 0, 0, 80)),
        _container(struct.pack("<HHIQIIHHI", 2, 0, 64, 1 << 63, 0, 0, 0, 0, 80) + bytes(64)),
        _container(struct.pack("<HHIQIIHHI", 77, 0, 64, 8, 0, 0, 0, 0, 80) + bytes(64)),
    ],
)
def test_damaged_gpu_code_ends_the_reading(content: bytes, tmp_path: Path) -> None:
    found = read_object(_with_section(tmp_path, content or b"\0", ".nv_fatbin")).architectures
    assert set(found) <= {"sm_80"}


def test_schemas_are_found_among_other_strings(tmp_path: Path) -> None:
    strings = [
        "silu_and_mul(Tensor! out,   Tensor input) -> ()",
        "gemm.out(Tensor a, *, Tensor(a!) out) -> Tensor(a!)",
        "many( Tensor x, int[]? y=None ) -> (Tensor, Tensor[])",
        "one()->int",
        "_C::named(SymInt s, str t) -> Tensor?",
        "not a schema -> at all",
        "f(nothing of torch) -> ()",
        "points to -> ",
    ]
    source = "\n".join(f'const char *t{number} = "{text}";' for number, text in enumerate(strings))
    assert read_object(compile_shared(tmp_path, "a.so", source)).schemas == (
        "_C::named(SymInt s, str t) -> Tensor?",
        "gemm.out(Tensor a, *, Tensor(a!) out) -> Tensor(a!)",
        "many(Tensor x, int[]? y=None) -> (Tensor, Tensor[])",
        "one() -> int",
        "silu_and_mul(Tensor! out, Tensor input) -> ()",
    )


def test_result_that_is_cut_off_is_not_guessed(tmp_path: Path) -> None:
    # What a compiler leaves of a literal when it writes the last bytes with an instruction.
    source = 'const char t[] = "topk(Tensor! a, Tensor b) -> getDevice";'
    assert read_object(compile_shared(tmp_path, "a.so", source)).schemas == ("topk(Tensor! a, Tensor b) -> ?",)


def test_name_of_an_operator_has_its_overload() -> None:
    assert operator_name("gemm.out(Tensor a) -> ()") == "gemm.out"


def test_a_string_made_to_be_slow_is_read_at_once(tmp_path: Path) -> None:
    """Quadratic, it would take hours of CPU; the limit is the child's, so that no other work can spoil it."""
    endless = b"\0f(Tensor a) -> Tensor(" + b"a" * 500_000 + b"\0"
    path = tmp_path / "blob"
    path.write_bytes(endless)
    library = compile_shared(
        tmp_path, "a.so", f'asm(".section .rodata\\n.incbin \\"{path}\\"\\n.text");\nint entry(void) {{ return 0; }}\n'
    )
    limited = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
    imports = "from pathlib import Path\nfrom patchkit.abi.elf import read_object\n"
    read = f"{limited}{imports}print(read_object(Path({str(library)!r})).schemas)"
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "('f(Tensor a) -> Tensor',)\n"), done.stderr
