"""What the launchers of the Triton kernels share: what they refuse, tensor descriptors, and argument lists."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .problem import Inputs, Pattern, Problem
from .triton_support import refusal_here

LOG2E = 1.4426950408889634
WIDEST = 128
_TRITON_DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
MENDERS = 132  # programs that look at the list of odd tiles
_ALIGNMENT = 16  # bytes; what the tensor memory accelerator asks of addresses and strides


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """Rows (queries times packed heads) and keys of a tile; warps, and loads in flight.

    `registers`: the most of a thread; with fewer, one more program may fit onto a multiprocessor. None: as the compiler
    likes.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None

    @property
    def launch(self) -> dict[str, int | None]:
        """The options of a launch."""
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


def common_refusal(problem: Problem) -> str:
    """Return why no Triton kernel of ours answers a case, "" where that is not known."""
    pattern = problem.pattern
    if reason := refusal_here(problem):
        return reason
    if problem.head_dim > WIDEST or problem.value_dim > WIDEST:
        return (
            f"takes head dims up to {WIDEST}; {problem.head_dim}/{problem.value_dim} (as in absorbed MLA) is not built"
        )
    if problem.head_dim % 8 or problem.value_dim % 8 or min(problem.head_dim, problem.value_dim) < _ALIGNMENT:
        return "takes head dims from 16 that are multiples of 8"
    if pattern.scale_for(problem.head_dim) <= 0:
        return "takes positive scales"
    return ""


def pack_of(group: int, limit: int) -> int:
    """Return how many of `group` query heads share a tile: the largest power of two that divides it, up to `limit`."""
    return min(group & -group, limit)


def padded(width: int) -> int:
    """Return the width of a tile that holds `width` columns: a power of two."""
    return max(16, 1 << (width - 1).bit_length())


def factors(pattern: Pattern, head_dim: int) -> tuple[float, float]:
    """Return scale * log2(e) and cap * log2(e), as the kernels take them."""
    return pattern.scale_for(head_dim) * LOG2E, (pattern.softcap or 1.0) * LOG2E


def tile_descriptor(tokens: Tensor, rows: int, width: int) -> TensorDescriptor:
    """Return the descriptor of packed tokens [T, Hkv, D] as [Hkv, T, D] in tiles of 1 x rows x width.

    Beyond the tokens and the columns that there are, it reads zeros.
    """
    tokens = aligned(tokens)
    if tokens.shape[0] == 0:
        tokens = tokens.new_zeros(1, *tokens.shape[1:])
    heads, tokens_, dim = tokens.shape[1], tokens.shape[0], tokens.shape[2]
    strides = [tokens.stride(1), tokens.stride(0), 1]
    if heads == 1:
        strides[0] = strides[1] * tokens_  # a stride of one entry may be anything, to PyTorch but not to the hardware
    if tokens_ == 1:
        strides[1] = padded(dim)
    return TensorDescriptor(tokens, [heads, tokens_, dim], strides, [1, rows, width])


def aligned(tokens: Tensor) -> Tensor:
    """Return the tensor, or a copy where the hardware could not read it in place."""
    return tokens if is_aligned(tokens) else tokens.clone(memory_format=torch.contiguous_format)


def is_aligned(tokens: Tensor) -> bool:
    """Return whether every row begins at a multiple of 16 bytes."""
    size = tokens.element_size()
    strides = [stride for stride, extent in zip(tokens.stride(), tokens.shape, strict=True) if extent > 1]
    fits = tokens.stride(-1) == 1 and tokens.data_ptr() % _ALIGNMENT == 0
    return fits and all(stride * size % _ALIGNMENT == 0 and stride > 0 for stride in strides if stride != 1)


def precision(dtype: torch.dtype) -> str:
    """Return the input precision of dot products; only the interpreter sees float32."""
    return "ieee" if dtype == torch.float32 else "tf32"


def triton_dtype(dtype: torch.dtype) -> str:
    """Return the name by which signatures call a dtype."""
    return _TRITON_DTYPES[dtype]


def window_of(pattern: Pattern, inputs: Inputs) -> tuple[int, int, bool]:
    """Return window, anchors and whether the pattern is dense for these lengths."""
    longest = max(inputs.max_key, inputs.max_query)
    if pattern.window is None or pattern.window >= longest:
        return 0, 0, True
    return pattern.window, min(pattern.anchors, longest), False


def tiles_bound(tokens: int, batch: int, block: int) -> int:
    """Return how many tiles `tiles.find_sequence` numbers."""
    return tokens // block + batch


def ceil_div(number: int, by: int) -> int:
    """Return the quotient, rounded up."""
    return math.ceil(number / by)


def computed_pairs(problem: Problem, *, queries: int, keys: int) -> int:
    """Return the query-key pairs of a head that tiles of so many queries and keys compute; 0 for unequal lengths.

    Keys of the window and anchors fill tiles of their own, as `tiles.key_span` says.
    """
    pattern, count, length = problem.pattern, problem.max_query, problem.max_key
    if not problem.equal_lengths:
        return 0
    pairs = 0
    for first in range(0, count, queries):
        low_position, last = length - count + first, length - count + min(first + queries, count) - 1
        high = min(length, last + 1) if pattern.causal else length
        low = anchor_end = 0
        if pattern.window is not None and not problem.dense:
            high = high if pattern.causal else min(length, max(last + pattern.window, pattern.anchors))
            low = max(low_position - pattern.window + 1, 0)
            low = min(0 if low < keys else low, max(high, 0))
            anchor_end = min(pattern.anchors, low, length)
        pairs += (ceil_div(max(high - low, 0), keys) + ceil_div(anchor_end, keys)) * keys * queries
    return pairs * problem.batch
