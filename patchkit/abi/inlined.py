"""What a file's own code reads in torch's structs, told by symbols: the accessors that torch inlines leave traces.

An inlined accessor calls a function of torch where it does not go on: `Tensor::data_ptr()` reads `storage_` and
`storage_offset_`, and calls `TensorImpl::throw_data_ptr_access_error()` for a tensor without storage. Nothing else
calls that, so a file that needs the symbol has the reads in its own code, at the offsets that it was compiled with. A
function of torch that fills or returns a struct in the caller's memory tells of all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from patchkit.record import dataclass

WHOLE = "*"  # every member, and the size
_TENSOR, _STORAGE = "c10::TensorImpl", "c10::StorageImpl"
_COUNTS = ("refcount_", "weakcount_", "combined_refcount_")
# These are reached only through a tensor with symbolic sizes, whatever the code.
ONLY_SYMBOLIC = ("c10::SymbolicShapeMeta", "c10::SymNodeImpl")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trace:
    """A symbol by its beginning, the code that leaves it, and the members of types that this code touches."""

    symbol: str
    code: str
    touches: Mapping[str, tuple[str, ...]]


_NEEDED = (
    _Trace(
        symbol="_ZNK3c1010TensorImpl27throw_data_ptr_access_errorEv",
        code="Tensor::data_ptr()",
        touches={_TENSOR: ("storage_", "storage_offset_")},
    ),
    _Trace(
        symbol="_ZNK3c1010TensorImpl26throw_storage_access_errorEv",
        code="Tensor::storage()",
        touches={_TENSOR: ("storage_", "storage_access_should_throw_")},
    ),
    _Trace(
        symbol="_ZNK3c1017SymbolicShapeMeta18init_is_contiguousEv",
        code="Tensor::is_contiguous()",
        touches={_TENSOR: ("is_contiguous_", "has_symbolic_sizes_strides_")},
    ),
    _Trace(
        symbol="_ZNK3c1011StorageImpl27throw_data_ptr_access_errorEv",
        code="StorageImpl::data()",
        touches={_STORAGE: ("data_ptr_", "throw_on_immutable_data_ptr_")},
    ),
    _Trace(
        symbol="_ZN3c1021warnDeprecatedDataPtrEv",
        code="StorageImpl::mutable_data()",
        # The flag that asks for the warning is read only where one of the first two is set.
        touches={_STORAGE: ("data_ptr_", "has_data_ptr_check_", "has_mutable_data_ptr_check_")},
    ),
    _Trace(
        symbol="_ZN3c105ErrorC",
        code="a thrown c10::Error, in memory of its own",
        touches={"c10::Error": (WHOLE,)},
    ),
    _Trace(
        symbol="_ZN2at17CUDAGeneratorImpl17philox_cuda_stateE",
        code="a PhiloxCudaState that is returned into memory of its own",
        touches={"at::PhiloxCudaState": (WHOLE,)},
    ),
    _Trace(
        symbol="_ZN5torch3jit17parseSchemaOrNameE",
        code="a FunctionSchema that is returned into memory of its own",
        touches={"c10::FunctionSchema": (WHOLE,)},
    ),
)
# Functions of templates that a file defines itself.
_OWN = (
    _Trace(
        symbol="_ZN3c1013intrusive_ptrINS_10TensorImplENS_19UndefinedTensorImplEE",
        code="the reference count of a Tensor",
        touches={
            _TENSOR: tuple(f"intrusive_ptr_target::{one}" for one in _COUNTS),
            "c10::intrusive_ptr_target": _COUNTS,
        },
    ),
)


def touched_members(needed: Iterable[str], exports: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return type -> member -> the code that touches it, as far as symbols tell; members may be `WHOLE`.

    `needed` are the torch symbols that a file needs, `exports` those that it defines.
    """
    found: dict[str, dict[str, str]] = {}
    for names, traces in ((needed, _NEEDED), (exports, _OWN)):
        for trace in _left(names, traces):
            for owner, members in trace.touches.items():
                for member in members:
                    found.setdefault(owner, {}).setdefault(member, trace.code)
    return found


def _left(names: Iterable[str], traces: Iterable[_Trace]) -> tuple[_Trace, ...]:
    known = tuple(names)
    return tuple(trace for trace in traces if any(name.startswith(trace.symbol) for name in known))
