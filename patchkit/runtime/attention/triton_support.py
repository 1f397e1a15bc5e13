"""Where Triton kernels run: on CUDA from Ampere on, and in Triton's interpreter on a CPU with TRITON_INTERPRET=1."""

from __future__ import annotations

import os

import torch

from .problem import Problem

_LEAST_CAPABILITY = (8, 0)
_HALVES = (torch.float16, torch.bfloat16)


def interpreted() -> bool:
    """True where Triton interprets its kernels; Triton looks at the variable when a kernel is decorated."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def refusal_here(problem: Problem) -> str:
    """Return why no Triton kernel can run the problem on its device, "" where one may.

    The interpreter gets bfloat16 dot products wrong by orders of magnitude, and knows only dimensions that are powers
    of two.
    """
    if problem.device == "cuda":
        if problem.dtype not in _HALVES:
            return f"{str(problem.dtype).removeprefix('torch.')}: the Triton kernels are for float16 and bfloat16"
        return "" if torch.cuda.get_device_capability() >= _LEAST_CAPABILITY else "the GPU is older than Ampere"
    if not interpreted():
        return f"the device is {problem.device}; Triton needs CUDA, or its interpreter (TRITON_INTERPRET=1)"
    if problem.dtype not in (torch.float16, torch.float32):
        return "Triton's interpreter is right for float16 and float32 only"
    for dim in (problem.head_dim, problem.value_dim):
        if dim & (dim - 1):
            return f"Triton's interpreter is used with powers of two only, not with a head dim of {dim}"
    return ""
