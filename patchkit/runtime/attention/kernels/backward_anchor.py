"""The gradients of anchors in a backward over packed sequences; backward.py has the formulas and those of all other keys.

The few anchors are seen by all queries: `grad_anchor` takes them for a chunk of queries a program and leaves float32 sums of the
chunk, which `sum_anchor` adds up in order, so that the same inputs give the same bits. Chunks whose sums hold a number that is none
are listed, and computed again exactly by the same kernel with MEND.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .backward import list_if_odd, sum_over_queries
from .tiles import find_sequence

# One argument a line would hide the kernel.
# fmt: off


@triton.jit
def grad_anchor(
    query, key, value, lse, grad_out, delta, part_key, part_value, query_starts, key_starts, odd_count, odd_tiles,
    query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
    tokens, batch, kv_heads, anchors, factor, cap, places,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr, CAUSAL: tl.constexpr, SOFTCAP: tl.constexpr,
    LEARNED: tl.constexpr, PRECISION: tl.constexpr, MEND: tl.constexpr,
):
    """The share of CHUNK queries in the gradients of N anchors a program; grid (chunks, Hkv, places // N). MEND: (any,).

    `anchors` are those of a sequence, or the learned ones, for which key_row counts within a head. part_key is
    [chunks, Hkv, places, DP] float32, part_value alike.
    """
    if MEND:
        for place in tl.range(tl.program_id(0), tl.load(odd_count), tl.num_programs(0)):
            work = tl.load(odd_tiles + place)
            _grad_anchor_chunk(
                query, key, value, lse, grad_out, delta, part_key, part_value, query_starts, key_starts, odd_count, odd_tiles,
                query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
                tokens, batch, kv_heads, anchors, factor, cap, places,
                work // (places // N) // kv_heads, work // (places // N) % kv_heads, work % (places // N),
                GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, CHUNK, CAUSAL, SOFTCAP, LEARNED, PRECISION, True,
            )
    else:
        _grad_anchor_chunk(
            query, key, value, lse, grad_out, delta, part_key, part_value, query_starts, key_starts, odd_count, odd_tiles,
            query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
            tokens, batch, kv_heads, anchors, factor, cap, places,
            tl.program_id(0), tl.program_id(1), tl.program_id(2),
            GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, CHUNK, CAUSAL, SOFTCAP, LEARNED, PRECISION, False,
        )


@triton.jit
def _grad_anchor_chunk(
    query, key, value, lse, grad_out, delta, part_key, part_value, query_starts, key_starts, odd_count, odd_tiles,
    query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
    tokens, batch, kv_heads, anchors, factor, cap, places, chunk, kv_head, block,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr, CAUSAL: tl.constexpr, SOFTCAP: tl.constexpr,
    LEARNED: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
):
    sequence = find_sequence(query_starts, chunk, batch, CHUNK)
    begin = tl.load(query_starts + sequence)
    count = tl.load(query_starts + sequence + 1) - begin
    low = (chunk - begin // CHUNK - sequence) * CHUNK
    if low < count:
        high = tl.minimum(low + CHUNK, count)
        key_begin = tl.load(key_starts + sequence)
        keys = tl.load(key_starts + sequence + 1) - key_begin
        offset = keys - count
        first = block * N
        j = first + tl.arange(0, N)
        owned = anchors
        row = j.to(tl.int64)
        if not LEARNED:
            owned = tl.minimum(anchors, keys)
            row += key_begin
            if CAUSAL:
                low = tl.maximum(low, first - offset)
        width = tl.arange(0, DP)[None, :]
        columns = tl.arange(0, DVP)[None, :]
        ok = (j < owned)[:, None]
        head = kv_head.to(tl.int64)
        k = tl.load(key + (row * key_row + head * key_head)[:, None] + width, mask=ok & (width < D), other=0.0)  # [N, DP]
        v = tl.load(value + (row * value_row + head * value_head)[:, None] + columns, mask=ok & (columns < DV), other=0.0)
        dk, dv = sum_over_queries(
            query, lse, grad_out, delta, query_row, query_head, grad_out_row, grad_out_head,
            tokens, 0, anchors, factor, cap, k, v, j, kv_head, begin, offset, first, low, high,
            GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, CAUSAL, True, SOFTCAP, LEARNED, PRECISION, EXACT,
        )
        if not (EXACT or LEARNED):  # learned anchors are seen by all rows
            list_if_odd(dk, dv, ok, odd_count, odd_tiles, (chunk * kv_heads + kv_head) * (places // N) + block)
        state = ((chunk.to(tl.int64) * kv_heads + kv_head) * places + j)[:, None]
        tl.store(part_key + state * DP + width, dk)
        tl.store(part_value + state * DVP + columns, dv)


@triton.jit
def sum_anchor(
    part_key, part_value, gradient_key, gradient_value, query_starts, key_starts,
    gradient_key_row, gradient_key_head, gradient_value_row, gradient_value_head, batch, kv_heads, anchors, places, scale,
    D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr,
    LEARNED: tl.constexpr,
):
    """Add up the chunks of a sequence (of all for learned anchors), in order; grid (B or 1, Hkv, places // N)."""
    sequence = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    j = tl.program_id(2) * N + tl.arange(0, N)
    width = tl.arange(0, DP)[None, :]
    columns = tl.arange(0, DVP)[None, :]
    dk = tl.zeros([N, DP], tl.float32)
    dv = tl.zeros([N, DVP], tl.float32)
    last = batch if LEARNED else sequence + 1
    for one in tl.range(sequence, last):
        begin = tl.load(query_starts + one)
        chunks = tl.cdiv(tl.load(query_starts + one + 1) - begin, CHUNK)
        for chunk in tl.range(0, chunks):
            state = (((begin // CHUNK + one + chunk).to(tl.int64) * kv_heads + head) * places + j)[:, None]
            dk += tl.load(part_key + state * DP + width)
            dv += tl.load(part_value + state * DVP + columns)
    owned = anchors
    row = j.to(tl.int64)
    if not LEARNED:
        key_begin = tl.load(key_starts + sequence)
        owned = tl.minimum(anchors, tl.load(key_starts + sequence + 1) - key_begin)
        row += key_begin
    ok = (j < owned)[:, None]
    where = (row * gradient_key_row + head * gradient_key_head)[:, None] + width
    tl.store(gradient_key + where, (dk * scale).to(gradient_key.dtype.element_ty), mask=ok & (width < D))
    where = (row * gradient_value_row + head * gradient_value_head)[:, None] + columns
    tl.store(gradient_value + where, dv.to(gradient_value.dtype.element_ty), mask=ok & (columns < DV))
