"""What is measured: the cases of the table in docs/attention.md, and how many query-key pairs each of them sees."""

from __future__ import annotations

import torch

from patchkit.attention.case import AttentionCase
from patchkit.record import dataclass
from patchkit.runtime.attention.problem import BACKWARD, FORWARD, Pattern

_DENSE = Pattern(window=None)
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A case to time, and the step. `replayed`: as a CUDA graph, as an engine decodes."""

    case: AttentionCase
    step: str = FORWARD
    replayed: bool = False

    @property
    def name(self) -> str:
        """The case's name, with the step where it is the backward."""
        return self.case.name if self.step == FORWARD else f"{self.case.name}, {self.step}"


def _prefill(
    name: str, length: int, *, heads: int = 32, kv_heads: int = 8, dim: int = 128, batch: int = 1
) -> AttentionCase:
    return AttentionCase(
        name=name,
        query_lengths=(length,) * batch,
        key_lengths=(length,) * batch,
        dtype="bfloat16",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        pattern=_DENSE if name.startswith("dense") else Pattern(),
    )


def _paged(name: str, batch: int, queries: int, context: int) -> AttentionCase:
    return AttentionCase(
        name=f"{name}, page 16",
        query_lengths=(queries,) * batch,
        key_lengths=(context,) * batch,
        dtype="bfloat16",
        heads=32,
        kv_heads=8,
        head_dim=128,
        pattern=Pattern(),
        page_size=16,
    )


_ROW = _prefill("prefill 32k, D 128", 32768)

GPU: tuple[Workload, ...] = (
    Workload(case=_ROW),
    *(Workload(case=_prefill(f"prefill {length >> 10}k, D 128", length)) for length in (16384, 65536, 131072)),
    Workload(case=_prefill("prefill 32k, D 64", 32768, heads=16, kv_heads=16, dim=64)),
    Workload(case=_prefill("dense 8 x 2k, D 64", 2048, heads=12, kv_heads=12, dim=64, batch=8), replayed=True),
    Workload(case=_prefill("dense 32k, D 128", 32768)),
    Workload(case=_paged("decode 56 x 32k", 56, 1, 32768), replayed=True),
    Workload(case=_paged("chunk 8 x 2k of 32k", 8, 2048, 32768)),
    *(
        Workload(case=_paged(f"draft {batch} x {queries} of 32k", batch, queries, 32768), replayed=True)
        for batch, queries in ((56, 4), (56, 8), (8, 4))
    ),
    Workload(case=_ROW, step=BACKWARD),
)

# For a CPU: that the command works, and how the references compare; nothing here speaks for a GPU.
CPU: tuple[Workload, ...] = tuple(
    Workload(
        case=AttentionCase(
            name=name,
            query_lengths=(length,),
            key_lengths=(length,),
            dtype="float32",
            heads=4,
            kv_heads=2,
            head_dim=64,
            pattern=pattern,
        ),
        step=step,
    )
    for name, length, pattern, step in (
        ("prefill 1k, D 64", 1024, Pattern(window=128, anchors=16), FORWARD),
        ("dense 1k, D 64", 1024, _DENSE, FORWARD),
        ("prefill 1k, D 64", 1024, Pattern(window=128, anchors=16), BACKWARD),
    )
)


def shape_document(workload: Workload) -> dict[str, object]:
    """Return a workload's shape for JSON: everything that a measurement depends on."""
    case = workload.case
    return {
        "step": workload.step,
        "dtype": case.dtype,
        "heads": case.heads,
        "kv_heads": case.kv_heads,
        "head_dim": case.head_dim,
        "value_dim": case.value_width,
        "batch": len(case.query_lengths),
        "max_query": max(case.query_lengths),
        "max_key": max(case.key_lengths),
        "window": case.pattern.window,
        "anchors": case.pattern.anchors,
        "page_size": case.page_size,
        "replayed": workload.replayed,
        "visible_pairs_per_head": visible_pairs(case),
        "operations": operations(workload),
    }


def visible_pairs(case: AttentionCase) -> int:
    """Return how many query-key pairs one head sees, over all sequences; learned anchors count."""
    lengths = zip(case.query_lengths, case.key_lengths, strict=True)
    seen = sum(_visible(queries, keys, case.pattern) for queries, keys in lengths)
    return seen + case.learned * sum(case.query_lengths)


def _visible(queries: int, keys: int, pattern: Pattern) -> int:
    total = 0
    for begin in range(0, queries, _CHUNK):
        position = torch.arange(begin, min(queries, begin + _CHUNK)) + keys - queries
        last = position.clamp(max=keys - 1) if pattern.causal else torch.full_like(position, keys - 1)
        if pattern.window is None:
            total += int((last + 1).clamp(min=0).sum())
            continue
        low = (position - pattern.window + 1).clamp(min=0)
        high = torch.minimum(last, position + pattern.window - 1)
        anchors = last.clamp(max=min(pattern.anchors, keys) - 1) + 1
        window = (high - low + 1).clamp(min=0)
        # Anchors within the window are counted once.
        shared = (torch.minimum(high, anchors - 1) - low + 1).clamp(min=0)
        total += int((window + anchors.clamp(min=0) - shared).sum())
    return total


def operations(workload: Workload) -> int:
    """Return the floating-point operations on visible pairs: 2 products forward, 5 backward, 2 operations an
    element.
    """
    case = workload.case
    pairs = visible_pairs(case) * case.heads
    width = case.head_dim + case.value_width
    if workload.step == FORWARD:
        return 2 * pairs * width
    return 2 * pairs * (3 * case.head_dim + 2 * case.value_width)
