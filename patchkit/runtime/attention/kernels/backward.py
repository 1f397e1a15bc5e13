"""Backward over packed sequences. With delta_i = sum_d out_id grad_out_id - grad_lse_i and p_ij = exp(s_ij - lse_i):

    dv_j = sum_i p_ij grad_out_i;   ds_ij = p_ij (grad_out_i . v_j - delta_i) c_ij;   dq = scale ds k;   dk = scale ds^T q

where c is the slope of the soft cap. Nothing is added atomically, so the same inputs give the same bits: `grad_query` goes through
the keys of a tile of queries, `grad_key` through the queries of a tile of keys. Anchors are in backward_anchor.py.

0 * NaN is NaN, so a number that is none would reach rows and keys of its tile that do not see each other. Tiles whose results hold
one are listed, and computed again exactly by the same kernel with MEND, in no hurry.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .tiles import LOG2E, bend, find_sequence, is_full, key_span, sees

# One argument a line would hide the kernel.
# fmt: off


@triton.jit
def grad_query(
    query, key, value, out, lse, grad_out, grad_lse, delta, gradient, query_starts, key_starts, learned_key, learned_value,
    odd_count, odd_tiles,
    query_row, query_head, out_row, out_head, grad_out_row, grad_out_head, gradient_row, gradient_head,
    learned_key_head, learned_key_row, learned_value_head, learned_value_row,
    tokens, batch, heads, learned, window, anchors, factor, cap, scale,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, FIRST_N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr,
    SOFTCAP: tl.constexpr, LEARNED: tl.constexpr, GRAD_LSE: tl.constexpr, PRECISION: tl.constexpr, MEND: tl.constexpr,
):
    """The gradient of one tile of rows a program, and delta; grid (tiles, H // PACK). MEND: of the listed tiles, grid (any,)."""
    packs = heads // PACK
    if MEND:
        for place in tl.range(tl.program_id(0), tl.load(odd_count), tl.num_programs(0)):
            work = tl.load(odd_tiles + place)
            _grad_query_tile(
                query, key, value, out, lse, grad_out, grad_lse, delta, gradient, query_starts, key_starts,
                learned_key, learned_value, odd_count, odd_tiles,
                query_row, query_head, out_row, out_head, grad_out_row, grad_out_head, gradient_row, gradient_head,
                learned_key_head, learned_key_row, learned_value_head, learned_value_row,
                tokens, batch, heads, learned, window, anchors, factor, cap, scale, work // packs, work % packs,
                GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, FIRST_N, CAUSAL, DENSE, SOFTCAP, LEARNED, GRAD_LSE, PRECISION, True,
            )
    else:
        tile = tl.program_id(0)
        if CAUSAL and DENSE:
            tile = tl.num_programs(0) - 1 - tile  # the longest first
        _grad_query_tile(
            query, key, value, out, lse, grad_out, grad_lse, delta, gradient, query_starts, key_starts,
            learned_key, learned_value, odd_count, odd_tiles,
            query_row, query_head, out_row, out_head, grad_out_row, grad_out_head, gradient_row, gradient_head,
            learned_key_head, learned_key_row, learned_value_head, learned_value_row,
            tokens, batch, heads, learned, window, anchors, factor, cap, scale, tile, tl.program_id(1),
            GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, FIRST_N, CAUSAL, DENSE, SOFTCAP, LEARNED, GRAD_LSE, PRECISION, False,
        )


@triton.jit
def _grad_query_tile(
    query, key, value, out, lse, grad_out, grad_lse, delta, gradient, query_starts, key_starts, learned_key, learned_value,
    odd_count, odd_tiles,
    query_row, query_head, out_row, out_head, grad_out_row, grad_out_head, gradient_row, gradient_head,
    learned_key_head, learned_key_row, learned_value_head, learned_value_row,
    tokens, batch, heads, learned, window, anchors, factor, cap, scale, tile, pack,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, FIRST_N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr,
    SOFTCAP: tl.constexpr, LEARNED: tl.constexpr, GRAD_LSE: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
):
    M: tl.constexpr = BLOCK_Q * PACK
    sequence = find_sequence(query_starts, tile, batch, BLOCK_Q)
    begin = tl.load(query_starts + sequence)
    count = tl.load(query_starts + sequence + 1) - begin
    first = (tile - begin // BLOCK_Q - sequence) * BLOCK_Q
    if first < count:
        kv_head = pack * PACK // GROUP
        key_begin = tl.load(key_starts + sequence)
        keys = tl.load(key_starts + sequence + 1) - key_begin
        offset = keys - count
        rows = tl.arange(0, M)
        row_query = first + rows // PACK  # [M]
        row_head = (pack * PACK + rows % PACK).to(tl.int64)
        row_ok = row_query < count
        row = (begin + row_query).to(tl.int64)
        width = tl.arange(0, DP)[None, :]
        columns = tl.arange(0, DVP)[None, :]
        q_ok = row_ok[:, None] & (width < D)
        o_ok = row_ok[:, None] & (columns < DV)
        q = tl.load(query + (row * query_row + row_head * query_head)[:, None] + width, mask=q_ok, other=0.0)
        o = tl.load(out + (row * out_row + row_head * out_head)[:, None] + columns, mask=o_ok, other=0.0)
        do = tl.load(grad_out + (row * grad_out_row + row_head * grad_out_head)[:, None] + columns, mask=o_ok, other=0.0)
        change = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # delta [M]
        at = row_head * tokens + row
        if GRAD_LSE:
            change -= tl.load(grad_lse + at, mask=row_ok, other=0.0)
        tl.store(delta + at, change, mask=row_ok)
        sums = tl.load(lse + at, mask=row_ok, other=0.0) * LOG2E
        step = 1.0 if SOFTCAP else factor
        dq = tl.zeros([M, DP], tl.float32)
        if LEARNED:
            for start in tl.range(0, learned, FIRST_N):
                j = start + tl.arange(0, FIRST_N)
                ok = (j < learned)[:, None]
                place = kv_head.to(tl.int64) * learned_key_head + j.to(tl.int64) * learned_key_row
                k = tl.load(learned_key + place[:, None] + width, mask=ok & (width < D), other=0.0)
                place = kv_head.to(tl.int64) * learned_value_head + j.to(tl.int64) * learned_value_row
                v = tl.load(learned_value + place[:, None] + columns, mask=ok & (columns < DV), other=0.0)
                s = bend(tl.dot(q, tl.trans(k), input_precision=PRECISION), factor, cap, SOFTCAP)
                p = tl.where((j < learned)[None, :], tl.exp2(s * step - sums[:, None]), 0.0)
                ds = p * (tl.dot(do, tl.trans(v), input_precision=PRECISION) - change[:, None])
                if SOFTCAP:
                    ds = ds * (1.0 - (s / cap) * (s / cap))
                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
        low_position = offset + first
        high_position = offset + tl.minimum(first + BLOCK_Q, count) - 1
        i = (offset + row_query)[:, None]
        anchor_end, low, high = key_span(low_position, high_position, keys, window, anchors, N, CAUSAL, DENSE)
        anchor_tiles = tl.cdiv(anchor_end, N)
        tiles = anchor_tiles + tl.cdiv(high - low, N)
        for number in tl.range(0, tiles):
            in_anchors = number < anchor_tiles
            start = tl.where(in_anchors, number * N, low + (number - anchor_tiles) * N)
            end = tl.where(in_anchors, anchor_end, high)
            k = tl.reshape(key.load([kv_head, key_begin + start, 0]), [N, DP])
            v = tl.reshape(value.load([kv_head, key_begin + start, 0]), [N, DVP])
            s = bend(tl.dot(q, tl.trans(k), input_precision=PRECISION), factor, cap, SOFTCAP)
            p = tl.exp2(s * step - sums[:, None])
            ds = p * (tl.dot(do, tl.trans(v), input_precision=PRECISION) - change[:, None])
            if SOFTCAP:
                ds = ds * (1.0 - (s / cap) * (s / cap))
            if not is_full(start, end, low_position, high_position, window, N, CAUSAL, DENSE):
                j = (start + tl.arange(0, N))[None, :]
                ds = tl.where(sees(i, j, window, anchors, CAUSAL, DENSE) & (j < end), ds, 0.0)
            if EXACT:  # what a NaN in a key does is in ds; a row that does not see the key has ds = 0
                k = tl.where(tl.abs(k) < float("inf"), k, 0.0)
            dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
        if not EXACT:
            strange = tl.sum(tl.sum(tl.where(row_ok[:, None], dq, 0.0) * 0.0, 1), 0)
            if strange != strange:
                tl.store(odd_tiles + tl.atomic_add(odd_count, 1), tile * (heads // PACK) + pack)
        where = (row * gradient_row + row_head * gradient_head)[:, None] + width
        tl.store(gradient + where, (dq * scale).to(gradient.dtype.element_ty), mask=q_ok)


@triton.jit
def grad_key(
    query, key, value, lse, grad_out, delta, gradient_key, gradient_value, query_starts, key_starts, odd_count, odd_tiles,
    query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
    gradient_key_row, gradient_key_head, gradient_value_row, gradient_value_head,
    tokens, batch, kv_heads, window, anchors, factor, cap, scale,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr, SOFTCAP: tl.constexpr,
    PRECISION: tl.constexpr, MEND: tl.constexpr,
):
    """The gradients of one tile of keys a program, of those behind the anchors; grid (tiles, Hkv). MEND: of the listed, (any,)."""
    if MEND:
        for place in tl.range(tl.program_id(0), tl.load(odd_count), tl.num_programs(0)):
            work = tl.load(odd_tiles + place)
            _grad_key_tile(
                query, key, value, lse, grad_out, delta, gradient_key, gradient_value, query_starts, key_starts,
                odd_count, odd_tiles,
                query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
                gradient_key_row, gradient_key_head, gradient_value_row, gradient_value_head,
                tokens, batch, kv_heads, window, anchors, factor, cap, scale, work // kv_heads, work % kv_heads,
                GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, CAUSAL, DENSE, SOFTCAP, PRECISION, True,
            )
    else:
        _grad_key_tile(
            query, key, value, lse, grad_out, delta, gradient_key, gradient_value, query_starts, key_starts,
            odd_count, odd_tiles,
            query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
            gradient_key_row, gradient_key_head, gradient_value_row, gradient_value_head,
            tokens, batch, kv_heads, window, anchors, factor, cap, scale, tl.program_id(0), tl.program_id(1),
            GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, CAUSAL, DENSE, SOFTCAP, PRECISION, False,
        )


@triton.jit
def _grad_key_tile(
    query, key, value, lse, grad_out, delta, gradient_key, gradient_value, query_starts, key_starts, odd_count, odd_tiles,
    query_row, query_head, key_row, key_head, value_row, value_head, grad_out_row, grad_out_head,
    gradient_key_row, gradient_key_head, gradient_value_row, gradient_value_head,
    tokens, batch, kv_heads, window, anchors, factor, cap, scale, tile, kv_head,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr, SOFTCAP: tl.constexpr,
    PRECISION: tl.constexpr, EXACT: tl.constexpr,
):
    sequence = find_sequence(key_starts, tile, batch, N)
    key_begin = tl.load(key_starts + sequence)
    keys = tl.load(key_starts + sequence + 1) - key_begin
    begin = tl.load(query_starts + sequence)
    count = tl.load(query_starts + sequence + 1) - begin
    first = (tile - key_begin // N - sequence) * N
    if not DENSE:
        first += tl.minimum(anchors, keys)
    if first < keys:
        last = tl.minimum(first + N, keys) - 1
        offset = keys - count
        low, high = 0, count  # queries that may see a key of the tile
        if CAUSAL:
            low = tl.maximum(first - offset, 0)
        elif not DENSE:
            low = tl.maximum(first - window + 1 - offset, 0)
        if not DENSE:
            high = tl.minimum(last + window - offset, count)
        j = first + tl.arange(0, N)
        width = tl.arange(0, DP)[None, :]
        columns = tl.arange(0, DVP)[None, :]
        ok = (j < keys)[:, None]
        row = (key_begin + j).to(tl.int64)
        head = kv_head.to(tl.int64)
        k = tl.load(key + (row * key_row + head * key_head)[:, None] + width, mask=ok & (width < D), other=0.0)  # [N, DP]
        v = tl.load(value + (row * value_row + head * value_head)[:, None] + columns, mask=ok & (columns < DV), other=0.0)
        dk, dv = sum_over_queries(
            query, lse, grad_out, delta, query_row, query_head, grad_out_row, grad_out_head,
            tokens, window, anchors, factor, cap, k, v, j, kv_head, begin, offset, first, low, high,
            GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, CAUSAL, DENSE, SOFTCAP, False, PRECISION, EXACT,
        )
        if not EXACT:
            list_if_odd(dk, dv, ok, odd_count, odd_tiles, tile * kv_heads + kv_head)
        where = (row * gradient_key_row + head * gradient_key_head)[:, None] + width
        tl.store(gradient_key + where, (dk * scale).to(gradient_key.dtype.element_ty), mask=ok & (width < D))
        where = (row * gradient_value_row + head * gradient_value_head)[:, None] + columns
        tl.store(gradient_value + where, dv.to(gradient_value.dtype.element_ty), mask=ok & (columns < DV))


@triton.jit
def list_if_odd(dk, dv, ok, odd_count, odd_tiles, work):
    """List a tile of keys whose gradients hold NaN or infinity: what a row does may have reached keys that it does not see."""
    strange = tl.sum(tl.sum(tl.where(ok, dk, 0.0) * 0.0, 1), 0) + tl.sum(tl.sum(tl.where(ok, dv, 0.0) * 0.0, 1), 0)
    if strange != strange:
        tl.store(odd_tiles + tl.atomic_add(odd_count, 1), work)


@triton.jit
def sum_over_queries(
    query, lse, grad_out, delta, query_row, query_head, grad_out_row, grad_out_head,
    tokens, window, anchors, factor, cap, k, v, j, kv_head, begin, offset, first, low, high,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr, SOFTCAP: tl.constexpr,
    LEARNED: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
):
    """Return dk / scale [N, DP] and dv [N, DVP] of the keys j = first + 0 .. N, over the queries low .. high of all heads."""
    M: tl.constexpr = BLOCK_Q * PACK
    rows = tl.arange(0, M)
    width = tl.arange(0, DP)[None, :]
    columns = tl.arange(0, DVP)[None, :]
    step = 1.0 if SOFTCAP else factor
    dk = tl.zeros([N, DP], tl.float32)
    dv = tl.zeros([N, DVP], tl.float32)
    odd_q = tl.zeros([N, DP], tl.float32) if EXACT else 0.0  # how many numbers that are none a key is reached by in a column
    plus = tl.zeros([N, DVP], tl.float32) if EXACT else 0.0  # of them, those that make +inf or NaN of dv
    minus = tl.zeros([N, DVP], tl.float32) if EXACT else 0.0
    tiles = tl.cdiv(tl.maximum(high - low, 0), BLOCK_Q)
    for number in tl.range(0, tiles * (GROUP // PACK)):
        start = low + number % tiles * BLOCK_Q
        row_query = start + rows // PACK
        head = (kv_head * GROUP + number // tiles * PACK + rows % PACK).to(tl.int64)
        row_ok = row_query < high
        row = (begin + row_query).to(tl.int64)
        q_ok = row_ok[:, None] & (width < D)
        o_ok = row_ok[:, None] & (columns < DV)
        q = tl.load(query + (row * query_row + head * query_head)[:, None] + width, mask=q_ok, other=0.0)  # [M, DP]
        do = tl.load(grad_out + (row * grad_out_row + head * grad_out_head)[:, None] + columns, mask=o_ok, other=0.0)
        sums = tl.load(lse + head * tokens + row, mask=row_ok, other=0.0) * LOG2E
        change = tl.load(delta + head * tokens + row, mask=row_ok, other=0.0)
        s = bend(tl.dot(k, tl.trans(q), input_precision=PRECISION), factor, cap, SOFTCAP)  # [N, M]
        p = tl.exp2(s * step - sums[None, :])
        product = tl.dot(v, tl.trans(do), input_precision=PRECISION) - change[None, :]
        ds = p * product
        if SOFTCAP:
            ds = ds * (1.0 - (s / cap) * (s / cap))
        if not LEARNED:
            full = True
            if CAUSAL:
                full = first + N - 1 <= offset + start
            elif not DENSE:
                full = first + N - 1 - offset - start < window
            if not DENSE:
                full = full & (offset + start + BLOCK_Q - 1 - first < window)
            if not full:
                seen = sees((offset + row_query)[None, :], j[:, None], window, anchors, CAUSAL, DENSE) & row_ok[None, :]
                p = tl.where(seen, p, 0.0)
                ds = tl.where(seen, ds, 0.0)
        if EXACT:  # a row that a key does not see has p = ds = 0, and 0 * NaN is NaN
            reached = sees((offset + row_query)[None, :], j[:, None], window, anchors, CAUSAL, DENSE) & row_ok[None, :]
            reached = reached.to(q.dtype)  # [N, M]
            odd_q += tl.dot(reached, (q * 0.0 != 0.0).to(q.dtype), input_precision=PRECISION)
            plus += tl.dot(reached, ((do != do) | (do == float("inf"))).to(q.dtype), input_precision=PRECISION)
            minus += tl.dot(reached, ((do != do) | (do == float("-inf"))).to(q.dtype), input_precision=PRECISION)
            q = tl.where(tl.abs(q) < float("inf"), q, 0.0)
            do = tl.where(tl.abs(do) < float("inf"), do, 0.0)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION)
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    if EXACT:
        dk = tl.where(odd_q > 0, float("nan"), dk)
        dv = tl.where(plus > 0, float("inf"), dv)
        dv = tl.where(minus > 0, tl.where(plus > 0, float("nan"), float("-inf")), dv)
    return dk, dv
