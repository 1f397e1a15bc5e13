"""The reference against PyTorch's own attention with an explicit mask, and the laws of states."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from patchkit.attention.case import SHAPES, AttentionCase, make_inputs
from patchkit.record import replace
from patchkit.runtime.attention.problem import AttentionError, Inputs, Pattern
from patchkit.runtime.attention.reference import (
    attention_reference,
    gradients_reference,
    keys_seen,
    merge_states,
    replace_tensors,
)

PICTURES = {
    "causal": (
        Pattern(window=2, anchors=1),
        4,
        4,
        ["#...", "##..", "###.", "#.##"],
    ),
    "both-sided": (
        Pattern(window=2, anchors=1, causal=False),
        4,
        4,
        ["##..", "###.", "####", "#.##"],
    ),
    "dense": (Pattern(window=None, anchors=9), 3, 3, ["#..", "##.", "###"]),
    "dense both-sided": (Pattern(window=None, causal=False), 2, 3, ["###", "###"]),
    "keys before the queries": (Pattern(window=2, anchors=1), 2, 5, ["#.##.", "#..##"]),
    "fewer keys than queries": (Pattern(window=2, anchors=1), 4, 2, ["..", "..", "#.", "##"]),
    "no anchors": (Pattern(window=1, anchors=0), 3, 3, ["#..", ".#.", "..#"]),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pattern_is_the_picture(name: str) -> None:
    pattern, queries, keys, picture = PICTURES[name]
    seen = [keys_seen(row + keys - queries, keys, pattern).tolist() for row in range(queries)]
    assert ["".join("#" if key in row else "." for key in range(keys)) for row in seen] == picture


def inputs_of(**fields: Any) -> tuple[AttentionCase, Inputs]:
    case = replace(AttentionCase(name="", query_lengths=(), key_lengths=()), dtype="float64", **fields)
    return case, make_inputs(case, "cpu")


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both-sided"])
@pytest.mark.parametrize("window", [None, 1, 7, 100], ids=str)
@pytest.mark.parametrize("lengths", [(31, 31), (5, 31)], ids=str)
def test_it_is_what_pytorch_computes_with_the_mask(causal: bool, window: int | None, lengths: tuple[int, int]) -> None:
    queries, keys = lengths
    pattern = Pattern(window=window, anchors=3, causal=causal, scale=0.2)
    _, inputs = inputs_of(query_lengths=(queries,), key_lengths=(keys,), heads=6, kv_heads=3, pattern=pattern)
    mask = pattern.sees(torch.arange(keys - queries, keys), torch.arange(keys))
    query, key, value = (one.transpose(0, 1)[None] for one in (inputs.query, inputs.key, inputs.value))
    right = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=0.2, enable_gqa=True
    )
    out, lse = attention_reference(inputs, pattern)
    torch.testing.assert_close(out, right[0].transpose(0, 1))
    scores = (query @ key.repeat_interleave(2, dim=1).transpose(-1, -2) * 0.2)[0].masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(lse, scores.logsumexp(-1))


def test_soft_cap_bends_scores_before_the_mask() -> None:
    _, inputs = inputs_of(query_lengths=(9,), key_lengths=(9,), heads=1, kv_heads=1)
    pattern = Pattern(window=None, softcap=1.5, scale=0.5)
    scores = inputs.query[:, 0] @ inputs.key[:, 0].T * 0.5
    bent = (1.5 * torch.tanh(scores / 1.5)).masked_fill(~torch.ones(9, 9, dtype=torch.bool).tril(), -torch.inf)
    torch.testing.assert_close(attention_reference(inputs, pattern)[0][:, 0], bent.softmax(-1) @ inputs.value[:, 0])


def test_pages_hold_what_packed_keys_hold() -> None:
    lengths = {"query_lengths": (3, 1), "key_lengths": (37, 16)}
    _, packed = inputs_of(**lengths)
    case, paged = inputs_of(**lengths, page_size=16)
    assert paged.key.isnan().any(), "the tails of pages hold NaN"
    for one, other in zip(
        attention_reference(paged, case.pattern), attention_reference(packed, case.pattern), strict=True
    ):
        assert torch.equal(one, other)


def test_learned_anchors_are_keys_that_everyone_sees() -> None:
    _, inputs = inputs_of(query_lengths=(12,), key_lengths=(12,), learned=4)
    assert inputs.anchor_key is not None
    assert inputs.anchor_value is not None
    whole = replace_tensors(
        inputs,
        {
            "key": torch.cat([inputs.anchor_key.transpose(0, 1), inputs.key]),
            "value": torch.cat([inputs.anchor_value.transpose(0, 1), inputs.value]),
            "key_starts": torch.tensor([0, 16], dtype=torch.int32),
        },
    )
    bare = Inputs(
        **{**{name: getattr(whole, name) for name in Inputs.__slots__}, "anchor_key": None, "anchor_value": None}
    )
    # Four positional anchors in front of everything are seen by all rows too, and the window is counted from the end.
    out, lse = attention_reference(inputs, Pattern(window=5, anchors=0))
    right, right_lse = attention_reference(bare, Pattern(window=5, anchors=4))
    torch.testing.assert_close(out[1:], right[1:])
    torch.testing.assert_close(lse[:, 1:], right_lse[:, 1:])


class TestEmptyRows:
    def test_out_is_zero_and_lse_minus_infinity(self) -> None:
        case, inputs = inputs_of(query_lengths=(5, 2), key_lengths=(2, 0))
        out, lse = attention_reference(inputs, case.pattern)
        empty = torch.tensor([True, True, True, False, False, True, True])
        assert out[empty].eq(0).all()
        assert lse[:, empty].eq(-torch.inf).all()
        assert lse[:, ~empty].isfinite().all()

    def test_gradient_is_zero(self) -> None:
        case, inputs = inputs_of(query_lengths=(5,), key_lengths=(2,))
        out, lse = attention_reference(inputs, case.pattern)
        found = gradients_reference(inputs, case.pattern, torch.ones_like(out), torch.ones_like(lse))
        assert found.query[:3].eq(0).all()
        assert found.query[3:].ne(0).any()
        assert found.key.isfinite().all()

    def test_gradient_of_nothing_but_empty_rows(self) -> None:
        case, inputs = inputs_of(query_lengths=(3,), key_lengths=(0,))
        found = gradients_reference(inputs, case.pattern, torch.ones(3, 4, 64, dtype=torch.float64))
        assert found.query.eq(0).all()
        assert found.key.shape == (0, 2, 64)


def test_nan_reaches_exactly_the_rows_that_see_it() -> None:
    pattern = Pattern(window=3, anchors=0)
    _, inputs = inputs_of(query_lengths=(10,), key_lengths=(10,), pattern=pattern)
    inputs.value[4, 0, 7] = torch.nan
    out, lse = attention_reference(inputs, pattern)
    assert out.isnan().nonzero().tolist() == [[row, head, 7] for row in (4, 5, 6) for head in (0, 1)]
    assert lse.isfinite().all()
    inputs.key[4, 1, 0] = torch.nan
    assert attention_reference(inputs, pattern)[1].isnan().nonzero().tolist() == [
        [head, row] for head in (2, 3) for row in (4, 5, 6)
    ]


class TestMerge:
    def test_states_of_two_parts_make_the_whole(self) -> None:
        dense = Pattern(window=None, causal=False)
        _, inputs = inputs_of(query_lengths=(6,), key_lengths=(20,))

        def part(begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
            starts = torch.tensor([0, end - begin], dtype=torch.int32)
            cut = {"key": inputs.key[begin:end], "value": inputs.value[begin:end], "key_starts": starts}
            return attention_reference(replace_tensors(inputs, cut), dense)

        whole = attention_reference(inputs, dense)
        for merged in (merge_states(*part(0, 7), *part(7, 20)), merge_states(*part(0, 0), *part(0, 20))):
            torch.testing.assert_close(merged[0], whole[0])
            torch.testing.assert_close(merged[1], whole[1])

    def test_two_empty_states_are_empty(self) -> None:
        out, lse = torch.full((2, 3, 4), torch.nan), torch.full((3, 2), -torch.inf)
        merged, merged_lse = merge_states(out, lse, out, lse)
        assert merged.eq(0).all()
        assert merged_lse.eq(-torch.inf).all()

    def test_gradient_passes_and_is_finite_at_empty_states(self) -> None:
        out = torch.randn(2, 1, 4, requires_grad=True)
        lse = torch.tensor([[-torch.inf, 0.5]], requires_grad=True)
        other = torch.tensor([[-torch.inf, -torch.inf]])
        merged, merged_lse = merge_states(out, lse, torch.full((2, 1, 4), torch.nan), other)
        (merged.sum() + merged_lse[:, 1].sum()).backward()
        assert out.grad is not None
        assert out.grad[:, 0].tolist() == [[0.0] * 4, [1.0] * 4]
        torch.testing.assert_close(lse.grad, torch.tensor([[0.0, 1.0]]))  # exact but for the rounding of sums

    def test_halves_are_rounded_once(self) -> None:
        generator = torch.Generator().manual_seed(0)
        outs = torch.randn(2, 50, 3, 8, generator=generator).bfloat16()
        sums = torch.randn(2, 3, 50, generator=generator)
        merged, _ = merge_states(outs[0], sums[0], outs[1], sums[1])
        shares = sums.softmax(0).transpose(1, 2)[..., None]
        assert torch.equal(merged, (shares * outs).sum(0).bfloat16())

    @pytest.mark.parametrize("shape", [(1, 2), (3, 2), (2, 1)], ids=str)
    def test_states_of_other_rows_are_refused(self, shape: tuple[int, ...]) -> None:
        out, lse = torch.zeros(3, 2, 4), torch.zeros(2, 3)
        with pytest.raises(AttentionError, match="of the same rows"):
            merge_states(out, lse, out, torch.zeros(shape))


@pytest.mark.parametrize("row", [-1, 10])
def test_a_row_of_no_sequence_is_refused(row: int) -> None:
    case, inputs = inputs_of(query_lengths=(10,), key_lengths=(10,))
    with pytest.raises(AttentionError, match=f"row {row} of 10"):
        attention_reference(inputs, case.pattern, rows=[row])


def test_sampled_rows_are_rows_of_the_whole() -> None:
    case = next(one for one in SHAPES if one.name == "very unequal lengths")
    inputs = make_inputs(case, "cpu")
    rows = [0, 1, 17, 300, 303]
    out, lse = attention_reference(inputs, case.pattern, rows=rows, dtype=torch.float64)
    whole, whole_lse = attention_reference(inputs, case.pattern, dtype=torch.float64)
    assert torch.equal(out, whole[rows])
    assert torch.equal(lse, whole_lse[:, rows])
