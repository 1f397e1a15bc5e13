"""What is wrong with a call: shapes, dtypes and devices always; indices on request, since that asks the device."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from .problem import DTYPES, AttentionError, Inputs, Pattern

_PACKED = ("query", "key", "value", "anchor_key", "anchor_value")
_INDICES = ("query_starts", "key_starts", "key_lengths", "block_table")


def checked(inputs: Inputs, pattern: Pattern) -> Inputs:
    """Return a call that kernels may trust as far as shapes, dtypes, devices and strides go; raises AttentionError.

    Packed tensors whose last dimension is not dense are copied; a cache is not: that would cost more than the
    attention.
    """
    _check_pattern(pattern)
    _check_dtypes(inputs)
    _check_shapes(inputs)
    _check_extents(inputs)
    _check_learned(inputs)
    _check_indices(inputs)
    return _dense_rows(inputs)


def check_values(inputs: Inputs) -> None:
    """Check the contents of the index tensors; raises AttentionError. Waits for the device."""
    if inputs.query.is_cuda and torch.cuda.is_current_stream_capturing():
        raise AttentionError("checks=True asks the device and cannot be captured in a CUDA graph; leave it off there")
    _check_starts("query_starts", inputs.query_starts, int(inputs.query.shape[0]), inputs.max_query)
    if inputs.key_starts is not None:
        _check_starts("key_starts", inputs.key_starts, int(inputs.key.shape[0]), inputs.max_key)
    if inputs.block_table is not None and inputs.key_lengths is not None:
        _check_pages(inputs.block_table, inputs.key_lengths, inputs)


def _check_pattern(pattern: Pattern) -> None:
    if pattern.window is not None and pattern.window < 1:
        raise AttentionError(f"window {pattern.window}: a query sees at least itself, so 1 or more (None: dense)")
    if pattern.anchors < 0:
        raise AttentionError(f"anchors {pattern.anchors}: 0 or more")
    if not (math.isfinite(pattern.softcap) and pattern.softcap >= 0):
        raise AttentionError(f"softcap {pattern.softcap}: 0 (none) or a positive number")
    if pattern.scale is not None and not math.isfinite(pattern.scale):
        raise AttentionError(f"scale {pattern.scale}: a finite number")


def _check_dtypes(inputs: Inputs) -> None:
    query = inputs.query
    if query.dtype not in DTYPES:
        raise AttentionError(f"query is {query.dtype}; attention is for {', '.join(map(str, DTYPES))}")
    for name in (*_PACKED, *_INDICES):
        tensor = getattr(inputs, name)
        if tensor is None:
            continue
        wanted = torch.int32 if name in _INDICES else query.dtype
        if tensor.dtype != wanted:
            raise AttentionError(f"{name} is {tensor.dtype}, expected {wanted}")
        if tensor.device != query.device:
            raise AttentionError(f"{name} is on {tensor.device}, the query on {query.device}")


def _check_shapes(inputs: Inputs) -> None:
    query, key, value = inputs.query, inputs.key, inputs.value
    lead = 2 if inputs.paged else 1
    layout = "[pages, page size, kv heads, dim]" if inputs.paged else "[tokens, kv heads, dim]"
    if query.dim() != 3:  # noqa: PLR2004
        raise AttentionError(f"query has the shape {list(query.shape)}, expected [tokens, heads, head dim]")
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dim() != lead + 2:
            raise AttentionError(f"{name} has the shape {list(tensor.shape)}, expected {layout}")
    if key.shape[:-1] != value.shape[:-1]:
        raise AttentionError(
            f"key {list(key.shape)} and value {list(value.shape)} differ in more than the last dimension"
        )
    if key.shape[-1] != query.shape[2]:
        raise AttentionError(f"the query has a head dim of {query.shape[2]}, the key of {key.shape[-1]}")
    if inputs.kv_heads < 1 or inputs.heads % inputs.kv_heads:
        raise AttentionError(f"{inputs.heads} query heads are no multiple of {inputs.kv_heads} kv heads")


def _check_extents(inputs: Inputs) -> None:
    head_dim, value_dim = inputs.query.shape[2], inputs.value.shape[-1]
    if not (head_dim and value_dim):
        raise AttentionError(f"head dims of {head_dim} and {value_dim}: 1 or more")
    if inputs.paged and not inputs.key.shape[1]:
        raise AttentionError(f"key {list(inputs.key.shape)} has pages of no tokens")


def _check_learned(inputs: Inputs) -> None:
    if (inputs.anchor_key is None) != (inputs.anchor_value is None):
        raise AttentionError("learned anchors need anchor_key and anchor_value")
    for name, width in (("anchor_key", inputs.key.shape[-1]), ("anchor_value", inputs.value.shape[-1])):
        wanted = (inputs.kv_heads, inputs.learned, width)
        tensor = getattr(inputs, name)
        if tensor is not None and tuple(tensor.shape) != wanted:
            raise AttentionError(f"{name} has the shape {list(tensor.shape)}, expected {list(wanted)}")


def _check_indices(inputs: Inputs) -> None:
    if inputs.paged == (inputs.key_starts is not None) or inputs.paged != (inputs.key_lengths is not None):
        raise AttentionError("packed keys need key_starts, paged keys block_table and key_lengths, and no others")
    if inputs.query_starts.dim() != 1 or inputs.batch < 0:
        raise AttentionError(f"query_starts has the shape {list(inputs.query_starts.shape)}, expected [sequences + 1]")
    if inputs.batch == 0 and inputs.query.shape[0]:
        raise AttentionError(f"query_starts names no sequence for {inputs.query.shape[0]} tokens")
    wanted = {"key_starts": (inputs.batch + 1,), "key_lengths": (inputs.batch,)}
    for name, shape in wanted.items():
        tensor = getattr(inputs, name)
        if tensor is not None and tuple(tensor.shape) != shape:
            raise AttentionError(f"{name} has the shape {list(tensor.shape)}, expected {list(shape)}")
    table = inputs.block_table
    if table is not None and (table.dim() != 2 or table.shape[0] != inputs.batch):  # noqa: PLR2004
        raise AttentionError(f"block_table has the shape {list(table.shape)}, expected [{inputs.batch}, pages]")
    if inputs.max_query < 0 or inputs.max_key < 0:
        raise AttentionError(f"max_query {inputs.max_query} and max_key {inputs.max_key} are lengths")


def _dense_rows(inputs: Inputs) -> Inputs:
    changed: dict[str, Tensor] = {}
    for name in (*_PACKED, *_INDICES):
        tensor = getattr(inputs, name)
        if tensor is None or tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
            continue
        if inputs.paged and name in ("key", "value"):
            raise AttentionError(f"{name}: the last dimension of a cache has stride 1, not {tensor.stride(-1)}")
        changed[name] = tensor.contiguous()
    if not changed:
        return inputs
    return Inputs(**{name: changed.get(name, getattr(inputs, name)) for name in Inputs.__slots__})


def _check_starts(name: str, starts: Tensor, tokens: int, longest: int) -> None:
    values = starts.tolist()
    if values[0] != 0 or values[-1] != tokens:
        raise AttentionError(f"{name} runs from {values[0]} to {values[-1]}, expected 0 to {tokens}")
    for sequence, (begin, end) in enumerate(pairwise(values)):
        if end < begin:
            raise AttentionError(f"{name}: sequence {sequence} ends at {end} before it begins at {begin}")
        if end - begin > longest:
            raise AttentionError(
                f"{name}: sequence {sequence} has {end - begin} tokens, more than the stated {longest}"
            )


def _check_pages(table: Tensor, key_lengths: Tensor, inputs: Inputs) -> None:
    pages, size = int(inputs.key.shape[0]), int(inputs.key.shape[1])
    used = []
    for sequence, length in enumerate(key_lengths.tolist()):
        if not 0 <= length <= inputs.max_key:
            raise AttentionError(f"key_lengths: sequence {sequence} has {length} tokens, not 0 to {inputs.max_key}")
        used.append(-(-length // size))
        if used[-1] > table.shape[1]:
            needs = f"{length} tokens need {used[-1]} pages"
            raise AttentionError(f"sequence {sequence}: {needs}, block_table has {table.shape[1]}")
    behind = torch.arange(table.shape[1], device=table.device) >= torch.tensor(used, device=table.device)[:, None]
    wrong = ((table < 0) | (table >= pages)).masked_fill(behind, False)  # noqa: FBT003 -- torch's signature
    if bool(wrong.any()):
        sequence, place = wrong.nonzero()[0].tolist()
        entry = f"block_table[{sequence}, {place}] is {int(table[sequence, place])}"
        raise AttentionError(f"{entry}; the cache has the pages 0 to {pages - 1}")
