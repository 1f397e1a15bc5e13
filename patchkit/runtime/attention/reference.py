"""Attention in plain PyTorch, one query after the other: the truth that every kernel is held against.

For a query at position i that sees the keys J (problem.Pattern says which), with learned anchors in front of them:

    s_j = scale * q . k_j, capped;   lse = log sum_j exp(s_j);   out = sum_j exp(s_j - lse) v_j

A row that sees nothing has out = 0, lse = -inf and no gradient. Keys that a row does not see are not even read for it,
so that a NaN in them cannot reach it. It is slow; float64 inputs give float64 results.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .problem import AttentionError, Gradients, Inputs, Pattern


def attention_reference(
    inputs: Inputs, pattern: Pattern, *, rows: Iterable[int] | None = None, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return out [R, H, Dv] and lse [H, R] of some rows of the query (all without `rows`), in `dtype` or the query's.

    What a row sees is converted before anything is computed. Autograd passes through it. Raises AttentionError for a
    row that no sequence has.
    """
    query_starts: list[int] = inputs.query_starts.tolist()
    dtype = dtype or inputs.query.dtype
    wanted = range(query_starts[-1]) if rows is None else rows
    ends = query_starts[1:]
    outs, sums = [], []
    for row in wanted:
        if not 0 <= row < query_starts[-1]:
            raise AttentionError(f"row {row} of {query_starts[-1]}")
        sequence = next(b for b, end in enumerate(ends) if row < end)
        key, value = sequence_keys(inputs, sequence)
        position = row - ends[sequence] + key.shape[0]
        seen = keys_seen(position, key.shape[0], pattern).to(key.device)
        out, lse = _attend(
            inputs.query[row].to(dtype),
            _with_learned(inputs.anchor_key, key[seen]).to(dtype),
            _with_learned(inputs.anchor_value, value[seen]).to(dtype),
            pattern,
        )
        outs.append(out)
        sums.append(lse)
    if not outs:
        empty = inputs.query.new_zeros(inputs.heads, 0, dtype=dtype)
        return inputs.query.new_zeros(0, inputs.heads, inputs.value.shape[-1], dtype=dtype), empty
    return torch.stack(outs), torch.stack(sums, dim=1)


def sequence_keys(inputs: Inputs, sequence: int) -> tuple[Tensor, Tensor]:
    """Return the keys [n, Hkv, D] and values [n, Hkv, Dv] of a sequence, gathered where they lie in pages."""
    if inputs.block_table is None or inputs.key_lengths is None:
        if inputs.key_starts is None:
            raise AttentionError("packed keys need key_starts, paged keys block_table and key_lengths")
        start, end = inputs.key_starts[sequence : sequence + 2].tolist()
        return inputs.key[start:end], inputs.value[start:end]
    length, size = int(inputs.key_lengths[sequence]), inputs.key.shape[1]
    pages = inputs.block_table[sequence, : -(-length // size)].long()
    return inputs.key[pages].flatten(0, 1)[:length], inputs.value[pages].flatten(0, 1)[:length]


def keys_seen(position: int, keys: int, pattern: Pattern) -> Tensor:
    """Return the positions [n] below `keys` that a query at `position` sees, ascending."""
    return pattern.sees(torch.tensor([position]), torch.arange(keys))[0].nonzero()[:, 0]


def _with_learned(learned: Tensor | None, tokens: Tensor) -> Tensor:
    """Put learned anchors [Hkv, L, D] in front of [n, Hkv, D]."""
    return tokens if learned is None else torch.cat([learned.transpose(0, 1), tokens])


def _attend(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Return out [H, Dv] and lse [H] of one query [H, D] over the keys [n, Hkv, D] and values [n, Hkv, Dv] that it
    sees.
    """
    heads, kv_heads = query.shape[0], key.shape[1]
    if key.shape[0] == 0:
        return query.new_zeros(heads, value.shape[-1]), query.new_full((heads,), -torch.inf)
    grouped = query.unflatten(0, (kv_heads, heads // kv_heads))
    scores = torch.einsum("hgd,nhd->hgn", grouped, key) * pattern.scale_for(query.shape[-1])
    if pattern.softcap:
        scores = pattern.softcap * torch.tanh(scores / pattern.softcap)
    lse = torch.logsumexp(scores, dim=-1)
    out = torch.einsum("hgn,nhd->hgd", torch.exp(scores - lse[..., None]), value)
    return out.flatten(0, 1), lse.flatten()


def gradients_reference(
    inputs: Inputs, pattern: Pattern, grad_out: Tensor, grad_lse: Tensor | None = None
) -> Gradients:
    """Return the gradients of sum(out * grad_out) + sum(lse * grad_lse) by autograd, for packed keys.

    `grad_lse` counts only where lse is finite: an empty row has no gradient.
    """
    leaves = {
        name: tensor.detach().clone().requires_grad_()
        for name in ("query", "key", "value", "anchor_key", "anchor_value")
        if (tensor := getattr(inputs, name)) is not None
    }
    with torch.enable_grad():
        out, lse = attention_reference(replace_tensors(inputs, leaves), pattern)
        loss = (out * grad_out).sum()
        if grad_lse is not None:
            loss = loss + (torch.where(lse.isfinite(), lse, 0) * grad_lse).sum()
    if not loss.requires_grad:  # every row is empty
        return Gradients(**{name: torch.zeros_like(leaf) for name, leaf in leaves.items()})
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return Gradients(
        **{
            name: torch.zeros_like(leaf) if gradient is None else gradient
            for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
        }
    )


def replace_tensors(inputs: Inputs, tensors: dict[str, Tensor]) -> Inputs:
    """Return the same call with other tensors in some places."""
    names = Inputs.__slots__
    return Inputs(**{name: tensors.get(name, getattr(inputs, name)) for name in names})


def merge_states(out: Tensor, lse: Tensor, other_out: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state over both sets of keys: out [T, H, Dv] and lse [H, T], from the states over each of them.

    With w = exp(lse - merged lse): out = w * out + w' * other_out, rounded once. Two empty states give an empty one; an
    empty state adds nothing whatever its out holds. Autograd passes through it. Raises AttentionError where the shapes
    are others.
    """
    if out.shape != other_out.shape or {lse.shape, other_lse.shape} != {(out.shape[1], out.shape[0])}:
        shapes = ", ".join(str(list(one.shape)) for one in (out, lse, other_out, other_lse))
        raise AttentionError(f"states of the shapes {shapes}: expected [T, H, Dv] and [H, T] of the same rows")
    empty, other_empty = lse == -torch.inf, other_lse == -torch.inf
    merged = torch.where(  # the gradient of logaddexp at two -inf is NaN
        empty & other_empty, -torch.inf, torch.logaddexp(lse.masked_fill(empty & other_empty, 0.0), other_lse)
    )
    whole = _share(out, lse, merged) + _share(other_out, other_lse, merged)
    return whole.to(torch.promote_types(out.dtype, other_out.dtype)), merged


def _share(out: Tensor, lse: Tensor, merged: Tensor) -> Tensor:
    """Return exp(lse - merged) * out in the wider of their dtypes, and 0 for an empty state."""
    empty = lse == -torch.inf
    weight = torch.exp(lse.masked_fill(empty, 0.0) - merged.masked_fill(empty, 0.0)).masked_fill(empty, 0.0)
    return weight.T[..., None] * out.masked_fill(empty.T[..., None], 0.0)
