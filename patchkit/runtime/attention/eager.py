"""Attention in PyTorch operations, a block of queries at a time: for a CPU, and wherever no fused kernel can.

For a block of queries, the keys that any of its rows may see are gathered (anchors and a span of the window), so that
memory and work grow with the window and not with the sequence. Scores are float32 (float64 for float64 inputs).
Backward, with delta_i = sum_d out_id grad_out_id - grad_lse_i and p_ij = exp(s_ij - lse_i):

    dv_j = sum_i p_ij grad_out_i;   ds_ij = p_ij (grad_out_i . v_j - delta_i);   dq = scale ds k;   dk = scale ds^T q
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .problem import BACKWARD, FORWARD, Gradients, Inputs, Pattern, Problem, Saved
from .reference import sequence_keys
from .registry import Kernel

_BLOCK = 128  # queries; the span of keys is this much longer than the window


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """Queries `rows` of the packed query and the keys they may see: `index` into the sequence's n keys, `seen` [rows, L
    + m].

    key [L + m, Hkv, D] and value [L + m, Hkv, Dv] have the learned anchors in front and hold zeros where no number was;
    `odd` are the places of keys that had NaN or infinity, with their true contents odd_key and odd_value.
    """

    sequence: int
    rows: slice
    index: Tensor
    seen: Tensor
    key: Tensor
    value: Tensor
    odd: Tensor
    odd_key: Tensor
    odd_value: Tensor


def forward(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    """Write out [Tq, H, Dv] and lse [H, Tq]."""
    for block in _blocks(inputs, pattern):
        query = _grouped(inputs.query[block.rows], inputs.kv_heads)
        scores, _ = _scores(query, block, pattern)
        sums = torch.logsumexp(scores, dim=-1)
        weights = torch.exp(scores - sums.masked_fill(sums == -torch.inf, 0.0)[..., None])
        found = _sum_over_keys(weights, block, block.value, block.odd_value)
        out[block.rows] = found.flatten(1, 2).to(out.dtype)
        lse[:, block.rows] = sums.flatten(0, 1).to(lse.dtype)


def backward(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
    """Write the gradients of packed keys; always the same bits for the same inputs."""
    wide = _wide(inputs.query)
    totals = {
        name: torch.zeros(tensor.shape, dtype=wide, device=tensor.device)
        for name in Gradients.__slots__
        if (tensor := getattr(gradients, name)) is not None
    }
    for block in _blocks(inputs, pattern):
        _add_block(block, inputs, pattern, saved, totals)
    for name, total in totals.items():
        getattr(gradients, name).copy_(total)


def _add_block(block: _Block, inputs: Inputs, pattern: Pattern, saved: Saved, totals: dict[str, Tensor]) -> None:
    kv_heads, rows, learned = inputs.kv_heads, block.rows, inputs.learned
    query = _grouped(inputs.query[rows], kv_heads)
    grad_out = _grouped(saved.grad_out[rows], kv_heads)
    lse = saved.lse[:, rows].to(query.dtype).unflatten(0, (kv_heads, -1))
    empty = (lse == -torch.inf)[..., None]
    delta = (grad_out * _grouped(saved.out[rows], kv_heads)).sum(-1)
    if saved.grad_lse is not None:
        delta = delta - saved.grad_lse[:, rows].to(query.dtype).unflatten(0, (kv_heads, -1))
    scores, slope = _scores(query, block, pattern)
    weights = torch.exp(scores - lse[..., None]).masked_fill(~block.seen | empty, 0.0)
    product = _products(grad_out, block, block.value, block.odd_value) - delta[..., None]
    grad_scores = (weights * product * slope).masked_fill(~block.seen | empty, 0.0) * pattern.scale_for(query.shape[-1])
    grad_query = _sum_over_keys(grad_scores, block, block.key, block.odd_key)
    totals["query"][rows] = grad_query.flatten(1, 2)
    grad_key = _sum_over_rows(grad_scores, query, block.seen)
    grad_value = _sum_over_rows(weights, grad_out, block.seen)
    if learned:
        totals["anchor_key"] += grad_key[:learned].transpose(0, 1)
        totals["anchor_value"] += grad_value[:learned].transpose(0, 1)
    if inputs.key_starts is not None:
        places = block.index + int(inputs.key_starts[block.sequence])
        totals["key"][places] += grad_key[learned:]  # an index names a key once
        totals["value"][places] += grad_value[learned:]


def _products(rows: Tensor, block: _Block, tokens: Tensor, odd: Tensor) -> Tensor:
    """Return the dot products [Hkv, G, rows, n] of rows [Hkv, G, rows, d] with tokens [n, Hkv, d] of a block."""
    found = torch.einsum("hgqd,nhd->hgqn", rows, tokens)
    for place, token in zip(block.odd.tolist(), odd, strict=True):
        found[..., place] = torch.einsum("hgqd,hd->hgq", rows, token)
    return found


def _sum_over_keys(shares: Tensor, block: _Block, tokens: Tensor, odd: Tensor) -> Tensor:
    """Return what the tokens [n, Hkv, d] of a block give to its rows [rows, Hkv, G, d] by shares [Hkv, G, rows, n]."""
    total = torch.einsum("hgqn,nhd->qhgd", shares, tokens)
    for place, token in zip(block.odd.tolist(), odd, strict=True):
        alone = shares[..., place].permute(2, 0, 1)[..., None] * token[:, None]
        total = total + torch.where(block.seen[:, place, None, None, None], alone, 0.0)
    return total


def _sum_over_rows(shares: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
    """Return what the rows [Hkv, G, rows, d] give to keys [n, Hkv, d] by shares [Hkv, G, rows, n], 0 where not seen.

    0 * NaN is NaN: a row that holds a number that is none is added alone, to the keys that it sees.
    """
    odd = ~rows.isfinite().all(-1).all(0).all(0)
    total = torch.einsum("hgqn,hgqd->nhd", shares, rows.masked_fill(odd[:, None], 0.0))
    for place in odd.nonzero()[:, 0].tolist():
        alone = torch.einsum("hgn,hgd->nhd", shares[:, :, place], rows[:, :, place])
        total = total + alone.masked_fill(~seen[place, :, None, None], 0.0)
    return total


def _scores(query: Tensor, block: _Block, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Return scores [Hkv, G, rows, L + m], -inf where not seen, and their slope by the uncapped score."""
    scores = _products(query, block, block.key, block.odd_key)
    scores = scores * pattern.scale_for(query.shape[-1])
    slope = torch.ones((), dtype=scores.dtype, device=scores.device)
    if pattern.softcap:
        bent = torch.tanh(scores / pattern.softcap)
        scores, slope = pattern.softcap * bent, 1 - bent * bent
    return scores.masked_fill(~block.seen, -torch.inf), slope


