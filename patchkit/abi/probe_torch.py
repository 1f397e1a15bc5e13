"""What is asked of a torch release: the C++ types that its wheels and the engines' share across their borders."""

from __future__ import annotations

from pathlib import Path

from patchkit.abi.layout_dwarf import ProbedType
from patchkit.abi.probe import Probe, header_lines, run_probe
from patchkit.errors import RefusedError

_HEADERS = (
    "ATen/core/Tensor.h",
    "ATen/core/ivalue.h",
    "ATen/core/Generator.h",
    "ATen/core/function_schema.h",
    "ATen/dlpack.h",
    "ATen/cuda/PhiloxCudaState.h?",
    "c10/core/Scalar.h",
    "c10/core/StorageImpl.h",
    "c10/core/Stream.h",
    "c10/core/SymInt.h",
    "c10/core/SymNodeImpl.h",
    "c10/core/TensorImpl.h",
    "c10/util/Exception.h",
    "c10/util/OptionalArrayRef.h",
)
_TYPES = (
    "at::Tensor",
    "at::TensorBase",
    "at::Generator",
    "at::PhiloxCudaState",
    "c10::TensorImpl",
    "c10::StorageImpl",
    "c10::GeneratorImpl",
    "c10::SymNodeImpl",
    "c10::Allocator",
    "c10::intrusive_ptr_target",
    "c10::impl::SizesAndStrides",
    "c10::impl::PyObjectSlot",
    "c10::SymbolicShapeMeta",
    "c10::ExtraMeta",
    "c10::VariableVersion",
    "c10::Storage",
    "c10::DataPtr",
    "c10::detail::UniqueVoidPtr",
    "c10::DeleterFnPtr",
    "c10::SymInt",
    "c10::IValue",
    "c10::Scalar",
    "c10::ScalarType",
    "c10::Layout",
    "c10::MemoryFormat",
    "c10::Device",
    "c10::DeviceType",
    "c10::Stream",
    "c10::DispatchKeySet",
    "c10::TensorOptions",
    "c10::SourceLocation",
    "c10::Error",
    "c10::FunctionSchema",
    "c10::ArrayRef<int64_t>",
    "c10::ArrayRef<c10::SymInt>",
    "c10::ArrayRef<at::Tensor>",
    "c10::OptionalArrayRef<int64_t>",
    "std::optional<at::Tensor>",
    "std::optional<int64_t>",
    "std::optional<double>",
    "std::optional<bool>",
    "std::optional<c10::Scalar>",
    "std::optional<c10::ScalarType>",
    "std::optional<c10::Layout>",
    "std::optional<c10::Device>",
    "std::optional<c10::MemoryFormat>",
    "std::optional<at::Generator>",
    "std::string",
    "std::vector<at::Tensor>",
    "std::vector<int64_t>",
    "std::tuple<at::Tensor, at::Tensor>",
    "DLTensor",
    "DLManagedTensor",
)


def probe_torch(root: Path, *, compiler: str, cxx11_abi: bool) -> tuple[ProbedType, ...]:
    """Read the types of a torch: `root` is its package directory, installed or unpacked.

    `cxx11_abi`: the std::string that its libraries were built with.
    """
    return run_probe(torch_probe(root, cxx11_abi=cxx11_abi), compiler)


def torch_probe(root: Path, *, cxx11_abi: bool) -> Probe:
    """Return the probe for the headers of a torch."""
    include = root / "include"
    if not (include / "ATen" / "core" / "Tensor.h").is_file():
        raise RefusedError(
            f"no torch headers in {root}",
            why="  expected include/ATen/core/Tensor.h below it",
            hint="name the package directory: the one that holds torch's __init__.py, or an unpacked wheel's torch/",
        )
    return Probe(
        preamble=header_lines(_HEADERS),
        types=tuple((name, name) for name in _TYPES),
        includes=(include, include / "torch" / "csrc" / "api" / "include"),
        standard="gnu++20" if _needs_cplusplus20(include) else "gnu++17",
        options=(f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11_abi)}",),
    )


def _needs_cplusplus20(include: Path) -> bool:
    """True for headers that use `requires`: those of torch from 2.14 on."""
    return b"requires std::" in (include / "ATen" / "core" / "TensorBase.h").read_bytes()
