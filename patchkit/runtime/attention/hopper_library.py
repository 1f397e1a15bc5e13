"""The CUDA library of the Hopper kernels, native/attention: where it is, who can use it, and how it is called.

It is built once per machine, as docs/attention-kernels.md says, and found through PATCHKIT_ATTENTION_LIBRARY, or as
libpatchkit_attention.so beside this module.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

from .problem import AttentionError, Problem
from .triton_support import refusal_here

LIBRARY = "libpatchkit_attention.so"
VARIABLE = "PATCHKIT_ATTENTION_LIBRARY"
_HOPPER = (9, 0)


def library_path() -> Path | None:
    """Return where the built library is, or None."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named) if named else Path(__file__).with_name(LIBRARY)
    return path if path.is_file() else None


def library_refusal(problem: Problem) -> str:
    """Return why no kernel of the library can run on the problem's device, "" where one may."""
    if reason := refusal_here(problem):
        return reason
    if problem.device != "cuda" or torch.cuda.get_device_capability() != _HOPPER:
        return "is built for Hopper (compute capability 9.0)"
    return "" if library_path() is not None else f"{LIBRARY} is not built"


def start(name: str, call: ctypes.Structure, device: torch.device) -> None:
    """Start a kernel on the current stream; raises AttentionError where CUDA refuses."""
    path = library_path()
    if path is None:
        raise AttentionError(f"{LIBRARY} is not built")
    status = _function(str(path), name)(ctypes.byref(call), torch.cuda.current_stream(device).cuda_stream)
    if status:
        raise AttentionError(f"{name} could not be started: CUDA error {status}")


@cache
def _function(path: str, name: str) -> ctypes._NamedFuncPointer:
    function: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(path), name)
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function
