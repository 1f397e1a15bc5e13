"""Calls the operators of a stand-in for FlashAttention: `flash_calls.py LIBRARY`; digests and samples as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from benchmarks import native_gpu_cases as cases

Call = Callable[[float, int], tuple[torch.Tensor, torch.Tensor]]
"""Takes a scale and a window, 0 for none; returns the output and the log of the sums."""


def main() -> None:
    """Make every call of the library's release for each line of the standard input: `SCALE WINDOW`."""
    cases.DEVICE, cases.DTYPE = "cpu", torch.float32
    library = sys.argv[1]
    torch.ops.load_library(library)
    calls = list(fa3_calls() if "fa3" in Path(library).name else fa2_calls())
    for line in sys.stdin:
        scale, window = line.split()
        returned = [call(cases.SCALE * float(scale), int(window)) for call in calls]
        tensors = [out for out, _ in returned] + [lse for _, lse in returned]
        samples = [tensor.flatten()[::97].tolist() for tensor in tensors]
        sys.stdout.write(json.dumps({"digest": cases.digest(tensors), "samples": samples}) + "\n")
        sys.stdout.flush()


def fa3_calls() -> Iterator[Call]:
    """Yield vllm 0.26.0's: packed queries, an output that is given."""
    for case in cases.make_cases():
        yield partial(_fa3, case)


def _fa3(case: cases.Case, scale: float, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    case.out.fill_(float("nan"))
    out, lse, *_ = case.launch(scale, window)
    assert out.data_ptr() == case.out.data_ptr()
    return case.out, lse


def fa2_calls() -> Iterator[Call]:
    """Yield vllm 0.6.3's, which give no output, then one of each entry point that does."""
    made = cases.make_cases()
    for case in made:
        yield partial(_fa2_varlen, case, None)
    yield partial(_fa2_varlen, made[-1], made[-1].out)
    q, k, v = (torch.randn(2, 96, heads, cases.HEAD_DIM) for heads in (cases.HEADS, cases.KV_HEADS, cases.KV_HEADS))
    yield partial(_fa2, q, k, v, None)
    yield partial(_fa2, q, k, v, torch.empty_like(q))


def _fa2_varlen(
    case: cases.Case, out: torch.Tensor | None, scale: float, window: int
) -> tuple[torch.Tensor, torch.Tensor]:
    given = case.arguments
    starts = given.get("cu_seqlens_k")
    if starts is None:
        starts = torch.tensor([0, *accumulate(given["seqused_k"].tolist())], dtype=torch.int32)
    lengths = [given["cu_seqlens_q"], starts, None, given.get("page_table"), None, given["max_q"], given["max_k"]]
    operator = torch.ops.vllm_flash_attn_c.varlen_fwd
    return _checked(out, lambda: operator(case.q, case.k, case.v, out, *lengths, 0.0, scale, False, *_rest(window)))


def _fa2(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, scale: float, window: int
) -> tuple[torch.Tensor, torch.Tensor]:
    operator = torch.ops.vllm_flash_attn_c.fwd
    return _checked(out, lambda: operator(q, k, v, out, None, 0.0, scale, *_rest(window)))


def _rest(window: int) -> tuple[Any, ...]:
    """Return causal, both sides of the window, softcap, the weights, the generator; vllm 0.6.3 gives both the same."""
    return True, window - 1, window - 1, 0.0, False, None


def _checked(out: torch.Tensor | None, launch: Callable[[], Any]) -> tuple[torch.Tensor, torch.Tensor]:
    if out is not None:
        out.fill_(float("nan"))
    returned, _, _, _, _, lse, *_ = launch()
    assert out is None or returned.data_ptr() == out.data_ptr()
    return returned, lse


if __name__ == "__main__":
    main()
