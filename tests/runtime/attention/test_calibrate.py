"""Calibration finds the retrieval heads planted in a model that must look far to answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from patchkit.runtime.attention.calibrate import roles_from, score_heads
from patchkit.runtime.attention.ops import attention
from patchkit.runtime.attention.problem import AttentionError, Inputs, Pattern
from patchkit.runtime.attention.roles import Role, Roles
from patchkit.runtime.attention.routing import routed_attention

LENGTH, WORDS, DIM = 300, 64, 64
PATTERN = Pattern(window=16, anchors=2)


class Retrieval:
    """A layer whose planted kv heads look up where the query's word stood before, and whose others look at neighbours.

    A word is a random direction. Planted: key and query are the word's direction, so that the last token finds its
    equal. Others: key and query tell the position on a circle, so that the nearest positions win.
    """

    def __init__(self, planted: tuple[int, ...], kv_heads: int) -> None:
        self.planted, self.kv_heads = planted, kv_heads
        generator = torch.Generator().manual_seed(5)
        self.words = torch.nn.functional.normalize(torch.randn(WORDS * 8, DIM, generator=generator), dim=1)

    def sequence(self, seed: int) -> tuple[Tensor, int]:
        """Return words that are all different, but for the last, which stood once before, far back."""
        generator = torch.Generator().manual_seed(seed)
        words = torch.randperm(len(self.words), generator=generator)[:LENGTH]
        needle = int(torch.randint(20, 200, (), generator=generator))
        words[-1] = words[needle]
        return words, needle

    def inputs(self, words: Tensor) -> Inputs:
        content = self.words[words] * 8 * DIM**0.25
        angle = torch.arange(LENGTH)[:, None] * (2 * torch.pi / torch.tensor([7.0, 31.0, 400.0]))
        place = torch.cat([angle.cos(), angle.sin()], dim=1).repeat(1, 11)[:, :DIM] * 3
        per_head = [content if head in self.planted else place for head in range(self.kv_heads)]
        keys = torch.stack(per_head, dim=1)
        starts = torch.tensor([0, LENGTH], dtype=torch.int32)
        value = self.words[words][:, None].expand(-1, self.kv_heads, -1).contiguous()
        return Inputs(
            query=keys.repeat_interleave(2, dim=1),
            key=keys,
            value=value,
            query_starts=starts,
            key_starts=starts,
            max_query=LENGTH,
            max_key=LENGTH,
        )

    def samples(self) -> Iterator[Inputs]:
        return (self.inputs(self.sequence(seed)[0]) for seed in range(3))


@pytest.mark.parametrize("planted", [(1,), (0, 3), ()], ids=str)
def test_planted_heads_are_found_and_no_others(planted: tuple[int, ...]) -> None:
    # A planted head looks far in one row of each sample only: the mean over rows would not show it.
    scores = score_heads(Retrieval(planted, 4).samples(), PATTERN)
    assert roles_from(scores).heads(Role.GLOBAL) == planted


def test_found_roles_answer_what_local_heads_cannot() -> None:
    model = Retrieval((2,), 4)
    roles = roles_from(score_heads(model.samples(), PATTERN))
    words, needle = model.sequence(99)
    words[-1] = words[needle]
    inputs = model.inputs(words)
    inputs.value[-1] = 0  # the last token shall not answer by its own value
    dense = attention(inputs, Pattern(window=None))[0]
    target = model.words[words[needle]]

    def answer(out: Tensor) -> float:
        return float(out[-1, 4] @ target)

    found, local = (
        routed_attention(inputs, PATTERN, roles)[0],
        routed_attention(inputs, PATTERN, Roles.parse("llll"))[0],
    )
    assert answer(found) == pytest.approx(answer(dense), abs=1e-5)
    assert answer(found) > 0.4
    assert abs(answer(local)) < 0.1


def test_sequences_within_the_window_say_nothing() -> None:
    with pytest.raises(AttentionError, match="calibrate on longer sequences"):
        score_heads(Retrieval((1,), 2).samples(), Pattern(window=LENGTH))


def test_no_row_and_samples_of_two_layers_say_nothing_either() -> None:
    narrow, wide = Retrieval((1,), 2).samples(), Retrieval((1,), 4).samples()
    with pytest.raises(AttentionError, match="0 rows of a sample"):
        score_heads(narrow, PATTERN, rows=0)
    with pytest.raises(AttentionError, match="differ in kv heads"):
        score_heads([*narrow, *wide], PATTERN)


def test_samples_with_nan_say_nothing() -> None:
    (sample,) = list(Retrieval((1,), 3).samples())[:1]
    sample.key[7, 2] = torch.nan
    with pytest.raises(AttentionError, match="kv heads 2 see NaN"):
        score_heads([sample], PATTERN)


def test_samples_that_attention_would_refuse_are_refused() -> None:
    (sample,) = list(Retrieval((1,), 3).samples())[:1]
    with pytest.raises(AttentionError, match="6 query heads are no multiple of 4 kv heads"):
        score_heads(
            [replace(sample, key=sample.key[:, :1].expand(-1, 4, -1), value=sample.value.new_zeros(LENGTH, 4, 8))],
            PATTERN,
        )
    with pytest.raises(AttentionError, match="key_starts runs from 0 to 299"):
        score_heads([replace(sample, key_starts=sample.key_starts - torch.tensor([0, 1], dtype=torch.int32))], PATTERN)


@pytest.mark.parametrize("threshold", [-0.1, 25.0, float("nan")])
def test_a_threshold_is_a_share(threshold: float) -> None:
    with pytest.raises(AttentionError, match="a share of the softmax"):
        roles_from(score_heads(Retrieval((1,), 2).samples(), PATTERN), threshold=threshold)