def _blocks(inputs: Inputs, pattern: Pattern) -> Iterator[_Block]:
    """Yield the blocks of all sequences; every row of the query is in exactly one."""
    starts = inputs.query_starts.tolist()
    for sequence in range(inputs.batch):
        key, value = sequence_keys(inputs, sequence)
        first = int(key.shape[0]) - (starts[sequence + 1] - starts[sequence])  # position of the first query
        for begin in range(starts[sequence], starts[sequence + 1], _BLOCK):
            end = min(begin + _BLOCK, starts[sequence + 1])
            position = first + begin - starts[sequence]
            index = _span(position, position + end - begin, int(key.shape[0]), pattern, key.device)
            yield _block(inputs, pattern, sequence, slice(begin, end), position, index, key, value)


def _span(begin: int, end: int, keys: int, pattern: Pattern, device: torch.device) -> Tensor:
    """Return the positions of the keys that queries at begin .. end may see, ascending."""
    last = min(keys, end) if pattern.causal else keys
    if pattern.window is None:
        return torch.arange(max(last, 0), device=device)
    low = max(0, min(begin - pattern.window + 1, last))
    high = last if pattern.causal else max(low, min(keys, max(end + pattern.window - 1, pattern.anchors)))
    anchors = max(0, min(pattern.anchors, low, last))
    return torch.cat([torch.arange(anchors, device=device), torch.arange(low, max(low, high), device=device)])


def _block(
    inputs: Inputs,
    pattern: Pattern,
    sequence: int,
    rows: slice,
    position: int,
    index: Tensor,
    key: Tensor,
    value: Tensor,
) -> _Block:
    wide = _wide(inputs.query)
    positions = torch.arange(position, position + rows.stop - rows.start, device=index.device)
    seen = pattern.sees(positions, index)
    key, value = key[index].to(wide), value[index].to(wide)
    if inputs.anchor_key is not None and inputs.anchor_value is not None:
        key = torch.cat([inputs.anchor_key.transpose(0, 1).to(wide), key])
        value = torch.cat([inputs.anchor_value.transpose(0, 1).to(wide), value])
        seen = torch.cat([seen.new_ones(len(seen), inputs.learned), seen], dim=1)
    odd = ~(key.isfinite().all(-1).all(-1) & value.isfinite().all(-1).all(-1))
    clear = odd[:, None, None]
    return _Block(
        sequence=sequence,
        rows=rows,
        index=index,
        seen=seen,
        key=key.masked_fill(clear, 0.0),
        value=value.masked_fill(clear, 0.0),
        odd=odd.nonzero()[:, 0],
        odd_key=key[odd],
        odd_value=value[odd],
    )


def _grouped(tokens: Tensor, kv_heads: int) -> Tensor:
    """Return [rows, H, D] as [Hkv, G, rows, D], wide."""
    return tokens.to(_wide(tokens)).unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _refusal(_: Problem) -> str:
    return ""


def _backward_refusal(problem: Problem) -> str:
    return "a paged cache has no gradient" if problem.page_size else ""


KERNELS = (
    Kernel(name="eager", step=FORWARD, summary="PyTorch operations, any device", refusal=_refusal, run=forward),
    Kernel(
        name="eager_backward",
        step=BACKWARD,
        summary="PyTorch operations, any device",
        refusal=_backward_refusal,
        run=backward,
    ),
)
