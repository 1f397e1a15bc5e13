"""The cases that kernels are checked on: shapes, lengths and what is hidden in them, and the tensors made from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from patchkit.record import dataclass, replace
from patchkit.runtime.attention.problem import FORWARD, Inputs, Pattern, Problem, describe

NOWHERE = 2**31 - 1
"""What a block table holds behind a sequence's last page: a kernel that reads it reads outside the cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionCase:
    """A call to check or to time. `page_size` 0: packed keys. `value_dim` 0: as head_dim. `learned`: learned anchors.

    `hidden`: keys that no query sees hold NaN. `seen`: a key that some queries see holds NaN. `odd_rows`: the query of
    the first of these rows holds NaN, and the upstream gradient of the others. `strided`: query, key and value are
    slices of wider tensors. `magnitude` multiplies query and key. `deterministic`: it must give the same bits
    twice.
    """

    name: str
    query_lengths: tuple[int, ...]
    key_lengths: tuple[int, ...]
    dtype: str = "float16"
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    value_dim: int = 0
    pattern: Pattern = Pattern(window=24, anchors=5)
    page_size: int = 0
    learned: int = 0
    hidden: bool = False
    seen: bool = False
    odd_rows: tuple[int, ...] = ()
    strided: bool = False
    deterministic: bool = False
    magnitude: float = 1.0

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of all tensors but lse."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def value_width(self) -> int:
        """Dv."""
        return self.value_dim or self.head_dim


