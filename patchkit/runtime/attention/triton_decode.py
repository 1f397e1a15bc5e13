"""Launches decode over a paged cache: kernels/decode.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .kernels import decode
from .problem import FORWARD, AttentionError, Inputs, Pattern, Problem
from .registry import Compilation, Kernel
from .triton_launch import common_refusal, factors, padded, precision, window_of
from .triton_support import interpreted


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Keys of a tile, warps, loads in flight, and how many programs a multiprocessor gets before splits end."""

    keys: int
    warps: int
    stages: int
    programs: int = 3


# Measured on an NVIDIA H200; by padded head dim.
SHAPES: dict[int, Shape] = {
    64: Shape(keys=64, warps=2, stages=3),
    128: Shape(keys=64, warps=2, stages=3),
}
_INTERPRETED = Shape(keys=16, warps=4, stages=1)
_MULTIPROCESSORS = 132  # of an H200; a few more or less do not change the number of splits that pays
_SMALLEST_SPLIT = 128  # keys
_MOST_SPLITS = 64


def run(
    inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, *, shape: Shape | None = None, splits: int = 0
) -> None:
    """Write out [Tq, H, Dv] and lse [H, Tq] of at most one query a sequence, over pages."""
    if inputs.query.shape[0] == 0:
        return
    shape = shape or shape_for(inputs)
    splits = splits or splits_for(inputs, pattern, shape)
    constants = constants_for(inputs, pattern, shape, splits)
    states = inputs.batch * inputs.heads * splits if splits > 1 else 0
    part_out = torch.empty(states * constants["DVP"], dtype=torch.float32, device=out.device)
    part_lse = torch.empty(states, dtype=torch.float32, device=out.device)
    whole = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    arguments = _arguments(inputs, pattern, whole, lse, part_out, part_lse)
    grid = (splits, inputs.kv_heads, inputs.batch)
    decode.decode[grid](*arguments, **constants, num_warps=shape.warps, num_stages=shape.stages)
    if splits > 1:
        decode.merge[(inputs.heads, inputs.batch)](
            whole,
            lse,
            part_out,
            part_lse,
            inputs.query_starts,
            inputs.query.shape[0],
            inputs.heads,
            DV=constants["DV"],
            DVP=constants["DVP"],
            SPLITS=splits,
            num_warps=2,
        )
    if whole is not out:
        out.copy_(whole)


def shape_for(inputs: Inputs) -> Shape:
    """Return the tuned shape of a case."""
    if interpreted():
        return _INTERPRETED
    return SHAPES[max(64, padded(inputs.query.shape[2]), padded(inputs.value.shape[-1]))]


def splits_for(inputs: Inputs, pattern: Pattern, shape: Shape) -> int:
    """Return among how many programs the keys of a sequence are split: a power of two."""
    window, anchors, dense = window_of(pattern, inputs)
    seen = inputs.max_key if dense else min(inputs.max_key, window + anchors)
    wanted = _MULTIPROCESSORS * shape.programs // max(1, inputs.batch * inputs.kv_heads)
    splits = 1
    while splits * 2 <= wanted and seen // (splits * 2) >= _SMALLEST_SPLIT and splits < _MOST_SPLITS:
        splits *= 2
    return splits


def constants_for(inputs: Inputs, pattern: Pattern, shape: Shape, splits: int) -> dict[str, Any]:
    """Return the compile-time arguments of a case."""
    group = inputs.heads // inputs.kv_heads
    return {
        "GROUP": group,
        "ROWS": padded(group),
        "D": inputs.query.shape[2],
        "DV": inputs.value.shape[-1],
        "DP": padded(inputs.query.shape[2]),
        "DVP": padded(inputs.value.shape[-1]),
        "PAGE": inputs.key.shape[1],
        "N": shape.keys,
        "SPLITS": splits,
        "DENSE": window_of(pattern, inputs)[2],
        "SOFTCAP": pattern.softcap > 0,
        "LEARNED": inputs.learned > 0,
        "PRECISION": precision(inputs.query.dtype),
    }


