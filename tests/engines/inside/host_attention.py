"""Compares the host library with PyTorch: `host_attention.py LIBRARY`; writes the largest difference of each case."""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import dataclass

import torch

SCALE = 0.125


@dataclass(frozen=True)
class Case:
    """The sizes of one call; `sizes` in the order of struct patchkit_attention."""

    sizes: tuple[int, int, int, int, int, int]
    causal: bool = True
    window: int = 0


CASES = (
    Case(sizes=(2, 9, 9, 4, 4, 64)),
    Case(sizes=(3, 1, 130, 8, 2, 128)),
    Case(sizes=(1, 33, 65, 6, 1, 80), causal=False),
    Case(sizes=(2, 40, 40, 2, 2, 32), window=7),
)


class Call(ctypes.Structure):
    """struct patchkit_attention."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("size", "version")),
        *((name, ctypes.c_void_p) for name in "qkvo"),
        *((f"{name}_stride", ctypes.c_int64 * 3) for name in "qkvo"),
        ("kv_lens", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")),
        ("scale", ctypes.c_float),
        ("window", ctypes.c_int32),
        ("causal", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
    )


def difference(library: ctypes.CDLL, case: Case) -> float:
    batch, q_len, kv_len, heads, kv_heads, head_dim = case.sizes
    q = torch.randn(batch, q_len, heads, head_dim)
    k, v = (torch.randn(batch, kv_len, kv_heads, head_dim) for _ in range(2))
    o = torch.full_like(q, float("nan"))
    lengths = torch.randint(kv_len // 2 + q_len // 2, kv_len + 1, (batch,), dtype=torch.int32)
    pointers = [tensor.data_ptr() for tensor in (q, k, v, o)]
    strides = [(ctypes.c_int64 * 3)(*tensor.stride()[:3]) for tensor in (q, k, v, o)]
    told = (*pointers, *strides, lengths.data_ptr(), *case.sizes, SCALE, case.window, int(case.causal), 0)
    assert library.patchkit_attention_run(ctypes.byref(Call(ctypes.sizeof(Call), 1, *told))) == 0
    return float((o.double() - reference(q, k, v, lengths, case)).abs().max())


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, case: Case) -> torch.Tensor:
    """Return PyTorch's own attention in double, with the mask written out; [batch, q_len, heads, head_dim]."""
    group = q.shape[2] // k.shape[2]
    many = (tensor.double().repeat_interleave(group, dim=2).transpose(1, 2) for tensor in (k, v))
    position = lengths[:, None] - q.shape[1] + torch.arange(q.shape[1])  # [batch, q_len]
    key = torch.arange(k.shape[1])
    seen = (key < lengths[:, None, None]).expand(-1, q.shape[1], -1).clone()  # [batch, q_len, kv_len]
    if case.causal:
        seen &= key <= position[:, :, None]
    if case.window:
        seen &= key > position[:, :, None] - case.window
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q.double().transpose(1, 2), *many, attn_mask=seen[:, None], scale=SCALE).transpose(1, 2)


if __name__ == "__main__":
    loaded = ctypes.CDLL(sys.argv[1])
    torch.manual_seed(0)
    sys.stdout.write(json.dumps([difference(loaded, case) for case in CASES]))
