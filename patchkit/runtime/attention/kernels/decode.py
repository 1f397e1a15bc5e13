"""One query per sequence over a paged cache: keys split among programs, states merged by their log-sum-exp.

The keys that the query at position n - 1 sees are anchors 0 .. anchor_end and the window low .. n, put end to end: every split
takes the same number of them, and none is masked but at its end. The G query heads of a key/value head form the rows of a tile.
Keys that are not seen are not read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .tiles import bend, softmax_step

# One argument a line would hide the kernel.
# fmt: off


@triton.jit
def decode(
    query, key, value, out, lse, part_out, part_lse, query_starts, key_lengths, block_table, learned_key, learned_value,
    query_row, query_head, key_page, key_row, key_head, value_page, value_row, value_head, table_row,
    learned_key_head, learned_key_row, learned_value_head, learned_value_row,
    tokens, heads, learned, window, anchors, factor, cap,
    GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr,
    PAGE: tl.constexpr, N: tl.constexpr, SPLITS: tl.constexpr, DENSE: tl.constexpr, SOFTCAP: tl.constexpr,
    LEARNED: tl.constexpr, PRECISION: tl.constexpr,
):
    """One split of a sequence and a key/value head a program; grid (SPLITS, Hkv, B)."""
    split = tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = tl.program_id(2)
    row = tl.load(query_starts + sequence)
    keys = tl.load(key_lengths + sequence)  # with the others, not after them
    if tl.load(query_starts + sequence + 1) == row:
        return
    low = 0
    if not DENSE:
        low = tl.maximum(keys - window, 0)
    anchor_end = tl.minimum(anchors, low) if not DENSE else 0
    seen = anchor_end + keys - low
    share = tl.cdiv(tl.cdiv(seen, SPLITS), 16) * 16
    begin = split * share
    end = tl.minimum(begin + share, seen)

    rows = tl.arange(0, ROWS)
    head = kv_head * GROUP + rows
    row_ok = rows < GROUP
    width = tl.arange(0, DP)
    columns = tl.arange(0, DVP)
    where = row.to(tl.int64) * query_row + head.to(tl.int64) * query_head
    q = tl.load(query + where[:, None] + width[None, :], mask=row_ok[:, None] & (width[None, :] < D), other=0.0)
    acc = tl.zeros([ROWS, DVP], tl.float32)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    step = 1.0 if SOFTCAP else factor
    table = block_table + sequence.to(tl.int64) * table_row

    for start in tl.range(begin, end, N):
        number = start + tl.arange(0, N)
        ok = number < end
        j = tl.where(number < anchor_end, number, low + number - anchor_end)
        page = tl.load(table + j // PAGE, mask=ok, other=0).to(tl.int64)
        at = page * key_page + (j % PAGE).to(tl.int64) * key_row + kv_head.to(tl.int64) * key_head
        k = tl.load(key + at[:, None] + width[None, :], mask=ok[:, None] & (width[None, :] < D), other=0.0)  # [N, DP]
        at = page * value_page + (j % PAGE).to(tl.int64) * value_row + kv_head.to(tl.int64) * value_head
        v = tl.load(value + at[:, None] + columns[None, :], mask=ok[:, None] & (columns[None, :] < DV), other=0.0)
        s = bend(tl.dot(q, tl.trans(k), input_precision=PRECISION), factor, cap, SOFTCAP)
        s = tl.where(ok[None, :], s, float("-inf"))
        acc, top, total = softmax_step(acc, top, total, s, step, v, PRECISION)

    if LEARNED:
        if split == 0:
            for start in tl.range(0, learned, N):
                j = start + tl.arange(0, N)
                ok = j < learned
                at = kv_head.to(tl.int64) * learned_key_head + j.to(tl.int64) * learned_key_row
                k = tl.load(learned_key + at[:, None] + width[None, :], mask=ok[:, None] & (width[None, :] < D), other=0.0)
                at = kv_head.to(tl.int64) * learned_value_head + j.to(tl.int64) * learned_value_row
                v = tl.load(
                    learned_value + at[:, None] + columns[None, :], mask=ok[:, None] & (columns[None, :] < DV), other=0.0
                )
                s = bend(tl.dot(q, tl.trans(k), input_precision=PRECISION), factor, cap, SOFTCAP)
                s = tl.where(ok[None, :], s, float("-inf"))
                acc, top, total = softmax_step(acc, top, total, s, step, v, PRECISION)

    empty = total == 0.0
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    sums = tl.where(empty, float("-inf"), top + tl.log2(tl.where(empty, 1.0, total)))
    if SPLITS == 1:
        where = (row.to(tl.int64) * heads + head) * DV
        tl.store(
            out + where[:, None] + columns[None, :],
            acc.to(out.dtype.element_ty),
            mask=row_ok[:, None] & (columns[None, :] < DV),
        )
        tl.store(lse + head.to(tl.int64) * tokens + row, sums * 0.6931471805599453, mask=row_ok)
    else:
        state = (sequence.to(tl.int64) * heads + head) * SPLITS + split
        tl.store(part_out + state[:, None] * DVP + columns[None, :], acc, mask=row_ok[:, None])
        tl.store(part_lse + state, sums, mask=row_ok)


@triton.jit
def merge(
    out, lse, part_out, part_lse, query_starts, tokens, heads,
    DV: tl.constexpr, DVP: tl.constexpr, SPLITS: tl.constexpr,
):
    """Merge the states [SPLITS, DVP] of a sequence and a query head, sums in units of log 2; grid (H, B)."""
    head = tl.program_id(0)
    sequence = tl.program_id(1)
    row = tl.load(query_starts + sequence)
    if tl.load(query_starts + sequence + 1) == row:
        return
    columns = tl.arange(0, DVP)
    state = (sequence.to(tl.int64) * heads + head) * SPLITS + tl.arange(0, SPLITS)
    sums = tl.load(part_lse + state)
    outs = tl.load(part_out + state[:, None] * DVP + columns[None, :])  # [SPLITS, DVP]
    top = tl.max(sums, 0)
    base = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(sums - base)
    total = tl.sum(weights, 0)
    empty = total == 0.0
    share = weights / tl.where(empty, 1.0, total)
    merged = tl.sum(share[:, None] * outs, 0)
    sums_of_all = tl.where(empty, float("-inf"), (base + tl.log2(tl.where(empty, 1.0, total))) * 0.6931471805599453)
    where = (row.to(tl.int64) * heads + head) * DV
    tl.store(out + where + columns, merged.to(out.dtype.element_ty), mask=columns < DV)
    tl.store(lse + head.to(tl.int64) * tokens + row, sums_of_all)