def make_inputs(case: AttentionCase, device: str, *, seed: int = 0, drawn_on: str = "cpu") -> Inputs:
    """Return the tensors of a case; drawn on a CPU they are the same for a seed on every device.

    `drawn_on` the device itself saves minutes for large cases; it cannot hide NaN.
    """
    generator = torch.Generator(drawn_on).manual_seed(seed)
    queries, keys = sum(case.query_lengths), sum(case.key_lengths)

    def draw(*shape: int, magnitude: float = 1.0) -> Tensor:
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float32, device=drawn_on) * magnitude
        return drawn.to(case.torch_dtype)

    wide = 2 if case.strided else 1
    query = draw(queries, wide * case.heads, case.head_dim, magnitude=case.magnitude)[:, : case.heads]
    key = draw(keys, wide * case.kv_heads, case.head_dim, magnitude=case.magnitude)[:, : case.kv_heads]
    value = draw(keys, wide * case.kv_heads, case.value_width)[:, : case.kv_heads]
    if case.hidden:
        key, value = _fill_unseen(case, key, torch.nan), _fill_unseen(case, value, torch.nan)
    if case.seen:
        value[keys // 2, 0, 0] = torch.nan
    for row in case.odd_rows[:1]:
        query[row, -1, 3] = torch.nan
    learned = (case.kv_heads, case.learned)
    anchor_key = draw(*learned, case.head_dim) if case.learned else None
    anchor_value = draw(*learned, case.value_width) if case.learned else None
    packed = Inputs(
        query=query,
        key=key,
        value=value,
        query_starts=_starts(case.query_lengths),
        key_starts=_starts(case.key_lengths),
        max_query=max(case.query_lengths),
        max_key=max(case.key_lengths),
        anchor_key=anchor_key,
        anchor_value=anchor_value,
    )
    inputs = _paged(packed, case, generator) if case.page_size else packed
    moved = {name: _move(getattr(inputs, name), device) for name in Inputs.__slots__}
    return Inputs(**moved)


def problem_of(case: AttentionCase, device: str, *, step: str = FORWARD) -> Problem:
    """Return the static facts of a case as a call on a device would have them, without making its tensors."""
    queries, keys = sum(case.query_lengths), sum(case.key_lengths)
    meta = {"device": "meta", "dtype": case.torch_dtype}
    lead = (keys,) if not case.page_size else (1, case.page_size)
    inputs = Inputs(
        query=torch.empty(queries, case.heads, case.head_dim, **meta),
        key=torch.empty(*lead, case.kv_heads, case.head_dim, **meta),
        value=torch.empty(*lead, case.kv_heads, case.value_width, **meta),
        query_starts=torch.empty(len(case.query_lengths) + 1, device="meta"),
        block_table=torch.empty(1, 1, device="meta") if case.page_size else None,
        max_query=max(case.query_lengths),
        max_key=max(case.key_lengths),
        anchor_key=torch.empty(case.kv_heads, case.learned, case.head_dim, **meta) if case.learned else None,
    )
    found = describe(inputs, case.pattern, step=step, deterministic=case.deterministic)
    fields = {name: getattr(found, name) for name in Problem.__slots__}
    return Problem(**{**fields, "device": device})


def _move(field: Any, device: str) -> Any:
    """Move a tensor with its strides: `to` keeps those of a dense tensor only."""
    if not isinstance(field, Tensor) or field.device.type == device:
        return field
    if field.is_contiguous():
        return field.to(device)
    whole = torch.as_strided(field, (field.untyped_storage().size() // field.element_size(),), (1,), 0).to(device)
    return torch.as_strided(whole, field.shape, field.stride(), field.storage_offset())


def _starts(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0).to(torch.int32)


def _fill_unseen(case: AttentionCase, tokens: Tensor, filling: float) -> Tensor:
    """Fill the keys that no query of their sequence sees."""
    begin = 0
    for queries, keys in zip(case.query_lengths, case.key_lengths, strict=True):
        seen = case.pattern.sees(torch.arange(keys - queries, keys), torch.arange(keys)).any(0)
        tokens[begin : begin + keys][~seen] = filling
        begin += keys
    return tokens


def _paged(packed: Inputs, case: AttentionCase, generator: torch.Generator) -> Inputs:
    """Lay the keys into shuffled pages; what is not a key holds NaN, and the table's unused entries point nowhere."""
    size = case.page_size
    counts = [-(-length // size) for length in case.key_lengths]
    total = sum(counts) + 3  # some pages belong to nobody
    order = torch.randperm(total, generator=generator, device=generator.device).cpu()
    table = torch.full((len(counts), max(1, *counts)), NOWHERE, dtype=torch.int32)
    caches = [
        torch.full((total, size, *tokens.shape[1:]), torch.nan, dtype=tokens.dtype, device=tokens.device)
        for tokens in (packed.key, packed.value)
    ]
    begin = used = 0
    for sequence, (length, count) in enumerate(zip(case.key_lengths, counts, strict=True)):
        pages = order[used : used + count]
        table[sequence, :count] = pages.to(torch.int32)
        for cache, tokens in zip(caches, (packed.key, packed.value), strict=True):
            laid = torch.full((count * size, *tokens.shape[1:]), torch.nan, dtype=tokens.dtype, device=tokens.device)
            laid[:length] = tokens[begin : begin + length]
            cache[pages.to(cache.device)] = (
                laid.unflatten(0, (count, size)) if count else laid.reshape(0, size, *tokens.shape[1:])
            )
        begin, used = begin + length, used + count
    fields = {name: getattr(packed, name) for name in Inputs.__slots__}
    lengths = torch.tensor(case.key_lengths, dtype=torch.int32)
    return Inputs(
        **{
            **fields,
            "key": caches[0],
            "value": caches[1],
            "block_table": table,
            "key_lengths": lengths,
            "key_starts": None,
        }
    )


_SMALL = Pattern(window=24, anchors=5)
_DENSE = Pattern(window=None)
_NEGATIVE = Pattern(window=None, scale=-0.3)
_PRIMES = (89, 1, 0, 61)

# Enough sequences to fill a GPU without splitting keys; few keys each, for the reference's sake.
_MANY = (50, 1, 33, 0, 64, 90, 16, 47)
_FULL_BATCHES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("odd lengths", 136, {}),
    ("head dim 128, no anchors", 136, {"head_dim": 128, "pattern": Pattern(window=24, anchors=0)}),
    ("head dim 96, dense", 136, {"head_dim": 96, "pattern": _DENSE}),
    ("three kv heads, pages of one", 89, {"heads": 9, "kv_heads": 3, "page_size": 1}),
    ("multi-query, window larger than the sequence", 266, {"heads": 8, "kv_heads": 1, "pattern": Pattern()}),
    ("keys that nobody sees hold NaN", 136, {"hidden": True, "page_size": 8}),
    ("a NaN that some rows see", 136, {"seen": True, "pattern": Pattern(window=40, anchors=16)}),
)
_FULL = tuple(
    AttentionCase(
        name=f"full batch, {name}",
        query_lengths=tuple(int(number % 11 > 0) for number in range(sequences)),
        key_lengths=tuple(_MANY[number % len(_MANY)] for number in range(sequences)),
        **{"page_size": 16, **more},
    )
    for name, sequences, more in _FULL_BATCHES
)
_PAGED_CHUNKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("odd lengths", {}),
    ("no anchors", {"pattern": Pattern(window=24, anchors=0)}),
    ("window larger than the sequence", {"pattern": Pattern()}),
    ("dense", {"pattern": _DENSE}),
    ("both-sided", {"pattern": Pattern(window=24, anchors=5, causal=False)}),
    ("both-sided, anchors on both sides of the window", {"pattern": Pattern(window=8, anchors=60, causal=False)}),
    ("head dim 96", {"head_dim": 96, "heads": 9, "kv_heads": 3}),
    ("head dim 128, multi-query", {"head_dim": 128, "heads": 8, "kv_heads": 1, "page_size": 64}),
    ("soft cap, learned anchors", {"learned": 4, "pattern": Pattern(window=24, anchors=5, softcap=3.0)}),
    ("keys that nobody sees hold NaN", {"hidden": True, "page_size": 3}),
    ("pages of 8", {"hidden": True, "page_size": 8}),
    ("pages of 48, head dim 128", {"head_dim": 128, "page_size": 48}),
    ("a NaN that some rows see", {"seen": True}),
    ("large scores", {"magnitude": 4.0}),
)
_CHUNKS = tuple(
    AttentionCase(
        name=f"paged chunks, {name}",
        query_lengths=(19, 0, 5, 1, 67),
        key_lengths=(101, 12, 3, 64, 67),
        **{"page_size": 16, **more},
    )
    for name, more in _PAGED_CHUNKS
)

SHAPES: tuple[AttentionCase, ...] = (
    AttentionCase(name="odd lengths", query_lengths=(67, 33), key_lengths=(67, 33)),
    AttentionCase(name="prime lengths, an empty and a one-token sequence", query_lengths=_PRIMES, key_lengths=_PRIMES),
    AttentionCase(name="one token", query_lengths=(1,), key_lengths=(1,)),
    AttentionCase(
        name="the default pattern", query_lengths=(64,), key_lengths=(620,), heads=1, kv_heads=1, pattern=Pattern()
    ),
    AttentionCase(
        name="window larger than the sequence",
        query_lengths=(45,),
        key_lengths=(45,),
        pattern=Pattern(window=512, anchors=32),
    ),
    AttentionCase(name="window of one", query_lengths=(40,), key_lengths=(40,), pattern=Pattern(window=1, anchors=0)),
    AttentionCase(name="no anchors", query_lengths=(97,), key_lengths=(97,), pattern=Pattern(window=24, anchors=0)),
    AttentionCase(
        name="anchors beyond a tile", query_lengths=(211,), key_lengths=(211,), pattern=Pattern(window=16, anchors=130)
    ),
    AttentionCase(
        name="both-sided",
        query_lengths=(83, 2),
        key_lengths=(83, 2),
        pattern=Pattern(window=24, anchors=5, causal=False),
    ),
    AttentionCase(
        name="both-sided, anchors on both sides of the window",
        query_lengths=(211, 2, 9),
        key_lengths=(211, 70, 4),
        pattern=Pattern(window=8, anchors=170, causal=False),
    ),
    AttentionCase(name="dense causal", query_lengths=(77, 130), key_lengths=(77, 130), pattern=_DENSE),
    AttentionCase(name="dense, equal lengths", query_lengths=(64, 64), key_lengths=(64, 64), pattern=_DENSE),
    AttentionCase(name="dense, a negative scale", query_lengths=(40,), key_lengths=(40,), pattern=_NEGATIVE),
    AttentionCase(name="keys before the queries", query_lengths=(19, 5), key_lengths=(101, 64)),
    AttentionCase(name="keys that nobody sees hold NaN", query_lengths=(9,), key_lengths=(150,), hidden=True),
    AttentionCase(name="a NaN that some rows see", query_lengths=(120,), key_lengths=(120,), seen=True),
    AttentionCase(
        name="rows and upstream gradients with NaN",
        query_lengths=(110, 40),
        key_lengths=(110, 57),
        odd_rows=(50, 2, 111),
    ),
    AttentionCase(
        name="rows and upstream gradients with NaN, dense",
        query_lengths=(110,),
        key_lengths=(110,),
        odd_rows=(50, 2, 83),
        pattern=_DENSE,
    ),
    AttentionCase(
        name="rows and upstream gradients with NaN, both-sided, learned anchors",
        query_lengths=(110,),
        key_lengths=(110,),
        odd_rows=(31, 77),
        learned=3,
        pattern=Pattern(window=24, anchors=5, causal=False),
    ),
    AttentionCase(name="fewer keys than queries: empty rows", query_lengths=(70, 5), key_lengths=(31, 0)),
    AttentionCase(name="very unequal lengths", query_lengths=(1, 300, 2, 1), key_lengths=(1, 300, 2, 260)),
    AttentionCase(name="three kv heads", query_lengths=(53,), key_lengths=(53,), heads=9, kv_heads=3),
    AttentionCase(name="one head each", query_lengths=(53,), key_lengths=(53,), heads=2, kv_heads=2),
    AttentionCase(name="multi-query", query_lengths=(53,), key_lengths=(53,), heads=8, kv_heads=1),
    AttentionCase(name="head dim 128", query_lengths=(71,), key_lengths=(71,), head_dim=128),
    AttentionCase(name="head dim 96", query_lengths=(71,), key_lengths=(71,), head_dim=96),
    AttentionCase(name="other value dim", query_lengths=(71,), key_lengths=(71,), head_dim=128, value_dim=64),
    AttentionCase(
        name="soft cap and scale",
        query_lengths=(71,),
        key_lengths=(71,),
        pattern=Pattern(window=24, anchors=5, softcap=2.0, scale=0.3),
    ),
    AttentionCase(name="learned anchors", query_lengths=(59, 8), key_lengths=(59, 8), learned=7),
    AttentionCase(name="learned anchors fill empty rows", query_lengths=(6,), key_lengths=(2,), learned=3),
    AttentionCase(name="slices of wider tensors", query_lengths=(61,), key_lengths=(61,), strided=True),
    AttentionCase(name="large scores", query_lengths=(61,), key_lengths=(61,), magnitude=4.0),
    AttentionCase(name="the same bits twice", query_lengths=(150,), key_lengths=(150,), deterministic=True),
    AttentionCase(name="paged decode", query_lengths=(1, 1, 1), key_lengths=(100, 1, 257), page_size=16),
    AttentionCase(
        name="paged decode, an empty sequence", query_lengths=(1, 1, 0), key_lengths=(37, 0, 12), page_size=16
    ),
    AttentionCase(
        name="paged decode, three kv heads",
        query_lengths=(1, 1),
        key_lengths=(113, 64),
        heads=9,
        kv_heads=3,
        page_size=16,
    ),
    AttentionCase(
        name="paged decode, head dim 128",
        query_lengths=(1, 1),
        key_lengths=(90, 700),
        head_dim=128,
        page_size=16,
        pattern=Pattern(),
    ),
    AttentionCase(
        name="paged decode, soft cap, learned anchors",
        query_lengths=(1, 1),
        key_lengths=(90, 3),
        page_size=16,
        learned=4,
        pattern=Pattern(window=24, anchors=5, softcap=3.0),
    ),
    AttentionCase(
        name="paged decode, dense", query_lengths=(1, 1), key_lengths=(190, 33), page_size=16, pattern=_DENSE
    ),
    AttentionCase(name="paged decode, pages of 64", query_lengths=(1, 1), key_lengths=(190, 65), page_size=64),
    AttentionCase(name="paged, several queries", query_lengths=(3, 40), key_lengths=(50, 40), page_size=16),
    AttentionCase(name="paged, pages of one token", query_lengths=(1, 4), key_lengths=(50, 4), page_size=1),
    *_FULL,
    *_CHUNKS,
)


def check_cases(dtypes: tuple[str, ...]) -> Iterator[AttentionCase]:
    """Yield every shape in every dtype."""
    for dtype in dtypes:
        for case in SHAPES:
            yield replace(case, dtype=dtype)
