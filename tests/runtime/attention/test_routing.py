"""Roles per kv head: all routed heads dense is dense, none is local, and a gate picks by block."""

from __future__ import annotations

from dataclasses import replace as changed

import pytest
import torch
from torch import Tensor

from patchkit.attention.case import AttentionCase, make_inputs
from patchkit.runtime.attention.ops import attention
from patchkit.runtime.attention.problem import AttentionError, Inputs, Pattern
from patchkit.runtime.attention.roles import Role, Roles, routing_cost
from patchkit.runtime.attention.routing import blocks_of, route, routed_attention

PATTERN = Pattern(window=9, anchors=2)
CASES = {
    "packed": AttentionCase(
        name="", query_lengths=(70, 33), key_lengths=(70, 40), dtype="float32", heads=8, kv_heads=4
    ),
    "decode": AttentionCase(
        name="", query_lengths=(1, 1), key_lengths=(100, 33), dtype="float32", heads=8, kv_heads=4, page_size=16
    ),
    "both-sided": AttentionCase(name="", query_lengths=(50,), key_lengths=(50,), dtype="float32", heads=8, kv_heads=4),
}


def prepared(name: str) -> tuple[Inputs, Pattern, Tensor, Tensor]:
    inputs = make_inputs(CASES[name], "cpu")
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(inputs.query.shape[0], 32, generator=generator)
    return inputs, changed(PATTERN, causal=name != "both-sided"), hidden, torch.randn(4, 32, generator=generator)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("picked", "window"), [(4, None), (9, None), (0, 9)], ids=["all", "more than all", "none"])
def test_all_picked_is_dense_and_none_is_local(name: str, picked: int, window: int | None) -> None:
    inputs, pattern, hidden, gate = prepared(name)
    blocks = blocks_of(inputs, 16)
    out, lse = routed_attention(
        inputs, pattern, Roles.parse("rrrr"), blocks=blocks, dense=route(gate, hidden, blocks, picked)
    )
    right, right_lse = attention(inputs, changed(pattern, window=window))
    torch.testing.assert_close(out, right)
    torch.testing.assert_close(lse, right_lse)


@pytest.mark.parametrize("name", CASES)
def test_each_head_plays_its_role(name: str) -> None:
    inputs, pattern, hidden, gate = prepared(name)
    roles, blocks = Roles.parse("lrgr"), blocks_of(inputs, 16)
    picked = route(gate[:2], hidden, blocks, 1)
    out, lse = routed_attention(inputs, pattern, roles, blocks=blocks, dense=picked)
    local, dense = attention(inputs, pattern), attention(inputs, changed(pattern, window=None))
    for head, role in enumerate(roles.roles):
        queries = slice(2 * head, 2 * head + 2)
        for begin, end, chosen in zip(blocks.begin, blocks.end, picked.tolist(), strict=True):
            far = role is Role.GLOBAL or (role is Role.ROUTED and chosen[roles.heads(Role.ROUTED).index(head)])
            right = dense if far else local
            torch.testing.assert_close(out[begin:end, queries], right[0][begin:end, queries])
            torch.testing.assert_close(lse[queries, begin:end], right[1][queries, begin:end])


def test_gate_picks_exactly_so_many_by_the_first_token_of_a_block() -> None:
    inputs, _, hidden, gate = prepared("packed")
    blocks = blocks_of(inputs, 16)
    assert list(zip(blocks.begin, blocks.end, strict=True)) == [
        *((0, 16), (16, 32), (32, 48), (48, 64), (64, 70)),
        *((70, 86), (86, 102), (102, 103)),
    ]
    picked = route(gate, hidden, blocks, 2)
    assert picked.sum(1).eq(2).all()
    logits = hidden[blocks.begin] @ gate.T
    assert torch.equal(picked, logits >= logits.sort(dim=1, descending=True).values[:, 1:2])
    others = hidden.clone()
    others[[begin + 1 for begin in blocks.begin if begin + 1 < 103]] = 0
    assert torch.equal(route(gate, others, blocks, 2), picked)


