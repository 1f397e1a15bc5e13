"""Window + anchor attention for transformers models: attn_implementation="patchkit_sparse" after `register`.

transformers hands a padding mask to an attention only if a mask function of the same name is registered: with the
attention alone a padded batch would attend to its padding. Ours is not a mask of scores but a few numbers a row, 4-D
because transformers takes what is 4-D as made already: [B, 1, 1, 1] the keys of an unpadded row, or [B, 1, 1, 3] the
first key, the number of keys and the slot of the first query of a padded one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .ops import attention
from .problem import AttentionError, Inputs, Pattern
from .roles import Role, Roles
from .routing import routed_attention

NAME = "patchkit_sparse"
FLOOR = (5, 6)
"""The first transformers whose mask functions are told q_length and q_offset."""

_PADDED = 3  # numbers a row
_UNKNOWN = ("sliding_window", "s_aux", "position_bias", "cu_seq_lens_q", "cu_seq_lens_k", "seq_idx")


def register(pattern: Pattern | None = None, *, roles: Mapping[int, Roles] | None = None, name: str = NAME) -> None:
    """Register attention and mask with transformers under a name; the pattern's scale and cap come from the model.

    `roles`: the roles of the kv heads of some layers, local and global; without, every head is local. Raises
    AttentionError for a transformers that is too old, for a both-sided pattern, for layers that are no numbers, and for
    routed heads, whose gate needs the hidden states.
    """
    import transformers
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    found = tuple(int(number) for number in re.findall(r"\d+", transformers.__version__)[:2])  # "6.0rc1" is one too
    if found < FLOOR:
        floor = ".".join(map(str, FLOOR))
        raise AttentionError(f"transformers {transformers.__version__} is too old for {name}: {floor} or newer")
    if pattern is not None and not pattern.causal:
        raise AttentionError(f"{name} is causal: models that see both sides ask for masks that it does not know")
    for layer, one in (roles or {}).items():
        if not isinstance(layer, int):
            raise AttentionError(f"roles of the layer {layer!r}: a layer is named by its number, from 0 on")
        if one.heads(Role.ROUTED):
            raise AttentionError(
                f"layer {layer}: routed heads need the layer's hidden states, which are not given here"
            )
    sparse = _Sparse(pattern or Pattern(), dict(roles or {}))
    ALL_ATTENTION_FUNCTIONS.register(name, sparse.attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, key_ranges)


def key_ranges(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **more: Any,
) -> Tensor:
    """Return which keys each row of the batch has, from its padding mask [B, tokens so far], as described above.

    Raises AttentionError for masks that are more than causal and padding, and for padding between tokens.
    """
    from transformers.masking_utils import causal_mask_function

    if mask_function is not causal_mask_function or more.get("local_size") is not None:
        raise AttentionError(
            "the model asks for a mask that is more than causal: packed, bidirectional or its own window"
        )
    if not isinstance(kv_offset, int) or kv_offset:
        raise AttentionError("the cache has dropped its first keys; anchors need them")
    end = torch.as_tensor(q_offset, device=device, dtype=torch.int64) + q_length
    if attention_mask is None:
        return end.to(torch.int32).expand(batch_size, 1, 1, 1)
    slots = torch.arange(attention_mask.shape[1], device=device)
    valid = attention_mask.to(device=device, dtype=torch.bool) & (slots < end)
    count = valid.sum(1)
    if bool((count == end).all()):
        return end.to(torch.int32).expand(batch_size, 1, 1, 1)
    first = valid.int().argmax(1)
    last = valid.shape[1] - 1 - valid.flip(1).int().argmax(1)
    if bool(((last - first + 1 != count) & (count > 0)).any()):
        raise AttentionError("padding between the tokens of a row; only to their left or right")
    if kv_length < valid.shape[1]:
        raise AttentionError(f"a padding mask of {valid.shape[1]} tokens for {kv_length} keys")
    rows = torch.stack([first, count, (end - q_length).expand_as(first)], dim=1)
    return rows.to(torch.int32)[:, None, None, :]


def _is_ours(mask: Tensor) -> bool:
    return mask.dtype == torch.int32 and mask.shape[1:] in ((1, 1, 1), (1, 1, _PADDED))


class _Sparse:
    """The attention function with its pattern and roles."""

    def __init__(self, pattern: Pattern, roles: dict[int, Roles]) -> None:
        self._pattern, self._roles = pattern, roles

    def attend(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        softcap: float | None = None,
        **more: Any,
    ) -> tuple[Tensor, None]:
        """Return out [B, Sq, H, Dv] of query [B, H, Sq, D], key and value [B, Hkv, Skv, D]; transformers' signature."""
        unknown = [name for name in _UNKNOWN if more.get(name) is not None]
        if unknown or dropout:
            raise AttentionError(
                f"{NAME} has no {', '.join(unknown) or 'dropout'}; load the model with another attention"
            )
        if attention_mask is None or not _is_ours(attention_mask):
            raise AttentionError(
                f"{NAME} was given no mask of its own; call register() before the model is made, and give the model"
                " a padding mask [batch, tokens] or none"
            )
        pattern = Pattern(
            window=self._pattern.window,
            anchors=self._pattern.anchors,
            scale=scaling,
            softcap=softcap or 0.0,
        )
        ranges = attention_mask[:, 0, 0, :]
        needs_gradient = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
        roles = self._roles.get(getattr(module, "layer_idx", -1))
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        if ranges.shape[1] != _PADDED and query.shape[1] > 1:
            if key.shape[1] == query.shape[1]:
                return _attend_even(query, key, value, pattern, roles), None
            if not torch.compiler.is_compiling():  # a static cache: how much of it is filled, the device knows
                filled = int(ranges.max())
                return _attend_even(query, key[:, :filled], value[:, :filled], pattern, roles), None
        if ranges.shape[1] == _PADDED or needs_gradient:
            return _attend_packed(query, key, value, ranges, pattern, roles), None
        return _attend_paged(query, key, value, ranges, pattern, roles), None


