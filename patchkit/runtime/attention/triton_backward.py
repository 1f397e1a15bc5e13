"""Launches the backward over packed sequences: kernels/backward.py, backward_anchor.py. It is always deterministic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .kernels import backward, backward_anchor
from .problem import BACKWARD, Gradients, Inputs, Pattern, Problem, Saved
from .registry import Compilation, Kernel
from .triton_launch import (
    MENDERS,
    Tile,
    ceil_div,
    common_refusal,
    factors,
    pack_of,
    padded,
    precision,
    tile_descriptor,
    tiles_bound,
    window_of,
)
from .triton_support import interpreted


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The tiles of grad_query and of grad_key and grad_anchor, and the queries of a chunk of grad_anchor."""

    query: Tile
    key: Tile
    pack: int = 4
    chunk: int = 1024


# Measured on an NVIDIA H200; by padded head dim.
SHAPES: dict[int, Shape] = {
    64: Shape(query=Tile(rows=64, keys=64, warps=4, stages=2), key=Tile(rows=64, keys=64, warps=4, stages=2)),
    128: Shape(query=Tile(rows=128, keys=64, warps=8, stages=3), key=Tile(rows=64, keys=64, warps=4, stages=2)),
}
_MENDING_WARPS = 8  # five sums of a tile are kept where there are two otherwise
_INTERPRETED = Shape(
    query=Tile(rows=32, keys=16, warps=4, stages=1), key=Tile(rows=32, keys=16, warps=4, stages=1), chunk=64
)


def run(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients, *, shape: Shape | None = None) -> None:
    """Write the gradients of packed keys, every element."""
    shape = shape or shape_for(inputs)
    delta = torch.empty_like(saved.lse)
    if inputs.query.shape[0]:
        _run_query(inputs, pattern, saved, gradients.query, delta, shape)
    if inputs.key.shape[0]:
        _run_key(inputs, pattern, saved, gradients, delta, shape)
        if window_of(pattern, inputs)[1]:
            _run_anchor(inputs, pattern, saved, delta, shape, (gradients.key, gradients.value))
    if inputs.learned and gradients.anchor_key is not None and gradients.anchor_value is not None:
        key, value = (gradients.anchor_key.transpose(0, 1), gradients.anchor_value.transpose(0, 1))
        _run_anchor(inputs, pattern, saved, delta, shape, (key, value), learned=True)


def shape_for(inputs: Inputs) -> Shape:
    """Return the tuned shape of a case."""
    if interpreted():
        return _INTERPRETED
    return SHAPES[max(64, padded(inputs.query.shape[2]), padded(inputs.value.shape[2]))]


def constants_for(inputs: Inputs, pattern: Pattern, tile: Tile, shape: Shape) -> dict[str, Any]:
    """Return the compile-time arguments that all kernels of a case take."""
    group = inputs.heads // inputs.kv_heads
    pack = pack_of(group, shape.pack)
    return {
        "GROUP": group,
        "PACK": pack,
        "D": inputs.query.shape[2],
        "DV": inputs.value.shape[2],
        "DP": padded(inputs.query.shape[2]),
        "DVP": padded(inputs.value.shape[2]),
        "BLOCK_Q": tile.rows // pack,
        "N": tile.keys,
        "CAUSAL": pattern.causal,
        "SOFTCAP": pattern.softcap > 0,
        "PRECISION": precision(inputs.query.dtype),
    }


