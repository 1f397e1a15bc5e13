"""Launches the forward over packed sequences: kernels/prefill.py. Over pages it is launched for triton_paged.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .kernels import prefill
from .problem import FORWARD, Inputs, Pattern, Problem
from .registry import Compilation, Kernel
from .triton_launch import (
    MENDERS,
    Tile,
    common_refusal,
    computed_pairs,
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
    """How a tile is cut, and how many heads it packs at most."""

    tile: Tile
    pack: int = 8


# Measured on an NVIDIA H200; by padded head dim, and whether the pattern is dense.
SHAPES: dict[tuple[int, bool], Shape] = {
    (64, False): Shape(tile=Tile(rows=64, keys=64, warps=4, stages=2)),
    (128, False): Shape(tile=Tile(rows=128, keys=32, warps=4, stages=3)),
    (64, True): Shape(tile=Tile(rows=64, keys=128, warps=4, stages=2, registers=168)),
    (128, True): Shape(tile=Tile(rows=128, keys=64, warps=8, stages=3)),
}
_INTERPRETED = Shape(tile=Tile(rows=32, keys=16, warps=4, stages=1))


def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, *, shape: Shape | None = None) -> None:
    """Write out [Tq, H, Dv] and lse [H, Tq], for packed keys without `shape`."""
    tokens, heads = inputs.query.shape[:2]
    if tokens == 0:
        return
    shape = shape or shape_for(inputs, pattern)
    constants = constants_for(inputs, pattern, shape)
    tiles = tiles_bound(tokens, inputs.batch, constants["BLOCK_Q"])
    packs = heads // constants["PACK"]
    odd = torch.zeros(1 + tiles * packs, dtype=torch.int32, device=inputs.query.device)
    whole = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    arguments = _arguments(inputs, pattern, whole, lse, odd, constants)
    prefill.forward[(tiles, packs)](*arguments, **constants, **shape.tile.launch)
    prefill.mend[(MENDERS,)](*arguments, **constants, num_warps=shape.tile.warps, num_stages=1)
    if whole is not out:
        out.copy_(whole)


def mend(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, odd: Tensor, *, rows: int, pack: int) -> None:
    """Compute the tiles again that another kernel with such tiles listed: odd[0] of them, tile * packs + pack.

    It starts while the last blocks of that kernel are at work, where Triton can say so; that kernel is the one before
    in the stream.
    """
    shape = Shape(tile=_mender(rows), pack=pack)
    constants = constants_for(inputs, pattern, shape)
    arguments = _arguments(inputs, pattern, out, lse, odd, constants)
    early = {"EARLY": True, "launch_pdl": True} if prefill.CAN_START_EARLY else {}
    prefill.mend[(MENDERS,)](*arguments, **constants, **early, **shape.tile.launch)


def _mender(rows: int) -> Tile:
    return Tile(rows=rows, keys=32, warps=8, stages=1)


def shape_for(inputs: Inputs, pattern: Pattern) -> Shape:
    """Return the tuned shape of a case."""
    if interpreted():
        return _INTERPRETED
    width = max(padded(inputs.query.shape[2]), padded(inputs.value.shape[2]), 64)
    return SHAPES[width, window_of(pattern, inputs)[2]]


def constants_for(inputs: Inputs, pattern: Pattern, shape: Shape) -> dict[str, Any]:
    """Return the compile-time arguments of a case."""
    group = inputs.heads // inputs.kv_heads
    pack = pack_of(group, shape.pack)
    return {
        "GROUP": group,
        "PACK": pack,
        "D": inputs.query.shape[2],
        "DV": inputs.value.shape[-1],
        "DP": padded(inputs.query.shape[2]),
        "DVP": padded(inputs.value.shape[-1]),
        "BLOCK_Q": shape.tile.rows // pack,
        "N": shape.tile.keys,
        "FIRST_N": max(16, min(shape.tile.keys, padded(max(inputs.learned, 1)))),
        "PAGE": inputs.key.shape[1] if inputs.paged else 0,
        "CAUSAL": pattern.causal,
        "DENSE": window_of(pattern, inputs)[2],
        "SOFTCAP": pattern.softcap > 0,
        "LEARNED": inputs.learned > 0,
        "PRECISION": precision(inputs.query.dtype),
    }


def _arguments(
    inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, odd: Tensor, constants: dict[str, Any]
) -> tuple[Any, ...]:
    learned_key = inputs.query if inputs.anchor_key is None else inputs.anchor_key
    learned_value = inputs.query if inputs.anchor_value is None else inputs.anchor_value
    window, anchors, _ = window_of(pattern, inputs)
    query, table = inputs.query, inputs.block_table
    key: Any = inputs.key
    value: Any = inputs.value
    strides = (0,) * 7
    if table is None:
        key = tile_descriptor(key, constants["N"], constants["DP"])
        value = tile_descriptor(value, constants["N"], constants["DVP"])
    else:
        strides = (*key.stride()[:3], *value.stride()[:3], table.stride(0))
    return (
        query,
        key,
        value,
        out,
        lse,
        inputs.query_starts,
        inputs.key_starts if table is None else inputs.key_lengths,
        inputs.query_starts if table is None else table,
        learned_key,
        learned_value,
        odd,
        odd[1:],
        *query.stride()[:2],
        *strides,
        *learned_key.stride()[:2],
        *learned_value.stride()[:2],
        query.shape[0],
        inputs.batch,
        inputs.heads,
        inputs.learned,
        window,
        anchors,
        *factors(pattern, query.shape[2]),
    )


def _refusal(problem: Problem) -> str:
    if problem.page_size:
        return "takes packed keys, not pages"
    return common_refusal(problem)


def _computed(problem: Problem) -> int:
    shape = SHAPES[max(padded(problem.head_dim), padded(problem.value_dim), 64), problem.dense]
    pack = pack_of(problem.heads // problem.kv_heads, shape.pack)
    return computed_pairs(problem, queries=shape.tile.rows // pack, keys=shape.tile.keys)


KERNELS = (
    Kernel(
        name="triton_prefill",
        step=FORWARD,
        summary="fused forward over packed sequences, window and anchors or dense",
        refusal=_refusal,
        run=run,
        computed=_computed,
    ),
)


def signature(dtype: str, constants: dict[str, Any]) -> dict[str, str]:
    """Return the types of the arguments of both kernels that are not constexpr."""
    pointers = ("query", "key", "value", "out", "learned_key", "learned_value")
    described = (
        {}
        if constants["PAGE"]
        else {
            name: f"tensordesc<{dtype}[1,{constants['N']},{constants[width]}]>"
            for name, width in (("key", "DP"), ("value", "DVP"))
        }
    )
    return {
        **dict.fromkeys(pointers, f"*{dtype}"),
        **described,
        "lse": "*fp32",
        **dict.fromkeys(("query_starts", "key_starts", "block_table", "odd_count", "odd_tiles"), "*i32"),
        **dict.fromkeys(_NUMBERS, "i32"),
        "factor": "fp32",
        "cap": "fp32",
    }


_NUMBERS = (
    "query_row",
    "query_head",
    *("key_page", "key_row", "key_head", "value_page", "value_row", "value_head", "table_row"),
    *("learned_key_head", "learned_key_row", "learned_value_head", "learned_value_row"),
    *("tokens", "batch", "heads", "learned", "window", "anchors"),
)


def compilations(dtype: str, dim: int, tile: Tile, variant: dict[str, Any]) -> Iterator[Compilation]:
    """Yield what CI compiles of both kernels for a head dim; `variant` names constants that are other ones."""
    wide = padded(dim)
    constants = {
        "GROUP": 4, "PACK": 4, "D": dim, "DV": dim, "DP": wide, "DVP": wide, "BLOCK_Q": tile.rows // 4, "N": tile.keys,
        "FIRST_N": 32, "PAGE": 0, "CAUSAL": True, "DENSE": False, "SOFTCAP": False, "LEARNED": False,
        "PRECISION": "tf32", **variant,
    }  # fmt: skip
    traits = {"dense": constants["DENSE"], "both-sided": not constants["CAUSAL"], "pages": constants["PAGE"] > 0}
    words = "".join(f" {trait}" for trait, there in traits.items() if there)
    for function in (prefill.forward, prefill.mend):
        yield Compilation(
            name=f"{function.__name__} {dtype} {dim}{words}",
            function=function,
            signature=signature(dtype, constants),
            constants=constants,
            num_warps=tile.warps,
            num_stages=tile.stages if function is prefill.forward else 1,
            registers=tile.registers if function is prefill.forward else None,
        )


def _compilations() -> tuple[Compilation, ...]:
    cases: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("bf16", 64, {}),
        ("bf16", 96, {}),
        ("bf16", 128, {}),
        ("fp16", 128, {"SOFTCAP": True, "LEARNED": True}),
        ("bf16", 64, {"CAUSAL": False}),
        ("bf16", 64, {"DENSE": True}),
        ("bf16", 128, {"DENSE": True, "CAUSAL": False}),
    )
    return tuple(
        one
        for dtype, dim, variant in cases
        for one in compilations(dtype, dim, SHAPES[padded(dim), "DENSE" in variant].tile, variant)
    )


def _early_menders() -> Iterator[Compilation]:
    """Yield what hopper_prefill and hopper_paged launch of it."""
    for dim, page in ((64, 0), (128, 0), (64, 16), (128, 16)):
        for one in compilations("bf16", dim, _mender(64), {"PAGE": page}):
            if one.function is not prefill.mend:
                continue
            yield replace(one, name=f"{one.name} early", constants={**one.constants, "EARLY": True})


COMPILATIONS: tuple[Compilation, ...] = () if interpreted() else (*_compilations(), *_early_menders())
