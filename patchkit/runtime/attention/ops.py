"""Attention as PyTorch operators: dispatched to the best kernel, with autograd, torch.compile and CUDA graphs.

The operators' namespace is the package's name, so that the copy in a patched engine and this one do not meet.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from .autocast import as_written, autocast_dtype, autocasted
from .problem import BACKWARD, FORWARD, AttentionError, Gradients, Inputs, Pattern, Problem, Saved, describe
from .registry import Kernel, choose
from .validate import check_values, checked

NAMESPACE = (__package__ or "patchkit").replace(".", "_")

_CALL = (
    "Tensor query, Tensor key, Tensor value, Tensor query_starts, SymInt max_query, SymInt max_key, "
    "Tensor? key_starts, Tensor? key_lengths, Tensor? block_table, Tensor? anchor_key, Tensor? anchor_value, "
    "SymInt? window, SymInt anchors, bool causal, float? scale, float softcap, bool deterministic, bool checks"
)
_TENSORS = (
    *("query", "key", "value", "query_starts", "max_query", "max_key", "key_starts", "key_lengths", "block_table"),
    *("anchor_key", "anchor_value"),
)
_LEARNED = ("anchor_key", "anchor_value")
_DIFFERENTIABLE = ("query", "key", "value", *_LEARNED)
_PATTERN = ("window", "anchors", "causal", "scale", "softcap")
_SLOWLY = "or reference.attention_reference, slow, which PyTorch differentiates in every way"


def attention(
    inputs: Inputs, pattern: Pattern, *, deterministic: bool = False, checks: bool = False
) -> tuple[Tensor, Tensor]:
    """Return out [Tq, H, Dv] in the query's dtype and lse [H, Tq] float32 (float64 for float64), by the best kernel
    here.

    `deterministic`: the gradients have the same bits every time. `checks`: the contents of index tensors are checked
    on a GPU too, which waits for it; on a CPU they always are. Under autocast, tensors are cast as for PyTorch's own
    attention. Raises AttentionError for what cannot be meant, where no kernel can, and for a forward-mode derivative.
    """
    call = _cast(inputs)
    result: tuple[Tensor, Tensor] = _forward(
        *call, *(getattr(pattern, name) for name in _PATTERN), deterministic, checks
    )
    return result


def _cast(inputs: Inputs) -> list[Any]:
    """Return the arguments of a call as autocast wants them; refuse those of a forward-mode derivative."""
    call = {name: getattr(inputs, name) for name in _TENSORS}
    for name in _DIFFERENTIABLE:
        tensor = call[name]
        if tensor is None and name in _LEARNED:
            continue
        if not isinstance(tensor, Tensor):
            raise AttentionError(f"{name} is {type(tensor).__name__}, expected a tensor")
        if unpack_dual(tensor).tangent is not None:  # PyTorch would go on without it
            raise AttentionError(f"attention has no forward-mode derivative; use backward, {_SLOWLY}")
        if (dtype := autocast_dtype(tensor.device.type)) is not None:
            call[name] = autocasted(tensor, dtype)
    return list(call.values())


def _split(arguments: tuple[Any, ...]) -> tuple[Inputs, Pattern, bool, bool]:
    tensors = dict(zip(_TENSORS, arguments, strict=False))
    rest = arguments[len(_TENSORS) :]
    return Inputs(**tensors), Pattern(**dict(zip(_PATTERN, rest, strict=False))), rest[-2], rest[-1]


def _run_forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    inputs, pattern, _, checks = _split(arguments)
    inputs = checked(inputs, pattern)
    if checks or inputs.query.device.type == "cpu":  # there is no device to wait for
        check_values(inputs)
    out, lse = _outputs(inputs)
    if out.numel():
        _answer(describe(inputs, pattern, step=FORWARD), out.device, inputs, pattern, out, lse)
    return out, lse


def _answer(problem: Problem, device: torch.device, *arguments: Any) -> None:
    """Let the chosen kernel run where its tensors are."""
    with _current(device), as_written(device.type):
        _kernel_for(problem, device.index).run(*arguments)


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which a GPU is the current one: kernels start there, wherever their tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@lru_cache(maxsize=4096)
def _kernel_for(problem: Problem, gpu: int | None) -> Kernel:  # noqa: ARG001 -- GPUs of a machine may differ
    """Return the chosen kernel for the current GPU; an engine asks the same again for every layer."""
    return choose(problem).kernel


def _fake_forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    inputs, pattern, _, _ = _split(arguments)
    return _outputs(checked(inputs, pattern))


def _outputs(inputs: Inputs) -> tuple[Tensor, Tensor]:
    tokens, heads = inputs.query.shape[:2]
    wide = torch.float64 if inputs.query.dtype == torch.float64 else torch.float32
    out = inputs.query.new_empty(tokens, heads, inputs.value.shape[-1])
    return out, inputs.query.new_empty(heads, tokens, dtype=wide)


def _run_backward(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, lse: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    inputs, pattern, deterministic, _ = _split(arguments)
    inputs = checked(inputs, pattern)
    gradients = _gradients(inputs)
    saved = Saved(
        out=out,
        lse=lse,
        grad_out=grad_out.contiguous(),
        grad_lse=None if grad_lse is None else grad_lse.contiguous(),
    )
    if out.numel():
        problem = describe(inputs, pattern, step=BACKWARD, deterministic=deterministic)
        _answer(problem, out.device, inputs, pattern, saved, _given(inputs, gradients))
    else:
        for gradient in gradients:
            gradient.zero_()
    return gradients


def _fake_backward(
    grad_out: Tensor,  # noqa: ARG001 -- the operator's signature
    grad_lse: Tensor | None,  # noqa: ARG001
    out: Tensor,  # noqa: ARG001
    lse: Tensor,  # noqa: ARG001
    *arguments: Any,
) -> tuple[Tensor, ...]:
    return _gradients(_split(arguments)[0])


def _gradients(inputs: Inputs) -> tuple[Tensor, ...]:
    """Return room for five gradients; an absent input has an empty one, since an operator returns no None."""
    tensors = (getattr(inputs, name) for name in _DIFFERENTIABLE)
    return tuple(inputs.query.new_empty(0 if tensor is None else tensor.shape) for tensor in tensors)


def _given(inputs: Inputs, gradients: tuple[Tensor, ...]) -> Gradients:
    named = zip(_DIFFERENTIABLE, gradients, strict=True)
    return Gradients(**{name: gradient for name, gradient in named if getattr(inputs, name) is not None})


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    tensors = [one if isinstance(one, Tensor) else None for one in inputs]
    ctx.save_for_backward(*output, *tensors)
    ctx.plain = [None if isinstance(one, Tensor) else one for one in inputs]


def _differentiate(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    out, lse, *tensors = ctx.saved_tensors
    arguments = [plain if tensor is None else tensor for tensor, plain in zip(tensors, ctx.plain, strict=True)]
    if tensors[_TENSORS.index("block_table")] is not None:
        raise AttentionError("a paged cache has no gradient; attend over packed keys to train")
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    found = dict(zip(_DIFFERENTIABLE, _backward(grad_out, grad_lse, out, lse, *arguments), strict=True))
    names = (*_TENSORS, *(None for _ in arguments[len(_TENSORS) :]))
    return tuple(
        found[name] if name in found and argument is not None else None
        for name, argument in zip(names, arguments, strict=True)
    )


def _differentiate_twice(ctx: Any, *gradients: Tensor | None) -> None:  # noqa: ARG001 -- the operator's signature
    raise AttentionError(f"attention has no second derivative; leave create_graph off, {_SLOWLY}")


_forward: Any = torch.library.custom_op(
    f"{NAMESPACE}::attention", _run_forward, mutates_args=(), schema=f"({_CALL}) -> (Tensor, Tensor)"
)
_forward.register_fake(_fake_forward)
_backward: Any = torch.library.custom_op(
    f"{NAMESPACE}::attention_backward",
    _run_backward,
    mutates_args=(),
    schema=f"(Tensor grad_out, Tensor? grad_lse, Tensor out, Tensor lse, {_CALL}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_backward.register_fake(_fake_backward)
_forward.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_differentiate_twice)