def _run_query(inputs: Inputs, pattern: Pattern, saved: Saved, gradient: Tensor, delta: Tensor, shape: Shape) -> None:
    tile = shape.query
    constants = constants_for(inputs, pattern, tile, shape)
    window, anchors, dense = window_of(pattern, inputs)
    query = inputs.query
    packs = inputs.heads // constants["PACK"]
    tiles = tiles_bound(query.shape[0], inputs.batch, constants["BLOCK_Q"])
    learned_key = query if inputs.anchor_key is None else inputs.anchor_key
    learned_value = query if inputs.anchor_value is None else inputs.anchor_value
    arguments = (
        query,
        tile_descriptor(inputs.key, tile.keys, constants["DP"]),
        tile_descriptor(inputs.value, tile.keys, constants["DVP"]),
        saved.out,
        saved.lse,
        saved.grad_out,
        saved.lse if saved.grad_lse is None else saved.grad_lse,
        delta,
        gradient,
        inputs.query_starts,
        inputs.key_starts,
        learned_key,
        learned_value,
        *_odd((tiles, packs), query.device),
        *_rows(query, saved.out, saved.grad_out, gradient),
        *learned_key.stride()[:2],
        *learned_value.stride()[:2],
        query.shape[0],
        inputs.batch,
        inputs.heads,
        inputs.learned,
        window,
        anchors,
        *factors(pattern, query.shape[2]),
        pattern.scale_for(query.shape[2]),
    )
    constants |= {
        "FIRST_N": max(16, min(tile.keys, padded(max(inputs.learned, 1)))),
        "DENSE": dense,
        "LEARNED": inputs.learned > 0,
        "GRAD_LSE": saved.grad_lse is not None,
    }
    backward.grad_query[(tiles, packs)](*arguments, **constants, MEND=False, **tile.launch)
    backward.grad_query[(MENDERS,)](*arguments, **constants, MEND=True, num_warps=_MENDING_WARPS, num_stages=1)


def _run_key(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients, delta: Tensor, shape: Shape) -> None:
    tile = shape.key
    window, anchors, dense = window_of(pattern, inputs)
    query, key, value = inputs.query, inputs.key, inputs.value
    grid = (tiles_bound(key.shape[0], inputs.batch, tile.keys), inputs.kv_heads)
    arguments = (
        *(query, key, value, saved.lse, saved.grad_out, delta, gradients.key, gradients.value),
        inputs.query_starts,
        inputs.key_starts,
        *_odd(grid, query.device),
        *_rows(query, key, value, saved.grad_out, gradients.key, gradients.value),
        query.shape[0],
        inputs.batch,
        inputs.kv_heads,
        window,
        anchors,
        *factors(pattern, query.shape[2]),
        pattern.scale_for(query.shape[2]),
    )
    constants = {**constants_for(inputs, pattern, tile, shape), "DENSE": dense}
    backward.grad_key[grid](*arguments, **constants, MEND=False, **tile.launch)
    backward.grad_key[(MENDERS,)](*arguments, **constants, MEND=True, num_warps=_MENDING_WARPS, num_stages=1)


