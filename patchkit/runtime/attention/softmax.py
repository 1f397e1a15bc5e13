"""Softmax over the last dimension that survives large logits and fully masked rows, with its own backward.

s_i = exp(x_i - max x) / sum_j exp(x_j - max x), computed in float32 (float64 for float64);
dL/dx_i = s_i (g_i - sum_j g_j s_j). A row of which nothing is kept has s = 0 and no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .problem import AttentionError


def stable_softmax(logits: Tensor, keep: Tensor | None = None) -> Tensor:
    """Return the softmax of logits [..., n] in their dtype; `keep` bool, broadcast to them, masks where it is false.

    A logit of -inf is masked too. What is masked has no influence, whatever it holds; a NaN that is kept reaches its
    row. Raises AttentionError for logits that are no row of floating-point numbers, or a `keep` that does not fit them.
    """
    if not logits.dim() or not logits.is_floating_point():
        raise AttentionError(f"logits {list(logits.shape)} of {logits.dtype}: rows of floating-point numbers")
    if keep is not None and keep.dtype != torch.bool:
        raise AttentionError(f"keep is {keep.dtype}, expected torch.bool")
    if keep is not None and not _fits(keep.shape, logits.shape):
        raise AttentionError(f"keep {list(keep.shape)} cannot be broadcast to logits {list(logits.shape)}")
    result: Tensor = _StableSoftmax.apply(logits, keep)
    return result


def _fits(shape: torch.Size, whole: torch.Size) -> bool:
    ends = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(one in (1, other) for one, other in ends)


class _StableSoftmax(torch.autograd.Function):  # type: ignore[misc]  # torch is seen as Any
    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, keep: Tensor | None) -> Tensor:
        wide = _widened(logits)
        if keep is not None:
            wide = wide.masked_fill(~keep, -torch.inf)
        if not wide.shape[-1]:
            shares = wide.clone()
        else:
            largest = wide.amax(-1, keepdim=True)
            shares = torch.exp(wide - largest.masked_fill(largest == -torch.inf, 0.0))
            total = shares.sum(-1, keepdim=True)
            shares = shares / total.masked_fill(total == 0, 1.0)
        return shares.to(logits.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: Tensor) -> None:  # noqa: ARG004 -- torch's
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (result,) = ctx.saved_tensors
        shares = _widened(result)
        # Where the share is 0 nothing flows, even if the gradient that comes in is not a number.
        pulled = (shares * _widened(grad)).masked_fill(shares == 0, 0.0)
        return (pulled - shares * pulled.sum(-1, keepdim=True)).to(grad.dtype), None


def _widened(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
