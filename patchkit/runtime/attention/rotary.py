"""Rotary position embedding with an offset, turning a cached key further, and the scale of query-key products.

A pair (a, b) of a head's dimensions at position p is turned by the angle p * base ** (-2 i / rotary_dim):
(a cos - b sin, b cos + a sin). A score depends on the difference of two positions only, so that the same offset for
query and key changes nothing but rounding: float32 angles near position 32768 are off by up to 2**-10, float64 ones are
not. Formulas: Su et al., RoFormer (arXiv 2104.09864). Pairs are (i, i + rotary_dim / 2), or neighbours where
`interleaved`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .problem import AttentionError

BASE = 10000.0
_NO_POSITIONS = (torch.bool, torch.float16, torch.bfloat16)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotary:
    """How a model turns its heads: `dim` leading dimensions of a head turn, the others stay.

    `angle_dtype`: what positions are multiplied in. float32 is what engines do; float64 keeps scores exact far out.
    `table_dtype`: what cosines and sines are rounded to.
    """

    dim: int
    base: float = BASE
    interleaved: bool = False
    angle_dtype: torch.dtype = torch.float32
    table_dtype: torch.dtype = torch.float32

    def tables(self, positions: Tensor, *, offset: int | Tensor = 0) -> tuple[Tensor, Tensor]:
        """Return cos and sin [..., dim / 2] of positions [...] int, each moved by the offset (a number, or one each).

        Raises AttentionError for what is no rotation, and for positions of a dtype that does not hold them.
        """
        _check_rotary(self)
        if positions.dtype in _NO_POSITIONS:
            raise AttentionError(f"positions are {positions.dtype}, which cannot count tokens; expected integers")
        if isinstance(offset, Tensor) and offset.shape not in ((), positions.shape):
            shapes = f"of the shape {list(offset.shape)} for positions of {list(positions.shape)}"
            raise AttentionError(f"an offset {shapes}: one number, or one for each position")
        if not positions.is_floating_point():
            positions = positions.long()  # 8 or 16 bits may not hold the sum
        steps = torch.arange(0, self.dim, 2, dtype=self.angle_dtype, device=positions.device)
        frequencies = self.base ** (-steps / self.dim)
        angles = (positions + offset)[..., None].to(self.angle_dtype) * frequencies
        return angles.cos().to(self.table_dtype), angles.sin().to(self.table_dtype)


def _check_rotary(rotary: Rotary) -> None:
    if rotary.dim % 2 or rotary.dim < 0:
        raise AttentionError(f"rotary turns pairs of dimensions, not {rotary.dim}")
    if not rotary.base > 0:
        raise AttentionError(f"rotary has a base of {rotary.base}: a positive number")
    for name in ("angle_dtype", "table_dtype"):
        if not getattr(rotary, name).is_floating_point:
            raise AttentionError(f"{name} is {getattr(rotary, name)}: a floating-point dtype")


def apply_rotary(heads: Tensor, positions: Tensor, rotary: Rotary, *, offset: int | Tensor = 0) -> Tensor:
    """Return heads [T, H, D], turned to positions [T] + offset, in their dtype. Raises AttentionError."""
    _check_heads("heads", heads)
    width = heads.shape[-1]
    if rotary.dim > width:
        raise AttentionError(f"rotary turns {rotary.dim} dimensions, a head has {width}")
    if positions.shape != heads.shape[:1]:
        raise AttentionError(f"positions of the shape {list(positions.shape)} for heads of {list(heads.shape)}")
    cos, sin = (table.unsqueeze(-2) for table in rotary.tables(positions, offset=offset))
    wide = torch.promote_types(torch.float32, torch.promote_types(heads.dtype, rotary.table_dtype))
    turning = heads[..., : rotary.dim].to(wide)
    if rotary.interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning.chunk(2, dim=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(turned, dim=-1).flatten(-2) if rotary.interleaved else torch.cat(turned, dim=-1)
    return torch.cat([joined.to(heads.dtype), heads[..., rotary.dim :]], dim=-1)


def rerotate(keys: Tensor, delta: int | Tensor, rotary: Rotary) -> Tensor:
    """Return keys [T, Hkv, D] that are turned already, moved by `delta` positions (an int, or int [T]).

    Equal to turning the bare keys to position + delta, but for rounding: a cached prefix moves without being made anew.
    """
    return apply_rotary(keys, torch.zeros(keys.shape[0], dtype=torch.int64, device=keys.device), rotary, offset=delta)


def scale_queries(query: Tensor, factor: float | Tensor) -> Tensor:
    """Return query [T, H, D] times a factor (a number, or one per head [H]): scores are scaled by it before a soft cap.

    The same as a softmax scale times the factor, but per head, and under kernels whose scale is one number. Raises
    AttentionError.
    """
    _check_heads("query", query)
    if isinstance(factor, Tensor):
        if factor.shape != (query.shape[1],):
            raise AttentionError(f"a factor per head has the shape [{query.shape[1]}], not {list(factor.shape)}")
        factor = factor[:, None]
    return (query.to(torch.promote_types(torch.float32, query.dtype)) * factor).to(query.dtype)


def _check_heads(name: str, heads: Tensor) -> None:
    if heads.dim() != 3 or not heads.is_floating_point():  # noqa: PLR2004
        raise AttentionError(f"{name} {list(heads.shape)} of {heads.dtype}: expected floats [tokens, heads, head dim]")
