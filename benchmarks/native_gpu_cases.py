"""Calls of FlashAttention 3's `fwd` as vllm makes them, small enough that a launch takes longer than the kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

DEVICE = "cuda"
HEADS, KV_HEADS, HEAD_DIM, PAGE = 16, 4, 128, 16
SCALE = HEAD_DIM**-0.5
DTYPE = torch.bfloat16


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One call: the tensors it reads, the tensor it writes, what stands between them in the operator's arguments."""

    name: str
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    arguments: dict[str, Any] = field(default_factory=dict)

    def call(self, scale: float = SCALE, window: int = 0) -> torch.Tensor:
        """Make the call; its output held NaN before. `window` is in keys, 0 for none."""
        self.out.fill_(float("nan"))
        self.launch(scale, window)
        return self.out

    def launch(self, scale: float = SCALE, window: int = 0) -> Any:
        """Make the call and nothing else."""
        given = self.arguments.get
        sequences = [
            given("cu_seqlens_q"),
            given("cu_seqlens_k"),
            None,
            None,
            given("seqused_k"),
            given("max_q"),
            given("max_k"),
        ]
        unused: list[None] = [None] * 6  # batch index, left padding, rotary tables, scheduling
        scales = [None, None, None, scale, True, window - 1, 0, 0.0, True, None, 1, None, 0, None, 1, 0, None]
        before = [self.q, self.k, self.v, None, None, None, self.out, *sequences, given("page_table"), *unused[:5]]
        return torch.ops._vllm_fa3_C.fwd(*before, *scales)  # noqa: SLF001 -- the operator's name


def make_cases() -> list[Case]:
    """Return prefill and decoding against pages, and a batch without; the same in every process."""
    torch.manual_seed(0)
    return [
        _paged("prefill, paged", queries=(128, 64, 96, 32), keys=(256, 200, 96, 512)),
        _paged("decoding, paged", queries=(1,) * 8, keys=(1, 17, 64, 100, 255, 256, 257, 300)),
        _packed("prefill, packed", queries=(200, 56, 256)),
    ]


def digest(tensors: Sequence[torch.Tensor]) -> str:
    """Return a digest of the bytes of some tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return sha.hexdigest()


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float32).to(DTYPE).to(DEVICE)


def _integers(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def _paged(name: str, *, queries: tuple[int, ...], keys: tuple[int, ...]) -> Case:
    most = max((length + PAGE - 1) // PAGE for length in keys)
    table = torch.randperm(len(keys) * most).to(torch.int32).view(len(keys), most).to(DEVICE)
    starts = [sum(queries[:place]) for place in range(len(queries) + 1)]
    q = _random(sum(queries), HEADS, HEAD_DIM)
    pages = (table.numel(), PAGE, KV_HEADS, HEAD_DIM)
    return Case(
        name=name,
        q=q,
        k=_random(*pages),
        v=_random(*pages),
        out=torch.empty_like(q),
        arguments={
            "cu_seqlens_q": _integers(starts),
            "seqused_k": _integers(keys),
            "max_q": max(queries),
            "max_k": max(keys),
            "page_table": table,
        },
    )


def _packed(name: str, *, queries: tuple[int, ...]) -> Case:
    q = _random(sum(queries), HEADS, HEAD_DIM)
    k, v = _random(sum(queries), KV_HEADS, HEAD_DIM), _random(sum(queries), KV_HEADS, HEAD_DIM)
    starts = _integers([sum(queries[:place]) for place in range(len(queries) + 1)])
    most = max(queries)
    arguments = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_q": most, "max_k": most}
    return Case(name=name, q=q, k=k, v=v, out=torch.empty_like(q), arguments=arguments)