def _run(inputs: Inputs, pattern: Pattern, roles: Roles | None) -> Tensor:
    if roles is None:
        return attention(inputs, pattern)[0]
    return routed_attention(inputs, pattern, roles)[0]


def _attend_even(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, roles: Roles | None) -> Tensor:
    """Attend where all rows have as many queries, and as many keys, as their tensors hold."""
    batch, rows = query.shape[:2]
    places = torch.arange(batch + 1, device=query.device, dtype=torch.int32)
    inputs = Inputs(
        query=query.flatten(0, 1),
        key=key.flatten(0, 1),
        value=value.flatten(0, 1),
        query_starts=places * rows,
        key_starts=places * key.shape[1],
        max_query=rows,
        max_key=key.shape[1],
    )
    return _run(inputs, pattern, roles).unflatten(0, (batch, rows))


def _attend_paged(
    query: Tensor, key: Tensor, value: Tensor, ranges: Tensor, pattern: Pattern, roles: Roles | None
) -> Tensor:
    """Decode where nothing is padded: each row of a cache is one page, read in place; nothing waits for the device."""
    batch, rows = query.shape[:2]
    places = torch.arange(batch + 1, device=query.device, dtype=torch.int32)
    inputs = Inputs(
        query=query.flatten(0, 1),
        key=key,
        value=value,
        query_starts=places * rows,
        max_query=rows,
        max_key=key.shape[1],
        key_lengths=ranges[:, 0].contiguous(),
        block_table=places[:batch, None].contiguous(),
    )
    return _run(inputs, pattern, roles).unflatten(0, (batch, rows))


def _attend_packed(
    query: Tensor, key: Tensor, value: Tensor, ranges: Tensor, pattern: Pattern, roles: Roles | None
) -> Tensor:
    """Attend with padding, or with gradients: the tokens of all rows are packed; padding gets 0."""
    batch, rows = query.shape[:2]
    if ranges.shape[1] == _PADDED:
        first, count, offset = (column[:, None] for column in ranges.unbind(1))
    else:
        first, count = torch.zeros_like(ranges), ranges
        offset = count - rows
    slots = torch.arange(key.shape[1], device=key.device)[None]
    keys = (slots >= first) & (slots < first + count)
    places = torch.arange(rows, device=key.device)[None] + offset
    queries = (places >= first) & (places < first + count)
    packed = Inputs(
        query=query[queries],
        key=key[keys],
        value=value[keys],
        query_starts=_starts(queries),
        key_starts=_starts(keys),
        max_query=rows,
        max_key=key.shape[1],
    )
    found = _run(packed, pattern, roles)
    out = found.new_zeros(batch, rows, *found.shape[1:])
    return out.masked_scatter(queries[..., None, None], found)


def _starts(valid: Tensor) -> Tensor:
    counts = valid.sum(1).cumsum(0)
    return torch.cat([counts.new_zeros(1), counts]).to(torch.int32)