def test_autocast_picks_the_same_heads() -> None:
    inputs, _, hidden, gate = prepared("packed")
    near = gate[:1] + torch.tensor([[0.0], [1e-4], [2e-4], [3e-4]]) * gate[1:2]
    blocks = blocks_of(inputs, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = route(near, hidden, blocks, 1)
    assert torch.equal(cast, route(near, hidden, blocks, 1))


def test_equal_logits_pick_the_lower_head() -> None:
    inputs, _, hidden, gate = prepared("packed")
    assert route(torch.zeros_like(gate), hidden, blocks_of(inputs, 64), 2)[0].tolist() == [True, True, False, False]


class TestTensorParallel:
    def test_slices_together_are_the_layer(self) -> None:
        inputs, pattern, hidden, gate = prepared("packed")
        roles, blocks = Roles.parse("rlgr"), blocks_of(inputs, 16)
        picked = route(gate[:2], hidden, blocks, 1)
        whole, _ = routed_attention(inputs, pattern, roles, blocks=blocks, dense=picked)
        parts = []
        for rank in range(2):
            part = roles.shard(rank, 2)
            cut = changed(
                inputs,
                query=inputs.query[:, 4 * rank : 4 * rank + 4],
                key=inputs.key[:, 2 * rank : 2 * rank + 2],
                value=inputs.value[:, 2 * rank : 2 * rank + 2],
            )
            dense = picked[:, list(roles.columns_of(part))]
            parts.append(routed_attention(cut, pattern, part, blocks=blocks, dense=dense)[0])
        torch.testing.assert_close(torch.cat(parts, dim=1), whole)

    @pytest.mark.parametrize(
        ("rank", "size", "heads"),
        [(0, 1, (0, 1, 2, 3)), (1, 2, (2, 3)), (3, 4, (3,)), (0, 8, (0,)), (1, 8, (0,)), (7, 8, (3,))],
        ids=str,
    )
    def test_heads_keep_their_global_numbers(self, rank: int, size: int, heads: tuple[int, ...]) -> None:
        assert Roles.parse("llll").shard(rank, size).global_heads(Role.LOCAL) == heads

    @pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 3)], ids=str)
    def test_a_cut_that_cannot_be_is_refused(self, rank: int, size: int) -> None:
        with pytest.raises(AttentionError):
            Roles.parse("llgg").shard(rank, size)

    def test_a_slice_of_another_layer_is_refused(self) -> None:
        with pytest.raises(AttentionError, match="kv head 1 is routed in the slice"):
            Roles.parse("rl").columns_of(Roles.parse("rr"))


@pytest.mark.parametrize("text", ["", "lgx", "LG"])
def test_roles_are_letters(text: str) -> None:
    with pytest.raises(AttentionError, match="a letter per kv head"):
        Roles.parse(text)


def test_routed_heads_without_a_choice_are_refused() -> None:
    inputs, pattern, _, _ = prepared("packed")
    with pytest.raises(AttentionError, match="2 routed heads need blocks"):
        routed_attention(inputs, pattern, Roles.parse("rlgr"))
    with pytest.raises(AttentionError, match="3 roles for 4 kv heads"):
        routed_attention(inputs, pattern, Roles.parse("llg"))


@pytest.mark.parametrize("name", ["decode", "both-sided"])
def test_blocks_of_another_call_are_refused(name: str) -> None:
    inputs, pattern, _, _ = prepared("packed")
    blocks = blocks_of(prepared(name)[0], 16)
    dense = torch.ones(len(blocks.begin), 4, dtype=torch.bool)
    with pytest.raises(AttentionError, match="the blocks are those of another call, not of 103 tokens in 2 sequences"):
        routed_attention(inputs, pattern, Roles.parse("rrrr"), blocks=blocks, dense=dense)


@pytest.mark.parametrize(
    ("gate", "hidden"), [((2, 8), (40, 7)), ((2, 8), (5, 8)), ((2, 8), (8,)), ((8,), (40, 8))], ids=str
)
def test_a_gate_and_hidden_states_that_do_not_fit_are_refused(gate: tuple[int, ...], hidden: tuple[int, ...]) -> None:
    inputs, _, _, _ = prepared("packed")
    with pytest.raises(AttentionError, match="routed heads, hidden size"):
        route(torch.zeros(gate), torch.zeros(hidden), blocks_of(inputs, 4), 1)


def test_gradients_pass_through_local_and_global_heads() -> None:
    inputs, pattern, _, _ = prepared("packed")
    query = inputs.query.requires_grad_()
    routed_attention(inputs, pattern, Roles.parse("lggl"))[0].sum().backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()


def test_cost_is_what_the_roles_need() -> None:
    cost = routing_cost(
        Roles.parse("lllgrr"), Pattern(window=512, anchors=32), context=10_000, picked=1, row_bytes=512, hidden=4096
    )
    assert cost.dense == 6 * 10_000 * 512
    assert cost.read == (4 * 544 + 2 * 10_000) * 512
    assert cost.stored == (3 * 544 + 3 * 10_000) * 512
    assert cost.saved == cost.dense - cost.read
    assert (cost.gate_operations, cost.gate_bytes) == (2 * 2 * 4096, 2 * 4096 * 2)


@pytest.mark.parametrize(("context", "picked"), [(-1, 0), (100, -1)], ids=str)
def test_the_cost_of_less_than_nothing_is_refused(context: int, picked: int) -> None:
    with pytest.raises(AttentionError, match="0 or more of each"):
        routing_cost(Roles.parse("lr"), Pattern(), context=context, picked=picked, row_bytes=512, hidden=64)


def test_short_contexts_save_nothing() -> None:
    cost = routing_cost(Roles.parse("ll"), Pattern(), context=100, picked=0, row_bytes=512, hidden=64)
    assert cost.saved == 0
