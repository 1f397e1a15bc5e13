"""Accessors that torch inlines leave the symbols that they are told by, and read the members that are told of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from patchkit.abi.disassembly import accesses, read_instructions
from patchkit.abi.inlined import WHOLE, touched_members
from patchkit.abi.layout_record import torch_version
from patchkit.abi.snapshot import stored_facts

_SPEC = find_spec("torch")
_TORCH = Path(_SPEC.origin).parent if _SPEC is not None and _SPEC.origin else None
# function: (what it does, the type that it gets by reference, the code that symbols must tell of)
_ACCESSORS = {
    "data": (
        "const void *data(const c10::TensorImpl &t) { return t.data(); }",
        "c10::TensorImpl",
        "Tensor::data_ptr()",
    ),
    "storage": (
        "const void *storage(const c10::TensorImpl &t) { return t.storage().unsafeGetStorageImpl(); }",
        "c10::TensorImpl",
        "Tensor::storage()",
    ),
    "contiguous": (
        "bool contiguous(const c10::TensorImpl &t) { return t.is_contiguous(); }",
        "c10::TensorImpl",
        "Tensor::is_contiguous()",
    ),
    "bytes": (
        "const void *bytes(const c10::StorageImpl &s) { return s.data(); }",
        "c10::StorageImpl",
        "StorageImpl::data()",
    ),
    "writable": (
        "void *writable(c10::StorageImpl &s) { return s.mutable_data(); }",
        "c10::StorageImpl",
        "StorageImpl::mutable_data()",
    ),
}
_DESTROY = 'extern "C" void destroy(at::Tensor *t) { t->~Tensor(); }\n'

pytestmark = [
    pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")
    for tool in ("g++", "objdump", "nm")
] + [
    pytest.mark.skipif(
        _TORCH is None or not (_TORCH / "include" / "ATen").is_dir(), reason="no torch is installed with its headers"
    )
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert _TORCH is not None
    directory = tmp_path_factory.mktemp("accessors")
    functions = "".join(f'extern "C" {code}\n' for code, _, _ in _ACCESSORS.values())
    (directory / "accessors.cpp").write_text(f"#include <ATen/core/Tensor.h>\n{functions}{_DESTROY}")
    line = ["g++", "-O2", "-fPIC", "-std=c++20", "-w", "-fno-reorder-blocks-and-partition"]  # no part of one elsewhere
    line += ["-isystem", str(_TORCH / "include"), "-c", "accessors.cpp", "-o", "accessors.o"]
    subprocess.run(line, cwd=directory, check=True)
    return directory / "accessors.o"


def _code(path: Path, function: str) -> str:
    """Return objdump's text of a function, with the symbols that it calls."""
    line = ["objdump", "-dr", "--no-show-raw-insn", f"--disassemble={function}", str(path)]
    text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return text.partition(f"<{function}>:")[2].partition("Disassembly of section")[0]


def _touched(path: Path, function: str) -> set[int]:
    return {one.offset for one in accesses(read_instructions(_code(path, function)))}


def _offsets(struct: str, members: set[str]) -> set[int]:
    assert _TORCH is not None
    records = stored_facts().layouts(f"torch=={torch_version(_TORCH)}")
    if not records:
        pytest.skip("nothing is stored about the installed torch")
    layout = records[struct].layout
    assert layout is not None
    return {field.offset for field in layout.fields if field.name in members}


@pytest.mark.parametrize("name", _ACCESSORS)
def test_an_accessor_leaves_its_symbol_and_reads_its_members(built: Path, name: str) -> None:
    _, struct, code = _ACCESSORS[name]
    called = re.findall(r"R_X86_64_\w+\s+(\w+)", _code(built, name))
    members = {member for member, by in touched_members(called, ()).get(struct, {}).items() if by == code}
    assert members
    assert _offsets(struct, members) <= _touched(built, name)


def test_a_destructor_of_a_tensor_leaves_the_function_that_counts(built: Path) -> None:
    said = subprocess.run(["nm", "--defined-only", str(built)], capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in said.splitlines()]
    told = touched_members((), defined)
    assert set(told["c10::TensorImpl"].values()) == {"the reference count of a Tensor"}
    function = next(name for name in defined if name.startswith("_ZN3c1013intrusive_ptrINS_10TensorImplE"))
    members = set(told["c10::intrusive_ptr_target"])
    assert _offsets("c10::intrusive_ptr_target", members) <= _touched(built, function)


def test_a_function_that_returns_a_struct_tells_of_all_of_it() -> None:
    told = touched_members(["_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm"], ())
    assert set(told["at::PhiloxCudaState"]) == {WHOLE}


def test_other_symbols_tell_nothing() -> None:
    assert touched_members(["_ZN2at4_ops5zeros4callE"], ["_ZN4vllm3runEv"]) == {}
