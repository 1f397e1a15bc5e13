"""The PyTorch kernel on every case of the check."""

from __future__ import annotations

import pytest
import torch

from patchkit.attention.case import SHAPES, AttentionCase, make_inputs
from patchkit.attention.check import check_kernels
from patchkit.record import replace
from patchkit.runtime.attention import eager
from patchkit.runtime.attention.problem import Pattern
from patchkit.runtime.attention.reference import attention_reference

HALVES = ("odd lengths", "a NaN that some rows see", "soft cap and scale", "learned anchors", "paged, several queries")


def faults(case: AttentionCase) -> list[tuple[str, str]]:
    results = list(check_kernels(eager.KERNELS, [case], "cpu"))
    assert any(not result.refusal for result in results)
    return [(result.kernel, fault) for result in results for fault in result.faults]


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_it_is_right_in_float32(case: AttentionCase) -> None:
    assert faults(replace(case, dtype="float32")) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", HALVES)
def test_it_is_right_in_half_precision(name: str, dtype: str) -> None:
    case = next(one for one in SHAPES if one.name == name)
    assert faults(replace(case, dtype=dtype)) == []


@pytest.mark.parametrize("seed", range(8))
def test_blocks_join_without_a_seam(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    window, anchors, length = (int(torch.randint(1, most, (), generator=generator)) for most in (150, 400, 150))
    case = AttentionCase(
        name="seam",
        query_lengths=(length + 130,),
        key_lengths=(length + 150,),
        dtype="float64",
        heads=1,
        kv_heads=1,
        head_dim=8,
        pattern=Pattern(window=window, anchors=anchors, causal=seed % 2 == 0),
    )
    inputs = make_inputs(case, "cpu", seed=seed)
    out, lse = torch.empty_like(inputs.query), torch.empty(1, length + 130, dtype=torch.float64)
    eager.forward(inputs, case.pattern, out, lse)
    right, right_lse = attention_reference(inputs, case.pattern)
    torch.testing.assert_close(out, right)
    torch.testing.assert_close(lse, right_lse)
