"""The operators: right, differentiable, compiled whole, two copies side by side, and clear about what they refuse."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from patchkit.attention.case import SHAPES, AttentionCase, make_inputs
from patchkit.record import replace
from patchkit.runtime.attention import ops
from patchkit.runtime.attention.ops import attention
from patchkit.runtime.attention.problem import AttentionError, Inputs, Pattern, describe
from patchkit.runtime.attention.reference import attention_reference, gradients_reference

PACKED = AttentionCase(
    name="packed", query_lengths=(33, 7), key_lengths=(33, 20), dtype="float32", head_dim=16, learned=3
)
PAGED = AttentionCase(name="paged", query_lengths=(1, 3), key_lengths=(33, 20), dtype="float32", page_size=16)
DIFFERENTIABLE = ("query", "key", "value", "anchor_key", "anchor_value")


def leaves_of(inputs: Inputs) -> dict[str, Tensor]:
    return {name: getattr(inputs, name).requires_grad_() for name in DIFFERENTIABLE}


@pytest.mark.parametrize("case", [PACKED, PAGED], ids=lambda case: case.name)
def test_it_is_the_reference(case: AttentionCase) -> None:
    inputs = make_inputs(case, "cpu")
    out, lse = attention(inputs, case.pattern, checks=True)
    right, right_lse = attention_reference(inputs, case.pattern)
    torch.testing.assert_close(out, right)
    torch.testing.assert_close(lse, right_lse)


def test_kernels_start_on_the_gpu_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Kernel:
        def run(self, *_: Any) -> None:
            asked.append("run")

    class Device:
        def __init__(self, device: torch.device) -> None:
            asked.append(device)

        def __enter__(self) -> None:
            asked.append("in")

        def __exit__(self, *_: object) -> None:
            asked.append("out")

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(ops, "choose", lambda _: type("Choice", (), {"kernel": Kernel()}))
    problem = describe(make_inputs(PACKED, "cpu"), PACKED.pattern)
    ops._answer(changed(problem, device="cuda"), torch.device("cuda:1"))
    ops._kernel_for.cache_clear()
    assert asked == [torch.device("cuda:1"), "in", "run", "out"]


@pytest.mark.parametrize("used", ["out", "lse", "both"])
def test_gradients_are_those_of_the_reference(used: str) -> None:
    inputs = make_inputs(PACKED, "cpu")
    leaves = leaves_of(inputs)
    out, lse = attention(inputs, PACKED.pattern)
    grad_out = torch.randn_like(out) if used != "lse" else torch.zeros_like(out)
    grad_lse = torch.randn_like(lse) if used != "out" else torch.zeros_like(lse)
    used_tensors = {"out": [out], "lse": [lse], "both": [out, lse]}[used]
    used_grads = {"out": [grad_out], "lse": [grad_lse], "both": [grad_out, grad_lse]}[used]
    torch.autograd.backward(used_tensors, used_grads)
    right = gradients_reference(inputs, PACKED.pattern, grad_out, grad_lse)
    for name, leaf in leaves.items():
        torch.testing.assert_close(leaf.grad, getattr(right, name), atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_finite_differences() -> None:
    case = AttentionCase(
        name="tiny",
        query_lengths=(5,),
        key_lengths=(6,),
        dtype="float64",
        heads=2,
        kv_heads=1,
        head_dim=3,
        learned=1,
        pattern=Pattern(window=2, anchors=1, softcap=1.5),
    )
    inputs = make_inputs(case, "cpu")

    def run(*tensors: Tensor) -> Any:
        return attention(changed(inputs, **dict(zip(DIFFERENTIABLE, tensors, strict=True))), case.pattern)

    assert torch.autograd.gradcheck(run, tuple(leaves_of(inputs).values()))


def test_torch_finds_the_operator_well_formed() -> None:
    inputs = make_inputs(PACKED, "cpu")
    leaves_of(inputs)
    arguments = [getattr(inputs, name) for name in ops._TENSORS]
    operator = getattr(torch.ops, ops.NAMESPACE).attention.default
    found = torch.library.opcheck(operator, (*arguments, 24, 5, True, None, 0.0, False, False))
    assert set(found.values()) == {"SUCCESS"}


def test_compiles_without_a_break_forward_and_backward() -> None:
    inputs = make_inputs(PACKED, "cpu")

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        call = Inputs(
            query=query * 2,
            key=key,
            value=value,
            query_starts=inputs.query_starts,
            key_starts=inputs.key_starts,
            max_query=33,
            max_key=33,
        )
        out, lse = attention(call, Pattern(window=9, anchors=2))
        return out + lse.T[..., None]

    tensors = [getattr(inputs, name).clone().requires_grad_() for name in ("query", "key", "value")]
    eager_out = run(*tensors)
    right = torch.autograd.grad(eager_out.sum(), tensors)
    compiled_out = torch.compile(run, fullgraph=True, backend="aot_eager")(*tensors)
    torch.testing.assert_close(compiled_out, eager_out)
    torch.testing.assert_close(torch.autograd.grad(compiled_out.sum(), tensors), right)


def ragged(batch: int) -> Inputs:
    lengths = tuple(range(2, 2 + batch))
    return make_inputs(replace(PACKED, query_lengths=lengths, key_lengths=lengths, learned=0), "cpu")


def of_tensors(query: Tensor, key: Tensor, value: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    call = Inputs(query=query, key=key, value=value, query_starts=starts, key_starts=starts, max_query=16, max_key=16)
    return attention(call, PACKED.pattern)


def tensors_of(inputs: Inputs) -> tuple[Tensor, ...]:
    return inputs.query, inputs.key, inputs.value, inputs.query_starts


def test_batches_of_any_size_are_compiled_once() -> None:
    torch._dynamo.reset()
    frames = []

    def count(graph: Any, _: Any) -> Any:
        frames.append(graph)
        return graph.forward

    compiled = torch.compile(of_tensors, fullgraph=True, dynamic=True, backend=count)
    for batch in range(2, 13):  # more than torch.compile would compile anew
        call = tensors_of(ragged(batch))
        torch.testing.assert_close(compiled(*call), of_tensors(*call))
    assert len(frames) == 1


def test_exports_with_a_batch_of_any_size() -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]  # torch is seen as Any
        def forward(self, *call: Tensor) -> tuple[Tensor, Tensor]:
            return of_tensors(*call)

    tokens, ends = torch.export.Dim("tokens"), torch.export.Dim("ends")
    shapes = {"call": ({0: tokens}, {0: tokens}, {0: tokens}, {0: ends})}
    exported = torch.export.export(Model(), tensors_of(ragged(3)), dynamic_shapes=shapes).module()
    call = tensors_of(ragged(5))
    torch.testing.assert_close(exported(*call), of_tensors(*call))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_casts_what_comes_in_and_nothing_inside(dtype: torch.dtype) -> None:
    inputs = make_inputs(PACKED, "cpu")
    mixed = changed(inputs, value=inputs.value.to(dtype), query=inputs.query.requires_grad_())
    with pytest.raises(AttentionError, match="value is"):
        attention(mixed, PACKED.pattern)
    with torch.autocast("cpu", dtype=dtype):
        out, _ = attention(mixed, PACKED.pattern)
        out.sum().backward()
    cast = {name: getattr(inputs, name).detach().to(dtype).requires_grad_() for name in DIFFERENTIABLE}
    right, _ = attention(changed(inputs, **cast), PACKED.pattern)
    right.sum().backward()
    assert torch.equal(out, right)
    assert torch.equal(inputs.query.grad, cast["query"].grad.float())


def test_autocast_leaves_float64() -> None:
    inputs = make_inputs(replace(PACKED, dtype="float64"), "cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attention(inputs, PACKED.pattern)[0].dtype == torch.float64


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, at its first use
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_forward_mode_derivative_is_refused_and_not_zero(name: str) -> None:
    inputs = make_inputs(PACKED, "cpu")
    tensor = getattr(inputs, name)

    def run(moved: Tensor) -> Tensor:
        return attention(changed(inputs, **{name: moved}), PACKED.pattern)[0]

    with pytest.raises(AttentionError, match="no forward-mode derivative"):
        torch.func.jvp(run, (tensor,), (tensor,))
    with forward_ad.dual_level(), pytest.raises(AttentionError, match="no forward-mode derivative"):
        run(forward_ad.make_dual(tensor, tensor))


def test_a_second_derivative_is_refused() -> None:
    inputs = make_inputs(PACKED, "cpu")
    query = inputs.query.requires_grad_()
    out, _ = attention(inputs, PACKED.pattern)
    (gradient,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
    with pytest.raises(AttentionError, match="no second derivative"):
        gradient.sum().backward()


def test_a_slice_and_a_transposed_tensor_are_handled() -> None:
    inputs = make_inputs(replace(PACKED, strided=True), "cpu")
    swapped = inputs.value.transpose(1, 2).contiguous().transpose(1, 2)
    assert swapped.stride(-1) != 1
    out, _ = attention(changed(inputs, value=swapped), PACKED.pattern)
    torch.testing.assert_close(out, attention_reference(inputs, PACKED.pattern)[0])


def test_no_queries_at_all() -> None:
    inputs = make_inputs(replace(PACKED, query_lengths=(0, 0)), "cpu")
    leaves = leaves_of(inputs)
    out, lse = attention(inputs, PACKED.pattern)
    assert out.shape == (0, 4, 16)
    assert lse.shape == (4, 0)
    out.sum().backward()
    assert leaves["key"].grad is not None
    assert leaves["key"].grad.eq(0).all()


_TWO_COPIES = """
import torch
from patchkit.runtime.attention import ops as ours, problem
from engine._patchkit.attention import ops as theirs, problem as their_problem
starts = torch.tensor([0, 4], dtype=torch.int32)
def run(ops, problem):
    one = torch.arange(8.0).reshape(4, 1, 2)
    call = problem.Inputs(query=one, key=one, value=one, query_starts=starts, key_starts=starts, max_query=4, max_key=4)
    return ops.attention(call, problem.Pattern())[0]
