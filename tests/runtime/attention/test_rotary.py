"""Rotary embedding: scores see differences of positions only, and a cached key can be turned further."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from patchkit.runtime.attention.problem import AttentionError
from patchkit.runtime.attention.rotary import Rotary, apply_rotary, rerotate, scale_queries

LENGTH = 96
FAR = 32768 - LENGTH

# Largest change of a score (scores up to 5) by an offset of FAR: 2.8e-3 and 5e-7 were measured in float32 tables,
# 1.8e-2 in bfloat16 ones. docs/attention.md states these bounds.
TOLERANCES = {
    "float32 angles": (Rotary(dim=64), 7e-3),
    "float64 angles": (Rotary(dim=64, angle_dtype=torch.float64), 2e-6),
    "interleaved": (Rotary(dim=64, interleaved=True), 7e-3),
    "half of the head": (Rotary(dim=32), 7e-3),
    "bfloat16 tables": (Rotary(dim=64, table_dtype=torch.bfloat16), 5e-2),
}


def heads(seed: int) -> Tensor:
    return torch.randn(LENGTH, 4, 64, generator=torch.Generator().manual_seed(seed))


def scores(query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("qhd,khd->hqk", query.double(), key.double()) * 64**-0.5


QUERY, KEY, POSITIONS = heads(0), heads(1), torch.arange(LENGTH)


@pytest.mark.parametrize("name", TOLERANCES)
def test_uniform_offset_changes_no_score(name: str) -> None:
    rotary, tolerance = TOLERANCES[name]
    near = scores(apply_rotary(QUERY, POSITIONS, rotary), apply_rotary(KEY, POSITIONS, rotary))
    far = scores(apply_rotary(QUERY, POSITIONS, rotary, offset=FAR), apply_rotary(KEY, POSITIONS, rotary, offset=FAR))
    assert float((near - far).abs().max()) < tolerance


@pytest.mark.parametrize("name", TOLERANCES)
def test_unequal_offsets_are_other_positions(name: str) -> None:
    rotary, tolerance = TOLERANCES[name]
    shifted = scores(apply_rotary(QUERY, POSITIONS, rotary, offset=5), apply_rotary(KEY, POSITIONS, rotary, offset=2))
    right = scores(apply_rotary(QUERY, POSITIONS + 3, rotary), apply_rotary(KEY, POSITIONS, rotary))
    bare = scores(apply_rotary(QUERY, POSITIONS, rotary), apply_rotary(KEY, POSITIONS, rotary))
    torch.testing.assert_close(shifted, right, atol=tolerance, rtol=0)
    assert float((shifted - bare).abs().max()) > 0.5


@pytest.mark.parametrize("name", TOLERANCES)
@pytest.mark.parametrize("delta", [-17, 1, FAR])
def test_turning_a_cached_key_further_is_making_it_anew(name: str, delta: int) -> None:
    rotary, tolerance = TOLERANCES[name]
    moved = rerotate(apply_rotary(KEY, POSITIONS + 20, rotary), delta, rotary)
    right = apply_rotary(KEY, POSITIONS + 20 + delta, rotary)
    query = apply_rotary(QUERY, POSITIONS, rotary, offset=20 + delta)
    assert float((scores(query, moved) - scores(query, right)).abs().max()) < tolerance


def test_each_key_can_have_its_own_delta() -> None:
    rotary = Rotary(dim=64, angle_dtype=torch.float64)
    deltas = torch.arange(LENGTH) % 7
    moved = rerotate(apply_rotary(KEY, POSITIONS, rotary), deltas, rotary)
    torch.testing.assert_close(moved, apply_rotary(KEY, POSITIONS + deltas, rotary), atol=1e-5, rtol=1e-5)


def test_it_is_the_rotation_by_complex_numbers() -> None:
    rotary = Rotary(dim=8, angle_dtype=torch.float64, table_dtype=torch.float64, interleaved=True)
    head = torch.randn(5, 1, 8, dtype=torch.float64)
    turn = torch.polar(
        torch.ones(5, 4, dtype=torch.float64),
        torch.arange(5)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8),
    )
    right = torch.view_as_real(torch.view_as_complex(head.unflatten(-1, (4, 2))) * turn[:, None]).flatten(-2)
    torch.testing.assert_close(apply_rotary(head, torch.arange(5), rotary), right)


def test_dimensions_behind_the_rotary_ones_stay() -> None:
    assert torch.equal(apply_rotary(KEY, POSITIONS, Rotary(dim=32))[..., 32:], KEY[..., 32:])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32], ids=str)
def test_positions_of_few_bits_may_be_moved_far(dtype: torch.dtype) -> None:
    near, far = torch.arange(len(KEY)) % 100, 2**31 - 1
    rotary = Rotary(dim=64, angle_dtype=torch.float64)
    assert torch.equal(
        apply_rotary(KEY, near.to(dtype), rotary, offset=far), apply_rotary(KEY, near, rotary, offset=far)
    )


@pytest.mark.parametrize("factor", [0.5, torch.tensor([1.0, 2.0, 0.5, 0.25])], ids=["a number", "one per head"])
def test_scaled_queries_scale_scores(factor: float | Tensor) -> None:
    scaled = scores(scale_queries(QUERY, factor), KEY)
    expected = scores(QUERY, KEY) * (factor if isinstance(factor, float) else factor[:, None, None].double())
    torch.testing.assert_close(scaled, expected)


def test_scaled_queries_of_float64_keep_their_digits() -> None:
    assert torch.equal(scale_queries(QUERY.double(), 1 / 3), QUERY.double() * (1 / 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: apply_rotary(KEY, POSITIONS, Rotary(dim=63)), "pairs of dimensions, not 63"),
        (lambda: apply_rotary(KEY, POSITIONS, Rotary(dim=-2)), "pairs of dimensions, not -2"),
        (lambda: apply_rotary(KEY, POSITIONS[:1], Rotary(dim=64)), r"positions of the shape \[1\]"),
        (lambda: apply_rotary(KEY, POSITIONS, Rotary(dim=128)), "turns 128"),
        (lambda: scale_queries(QUERY, torch.ones(3)), r"\[4\]"),
        (lambda: scale_queries(QUERY.long(), 0.5), "query .* of torch.int64: expected floats"),
        (lambda: apply_rotary(KEY.long(), POSITIONS, Rotary(dim=64)), "heads .* of torch.int64: expected floats"),
        (lambda: apply_rotary(KEY[:, 0], POSITIONS, Rotary(dim=64)), r"heads \[96, 64\]"),
        (lambda: apply_rotary(KEY, POSITIONS.bfloat16(), Rotary(dim=64)), "positions are torch.bfloat16"),
        (lambda: rerotate(KEY[:1], POSITIONS, Rotary(dim=64)), r"an offset of the shape \[96\] for positions of \[1\]"),
        (lambda: rerotate(KEY, POSITIONS[:, None], Rotary(dim=64)), r"an offset of the shape \[96, 1\]"),
        (lambda: apply_rotary(KEY, POSITIONS, Rotary(dim=64, base=0.0)), "a base of 0.0"),
        (lambda: apply_rotary(KEY, POSITIONS, Rotary(dim=64, angle_dtype=torch.int64)), "angle_dtype is torch.int64"),
    ],
)
def test_what_cannot_be_meant_is_refused(call: Callable[[], Tensor], words: str) -> None:
    with pytest.raises(AttentionError, match=words):
        call()
