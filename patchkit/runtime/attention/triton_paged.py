"""Several queries a sequence over a paged cache, as in chunked prefill and speculative decoding: kernels/prefill.py."""

from __future__ import annotations

from torch import Tensor

from . import triton_prefill
from .problem import FORWARD, Inputs, Pattern, Problem
from .registry import Compilation, Kernel
from .triton_launch import Tile, common_refusal, pack_of, padded
from .triton_prefill import Shape
from .triton_support import interpreted

_PACK = 8
# Measured on an NVIDIA H200; by padded head dim, and the most rows of a sequence (queries times packed heads).
TILES: dict[int, tuple[tuple[int, Tile], ...]] = {
    64: (
        (16, Tile(rows=16, keys=64, warps=2, stages=3)),
        (1 << 30, Tile(rows=128, keys=64, warps=8, stages=3)),
    ),
    128: (
        (16, Tile(rows=16, keys=64, warps=2, stages=3)),
        (32, Tile(rows=32, keys=64, warps=2, stages=3)),
        (64, Tile(rows=64, keys=64, warps=4, stages=3)),
        (1 << 30, Tile(rows=128, keys=32, warps=4, stages=4)),
    ),
}
_INTERPRETED = Tile(rows=32, keys=16, warps=4, stages=1)


def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor, *, tile: Tile | None = None) -> None:
    """Write out [Tq, H, Dv] and lse [H, Tq] over pages."""
    triton_prefill.run(inputs, pattern, out, lse, shape=Shape(tile=tile or tile_for(inputs), pack=_PACK))


def tile_for(inputs: Inputs) -> Tile:
    """Return the tuned tile of a case: a small one where a sequence has few queries."""
    if interpreted():
        return _INTERPRETED
    rows = inputs.max_query * pack_of(inputs.heads // inputs.kv_heads, _PACK)
    tiles = TILES[max(64, padded(inputs.query.shape[2]), padded(inputs.value.shape[-1]))]
    return next(tile for most, tile in tiles if rows <= most)


def _refusal(problem: Problem) -> str:
    if not problem.page_size:
        return "takes a paged cache"
    return common_refusal(problem)


KERNELS = (
    Kernel(
        name="triton_paged",
        step=FORWARD,
        summary="fused forward over pages, any number of queries a sequence",
        refusal=_refusal,
        run=run,
    ),
)


def _compilations() -> tuple[Compilation, ...]:
    return tuple(
        one
        for dtype, dim, variant in (
            ("bf16", 64, {}),
            ("bf16", 64, {"CAUSAL": False}),
            ("bf16", 96, {}),
            ("fp16", 128, {"DENSE": True, "SOFTCAP": True, "LEARNED": True}),
            ("bf16", 128, {}),
        )
        for _, tile in TILES[padded(dim)]
        for one in triton_prefill.compilations(dtype, dim, tile, {"PAGE": 16, **variant})
    )


COMPILATIONS: tuple[Compilation, ...] = () if interpreted() else _compilations()