assert ours.NAMESPACE != theirs.NAMESPACE
assert torch.equal(run(ours, problem), run(theirs, their_problem))
print(theirs.NAMESPACE)
"""


def test_a_copy_in_an_engine_stands_beside_ours(checkout: Path, tmp_path: Path) -> None:
    place = tmp_path / "engine" / "_patchkit"
    source = checkout / "patchkit" / "runtime" / "attention"
    shutil.copytree(source, place / "attention", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "engine" / "__init__.py").touch()
    (place / "__init__.py").touch()
    command = [sys.executable, "-c", _TWO_COPIES]
    environment = {"PYTHONPATH": f"{checkout}:{tmp_path}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "engine__patchkit_attention\n"), run.stderr


def packed(**changes: Any) -> Callable[[], object]:
    def call() -> object:
        inputs = make_inputs(PACKED, "cpu")
        made = {name: change(inputs) if callable(change) else change for name, change in changes.items()}
        return attention(changed(inputs, **made), PACKED.pattern)

    return call


def paged(**changes: Any) -> Callable[[], object]:
    def call() -> object:
        inputs = make_inputs(PAGED, "cpu")
        made = {name: change(inputs) if callable(change) else change for name, change in changes.items()}
        return attention(changed(inputs, **made), PAGED.pattern)

    return call


def with_entry(tensor: Tensor | None, place: tuple[int, ...], value: int) -> Tensor:
    assert tensor is not None
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


REFUSED = {
    "an array": (packed(query=lambda one: one.query.numpy()), "query is ndarray, expected a tensor"),
    "no values": (packed(value=None), "value is NoneType, expected a tensor"),
    "integers": (packed(query=lambda one: one.query.int()), "query is torch.int32"),
    "mixed dtypes": (packed(value=lambda one: one.value.half()), "value is torch.float16, expected torch.float32"),
    "starts of 64 bits": (packed(query_starts=lambda one: one.query_starts.long()), "query_starts is torch.int64"),
    "flat query": (packed(query=lambda one: one.query.flatten(1)), "expected \\[tokens, heads, head dim\\]"),
    "heads": (packed(query=lambda one: one.query[:, :3]), "3 query heads are no multiple of 2"),
    "head dims": (packed(query=lambda one: one.query[..., :8]), "head dim of 8, the key of 16"),
    "fewer values": (packed(value=lambda one: one.value[:-1]), "differ in more than the last dimension"),
    "half of learned anchors": (packed(anchor_value=None), "need anchor_key and anchor_value"),
    "learned anchors of other heads": (packed(anchor_key=lambda one: one.anchor_key[:1]), "anchor_key has the shape"),
    "starts of another batch": (packed(key_starts=lambda one: one.key_starts[:2]), "key_starts has the shape \\[2\\]"),
    "no key starts": (packed(key_starts=None), "packed keys need key_starts"),
    "starts that end early": (
        packed(query_starts=lambda one: with_entry(one.query_starts, (2,), 39)),
        "expected 0 to 40",
    ),
    "starts that go back": (
        packed(max_query=50, query_starts=lambda one: with_entry(one.query_starts, (1,), 41)),
        "before it begins",
    ),
    "longer than stated": (packed(max_key=19), "more than the stated 19"),
    "page behind the cache": (
        paged(block_table=lambda one: with_entry(one.block_table, (0, 1), 99)),
        "is 99; the cache has",
    ),
    "negative page": (
        paged(block_table=lambda one: with_entry(one.block_table, (1, 0), -1)),
        "block_table\\[1, 0\\] is -1",
    ),
    "too few pages": (paged(block_table=lambda one: one.block_table[:, :1]), "need 3 pages, block_table has 1"),
    "negative length": (paged(key_lengths=lambda one: with_entry(one.key_lengths, (0,), -2)), "has -2 tokens"),
    "transposed cache": (
        paged(key=lambda one: one.key.transpose(2, 3).contiguous().transpose(2, 3)),
        "last dimension of a cache",
    ),
    "pages of no tokens": (
        paged(key=lambda one: one.key[:, :0], value=lambda one: one.value[:, :0]),
        "pages of no tokens",
    ),
    "no head dim": (
        packed(query=lambda one: one.query[..., :0], key=lambda one: one.key[..., :0]),
        "head dims of 0 and 16",
    ),
    "no value dim": (packed(value=lambda one: one.value[..., :0]), "head dims of 16 and 0"),
    "tokens of no sequence": (
        packed(query_starts=lambda one: one.query_starts[:1], key_starts=lambda one: one.key_starts[:1]),
        "names no sequence for 40 tokens",
    ),
    "packed and paged": (paged(key_starts=lambda one: one.query_starts), "and no others"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(AttentionError, match=words):
        call()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (Pattern(window=0), "window 0"),
        (Pattern(anchors=-1), "anchors -1"),
        (Pattern(softcap=-2.0), "softcap -2"),
        (Pattern(softcap=float("nan")), "softcap nan"),
        (Pattern(scale=float("inf")), "scale inf"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_pattern_is_refused_with_a_reason(pattern: Pattern, words: str) -> None:
    with pytest.raises(AttentionError, match=words):
        attention(make_inputs(PACKED, "cpu"), pattern)


def test_no_sequence_is_a_batch_too() -> None:
    inputs = make_inputs(PACKED, "cpu")
    assert inputs.key_starts is not None
    none = changed(
        inputs,
        query=inputs.query[:0].requires_grad_(),
        query_starts=inputs.query_starts[:1],
        key_starts=inputs.key_starts[:1],
        max_query=0,
        max_key=0,
        key=inputs.key[:0],
        value=inputs.value[:0],
    )
    out, lse = attention(none, PACKED.pattern, checks=True)
    assert (out.shape, lse.shape) == ((0, 4, 16), (4, 0))
    out.sum().backward()


def test_a_cache_has_no_gradient_and_says_so() -> None:
    inputs = make_inputs(PAGED, "cpu")
    out, _ = attention(changed(inputs, query=inputs.query.requires_grad_()), PAGED.pattern)
    with pytest.raises(AttentionError, match="a paged cache has no gradient"):
        out.sum().backward()


def test_every_paged_shape_has_entries_that_lead_nowhere() -> None:
    tables = [
        make_inputs(case, "cpu").block_table for case in SHAPES if case.page_size and len(set(case.key_lengths)) > 1
    ]
    assert any(table is not None and bool((table > 2**30).any()) for table in tables)
