"""FlexAttention of PyTorch as a yardstick: it alone of the peers knows anchors. Compiled, for CUDA; packed keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from patchkit.runtime.attention.problem import BACKWARD, FORWARD, Gradients, Inputs, Pattern, Problem, Saved
from patchkit.runtime.attention.registry import Kernel


def _refusal(problem: Problem) -> str:
    if problem.device != "cuda":
        return "needs CUDA"
    if problem.page_size or not problem.equal_lengths or problem.max_query != problem.max_key or not problem.max_key:
        return "as a yardstick: packed keys, equal lengths, as many queries as keys"
    if problem.learned or problem.pattern.softcap:
        return "as a yardstick: no learned anchors, no soft cap"
    if problem.head_dim & (problem.head_dim - 1):
        return "head dims that are a power of two"
    return "float16 and bfloat16 only" if problem.dtype not in (torch.float16, torch.bfloat16) else ""


@lru_cache(maxsize=8)
def _mask(pattern: Pattern, queries: int) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:  # noqa: ARG001 -- FlexAttention's signature
        if pattern.window is None:
            return j <= i if pattern.causal else j >= 0
        if pattern.causal:
            return (j <= i) & ((i - j < pattern.window) | (j < pattern.anchors))
        return ((i - j).abs() < pattern.window) | (j < pattern.anchors)

    return create_block_mask(sees, None, None, queries, queries, device="cuda", _compile=True)


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    made: Callable[..., Any] = torch.compile(flex_attention, dynamic=False)
    return made


def _attend(inputs: Inputs, pattern: Pattern) -> tuple[Tensor, Tensor, list[Tensor]]:
    laid = [
        tensor.unflatten(0, (inputs.batch, -1)).transpose(1, 2) for tensor in (inputs.query, inputs.key, inputs.value)
    ]
    out, lse = _compiled()(
        *laid,
        block_mask=_mask(pattern, inputs.max_query),
        scale=pattern.scale_for(inputs.query.shape[-1]),
        enable_gqa=inputs.heads != inputs.kv_heads,
        return_lse=True,
    )
    return out, lse, laid


def _forward_timed(inputs: Inputs, pattern: Pattern) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return _attend(inputs, pattern)

    return call


def _forward(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    with torch.no_grad():
        found, sums, _ = _attend(inputs, pattern)
    out.copy_(found.transpose(1, 2).flatten(0, 1))
    lse.copy_(sums.transpose(0, 1).flatten(1))


class _Graph:
    """The last forward that a backward was asked for: a second backward of the same inputs does not run it again."""

    def __init__(self) -> None:
        self.key: tuple[int, ...] = ()
        self.state: tuple[Tensor, Tensor, list[Tensor]] | None = None

    def of(self, inputs: Inputs, pattern: Pattern) -> tuple[Tensor, Tensor, list[Tensor]]:
        key = (id(inputs.query), id(inputs.key), id(inputs.value))
        if self.state is None or self.key != key:
            leaves = [one.detach().requires_grad_() for one in (inputs.query, inputs.key, inputs.value)]
            fresh = Inputs(
                query=leaves[0],
                key=leaves[1],
                value=leaves[2],
                query_starts=inputs.query_starts,
                key_starts=inputs.key_starts,
                max_query=inputs.max_query,
                max_key=inputs.max_key,
            )
            out, lse, _ = _attend(fresh, pattern)
            self.key, self.state = key, (out, lse, leaves)
        return self.state


_GRAPH = _Graph()


def _backward(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
    found = _backward_timed(inputs, pattern, saved)()
    for gradient, tensor in zip((gradients.query, gradients.key, gradients.value), found, strict=True):
        gradient.copy_(tensor)


def _backward_timed(inputs: Inputs, pattern: Pattern, saved: Saved) -> Callable[[], tuple[Tensor, ...]]:
    out, lse, leaves = _GRAPH.of(inputs, pattern)
    outputs, given = [out], [saved.grad_out.unflatten(0, (inputs.batch, -1)).transpose(1, 2)]
    if saved.grad_lse is not None:
        outputs.append(lse)
        given.append(saved.grad_lse.unflatten(1, (inputs.batch, -1)).transpose(0, 1))

    def call() -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.autograd.grad(outputs, leaves, given, retain_graph=True)
        return found

    return call


KERNELS = (
    Kernel(
        name="flex",
        step=FORWARD,
        summary="FlexAttention",
        refusal=_refusal,
        run=_forward,
        timed=_forward_timed,
        yardstick=True,
        choosable=False,
    ),
    Kernel(
        name="flex_backward",
        step=BACKWARD,
        summary="FlexAttention",
        refusal=_refusal,
        run=_backward,
        timed=_backward_timed,
        yardstick=True,
        choosable=False,
    ),
)
