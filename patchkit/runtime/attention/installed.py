"""Dense attention by what is installed: cuDNN and FlashAttention within PyTorch, and vLLM's FlashAttention 3.

They know no anchors. Dense cases are left to them where they are fastest; a window alone is taken by FlashAttention 3
when it is measured beside ours. They are reached through PyTorch's operators, since only those return the log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .problem import FORWARD, Inputs, Pattern, Problem
from .registry import Kernel

_HALVES = (torch.float16, torch.bfloat16)
_WIDEST = 256
_CUDNN_WIDEST = 128
_HOPPER = (9, 0)
_POSITIVE = "takes positive scales"  # PyTorch masks before it scales, and -inf times 0 or less is NaN


def _call(operator: str, more: dict[str, Any], inputs: Inputs, pattern: Pattern) -> Callable[[], Any]:
    """Return a call of one of PyTorch's operators, which want equal sequences as [B, H, S, D], and kv heads
    repeated.
    """
    group = inputs.heads // inputs.kv_heads
    query, key, value = (
        tensor.unflatten(0, (inputs.batch, -1)).transpose(1, 2) for tensor in (inputs.query, inputs.key, inputs.value)
    )
    if group > 1:
        key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    attend: Any = getattr(torch.ops.aten, operator)
    causal = pattern.causal and inputs.max_query > 1
    scale = pattern.scale_for(query.shape[-1])
    return lambda: attend(query, key, value, is_causal=causal, scale=scale, **more)


def _kernel(name: str, summary: str, refusal: Callable[[Problem], str], operator: str, **more: Any) -> Kernel:
    """Return one of PyTorch's operators as a kernel; timed without the copies that come before and after it.

    FlashAttention 2 says infinity where the log-sum-exp is not a number; `run` says NaN. No row is empty here, which is
    infinity too.
    """

    def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
        found, sums, *_ = _call(operator, more, inputs, pattern)()
        sums = sums.masked_fill(sums == torch.inf, torch.nan)
        out.copy_(found.transpose(1, 2).flatten(0, 1))
        lse.copy_(sums.reshape(inputs.batch, inputs.heads, -1).transpose(0, 1).flatten(1))

    def timed(inputs: Inputs, pattern: Pattern) -> Callable[[], object]:
        return _call(operator, more, inputs, pattern)

    return Kernel(name=name, step=FORWARD, summary=summary, refusal=refusal, run=run, yardstick=True, timed=timed)


def _dense_refusal(problem: Problem, widest: int) -> str:
    """Return why PyTorch's dense operators cannot: they know equal lengths, aligned at the first token, and no
    extras.
    """
    pattern = problem.pattern
    if not problem.dense or problem.learned or pattern.softcap:
        return "dense attention only: no window, anchors, learned anchors or soft cap"
    if problem.page_size or not problem.equal_lengths:
        return "sequences of equal length in packed keys only"
    if pattern.causal and problem.max_query not in (1, problem.max_key):
        return "its causal mask is aligned at the first token; here keys precede the queries"
    if not problem.max_key or not problem.max_query:
        return "no empty sequences"
    if problem.value_dim != problem.head_dim or problem.head_dim % 8 or problem.head_dim > widest:
        return f"head dims that are a multiple of 8, up to {widest}, the same for values"
    return "" if pattern.scale_for(problem.head_dim) > 0 else _POSITIVE


def _cuda_refusal(problem: Problem, widest: int) -> str:
    if problem.device != "cuda":
        return "needs CUDA"
    if problem.dtype not in _HALVES:
        return "float16 and bfloat16 only"
    return _dense_refusal(problem, widest)


def _cudnn_refusal(problem: Problem) -> str:
    if problem.device == "cuda" and not torch.backends.cudnn.is_available():
        return "this PyTorch has no cuDNN"
    return _cuda_refusal(problem, _CUDNN_WIDEST)


def _flash_refusal(problem: Problem) -> str:
    return _cuda_refusal(problem, _WIDEST)


def _flash_cpu_refusal(problem: Problem) -> str:
    if problem.device != "cpu":
        return "needs a CPU"
    return _dense_refusal(problem, _WIDEST)


def _flash3_refusal(problem: Problem) -> str:
    """FlashAttention 3 of vLLM is there where something has loaded it: an engine, or `attention bench --peers`."""
    pattern = problem.pattern
    if problem.device != "cuda" or not hasattr(_flash3_operators(), "fwd"):
        return "vLLM's FlashAttention 3 is not loaded"
    if torch.cuda.get_device_capability() < _HOPPER or problem.dtype not in _HALVES:
        return "Hopper, with float16 and bfloat16, only"
    if not problem.dense and (pattern.anchors or not pattern.causal):
        return "a causal window without anchors, or dense, only"
    if problem.learned or problem.value_dim != problem.head_dim:
        return "no learned anchors, values as wide as keys"
    if pattern.scale_for(problem.head_dim) <= 0:
        return _POSITIVE
    return "" if problem.head_dim <= _WIDEST and problem.head_dim % 8 == 0 else "head dims up to 256 only"


def _flash3(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    lse.copy_(_flash3_call(inputs, pattern, out)()[1])


def _flash3_timed(inputs: Inputs, pattern: Pattern) -> Callable[[], object]:
    shape = (*inputs.query.shape[:2], inputs.value.shape[-1])
    return _flash3_call(inputs, pattern, inputs.query.new_empty(shape))


def _flash3_call(inputs: Inputs, pattern: Pattern, out: Tensor) -> Callable[[], Any]:
    """Return a call of the vLLM 0.26.0 wheel's operator; the arguments are in its flash_attn_interface.py's order."""
    left = -1 if pattern.window is None else pattern.window - 1
    right = 0 if pattern.causal else -1
    paged = inputs.block_table is not None
    scale = pattern.scale_for(inputs.query.shape[-1])
    places = (inputs.query_starts, None if paged else inputs.key_starts, None, None, inputs.key_lengths)
    window = (scale, pattern.causal, left, right, pattern.softcap)
    return lambda: _flash3_operators().fwd(
        *(inputs.query, inputs.key, inputs.value, None, None, None, out),
        *(*places, inputs.max_query, inputs.max_key, inputs.block_table, None, None, None, None, None),
        *(None, None, None, *window, True, None, 0, None, 0, None, 1, 0, None),
    )


def _flash3_operators() -> Any:
    return torch.ops._vllm_fa3_C  # noqa: SLF001 -- the library's own name


KERNELS = (
    _kernel(
        "cudnn",
        "cuDNN, dense",
        _cudnn_refusal,
        "_scaled_dot_product_cudnn_attention",
        attn_bias=None,
        compute_log_sumexp=True,
    ),
    Kernel(
        name="flash3",
        step=FORWARD,
        summary="vLLM's FlashAttention 3",
        refusal=_flash3_refusal,
        run=_flash3,
        yardstick=True,
        timed=_flash3_timed,
    ),
    _kernel("torch_flash", "FlashAttention 2 of PyTorch, dense", _flash_refusal, "_scaled_dot_product_flash_attention"),
    _kernel(
        "torch_flash_cpu",
        "PyTorch's fused attention on a CPU, dense",
        _flash_cpu_refusal,
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
)
