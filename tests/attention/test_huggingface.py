"""A tiny model of transformers with our attention: padded batches, both caches, gradients, and what is refused."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from patchkit.runtime.attention import huggingface
from patchkit.runtime.attention.huggingface import NAME, key_ranges, register
from patchkit.runtime.attention.problem import AttentionError, Pattern
from patchkit.runtime.attention.roles import Roles

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::FutureWarning:torch"),
]

PATTERN = Pattern(window=8, anchors=3)
LENGTHS = (23, 11, 31)
LONGEST = max(LENGTHS)


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    register(PATTERN)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=101,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation=NAME,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, 101, (length,), generator=generator) for length in LENGTHS]


def padded(rows: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    batch, mask = torch.zeros(2, len(rows), LONGEST, dtype=torch.int64)
    for place, row in enumerate(rows):
        cut = slice(LONGEST - len(row), LONGEST) if side == "left" else slice(0, len(row))
        batch[place, cut], mask[place, cut] = row, 1
    return batch, mask


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batch_is_its_single_rows(model: Any, rows: list[Tensor], side: str) -> None:
    batch, mask = padded(rows, side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        together = model(batch, attention_mask=mask, position_ids=positions).logits
        for place, row in enumerate(rows):
            alone = model(row[None]).logits[0]
            torch.testing.assert_close(together[place][mask[place].bool()], alone, atol=1e-5, rtol=1e-5)


def test_without_the_mask_function_padding_would_be_seen(model: Any, rows: list[Tensor]) -> None:
    batch, mask = padded(rows, "left")
    with torch.no_grad():
        right = model(batch, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits[1, -1]
        unmasked = model(batch, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits[1, -1]
    assert float((right - unmasked).abs().max()) > 0.01


def test_a_window_over_everything_is_sdpa(model: Any, rows: list[Tensor]) -> None:
    register(Pattern(window=1000), name="patchkit_wide")
    try:
        with torch.no_grad():
            sparse = model(rows[2][None]).logits
            model.set_attn_implementation("patchkit_wide")
            wide = model(rows[2][None]).logits
            model.set_attn_implementation("sdpa")
            dense = model(rows[2][None]).logits
    finally:
        model.set_attn_implementation(NAME)
    torch.testing.assert_close(wide, dense, atol=1e-5, rtol=1e-5)
    assert float((sparse - dense).abs().max()) > 0.01


@pytest.mark.parametrize("cache", [None, "static"], ids=["dynamic", "static"])
def test_generated_tokens_are_the_same_padded_and_alone(model: Any, rows: list[Tensor], cache: str | None) -> None:
    batch, mask = padded(rows, "left")
    options: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "disable_compile": True}
    if cache:
        options["cache_implementation"] = cache
    together = model.generate(batch, attention_mask=mask, **options)
    for place, row in enumerate(rows):
        alone = model.generate(row[None], attention_mask=torch.ones(1, len(row), dtype=torch.int64), **options)
        assert together[place, -8:].tolist() == alone[0, -8:].tolist()


def test_decoding_from_a_static_cache_compiles_without_a_break(model: Any, rows: list[Tensor]) -> None:
    from transformers import StaticCache

    compiled = torch.compile(model, fullgraph=True, backend="eager")
    cache = StaticCache(config=model.config, max_cache_len=64)
    with torch.no_grad():
        whole = model(rows[2][None]).logits
        model(rows[2][None, :20], past_key_values=cache)
        step = compiled(rows[2][None, 20:21], past_key_values=cache)
    torch.testing.assert_close(step.logits[0, 0], whole[0, 20], atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_padded_rows_alone(model: Any, rows: list[Tensor]) -> None:
    batch, mask = padded(rows[:2], "right")
    weight = model.model.layers[0].self_attn.k_proj.weight

    def gradient(*calls: tuple[Tensor, Tensor]) -> Tensor:
        model.zero_grad()
        for ids, seen in calls:
            logits = model(ids, attention_mask=seen).logits
            logits[seen.bool()].logsumexp(-1).sum().backward()
        return weight.grad.clone()

    together = gradient((batch, mask))
    alone = gradient(*((row[None], torch.ones(1, len(row), dtype=torch.int64)) for row in rows[:2]))
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_roles_make_some_heads_dense(model: Any, rows: list[Tensor]) -> None:
    register(PATTERN, roles={layer: Roles.parse("gg") for layer in range(2)}, name="patchkit_global")
    try:
        with torch.no_grad():
            model.set_attn_implementation("patchkit_global")
            found = model(rows[2][None]).logits
            model.set_attn_implementation("sdpa")
            dense = model(rows[2][None]).logits
    finally:
        model.set_attn_implementation(NAME)
    torch.testing.assert_close(found, dense, atol=1e-5, rtol=1e-5)


def test_transformers_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    monkeypatch.setattr(transformers, "__version__", "5.5.4")
    with pytest.raises(AttentionError, match="too old for patchkit_sparse"):
        register()


@pytest.mark.parametrize("version", ["5.6.0.dev0", "5.10.1", "6.0rc1"])
def test_newer_transformers_are_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    import transformers

    monkeypatch.setattr(transformers, "__version__", version)
    register(name="patchkit_newer")


def test_routed_heads_are_refused() -> None:
    with pytest.raises(AttentionError, match="layer 3: routed heads"):
        register(roles={3: Roles.parse("lr")})


def test_roles_and_patterns_that_would_not_be_looked_at_are_refused() -> None:
    with pytest.raises(AttentionError, match="roles of the layer '0'"):
        register(roles={"0": Roles.parse("lg")})  # type: ignore[dict-item]
    with pytest.raises(AttentionError, match="patchkit_sparse is causal"):
        register(Pattern(causal=False))


class TestMask:
    def ranges(self, mask: list[list[int]], **more: Any) -> Tensor:
        from transformers.masking_utils import causal_mask_function

        length = len(mask[0])
        options: dict[str, Any] = {"q_length": length, "kv_length": length, "mask_function": causal_mask_function}
        return key_ranges(len(mask), attention_mask=torch.tensor(mask), **{**options, **more})

    def test_padding_is_a_range_a_row(self) -> None:
        assert self.ranges([[0, 0, 1], [1, 1, 1], [1, 0, 0], [0, 0, 0]])[:, 0, 0].tolist() == [
            [2, 1, 0],
            [0, 3, 0],
            [0, 1, 0],
            [0, 0, 0],
        ]

    def test_no_padding_is_a_number(self) -> None:
        assert self.ranges([[1, 1], [1, 1]]).tolist() == [[[[2]]], [[[2]]]]

    def test_slots_that_are_not_filled_yet_do_not_count(self) -> None:
        assert self.ranges([[1, 1, 1, 1]], q_length=1, q_offset=torch.tensor(1)).tolist() == [[[[2]]]]

    def test_padding_between_tokens_is_refused(self) -> None:
        with pytest.raises(AttentionError, match="padding between the tokens"):
            self.ranges([[1, 0, 1]])

    def test_other_masks_are_refused(self) -> None:
        with pytest.raises(AttentionError, match="more than causal"):
            self.ranges([[1, 1]], local_size=4)
        with pytest.raises(AttentionError, match="dropped its first keys"):
            self.ranges([[1, 1]], kv_offset=3)


def test_what_the_kernels_do_not_know_is_refused(model: Any) -> None:
    sparse = huggingface._Sparse(PATTERN, {})
    one = torch.zeros(1, 2, 3, 4)
    with pytest.raises(AttentionError, match="has no sliding_window"):
        sparse.attend(None, one, one, one, None, sliding_window=4)
    with pytest.raises(
        AttentionError, match="has no cu_seq_lens_q"
    ):  # packed sequences, that FlashAttention is told of
        model(torch.ones(1, 4, dtype=torch.int64), cu_seq_lens_q=torch.tensor([0, 2, 4]))
    with pytest.raises(AttentionError, match="has no dropout"):
        sparse.attend(None, one, one, one, None, dropout=0.1)
    for mask in (None, torch.zeros(1, 1, 3, 3), torch.ones(1, 1, 3, 3, dtype=torch.int32)):
        with pytest.raises(AttentionError, match="given no mask of its own"):
            sparse.attend(None, one, one, one, mask)


def test_autocast_trains(model: Any, rows: list[Tensor]) -> None:
    batch, mask = padded(rows, "right")
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(batch, attention_mask=mask, labels=batch).loss
    loss.backward()
    weight = model.model.layers[0].self_attn.k_proj.weight
    assert weight.grad.isfinite().all()
    assert weight.grad.ne(0).any()
    model.zero_grad()
