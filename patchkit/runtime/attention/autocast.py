"""Autocast, which knows only operators of PyTorch: what it would cast of a call, and products that it must leave."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_DEVICES = ("cpu", "cuda")
_CASTABLE = (torch.float16, torch.bfloat16, torch.float32)  # float64 is left alone


def autocast_dtype(device: str) -> torch.dtype | None:
    """Return what autocast casts to on a device ("cpu", "cuda"), None where it is off."""
    if device not in _DEVICES or not torch.is_autocast_enabled(device):
        return None
    dtype: torch.dtype = torch.get_autocast_dtype(device)
    return dtype


def autocasted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor as autocast hands it to a product."""
    return tensor.to(dtype) if tensor.dtype in _CASTABLE else tensor


def as_written(device: str) -> AbstractContextManager[object]:
    """Return a context in which float32 products stay float32: autocast would cast what an operator does inside too."""
    return nullcontext() if autocast_dtype(device) is None else torch.autocast(device, enabled=False)
