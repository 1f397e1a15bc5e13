"""The CUDA library of the Hopper kernels, native/attention: where it is, who can use it, and how it is called.

It is built once per machine, as docs/attention-kernels.md says, and found through PATCHKIT_ATTENTION_LIBRARY, or as
libpatchkit_attention.so beside this module. A kernel takes one record, whose members the library itself tells
(native/attention/call.h): they are named here, but not laid out a second time.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .problem import AttentionError, Inputs, Problem
from .triton_support import refusal_here

LIBRARY = "libpatchkit_attention.so"
VARIABLE = "PATCHKIT_ATTENTION_LIBRARY"
CALLS = "2"
"""PATCHKIT_CALLS of native/attention/call.h: a library of another one expects other calls."""

_BESIDE = str(Path(__file__).with_name(LIBRARY))
_HOPPER = (9, 0)
_NUMBERS = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}
_AGAIN = "build it again: patchkit attention build"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """A kernel of the library: what starts it, and the record that it takes."""

    function: Any
    record: type[ctypes.Structure]
    members: frozenset[str]


def library_path() -> str:
    """Return where the built library is, or would be."""
    return os.environ.get(VARIABLE) or _BESIDE


def library_refusal(problem: Problem, name: str) -> str:
    """Return why the library's kernel of a name cannot run on the problem's device, "" where it may."""
    if problem.device != "cuda" or torch.cuda.get_device_capability() != _HOPPER:
        return "is built for Hopper (compute capability 9.0)"
    if reason := refusal_here(problem):
        return reason
    return loading_refusal(library_path(), name)


def loading_refusal(path: str, name: str) -> str:
    """Return why a kernel cannot be had of the library at a path, "" where it can."""
    try:
        _entry(path, name)
    except AttentionError as error:
        return str(error)
    return ""


def start(name: str, call: dict[str, Any], device: torch.device) -> None:
    """Start a kernel on the current stream with the members of its record; it costs some microseconds of every launch.

    Raises AttentionError where the library is not there or is another one, and where CUDA refuses.
    """
    path = library_path()
    entry = _entry(path, name)
    if call.keys() != entry.members:
        raise AttentionError(f"{path}: {name} takes other members: {', '.join(sorted(call.keys() ^ entry.members))}")
    status = entry.function(ctypes.byref(entry.record(**call)), torch.cuda.current_stream(device).cuda_stream)
    if status:
        raise AttentionError(f"{name} could not be started: CUDA error {status}")


def common_members(inputs: Inputs, out: Tensor, lse: Tensor) -> dict[str, Any]:
    """Return the members that every kernel's record has and that say the same in each."""
    query = inputs.query
    return {
        "query": query.data_ptr(),
        "key": inputs.key.data_ptr(),
        "value": inputs.value.data_ptr(),
        "out": out.data_ptr(),
        "lse": lse.data_ptr(),
        "query_starts": inputs.query_starts.data_ptr(),
        "query_row": stride(query, 0),
        "query_head": stride(query, 1),
        "tokens": query.shape[0],
        "batch": inputs.batch,
        "heads": inputs.heads,
        "kv_heads": inputs.kv_heads,
        "head_dim": query.shape[2],
        "bfloat": query.dtype == torch.bfloat16,
    }


def stride(tensor: Tensor, dimension: int) -> int:
    """Return a stride; that of a single entry may be anything for PyTorch, but not for the hardware."""
    return int(tensor.stride(dimension) if tensor.shape[dimension] > 1 else tensor.shape[-1] * tensor.shape[-2])


@cache
def _entry(path: str, name: str) -> _Entry:
    """Return a kernel of a library; raises AttentionError where it is not there, or is not the one that we call."""
    if not Path(path).is_file():
        raise AttentionError(
            f"{LIBRARY} is not built" if path == _BESIDE else f"{path}, which {VARIABLE} names, is not there"
        )
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise AttentionError(f"{path} cannot be loaded ({error}); {_AGAIN}") from error
    told = getattr(library, f"{name}_members", None)
    if told is None:
        raise AttentionError(f"{path} was built from older sources than these kernels; {_AGAIN}")
    told.restype = ctypes.c_char_p
    calls, *members = told().decode().split(";")
    if calls != CALLS:
        raise AttentionError(f"{path} was built for calls of version {calls}, these are of version {CALLS}; {_AGAIN}")
    fields = [_field(one) for one in members]
    function = getattr(library, name)
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
    record = type(name, (ctypes.Structure,), {"_fields_": fields})
    return _Entry(function=function, record=record, members=frozenset(member for member, _ in fields))


def _field(told: str) -> tuple[str, Any]:
    """Return name and type of a member, told as it is declared; what is no number is a pointer."""
    kind, _, member = told.rpartition(" ")
    return member, _NUMBERS.get(kind, ctypes.c_void_p)
