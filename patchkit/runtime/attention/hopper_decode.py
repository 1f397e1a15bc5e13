"""Decode over a paged cache by the CUDA kernel for Hopper, native/attention/decode.cu."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import triton_decode
from .hopper_library import common_members, library_refusal, start
from .problem import FORWARD, AttentionError, Inputs, Pattern, Problem
from .registry import Kernel
from .triton_launch import aligned, factors, is_aligned, window_of

_NAME = "patchkit_decode"
_DIMS = (64, 96, 128)
_MOST_GROUPED = 8  # columns of an mma
# Sequences times kv heads from which on it pays not to split keys, where a query sees few keys and where it sees many:
# measured on an NVIDIA H200, against `triton_decode`.
_FEWEST_BLOCKS, _FEW_KEYS = 96, 1024
_FEWEST_BLOCKS_OF_MANY = 200


def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    """Write out [Tq, H, D] and lse [H, Tq] of at most one query a sequence, over pages.

    A cache that does not begin and step in units of 16 bytes is left to `triton_decode`: it cannot be copied.
    """
    if inputs.query.shape[0] == 0:
        return
    if not (is_aligned(inputs.key) and is_aligned(inputs.value)):
        triton_decode.run(inputs, pattern, out, lse)
        return
    whole = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    query = aligned(inputs.query)
    if query is not inputs.query:
        inputs = replace(inputs, query=query)
    start(_NAME, _call(inputs, pattern, whole, lse), out.device)
    if whole is not out:
        out.copy_(whole)


def _call(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> dict[str, Any]:
    key, value, table, lengths = inputs.key, inputs.value, inputs.block_table, inputs.key_lengths
    if table is None or lengths is None:
        raise AttentionError("decode takes a paged cache")
    window, anchors, dense = window_of(pattern, inputs)
    return {
        **common_members(inputs, out, lse),
        "key_lengths": lengths.data_ptr(),
        "table": table.data_ptr(),
        "key_page": key.stride(0),
        "key_row": key.stride(1),
        "key_head": key.stride(2),
        "value_page": value.stride(0),
        "value_row": value.stride(1),
        "value_head": value.stride(2),
        "table_row": table.stride(0),
        "page_bits": int(key.shape[1]).bit_length() - 1,
        "window": window,
        "anchors": anchors,
        "dense": dense,
        "factor": factors(pattern, inputs.query.shape[2])[0],
    }


def _refusal(problem: Problem) -> str:
    pattern = problem.pattern
    if reason := library_refusal(problem, _NAME):
        return reason
    if not problem.page_size or problem.page_size & (problem.page_size - 1):
        return "takes a paged cache, in pages of a power of two"
    if problem.max_query > 1:
        return "takes at most one query a sequence"
    if pattern.softcap or problem.learned or pattern.scale_for(problem.head_dim) <= 0:
        return "takes positive scales, no soft cap and no learned anchors"
    if problem.head_dim not in _DIMS or problem.value_dim != problem.head_dim:
        return f"takes head dims 64, 96 and 128, not {problem.head_dim}/{problem.value_dim}"
    if problem.heads > problem.kv_heads * _MOST_GROUPED:
        return f"takes up to {_MOST_GROUPED} query heads a kv head"
    return _too_few(problem)


def _too_few(problem: Problem) -> str:
    pattern, blocks = problem.pattern, problem.batch * problem.kv_heads
    seen = problem.max_key if pattern.window is None else min(problem.max_key, pattern.window + pattern.anchors)
    fewest = _FEWEST_BLOCKS if seen <= _FEW_KEYS else _FEWEST_BLOCKS_OF_MANY
    if blocks >= fewest:
        return ""
    return f"does not split keys, and {blocks} sequences times kv heads leave the GPU idle (from {fewest} on it pays)"


KERNELS = (
    Kernel(
        name="hopper_decode",
        step=FORWARD,
        summary="CUDA for Hopper: decode over pages in one launch, for batches that fill the GPU",
        refusal=_refusal,
        run=run,
    ),
)