def _run_anchor(
    inputs: Inputs,
    pattern: Pattern,
    saved: Saved,
    delta: Tensor,
    shape: Shape,
    gradients: tuple[Tensor, Tensor],
    *,
    learned: bool = False,
) -> None:
    """Write the gradients [rows, Hkv, D] of the anchors of every sequence, or of the learned ones."""
    query, (key, value), (gradient_key, gradient_value) = inputs.query, (inputs.key, inputs.value), gradients
    anchors = inputs.learned if learned else window_of(pattern, inputs)[1]
    if learned and inputs.anchor_key is not None and inputs.anchor_value is not None:
        key, value = inputs.anchor_key.transpose(0, 1), inputs.anchor_value.transpose(0, 1)
    constants = constants_for(inputs, pattern, shape.key, shape)
    wide = {name: constants[name] for name in ("D", "DV", "DP", "DVP")}
    keys = max(16, min(shape.key.keys, padded(anchors)))
    places = ceil_div(anchors, keys) * keys
    chunks = tiles_bound(query.shape[0], inputs.batch, shape.chunk)
    states = chunks * inputs.kv_heads * places
    part_key = torch.empty(states * wide["DP"], dtype=torch.float32, device=query.device)
    part_value = torch.empty(states * wide["DVP"], dtype=torch.float32, device=query.device)
    constants |= {"N": keys, "CHUNK": shape.chunk, "LEARNED": learned}
    starts = (inputs.query_starts, inputs.key_starts)
    grid = (chunks, inputs.kv_heads, places // keys)
    arguments = (
        *(query, key, value, saved.lse, saved.grad_out, delta, part_key, part_value),
        *starts,
        *_odd(grid, query.device),
        *_rows(query, key, value, saved.grad_out),
        *(query.shape[0], inputs.batch, inputs.kv_heads, anchors),
        *(*factors(pattern, query.shape[2]), places),
    )
    backward_anchor.grad_anchor[grid](*arguments, **constants, MEND=False, num_warps=4, num_stages=shape.key.stages)
    if not learned:
        backward_anchor.grad_anchor[(MENDERS,)](
            *arguments, **constants, MEND=True, num_warps=_MENDING_WARPS, num_stages=1
        )
    backward_anchor.sum_anchor[(1 if learned else inputs.batch, inputs.kv_heads, places // keys)](
        *(part_key, part_value, gradient_key, gradient_value),
        *starts,
        *_rows(gradient_key, gradient_value),
        *(inputs.batch, inputs.kv_heads, anchors, places, pattern.scale_for(query.shape[2])),
        **wide,
        N=keys,
        CHUNK=shape.chunk,
        LEARNED=learned,
    )


def _odd(grid: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the number of tiles of a grid that must be mended, 0, and room to list them."""
    odd = torch.zeros(1 + math.prod(grid), dtype=torch.int32, device=device)
    return odd, odd[1:]


def _rows(*tensors: Tensor) -> list[int]:
    """Return the strides of rows and heads of [T, H, D] tensors."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _refusal(problem: Problem) -> str:
    if problem.page_size:
        return "a paged cache has no gradient"
    return common_refusal(problem)


KERNELS = (
    Kernel(
        name="triton_backward",
        step=BACKWARD,
        summary="fused backward over packed sequences, deterministic, anchors split over queries",
        refusal=_refusal,
        run=run,
    ),
)

_INDICES = ("query_starts", "key_starts", "odd_count", "odd_tiles")
_FLOATS = ("lse", "grad_lse", "delta", "part_key", "part_value")
_SCALARS = ("factor", "cap", "scale")


def _compilations() -> tuple[Compilation, ...]:
    found: list[Compilation] = []
    for dtype, dim, dense, variant in (
        ("bf16", 64, False, {}),
        ("bf16", 64, False, {"CAUSAL": False}),
        ("bf16", 96, False, {}),
        ("bf16", 128, False, {}),
        ("fp16", 128, True, {"SOFTCAP": True, "LEARNED": True, "GRAD_LSE": True}),
    ):
        wide = padded(dim)
        shape = SHAPES[wide]
        constants = {
            "GROUP": 4, "PACK": 4, "D": dim, "DV": dim, "DP": wide, "DVP": wide, "FIRST_N": 32, "CHUNK": shape.chunk,
            "CAUSAL": True, "DENSE": dense, "SOFTCAP": False, "LEARNED": False, "GRAD_LSE": False, "PRECISION": "tf32",
            **variant,
        }  # fmt: skip
        for function, tile, more in (
            (backward.grad_query, shape.query, {"MEND": False}),
            (backward.grad_query, shape.query, {"MEND": True}),
            (backward.grad_key, shape.key, {"MEND": False}),
            (backward.grad_key, shape.key, {"MEND": True}),
            (backward_anchor.grad_anchor, shape.key, {"N": 32, "MEND": False}),
            (backward_anchor.grad_anchor, shape.key, {"N": 32, "MEND": True}),
            (backward_anchor.sum_anchor, shape.key, {"N": 32}),
        ):
            given = {**constants, "BLOCK_Q": tile.rows // 4, "N": tile.keys, **more}
            found.append(_compilation(function, dtype, tile, given))
    return tuple(found)


def _compilation(function: Any, dtype: str, tile: Tile, given: dict[str, Any]) -> Compilation:
    described = function is backward.grad_query
    types = {}
    for name in function.arg_names:
        if name in given:
            continue
        if name in ("key", "value") and described:
            width = given["DP"] if name == "key" else given["DVP"]
            types[name] = f"tensordesc<{dtype}[1,{given['N']},{width}]>"
        elif name in (*_INDICES, *_FLOATS):
            types[name] = "*i32" if name in _INDICES else "*fp32"
        elif name in _POINTERS:
            types[name] = f"*{dtype}"
        else:
            types[name] = "fp32" if name in _SCALARS else "i32"
    return Compilation(
        name=f"{function.__name__} {dtype} {given['D']}{'' if given.get('CAUSAL', True) else ' both-sided'}"
        f"{' mend' if given.get('MEND') else ''}",
        function=function,
        signature=types,
        constants={name: value for name, value in given.items() if name in function.arg_names},
        num_warps=_MENDING_WARPS if given.get("MEND") else tile.warps,
        num_stages=1 if given.get("MEND") else tile.stages,
    )


_POINTERS = (
    *("query", "key", "value", "out", "grad_out", "gradient", "gradient_key", "gradient_value"),
    *("learned_key", "learned_value"),
)
COMPILATIONS: tuple[Compilation, ...] = () if interpreted() else _compilations()
