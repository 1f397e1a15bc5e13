"""How attention_peers.py calls each kernel and each peer on the workloads of `attention bench`.

Workloads, tensors, FlashAttention 3 and the records are those of patchkit/attention. The calls of FlexAttention and the
timing are not: when the records in results/ were made, FlexAttention left no log-sum-exp, and every forward was
replayed as a graph, which `attention bench` does for short ones alone. Another call would be another number.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from patchkit.attention.case import AttentionCase, make_inputs
from patchkit.attention.workload import GPU
from patchkit.record import replace
from patchkit.runtime.attention.problem import FORWARD, Gradients, Inputs, Pattern, Saved
from patchkit.runtime.attention.registry import kernel_named

SAMPLED = 48
GRADIENT_TOKENS = 2048
_GATHERED = 64  # queries from which on copying the keys together is measured; for few it takes all the time
_COPIES = 8  # calls with other tables, one after the other, so that no page is still in the cache

FORWARDS = [one.case for one in GPU if one.step == FORWARD]
PREFILLS = tuple(case for case in FORWARDS if not case.page_size)
PAGED = tuple(case for case in FORWARDS if case.page_size)


class MadePrefill:
    """The tensors of a case, the last result of each kernel, and its error in float64 on sampled rows."""

    def __init__(self, case: AttentionCase, device: str = "cuda") -> None:
        self.case = case
        self.inputs = make_inputs(case, device, drawn_on=device)
        self.out = torch.empty_like(self.inputs.query)
        self.lse = torch.empty(case.heads, self.inputs.query.shape[0], device=device)
        self.results: dict[str, Any] = {}

    def error(self, kernel: str) -> float:
        """Return the relative error of a kernel's last result on sampled rows; FA3 is held against its own pattern."""
        case, tokens, device = self.case, self.inputs.max_query, self.inputs.query.device
        found = self.results[kernel].view(-1, case.heads, case.head_dim)
        pattern = Pattern(anchors=0) if "window_only" in kernel else case.pattern
        wrong = right = 0.0
        for row in torch.linspace(0, len(found) - 1, SAMPLED).long().tolist():
            begin, position = row - row % tokens, row % tokens
            keys = torch.arange(position + 1, device=device)
            keys = keys[pattern.sees(torch.tensor([position], device=device), keys)[0]] + begin
            query = self.inputs.query[row].double().unflatten(0, (case.kv_heads, -1))
            weights = torch.softmax(
                torch.einsum("hgd,nhd->hgn", query, self.inputs.key[keys].double()) * case.head_dim**-0.5, -1
            )
            exact = torch.einsum("hgn,nhd->hgd", weights, self.inputs.value[keys].double()).flatten(0, 1)
            wrong += float((found[row].double() - exact).square().sum())
            right += float(exact.square().sum())
        return float((wrong / right) ** 0.5)


def make_prefill(case: AttentionCase) -> MadePrefill:
    """Return the tensors of a case."""
    torch.cuda.empty_cache()
    torch._dynamo.reset()  # noqa: SLF001 -- a case more would exceed what it compiles of one function
    return MadePrefill(case)


def prefill_calls(made: MadePrefill) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield every kernel that takes the case, then the peers."""
    case, inputs = made.case, made.inputs
    for name in ("hopper", "triton_prefill"):
        kernel = importlib.import_module(f"patchkit.runtime.attention.{name}").KERNELS[0]
        made.results[kernel.name] = made.out
        yield kernel.name, partial(kernel.run, inputs, case.pattern, made.out, made.lse)
    name = "flash3" if case.pattern.window is None else "flash3_window_only"
    flash3 = _flash3(inputs, case.pattern)

    def attend_flash3(name: str) -> None:
        made.results[name] = flash3()[0]

    yield name, partial(attend_flash3, name)
    query, key, value = (
        tensor.unflatten(0, (inputs.batch, -1)).transpose(1, 2) for tensor in (inputs.query, inputs.key, inputs.value)
    )
    mask = _block_mask(case.pattern, inputs.max_query)
    grouped = case.heads != case.kv_heads
    flex = torch.compile(flex_attention, dynamic=False)

    def keep(name: str, out: Any) -> None:
        made.results[name] = out.transpose(1, 2)

    def attend(name: str, backend: Any) -> None:
        keep(name, _sdpa(backend, query, key, value, grouped=grouped))

    def attend_flex() -> None:
        keep("flex", flex(query, key, value, block_mask=mask, enable_gqa=grouped))

    yield "flex", attend_flex
    if case.pattern.window is None:
        for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("torch_flash", SDPBackend.FLASH_ATTENTION)):
            yield name, partial(attend, name, backend)


def _sdpa(backend: Any, query: Any, key: Any, value: Any, *, grouped: bool) -> Any:
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


def _flash3(inputs: Inputs, pattern: Pattern) -> Callable[[], Any]:
    """Return the call; with a window FlashAttention 3 has no anchors."""
    timed = kernel_named("flash3").timed
    if timed is None:
        raise TypeError("flash3 has no call that is timed")
    return timed(inputs, pattern)


def _block_mask(pattern: Pattern, tokens: int, *, keys: int = 0) -> Any:
    """Return the mask of so many queries; with `keys`, they stand at the last of so many keys."""
    before = max(keys - tokens, 0)

    def dense(_b: Any, _h: Any, i: Any, j: Any) -> Any:
        return i + before >= j

    def window(_b: Any, _h: Any, i: Any, j: Any) -> Any:
        return (i + before >= j) & ((i + before - j < pattern.window) | (j < pattern.anchors))

    made = torch.compile(create_block_mask)
    mask = dense if pattern.window is None else window
    return made(mask, None, None, tokens, keys or tokens, device="cuda")


def backward_calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the backward of the first case, ours and FlexAttention's."""
    made = make_prefill(PREFILLS[0])
    yield from _backwards(made)


