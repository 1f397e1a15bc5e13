"""Forward: out_i = sum_j p_ij v_j and lse_i = log sum_j exp(s_ij) over the keys j that query i sees, packed or in pages.

A program holds a tile of M = BLOCK_Q * PACK rows of one key/value head and goes through the keys that they see in tiles of N:
learned anchors, then anchors and window in one pipelined loop. A tile that all rows see is not masked.

Packed keys and values are descriptors, cut by `key_starts`. With PAGE they are pointers to pages of so many tokens, found through
`block_table`, and `key_starts` holds the lengths of the sequences; what lies in a page behind them is not read.

0 * NaN is NaN, so a value that is not a number would reach rows that do not see it, where it lies in a tile with ones that they
see. Such tiles are found at the end, by their result, and listed; `mend` computes those again, in no hurry and exactly.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .tiles import bend, find_sequence, hide, is_full, key_span, sees, softmax_step

try:
    from triton.language.extra.cuda import gdc_wait
except ImportError:  # an older Triton
    gdc_wait = None

CAN_START_EARLY = gdc_wait is not None
"""Whether EARLY may be asked for."""

# One argument a line would hide the kernel.
# fmt: off


@triton.jit
def forward(
    query, key, value, out, lse, query_starts, key_starts, block_table, learned_key, learned_value, odd_count, odd_tiles,
    query_row, query_head, key_page, key_row, key_head, value_page, value_row, value_head, table_row,
    learned_key_head, learned_key_row, learned_value_head, learned_value_row,
    tokens, batch, heads, learned, window, anchors, factor, cap,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, FIRST_N: tl.constexpr, PAGE: tl.constexpr,
    CAUSAL: tl.constexpr, DENSE: tl.constexpr, SOFTCAP: tl.constexpr, LEARNED: tl.constexpr, PRECISION: tl.constexpr,
):
    """One tile of rows a program; grid (tiles, H // PACK)."""
    tile = tl.program_id(0)
    if CAUSAL and DENSE:
        tile = tl.num_programs(0) - 1 - tile  # the longest first
    pack = tl.program_id(1)
    sequence = find_sequence(query_starts, tile, batch, BLOCK_Q)
    begin = tl.load(query_starts + sequence)
    count = tl.load(query_starts + sequence + 1) - begin
    first = (tile - begin // BLOCK_Q - sequence) * BLOCK_Q
    if first >= count:
        return
    attend(
        query, key, value, out, lse, key_starts, block_table, learned_key, learned_value, odd_count, odd_tiles,
        query_row, query_head, key_page, key_row, key_head, value_page, value_row, value_head, table_row,
        learned_key_head, learned_key_row, learned_value_head, learned_value_row,
        tokens, heads, learned, window, anchors, factor, cap, tile, pack, sequence, begin, count, first,
        GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, FIRST_N, PAGE, CAUSAL, DENSE, SOFTCAP, LEARNED, PRECISION, False,
    )


@triton.jit
def mend(
    query, key, value, out, lse, query_starts, key_starts, block_table, learned_key, learned_value, odd_count, odd_tiles,
    query_row, query_head, key_page, key_row, key_head, value_page, value_row, value_head, table_row,
    learned_key_head, learned_key_row, learned_value_head, learned_value_row,
    tokens, batch, heads, learned, window, anchors, factor, cap,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, FIRST_N: tl.constexpr, PAGE: tl.constexpr,
    CAUSAL: tl.constexpr, DENSE: tl.constexpr, SOFTCAP: tl.constexpr, LEARNED: tl.constexpr, PRECISION: tl.constexpr,
    EARLY: tl.constexpr = False,
):
    """Compute the listed tiles again, so that NaN and infinity reach the rows that see them and no other; grid (any,).

    With EARLY it may have started before the kernel that lists them has ended (programmatic dependent launch).
    """
    if EARLY:
        gdc_wait()
    listed = tl.load(odd_count)
    for place in tl.range(tl.program_id(0), listed, tl.num_programs(0)):
        work = tl.load(odd_tiles + place)
        tile = work // (heads // PACK)
        pack = work % (heads // PACK)
        sequence = find_sequence(query_starts, tile, batch, BLOCK_Q)
        begin = tl.load(query_starts + sequence)
        count = tl.load(query_starts + sequence + 1) - begin
        first = (tile - begin // BLOCK_Q - sequence) * BLOCK_Q
        attend(
            query, key, value, out, lse, key_starts, block_table, learned_key, learned_value, odd_count, odd_tiles,
            query_row, query_head, key_page, key_row, key_head, value_page, value_row, value_head, table_row,
            learned_key_head, learned_key_row, learned_value_head, learned_value_row,
            tokens, heads, learned, window, anchors, factor, cap, tile, pack, sequence, begin, count, first,
            GROUP, PACK, D, DV, DP, DVP, BLOCK_Q, N, FIRST_N, PAGE, CAUSAL, DENSE, SOFTCAP, LEARNED, PRECISION, True,
        )


@triton.jit
def attend(
    query, key, value, out, lse, key_starts, block_table, learned_key, learned_value, odd_count, odd_tiles,
    query_row, query_head, key_page, key_row, key_head, value_page, value_row, value_head, table_row,
    learned_key_head, learned_key_row, learned_value_head, learned_value_row,
    tokens, heads, learned, window, anchors, factor, cap, tile, pack, sequence, begin, count, first,
    GROUP: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    BLOCK_Q: tl.constexpr, N: tl.constexpr, FIRST_N: tl.constexpr, PAGE: tl.constexpr,
    CAUSAL: tl.constexpr, DENSE: tl.constexpr, SOFTCAP: tl.constexpr, LEARNED: tl.constexpr, PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Attend with the rows of one tile: queries first .. first + BLOCK_Q of a sequence, heads of a pack."""
    M: tl.constexpr = BLOCK_Q * PACK
    kv_head = pack * PACK // GROUP
    key_begin = tl.load(key_starts + sequence)
    keys = key_begin if PAGE else tl.load(key_starts + sequence + 1) - key_begin
    offset = keys - count  # query 0 stands at this position

    rows = tl.arange(0, M)
    row_query = first + rows // PACK  # [M]
    row_head = pack * PACK + rows % PACK
    row_ok = row_query < count
    width = tl.arange(0, DP)
    where = (begin + row_query).to(tl.int64) * query_row + row_head.to(tl.int64) * query_head
    q = tl.load(query + where[:, None] + width[None, :], mask=row_ok[:, None] & (width[None, :] < D), other=0.0)  # [M, DP]

    low_position = offset + first
    high_position = offset + tl.minimum(first + BLOCK_Q, count) - 1
    i = (offset + row_query)[:, None]
    anchor_end, low, high = key_span(low_position, high_position, keys, window, anchors, N, CAUSAL, DENSE)

    acc = tl.zeros([M, DVP], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    plus = tl.zeros([M, DVP], tl.float32) if EXACT else 0.0  # how many +inf or NaN a row sees in a column
    minus = tl.zeros([M, DVP], tl.float32) if EXACT else 0.0
    step = 1.0 if SOFTCAP else factor

    if LEARNED:
        for start in tl.range(0, learned, FIRST_N):
            j = start + tl.arange(0, FIRST_N)
            ok = (j < learned)[:, None]
            at = kv_head.to(tl.int64) * learned_key_head + j.to(tl.int64) * learned_key_row
            k = tl.load(learned_key + at[:, None] + width[None, :], mask=ok & (width[None, :] < D), other=0.0)
            at = kv_head.to(tl.int64) * learned_value_head + j.to(tl.int64) * learned_value_row
            columns = tl.arange(0, DVP)
            v = tl.load(learned_value + at[:, None] + columns[None, :], mask=ok & (columns[None, :] < DV), other=0.0)
            s = bend(tl.dot(q, tl.trans(k), input_precision=PRECISION), factor, cap, SOFTCAP)
            s = tl.where((j < learned)[None, :], s, float("-inf"))
            acc, top, total = softmax_step(acc, top, total, s, step, v, PRECISION)

    table = block_table + sequence.to(tl.int64) * table_row
    anchor_tiles = tl.cdiv(anchor_end, N)
    tiles = anchor_tiles + tl.cdiv(high - low, N)
    for number in tl.range(0, tiles):
        in_anchors = number < anchor_tiles
        start = tl.where(in_anchors, number * N, low + (number - anchor_tiles) * N)
        end = tl.where(in_anchors, anchor_end, high)
        k = (
            load_pages(key, table, kv_head, start, end, key_page, key_row, key_head, N, D, DP, PAGE)
            if PAGE else tl.reshape(key.load([kv_head, key_begin + start, 0]), [N, DP])
        )
        s = bend(tl.dot(q, tl.trans(k), input_precision=PRECISION), factor, cap, SOFTCAP)
        full = is_full(start, end, low_position, high_position, window, N, CAUSAL, DENSE)
        if not full:
            s = hide(s, i, start, end, in_anchors, window, anchors, N, CAUSAL, DENSE)
        v = (
            load_pages(value, table, kv_head, start, end, value_page, value_row, value_head, N, DV, DVP, PAGE)
            if PAGE else tl.reshape(value.load([kv_head, key_begin + start, 0]), [N, DVP])
        )
        if EXACT:
            j = (start + tl.arange(0, N))[None, :]
            seen = (sees(i, j, window, anchors, CAUSAL, DENSE) & (j < end)).to(v.dtype)
            plus += tl.dot(seen, ((v != v) | (v == float("inf"))).to(v.dtype), input_precision=PRECISION)
            minus += tl.dot(seen, ((v != v) | (v == float("-inf"))).to(v.dtype), input_precision=PRECISION)
            v = tl.where(tl.abs(v) < float("inf"), v, 0.0)
        acc, top, total = softmax_step(acc, top, total, s, step, v, PRECISION)

    empty = total == 0.0
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    sums = tl.where(empty, float("-inf"), (top + tl.log2(tl.where(empty, 1.0, total))) * 0.6931471805599453)
    if EXACT:
        acc = tl.where(plus > 0, float("inf"), acc)
        acc = tl.where(minus > 0, tl.where(plus > 0, float("nan"), float("-inf")), acc)
    else:
        strange = tl.sum(tl.sum(tl.where(row_ok[:, None], acc, 0.0) * 0.0, 1), 0)
        if strange != strange:
            tl.store(odd_tiles + tl.atomic_add(odd_count, 1), tile * (heads // PACK) + pack)
    columns = tl.arange(0, DVP)
    where = ((begin + row_query).to(tl.int64) * heads + row_head) * DV
    tl.store(
        out + where[:, None] + columns[None, :],
        acc.to(out.dtype.element_ty),
        mask=row_ok[:, None] & (columns[None, :] < DV),
    )
    tl.store(lse + row_head.to(tl.int64) * tokens + begin + row_query, sums, mask=row_ok)


@triton.jit
def load_pages(
    tokens, table, kv_head, start, end, page_stride, row_stride, head_stride,
    N: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
):
    """Return the tokens start .. start + N of a sequence [N, WIDTH] from its pages, 0 from `end` on."""
    j = start + tl.arange(0, N)
    width = tl.arange(0, WIDTH)[None, :]
    page = tl.load(table + j // PAGE, mask=j < end, other=0).to(tl.int64)
    at = page * page_stride + (j % PAGE).to(tl.int64) * row_stride + kv_head.to(tl.int64) * head_stride
    return tl.load(tokens + at[:, None] + width, mask=(j < end)[:, None] & (width < D), other=0.0)