def _arguments(
    inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, part_out: Tensor, part_lse: Tensor
) -> tuple[Any, ...]:
    learned_key = inputs.query if inputs.anchor_key is None else inputs.anchor_key
    learned_value = inputs.query if inputs.anchor_value is None else inputs.anchor_value
    window, anchors, _ = window_of(pattern, inputs)
    query, key, value, table = inputs.query, inputs.key, inputs.value, inputs.block_table
    if table is None:
        raise AttentionError("decode takes a paged cache")
    return (
        query,
        key,
        value,
        out,
        lse,
        part_out,
        part_lse,
        inputs.query_starts,
        inputs.key_lengths,
        table,
        learned_key,
        learned_value,
        query.stride(0),
        query.stride(1),
        *(key.stride(dimension) for dimension in range(3)),
        *(value.stride(dimension) for dimension in range(3)),
        table.stride(0),
        learned_key.stride(0),
        learned_key.stride(1),
        learned_value.stride(0),
        learned_value.stride(1),
        query.shape[0],
        inputs.heads,
        inputs.learned,
        window,
        anchors,
        *factors(pattern, query.shape[2]),
    )


def _refusal(problem: Problem) -> str:
    if not problem.page_size:
        return "takes a paged cache"
    if problem.max_query > 1:
        return "takes at most one query a sequence"
    return common_refusal(problem)


KERNELS = (
    Kernel(
        name="triton_decode",
        step=FORWARD,
        summary="fused decode over pages, keys split among programs and merged",
        refusal=_refusal,
        run=run,
    ),
)

_POINTERS = ("query", "key", "value", "out", "learned_key", "learned_value")
_FLOATS = ("lse", "part_out", "part_lse")
_INDICES = ("query_starts", "key_lengths", "block_table")
_STRIDES = (
    *(
        "query_row",
        "query_head",
        "key_page",
        "key_row",
        "key_head",
        "value_page",
        "value_row",
        "value_head",
        "table_row",
    ),
    *("learned_key_head", "learned_key_row", "learned_value_head", "learned_value_row"),
)
_NUMBERS = ("tokens", "heads", "learned", "window", "anchors")


def _compilations() -> tuple[Compilation, ...]:
    found: list[Compilation] = []
    for dtype, dim, splits, variant in (
        ("bf16", 64, 1, {}),
        ("bf16", 96, 4, {}),
        ("bf16", 128, 4, {}),
        ("fp16", 128, 1, {"SOFTCAP": True, "LEARNED": True, "DENSE": True}),
    ):
        shape, wide = SHAPES[padded(dim)], padded(dim)
        constants = {
            "GROUP": 4, "ROWS": 16, "D": dim, "DV": dim, "DP": wide, "DVP": wide, "PAGE": 16, "N": shape.keys,
            "SPLITS": splits, "DENSE": False, "SOFTCAP": False, "LEARNED": False, "PRECISION": "tf32", **variant,
        }  # fmt: skip
        types = {
            **dict.fromkeys(_POINTERS, f"*{dtype}"),
            **dict.fromkeys(_FLOATS, "*fp32"),
            **dict.fromkeys(_INDICES, "*i32"),
            **dict.fromkeys((*_STRIDES, *_NUMBERS), "i32"),
            **dict.fromkeys(("factor", "cap"), "fp32"),
        }
        found.append(
            Compilation(
                name=f"decode {dtype} {dim}",
                function=decode.decode,
                signature=types,
                constants=constants,
                num_warps=shape.warps,
                num_stages=shape.stages,
            )
        )
    merged = {
        "out": "*bf16",
        "lse": "*fp32",
        "part_out": "*fp32",
        "part_lse": "*fp32",
        "query_starts": "*i32",
        "tokens": "i32",
        "heads": "i32",
    }
    sizes = {"DV": 128, "DVP": 128, "SPLITS": 4}
    found.append(Compilation(name="merge", function=decode.merge, signature=merged, constants=sizes, num_warps=2))
    return tuple(found)


COMPILATIONS: tuple[Compilation, ...] = () if interpreted() else _compilations()