def _backwards(made: MadePrefill) -> Iterator[tuple[str, Callable[[], Any]]]:
    from patchkit.runtime.attention import triton_backward, triton_prefill

    case, inputs = made.case, made.inputs
    triton_prefill.run(inputs, case.pattern, made.out, made.lse)
    grad_out = torch.randn(made.out.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1)).bfloat16()
    saved = Saved(out=made.out, lse=made.lse, grad_out=grad_out)
    mine = Gradients(
        query=torch.empty_like(inputs.query), key=torch.empty_like(inputs.key), value=torch.empty_like(inputs.value)
    )
    made.results["triton_backward"] = (mine.query, mine.key, mine.value)
    made.results["grad_out"] = grad_out
    yield "triton_backward", lambda: triton_backward.run(inputs, case.pattern, saved, mine)
    leaves = [
        tensor.unflatten(0, (1, -1)).transpose(1, 2).detach().requires_grad_()
        for tensor in (inputs.query, inputs.key, inputs.value)
    ]
    torch._functorch.config.donated_buffer = False  # noqa: SLF001 -- else a graph has one backward only
    flex = torch.compile(flex_attention, dynamic=False)
    out = flex(*leaves, block_mask=_block_mask(case.pattern, inputs.max_query), enable_gqa=True)
    upstream = grad_out.unflatten(0, (1, -1)).transpose(1, 2)

    def flexed() -> None:
        found = torch.autograd.grad(out, leaves, upstream, retain_graph=True)
        made.results["flex"] = tuple(one.transpose(1, 2).flatten(0, 1) for one in found)

    yield "flex", flexed


def backward_errors() -> dict[str, float]:
    """Return the largest relative error of dq, dk, dv against float64, on the first case cut to fewer tokens."""
    case = replace(PREFILLS[0], query_lengths=(GRADIENT_TOKENS,), key_lengths=(GRADIENT_TOKENS,))
    made = make_prefill(case)
    names = [name for name, call in _backwards(made) if call() is None]
    leaves = [tensor.double().requires_grad_() for tensor in (made.inputs.query, made.inputs.key, made.inputs.value)]
    grouped = leaves[0].unflatten(1, (case.kv_heads, -1))
    positions = torch.arange(GRADIENT_TOKENS, device="cuda")
    scores = torch.einsum("ihgd,jhd->hgij", grouped, leaves[1]) * case.head_dim**-0.5
    weights = torch.softmax(scores.masked_fill(~case.pattern.sees(positions, positions), -torch.inf), -1)
    out = torch.einsum("hgij,jhd->ihgd", weights, leaves[2]).flatten(1, 2)
    exact = torch.autograd.grad(out, leaves, made.results["grad_out"].double())
    return {
        name: max(
            float((found.double() - right).norm() / right.norm())
            for found, right in zip(made.results[name], exact, strict=True)
        )
        for name in names
    }


PagedCall = tuple[str, Callable[[], Any], int, Callable[[], float]]


