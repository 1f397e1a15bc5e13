"""Forward over packed sequences by the CUDA kernel for Hopper, native/attention/prefill.cu.

Over pages it is launched for hopper_paged.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import triton_prefill
from .hopper_library import common_members, library_refusal, start, stride
from .problem import FORWARD, Inputs, Pattern, Problem
from .registry import Kernel
from .triton_launch import aligned, ceil_div, factors, pack_of, tiles_bound, window_of

_NAME = "patchkit_prefill"
_ROWS = 64  # of a warpgroup, and of the tiles that the kernel lists
_GROUPS = {64: 4, 128: 3}  # warpgroups of a block by head dim; these and what follows are the shapes in prefill.cu
_TILE_KEYS, _BOX = 64, 32
_MOST_PACKED = 8
_WITHOUT_WINDOW = 1 << 30
_WARPS = 4  # each may list a tile
_NOWHERE = dict.fromkeys(
    ("key_starts", "key_tokens", "key_lengths", "table", "table_row", "key_page", "value_page", "pages", "page_size"), 0
)


def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    """Write out [Tq, H, D] and lse [H, Tq]; pages must begin and step in units of 16 bytes."""
    tokens, heads = inputs.query.shape[:2]
    if tokens == 0:
        return
    group = heads // inputs.kv_heads
    pack = pack_of(group, _MOST_PACKED)
    tiles = tiles_bound(tokens, inputs.batch, _ROWS // pack) * (heads // pack)
    counts = torch.empty(2 + _WARPS * tiles, dtype=torch.int32, device=out.device)  # of work, of odd tiles; those tiles
    whole = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    start(_NAME, _call(_readable(inputs), pattern, whole, lse, counts, pack), out.device)
    triton_prefill.mend(inputs, pattern, whole, lse, counts[1:], rows=_ROWS, pack=_MOST_PACKED)
    if whole is not out:
        out.copy_(whole)


def _readable(inputs: Inputs) -> Inputs:
    """Return the inputs as the copy engine can read them: in units of 16 bytes, and not empty."""
    query = aligned(inputs.query)
    if inputs.paged:
        return replace(inputs, query=query)
    key, value = aligned(inputs.key), aligned(inputs.value)
    if key.shape[0] == 0:
        key, value = key.new_zeros(1, *key.shape[1:]), value.new_zeros(1, *value.shape[1:])
    return replace(inputs, query=query, key=key, value=value)


def _call(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, counts: Tensor, pack: int) -> dict[str, Any]:
    key, value = inputs.key, inputs.value
    window, anchors, dense = window_of(pattern, inputs)
    return {
        **common_members(inputs, out, lse),
        **_places(inputs),
        "odd": counts[1:].data_ptr(),
        "next": counts.data_ptr(),
        "key_row": stride(key, -3),
        "key_head": stride(key, -2),
        "value_row": stride(value, -3),
        "value_head": stride(value, -2),
        "pack": pack,
        "odd_room": counts.shape[0] - 2,
        "window": _WITHOUT_WINDOW if dense else min(window, _WITHOUT_WINDOW),
        "anchors": min(anchors, _WITHOUT_WINDOW),
        "max_query": min(inputs.max_query, inputs.query.shape[0]),
        "factor": factors(pattern, inputs.query.shape[2])[0],
    }


def _places(inputs: Inputs) -> dict[str, int]:
    """Return the members that say where keys lie: one after the other, or in pages."""
    key, table, starts, lengths = inputs.key, inputs.block_table, inputs.key_starts, inputs.key_lengths
    if table is None:
        pointer = 0 if starts is None else starts.data_ptr()
        return {**_NOWHERE, "key_starts": pointer, "key_tokens": key.shape[0]}
    return {
        **_NOWHERE,
        "key_lengths": 0 if lengths is None else lengths.data_ptr(),
        "table": table.data_ptr(),
        "table_row": table.stride(0),
        "key_page": stride(key, 0),
        "value_page": stride(inputs.value, 0),
        "pages": key.shape[0],
        "page_size": key.shape[1],
    }


def _refusal(problem: Problem) -> str:
    if problem.page_size:
        return library_refusal(problem, _NAME) or "takes packed keys, not pages"
    return refusal(problem)


def refusal(problem: Problem) -> str:
    """Return why the kernel cannot answer a case, wherever its keys lie; "" where it can."""
    if reason := library_refusal(problem, _NAME):
        return reason
    if not problem.pattern.causal or problem.pattern.softcap or problem.learned:
        return "takes causal patterns without soft cap and learned anchors"
    if problem.head_dim not in _GROUPS or problem.value_dim != problem.head_dim:
        return f"takes head dims 64 and 128, not {problem.head_dim}/{problem.value_dim}"
    return "" if problem.pattern.scale_for(problem.head_dim) > 0 else "takes positive scales"


def _computed(problem: Problem) -> int:
    """Return the pairs of a head in the boxes of keys that warpgroups multiply; `span` in work.cuh says which."""
    if not problem.equal_lengths:
        return 0
    queries = _ROWS // pack_of(problem.heads // problem.kv_heads, _MOST_PACKED)
    block = queries * _GROUPS[problem.head_dim]
    boxes = sum(_boxes(problem, first, block, queries) for first in range(0, problem.max_query, block))
    return boxes * _BOX * queries * problem.batch


def _boxes(problem: Problem, first: int, block: int, queries: int) -> int:
    """Return how many boxes of keys the warpgroups of one block multiply: two a tile, one in the last of an odd
    number.
    """
    count, length, dense = problem.max_query, problem.max_key, problem.dense
    window = _WITHOUT_WINDOW if dense or problem.pattern.window is None else problem.pattern.window
    anchors, offset, after = 0 if dense else problem.pattern.anchors, length - count, min(first + block, count)
    end = max(min(length, offset + after), 0)
    low = max(offset + first - window + 1, 0)
    low = min(0 if low < _BOX else low, end)
    window_boxes = ceil_div(end - low, _BOX)
    boxes = window_boxes + ceil_div(min(anchors, low), _BOX)
    every = ceil_div(boxes, 2)
    tail = every if boxes == window_boxes else window_boxes // 2
    found = 0
    for own in range(first, after, queries):
        before = offset + own - window + 1 - low
        lead = 0 if low < anchors else min(max(before, 0) // _TILE_KEYS, tail)
        last = offset + min(own + queries, count) - 1
        gap = max(min((last - low + _TILE_KEYS) // _TILE_KEYS, tail), lead)
        halved = boxes % 2 and (gap == every or tail < every)
        found += 2 * (gap - lead + every - tail) - halved
    return found


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
