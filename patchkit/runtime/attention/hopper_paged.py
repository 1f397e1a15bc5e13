"""Several queries a sequence over a paged cache by the CUDA kernel for Hopper: native/attention/prefill.cu."""

from __future__ import annotations

from torch import Tensor

from . import hopper, triton_paged
from .problem import FORWARD, Inputs, Pattern, Problem
from .registry import Kernel
from .triton_launch import is_aligned

_ROWS = 8  # of a page, which are copied at once; LEAST_UNIT in work.cuh


def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    """Write out [Tq, H, D] and lse [H, Tq] over pages.

    A cache that does not begin and step in units of 16 bytes, or has no page, is left to `triton_paged`: it cannot be
    copied.
    """
    key, value = inputs.key, inputs.value
    readable = key.shape[0] > 0 and is_aligned(key) and is_aligned(value)
    (hopper if readable else triton_paged).run(inputs, pattern, out, lse)


def _refusal(problem: Problem) -> str:
    if reason := hopper.refusal(problem):
        return reason
    if not problem.page_size or problem.page_size % _ROWS:
        return f"takes a paged cache, in pages of a multiple of {_ROWS} tokens"
    return ""


KERNELS = (
    Kernel(
        name="hopper_paged",
        step=FORWARD,
        summary="CUDA for Hopper over pages, any number of queries a sequence",
        refusal=_refusal,
        run=run,
    ),
)
