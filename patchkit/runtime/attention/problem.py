"""What an attention call is: which keys a query sees, the tensors of a call, and the static facts a kernel is chosen
by.

Shapes, in all modules of this package: H query heads, Hkv key/value heads (H a multiple of Hkv), D head dim, Dv value
dim, B sequences, Tq and Tk packed tokens of all sequences, L learned anchors, P pages of S tokens each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WINDOW = 512
ANCHORS = 32
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

FORWARD = "forward"
BACKWARD = "backward"


class AttentionError(ValueError):
    """A call that no kernel may answer: wrong shape, dtype, device or index; or no kernel can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """Which keys a query sees, and how a score is made.

    With i and j the positions of query and key: causal, j is seen iff j <= i and (i - j < window or j < anchors);
    both-sided, iff |i - j| < window or j < anchors. `window` None: dense, and `anchors` says nothing more.
    The last query stands at the last key: query number r of n in a sequence of m keys is at r + m - n.
    `scale` None: D ** -0.5. `softcap` c > 0: a score s becomes c * tanh(s / c), before the mask.
    """

    window: int | None = WINDOW
    anchors: int = ANCHORS
    causal: bool = True
    scale: float | None = None
    softcap: float = 0.0

    def scale_for(self, head_dim: int) -> float:
        """Return the factor of the dot products."""
        return head_dim**-0.5 if self.scale is None else self.scale

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return [len(queries), len(keys)] bool: which of these key positions each query position sees."""
        i, j = queries[:, None], keys[None, :]
        if self.window is None:
            return j <= i if self.causal else torch.ones_like(i - j, dtype=torch.bool)
        if self.causal:
            return (j <= i) & ((i - j < self.window) | (j < self.anchors))
        return ((i - j).abs() < self.window) | (j < self.anchors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """The tensors of a call; the last dimension of each has stride 1, the others any.

    query [Tq, H, D]: sequence b has the rows query_starts[b] .. query_starts[b + 1].
    Packed keys (block_table None): key [Tk, Hkv, D], value [Tk, Hkv, Dv], cut by key_starts in the same way.
    Paged keys: key [P, S, Hkv, D], value [P, S, Hkv, Dv]; token t of sequence b lies in page block_table[b, t // S] at
    t % S, for t < key_lengths[b]. What lies behind it in the page, and the table's entries behind the last page, is
    never used. query_starts and key_starts int32 [B + 1], key_lengths int32 [B], block_table int32 [B, pages].
    max_query and max_key are bounds of the lengths, known without asking the device.
    anchor_key [Hkv, L, D] and anchor_value [Hkv, L, Dv]: learned anchors, without position (no rotary), seen by all
    rows.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    query_starts: Tensor
    max_query: int
    max_key: int
    key_starts: Tensor | None = None
    key_lengths: Tensor | None = None
    block_table: Tensor | None = None
    anchor_key: Tensor | None = None
    anchor_value: Tensor | None = None

    @property
    def paged(self) -> bool:
        """True where keys and values lie in pages."""
        return self.block_table is not None

    @property
    def batch(self) -> int:
        """The number of sequences; symbolic where torch.compile keeps it dynamic, as are the three below."""
        batch: int = self.query_starts.shape[0] - 1
        return batch

    @property
    def heads(self) -> int:
        """H."""
        heads: int = self.query.shape[1]
        return heads

    @property
    def kv_heads(self) -> int:
        """Hkv."""
        heads: int = self.key.shape[-2]
        return heads

    @property
    def learned(self) -> int:
        """L; 0 without learned anchors."""
        learned: int = 0 if self.anchor_key is None else self.anchor_key.shape[1]
        return learned


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What a forward leaves for its backward, and what comes back: out, grad_out [Tq, H, Dv]; lse, grad_lse [H, Tq]
    float32.

    grad_lse None: nobody used the log-sum-exp.
    """

    out: Tensor
    lse: Tensor
    grad_out: Tensor
    grad_lse: Tensor | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients:
    """Where a backward writes: each of the shape and dtype of its input, every element written."""

    query: Tensor
    key: Tensor
    value: Tensor
    anchor_key: Tensor | None = None
    anchor_value: Tensor | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """The static facts of a call, by which a kernel says whether it can; nothing here asks the device.

    `device` is "cuda" or "cpu"; `page_size` 0 means packed keys; `tokens` is Tq; `equal_lengths`: every sequence has
    max_query queries and max_key keys. `deterministic`: the same inputs must give the same bits.
    """

    step: str
    device: str
    dtype: torch.dtype
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    batch: int
    tokens: int
    max_query: int
    max_key: int
    equal_lengths: bool
    page_size: int
    learned: int
    pattern: Pattern
    deterministic: bool = False

    @property
    def dense(self) -> bool:
        """True where the window hides nothing: there is none, or it spans the longest sequence."""
        window = self.pattern.window
        return window is None or window >= max(self.max_key, self.max_query)


def describe(inputs: Inputs, pattern: Pattern, *, step: str = FORWARD, deterministic: bool = False) -> Problem:
    """Return the static facts of a call."""
    query, key = inputs.query, inputs.key
    batch = inputs.batch
    full = query.shape[0] == batch * inputs.max_query and not inputs.paged
    return Problem(
        step=step,
        device=query.device.type,
        dtype=query.dtype,
        heads=inputs.heads,
        kv_heads=inputs.kv_heads,
        head_dim=int(query.shape[2]),
        value_dim=int(inputs.value.shape[-1]),
        batch=batch,
        tokens=int(query.shape[0]),
        max_query=inputs.max_query,
        max_key=inputs.max_key,
        equal_lengths=bool(full and key.shape[0] == batch * inputs.max_key),
        page_size=int(key.shape[1]) if inputs.paged else 0,
        learned=inputs.learned,
        pattern=pattern,
        deterministic=deterministic,
    )
