"""Attention with a role per kv head: local and global heads by their own kernels, routed heads block by block.

A block of tokens is routed by a linear gate on the layer's hidden state of its first token: the whole block could not
be known while it is being decoded. Blocks are counted from the first query of each sequence in the call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from .autocast import as_written
from .ops import attention
from .problem import AttentionError, Inputs, Pattern
from .reference import replace_tensors
from .roles import Role, Roles

_PAGE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """The token blocks of a call: block n holds the query rows begin[n] .. end[n] of sequence[n]; lists of one
    length.
    """

    sequence: list[int]
    begin: list[int]
    end: list[int]


def blocks_of(inputs: Inputs, size: int) -> Blocks:
    """Return the blocks of `size` tokens of a call, the last of a sequence shorter; waits for the device."""
    if size < 1:
        raise AttentionError(f"a block of {size} tokens")
    starts = inputs.query_starts.tolist()
    found = [
        (sequence, begin, min(begin + size, starts[sequence + 1]))
        for sequence in range(inputs.batch)
        for begin in range(starts[sequence], starts[sequence + 1], size)
    ]
    return Blocks(sequence=[one[0] for one in found], begin=[one[1] for one in found], end=[one[2] for one in found])


def route(gate: Tensor, hidden: Tensor, blocks: Blocks, picked: int) -> Tensor:
    """Return bool [blocks, routed heads]: the heads that run dense in each block, exactly `picked` of them (or all).

    gate [routed heads of the whole layer, hidden size], hidden [Tq, hidden size]. Every tensor-parallel rank computes
    the same answer, and takes its own columns. Equal logits: the lower head.
    """
    if picked < 0:
        raise AttentionError(f"{picked} routed heads cannot be picked")
    fits = gate.dim() == 2 and hidden.shape[1:] == gate.shape[1:] and len(hidden) >= max(blocks.end, default=0)  # noqa: PLR2004
    if not fits:
        shapes = f"gate {list(gate.shape)}, hidden {list(hidden.shape)}"
        raise AttentionError(f"{shapes}: expected [routed heads, hidden size] and [tokens, hidden size]")
    first = torch.tensor(blocks.begin, device=hidden.device, dtype=torch.int64)
    with as_written(hidden.device.type):
        logits = hidden[first].float() @ gate.float().T
    order = logits.argsort(dim=1, descending=True, stable=True)
    chosen = torch.zeros_like(logits, dtype=torch.bool)
    return chosen.scatter_(1, order[:, :picked], True)  # noqa: FBT003 -- torch's signature


def routed_attention(
    inputs: Inputs, pattern: Pattern, roles: Roles, *, blocks: Blocks | None = None, dense: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return out [Tq, H, Dv] and lse [H, Tq] with a role per kv head of the inputs.

    `dense` bool [blocks, routed heads of this slice], from `route`; needed where there are routed heads. `pattern` is
    that of local heads; dense heads have no window. Gradients: of local and global heads only, since pages have none.
    """
    if len(roles.roles) != inputs.kv_heads:
        raise AttentionError(f"{len(roles.roles)} roles for {inputs.kv_heads} kv heads")
    wide = replace(pattern, window=None)
    routed = roles.heads(Role.ROUTED)
    if routed and (blocks is None or dense is None or dense.shape != (len(blocks.begin), len(routed))):
        raise AttentionError(f"{len(routed)} routed heads need blocks, and dense of the shape [blocks, {len(routed)}]")
    if blocks is not None and not _belongs(blocks, inputs):
        tokens = f"{inputs.query.shape[0]} tokens in {inputs.batch} sequences"
        raise AttentionError(
            f"the blocks are those of another call, not of {tokens}; blocks_of(inputs, size) makes them"
        )
    parts: dict[int, tuple[Tensor, Tensor]] = {}
    for heads, seen in ((roles.heads(Role.LOCAL), pattern), (roles.heads(Role.GLOBAL), wide), (routed, pattern)):
        if heads:
            parts.update(_by_head(heads, attention(_heads(inputs, heads), seen)))
    if blocks is not None and dense is not None:
        for column, head in enumerate(routed):
            picked = dense[:, column].nonzero()[:, 0].tolist()
            if picked:
                rows, out, lse = _attend_blocks(_heads(inputs, (head,)), wide, blocks, picked)
                local_out, local_lse = parts[head]
                parts[head] = local_out.index_copy(0, rows, out), local_lse.index_copy(1, rows, lse)
    ordered = [parts[head] for head in range(inputs.kv_heads)]
    return torch.cat([out for out, _ in ordered], dim=1), torch.cat([lse for _, lse in ordered], dim=0)


