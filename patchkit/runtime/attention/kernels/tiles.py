"""What all attention kernels share: where a tile of queries or keys lies, which keys it sees, one step of the softmax.

A tile of rows holds PACK query heads of one key/value head side by side (GQA packing): row r is query r // PACK of the tile and
head r % PACK of the pack, so that PACK heads read a tile of keys once. Scores are kept in units of log 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


# One argument a line would hide the kernel.
# fmt: off


@triton.jit
def find_sequence(starts, tile, batch, BLOCK: tl.constexpr):
    """Return the sequence of a tile, where sequence b owns the tiles from starts[b] // BLOCK + b on.

    That is at least as many as it needs, and needs no list of tiles: what is too much ends at once.
    """
    low = 0
    high = batch
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) // BLOCK + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def sees(i, j, window, anchors, CAUSAL: tl.constexpr, DENSE: tl.constexpr):
    """Return which keys j each query i sees; shapes broadcast."""
    if DENSE:
        if CAUSAL:
            seen = j <= i
        else:
            seen = (j - i) == (j - i)
    elif CAUSAL:
        seen = (j <= i) & ((i - j < window) | (j < anchors))
    else:
        seen = ((i - j < window) & (j - i < window)) | (j < anchors)
    return seen


@triton.jit
def key_span(first, last, keys, window, anchors, N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr):
    """Return (anchor_end, low, high): queries at first .. last see keys of 0 .. anchor_end and of low .. high only.

    The two spans do not meet; of the first one all rows see all keys. Both-sided, anchors may lie behind the window too:
    those are in the second one.
    """
    high = keys
    if CAUSAL:
        high = tl.minimum(keys, last + 1)
    elif not DENSE:
        high = tl.minimum(keys, tl.maximum(last + window, anchors))
    low = 0
    anchor_end = 0
    if not DENSE:
        low = tl.maximum(first - window + 1, 0)
        low = tl.where(low < N, 0, low)  # one tile for both
        low = tl.minimum(low, tl.maximum(high, 0))
        anchor_end = tl.maximum(tl.minimum(tl.minimum(anchors, low), keys), 0)
    return anchor_end, low, tl.maximum(high, low)


@triton.jit
def is_full(start, end, first, last, window, N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr):
    """Return whether all queries first .. last see all keys start .. start + N of the span that ends at `end`."""
    full = start + N <= end
    if CAUSAL:
        full = full & (start + N - 1 <= first)
    elif not DENSE:
        full = full & (start + N - 1 - first < window)
    if not DENSE:
        full = full & (last - start < window)
    return full


@triton.jit
def hide(
    scores, i, start, end, in_anchors, window, anchors, N: tl.constexpr, CAUSAL: tl.constexpr, DENSE: tl.constexpr,
):
    """Return scores [M, N] of queries i [M, 1] and keys from `start` on, -inf where a key is not seen or from `end` on.

    What is compared is a column with a number per row or tile: `sees` would take one more step for every score.
    """
    column = tl.arange(0, N)[None, :]
    reach = end - start
    if CAUSAL:
        reach = tl.where(in_anchors, reach, tl.minimum(i + 1 - start, reach))
    seen = column < reach
    if not DENSE:
        near = column >= i - window + 1 - start
        if not CAUSAL:
            near = near & (column < i + window - start)
        seen = seen & (near | (column < anchors - start))
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def bend(scores, factor, cap, SOFTCAP: tl.constexpr):
    """Return scores and the factor that brings them to units of log 2; with a soft cap c: c tanh(s / c).

    `factor` is scale * log2(e); `cap` is c * log2(e).
    """
    if SOFTCAP:
        bent = 1.0 - 2.0 / (1.0 + tl.exp2(scores * (factor / cap * 2.0 * LOG2E)))
        result = bent * cap
    else:
        result = scores
    return result


@triton.jit
def softmax_step(acc, top, total, scores, factor, value, PRECISION: tl.constexpr):
    """Take a tile of scores [M, N] and values [N, DV] into acc [M, DV], running maximum and sum [M]."""
    higher = tl.maximum(top, tl.max(scores, 1) * factor)
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores * factor - base[:, None])
    shrink = tl.exp2(top - base)
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(value.dtype), value, acc * shrink[:, None], input_precision=PRECISION)
    return acc, higher, total
