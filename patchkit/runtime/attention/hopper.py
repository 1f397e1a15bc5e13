"""Forward over packed sequences by the CUDA kernel for Hopper, native/attention/prefill.cu.

The library is built once per machine, as docs/attention-kernels.md says, and found through PATCHKIT_ATTENTION_LIBRARY,
or as libpatchkit_attention.so beside this module.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from . import triton_prefill
from .problem import FORWARD, AttentionError, Inputs, Pattern, Problem
from .registry import Kernel
from .triton_launch import aligned, computed_pairs, factors, pack_of, tiles_bound, window_of
from .triton_support import refusal_here

LIBRARY = "libpatchkit_attention.so"
VARIABLE = "PATCHKIT_ATTENTION_LIBRARY"
_ROWS = 64  # of the tiles that the kernel lists
_TILE_ROWS, _TILE_KEYS, _BOX = 128, 128, 32  # of SHAPE in prefill.cu
_MOST_PACKED = 8
_HEAD_DIM = 128
_WITHOUT_WINDOW = 1 << 30
_WARPS = 4  # each may list a tile
_HOPPER = (9, 0)


class _Call(ctypes.Structure):
    """PatchkitPrefill of prefill.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "out", "lse")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "key_starts", "odd")),
        *((name, ctypes.c_int64) for name in ("query_row", "query_head", "key_row", "key_head")),
        *((name, ctypes.c_int64) for name in ("value_row", "value_head", "tokens", "key_tokens")),
        *((name, ctypes.c_int32) for name in ("batch", "heads", "kv_heads", "head_dim", "pack", "bfloat")),
        *((name, ctypes.c_int32) for name in ("odd_room", "window", "anchors", "dense")),
        ("factor", ctypes.c_float),
    )


def library_path() -> Path | None:
    """Return where the built library is, or None."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named) if named else Path(__file__).with_name(LIBRARY)
    return path if path.is_file() else None


@cache
def _function(path: str) -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(path).patchkit_prefill
    function.argtypes = (ctypes.POINTER(_Call), ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function


def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    """Write out [Tq, H, D] and lse [H, Tq] for packed keys."""
    path = library_path()
    if path is None:
        raise AttentionError(f"{LIBRARY} is not built")
    tokens, heads = inputs.query.shape[:2]
    if tokens == 0:
        return
    group = heads // inputs.kv_heads
    pack = pack_of(group, _MOST_PACKED)
    tiles = tiles_bound(tokens, inputs.batch, _ROWS // pack) * (heads // pack)
    odd = torch.empty(1 + _WARPS * tiles, dtype=torch.int32, device=out.device)
    odd[:1].zero_()
    whole = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    query, key, value = aligned(inputs.query), aligned(inputs.key), aligned(inputs.value)
    if key.shape[0] == 0:
        key, value = key.new_zeros(1, *key.shape[1:]), value.new_zeros(1, *value.shape[1:])
    call = _call(replace(inputs, query=query, key=key, value=value), pattern, whole, lse, odd, pack)
    status = _function(str(path))(ctypes.byref(call), torch.cuda.current_stream(out.device).cuda_stream)
    if status:
        raise AttentionError(f"the Hopper kernel could not be started: CUDA error {status}")
    triton_prefill.mend(inputs, pattern, whole, lse, odd, rows=_ROWS, pack=_MOST_PACKED)
    if whole is not out:
        out.copy_(whole)


def _call(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, odd: Tensor, pack: int) -> _Call:
    query, key, value = inputs.query, inputs.key, inputs.value
    window, anchors, dense = window_of(pattern, inputs)
    return _Call(
        query=query.data_ptr(),
        key=key.data_ptr(),
        value=value.data_ptr(),
        out=out.data_ptr(),
        lse=lse.data_ptr(),
        query_starts=inputs.query_starts.data_ptr(),
        key_starts=inputs.key_starts.data_ptr() if inputs.key_starts is not None else 0,
        odd=odd.data_ptr(),
        query_row=_stride(query, 0),
        query_head=_stride(query, 1),
        key_row=_stride(key, 0),
        key_head=_stride(key, 1),
        value_row=_stride(value, 0),
        value_head=_stride(value, 1),
        tokens=query.shape[0],
        key_tokens=key.shape[0],
        batch=inputs.batch,
        heads=inputs.heads,
        kv_heads=inputs.kv_heads,
        head_dim=query.shape[2],
        pack=pack,
        bfloat=query.dtype == torch.bfloat16,
        odd_room=odd.shape[0] - 1,
        window=_WITHOUT_WINDOW if dense else window,
        anchors=0 if dense else anchors,
        dense=dense,
        factor=factors(pattern, query.shape[2])[0],
    )


def _stride(tensor: Tensor, dimension: int) -> int:
    """Return a stride; that of a single entry may be anything for PyTorch, but not for the hardware."""
    return int(tensor.stride(dimension) if tensor.shape[dimension] > 1 else tensor.shape[2] * tensor.shape[1])


def _refusal(problem: Problem) -> str:
    if reason := refusal_here(problem):
        return reason
    if problem.device != "cuda" or torch.cuda.get_device_capability() != _HOPPER:
        return "is built for Hopper (compute capability 9.0)"
    if library_path() is None:
        return f"{LIBRARY} is not built"
    if problem.page_size:
        return "takes packed keys, not pages"
    if not problem.pattern.causal or problem.pattern.softcap or problem.learned:
        return "takes causal patterns without soft cap and learned anchors"
    if problem.head_dim != _HEAD_DIM or problem.value_dim != _HEAD_DIM:
        return f"takes head dim {_HEAD_DIM}, not {problem.head_dim}/{problem.value_dim}"
    return "" if problem.pattern.scale_for(problem.head_dim) > 0 else "takes positive scales"


def _computed(problem: Problem) -> int:
    pack = pack_of(problem.heads // problem.kv_heads, _MOST_PACKED)
    return computed_pairs(problem, queries=_TILE_ROWS // pack, keys=_TILE_KEYS, box=_BOX)


KERNELS = (
    Kernel(
        name="hopper_prefill",
        step=FORWARD,
        summary="CUDA for Hopper: wgmma, TMA, warps with roles; window and anchors, or dense causal",
        refusal=_refusal,
        run=run,
        computed=_computed,
    ),
)