def paged_calls(case: AttentionCase) -> Iterator[PagedCall]:
    """Yield name, call, number of equal parts and error of what takes a case over pages, ours first."""
    torch.cuda.empty_cache()
    torch._dynamo.reset()  # noqa: SLF001 -- as in make_prefill
    made = list(_make_paged(case))
    out = torch.empty_like(made[0].query)
    lse = torch.empty(case.heads, len(out), device="cuda")
    one_query = made[0].max_query == 1
    for family in ("hopper_decode", "triton_decode") if one_query else ("hopper_paged", "triton_paged"):
        kernel = importlib.import_module(f"patchkit.runtime.attention.{family}").KERNELS[0]
        run = partial(kernel.run, pattern=case.pattern, out=out, lse=lse)
        yield kernel.name, partial(run, made[0]), 1, partial(_paged_error, made[0], case.pattern, out)
        if one_query:

            def rotate(run: Callable[[Inputs], None] = run) -> None:
                for inputs in made:
                    run(inputs)

            yield f"{kernel.name}_rotating", rotate, _COPIES, partial(_paged_error, made[-1], case.pattern, out)
    flash3 = _flash3(made[0], case.pattern)
    window = Pattern(anchors=0)
    yield "flash3_window_only", flash3, 1, lambda: _paged_error(made[0], window, flash3()[0])
    if made[0].max_query >= _GATHERED:
        yield from _gathered_calls(made[0], case, out, lse)


def _make_paged(case: AttentionCase) -> Iterator[Inputs]:
    """Yield calls over one cache with other tables, as many as are made in a row."""
    batch, length, queries = len(case.key_lengths), case.key_lengths[0], case.query_lengths[0]
    pages = batch * length // case.page_size
    shape = (pages, case.page_size, case.kv_heads, case.head_dim)
    key, value = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for copy in range(_COPIES if queries == 1 else 1):
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(copy)).int()
        yield Inputs(
            query=torch.randn(batch * queries, case.heads, case.head_dim, device="cuda", dtype=torch.bfloat16),
            key=key,
            value=value,
            query_starts=torch.arange(batch + 1, device="cuda", dtype=torch.int32) * queries,
            max_query=queries,
            max_key=length,
            key_lengths=torch.full((batch,), length, dtype=torch.int32, device="cuda"),
            block_table=order.view(batch, -1).cuda(),
        )


def _gathered_calls(inputs: Inputs, case: AttentionCase, out: torch.Tensor, lse: torch.Tensor) -> Iterator[PagedCall]:
    """Yield what had to be done without a kernel for pages: copy the keys together, then attend over packed ones."""
    if inputs.block_table is None:
        raise TypeError("pages have a table")
    table, batch = inputs.block_table.long(), inputs.batch
    starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * inputs.max_key
    prefill = importlib.import_module("patchkit.runtime.attention.hopper").KERNELS[0]

    def gather() -> list[torch.Tensor]:
        return [cache[table].flatten(1, 2) for cache in (inputs.key, inputs.value)]  # [B, keys, Hkv, D]

    def gathered() -> None:
        key, value = (cache.flatten(0, 1) for cache in gather())
        changes = {"key": key, "value": value, "key_starts": starts, "key_lengths": None, "block_table": None}
        packed = Inputs(**{name: changes.get(name, getattr(inputs, name)) for name in Inputs.__slots__})
        prefill.run(packed, case.pattern, out, lse)

    yield "gathered_hopper_prefill", gathered, 1, lambda: _paged_error(inputs, case.pattern, out)
    flex = torch.compile(flex_attention, dynamic=False)
    mask = _block_mask(case.pattern, inputs.max_query, keys=inputs.max_key)
    found: list[torch.Tensor] = []

    def gathered_flex() -> None:
        query = inputs.query.unflatten(0, (batch, -1)).transpose(1, 2)
        key, value = (cache.transpose(1, 2) for cache in gather())
        found[:] = [flex(query, key, value, block_mask=mask, enable_gqa=True).transpose(1, 2).flatten(0, 1)]

    yield "gathered_flex", gathered_flex, 1, lambda: _paged_error(inputs, case.pattern, found[0])


def _paged_error(inputs: Inputs, pattern: Pattern, out: torch.Tensor) -> float:
    """Return the relative error over pages on sampled rows, against float64."""
    if inputs.block_table is None:
        raise TypeError("pages have a table")
    wrong = right = 0.0
    length, size, queries = inputs.max_key, inputs.key.shape[1], inputs.max_query
    for row in torch.linspace(0, len(out) - 1, SAMPLED // 6).long().tolist():
        position = torch.tensor([length - queries + row % queries])
        keys = pattern.sees(position, torch.arange(length))[0].nonzero()[:, 0].to(out.device)
        pages = inputs.block_table[row // queries, keys // size].long()
        key, value = (cache[pages, keys % size].double() for cache in (inputs.key, inputs.value))
        query = inputs.query[row].double().unflatten(0, (inputs.kv_heads, -1))
        weights = torch.softmax(torch.einsum("hgd,nhd->hgn", query, key) * query.shape[-1] ** -0.5, -1)
        exact = torch.einsum("hgn,nhd->hgd", weights, value).flatten(0, 1)
        wrong += float((out[row].double() - exact).square().sum())
        right += float(exact.square().sum())
    return float((wrong / right) ** 0.5)