def _belongs(blocks: Blocks, inputs: Inputs) -> bool:
    """Return whether the blocks may be those of a call, as far as that shows without asking the device."""
    rows = sum(end - begin for begin, end in zip(blocks.begin, blocks.end, strict=True))
    last = max(blocks.end, default=0)
    return rows == last == inputs.query.shape[0] and max(blocks.sequence, default=-1) < inputs.batch


def _by_head(heads: tuple[int, ...], state: tuple[Tensor, Tensor]) -> dict[int, tuple[Tensor, Tensor]]:
    outs, sums = state[0].chunk(len(heads), dim=1), state[1].chunk(len(heads), dim=0)
    return dict(zip(heads, zip(outs, sums, strict=True), strict=True))


def _heads(inputs: Inputs, heads: tuple[int, ...]) -> Inputs:
    """Return the call for some kv heads and their query heads; a run of heads is a view, others are copied."""
    group = inputs.heads // inputs.kv_heads
    whole = heads == tuple(range(heads[0], heads[0] + len(heads)))

    def cut(tensor: Tensor, dim: int, width: int) -> Tensor:
        if whole:
            return tensor.narrow(dim, heads[0] * width, len(heads) * width)
        return torch.cat([tensor.narrow(dim, head * width, width) for head in heads], dim=dim)

    tensors = {"query": cut(inputs.query, 1, group), "key": cut(inputs.key, -2, 1), "value": cut(inputs.value, -2, 1)}
    for name in ("anchor_key", "anchor_value"):
        if (learned := getattr(inputs, name)) is not None:
            tensors[name] = cut(learned, 0, 1)
    return replace_tensors(inputs, tensors)


def _attend_blocks(
    inputs: Inputs, pattern: Pattern, blocks: Blocks, picked: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows of the picked blocks, and their state: each block is a sequence that ends with its last query."""
    device = inputs.query.device
    paged = inputs if inputs.paged else _into_pages(inputs)
    if paged.block_table is None or paged.key_lengths is None:
        raise AttentionError("pages need block_table and key_lengths")
    sequences = torch.tensor([blocks.sequence[one] for one in picked], device=device)
    ends = torch.tensor([blocks.end[one] for one in picked], device=device)
    counts = [blocks.end[one] - blocks.begin[one] for one in picked]
    rows = torch.cat([torch.arange(blocks.begin[one], blocks.end[one], device=device) for one in picked])
    lengths = paged.key_lengths[sequences]
    if pattern.causal:  # without the keys behind the block, its last query stands at the last key
        lengths = (lengths - (inputs.query_starts[1:][sequences] - ends)).clamp(min=0)
    starts = torch.tensor([0, *counts], device=device).cumsum(0).to(torch.int32)
    call = replace(
        paged,
        query=inputs.query[rows],
        query_starts=starts,
        max_query=max(counts),
        block_table=paged.block_table[sequences],
        key_lengths=lengths.to(torch.int32),
    )
    return rows, *attention(call, pattern)


def _into_pages(inputs: Inputs) -> Inputs:
    """Lay packed keys of one head into pages, so that several blocks can share them."""
    if inputs.key_starts is None:
        raise AttentionError("packed keys need key_starts")
    starts = inputs.key_starts.tolist()
    device = inputs.key.device
    counts = [-(-(end - begin) // _PAGE) for begin, end in pairwise(starts)]
    first = [sum(counts[:sequence]) for sequence in range(len(counts))]
    places = torch.cat(
        [torch.arange(starts[one + 1] - starts[one], device=device) + first[one] * _PAGE for one in range(len(counts))]
    )
    table = torch.zeros(len(counts), max(1, *counts), dtype=torch.int32, device=device)
    for sequence, count in enumerate(counts):
        table[sequence, :count] = torch.arange(first[sequence], first[sequence] + count, device=device)

    def lay(tokens: Tensor) -> Tensor:
        cache = tokens.new_zeros(max(1, sum(counts)) * _PAGE, *tokens.shape[1:])
        return cache.index_copy(0, places, tokens).unflatten(0, (-1, _PAGE))

    return replace(
        inputs,
        key=lay(inputs.key),
        value=lay(inputs.value),
        key_starts=None,
        block_table=table,
        key_lengths=(inputs.key_starts[1:] - inputs.key_starts[:-1]).to(torch.int32),
    )
