"""Softmax against PyTorch's in float64: large logits, long and fully masked rows, its own backward."""

from __future__ import annotations

import pytest
import torch

from patchkit.runtime.attention.problem import AttentionError
from patchkit.runtime.attention.softmax import stable_softmax

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def drawn(*shape: int, dtype: torch.dtype = torch.float64, factor: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * factor).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 7, 513, 4099])
@pytest.mark.parametrize("factor", [1.0, 1e4], ids=["usual", "logits of 1e4"])
def test_forward_and_backward(dtype: torch.dtype, length: int, factor: float) -> None:
    logits = drawn(5, length, dtype=dtype, factor=factor).clamp(-1e4, 1e4).requires_grad_()
    grad = drawn(5, length, dtype=dtype)
    shares = stable_softmax(logits)
    shares.backward(grad)
    exact = logits.detach().double().requires_grad_()
    right = exact.softmax(-1)
    right.backward(grad.double())
    assert shares.dtype == dtype
    assert logits.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(shares.double(), right, atol=ROUNDING[dtype], rtol=0)
    torch.testing.assert_close(logits.grad.double(), exact.grad, atol=8 * ROUNDING[dtype], rtol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_plus_and_minus_ten_thousand_in_one_row(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1e4, -1e4, 1e4, 0.0]], dtype=dtype, requires_grad=True)
    shares = stable_softmax(logits)
    shares[0, 0].backward()
    assert shares.tolist() == [[0.5, 0.0, 0.5, 0.0]]
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.25, 0.0, -0.25, 0.0]]


def test_fully_masked_rows_are_zero_without_gradient() -> None:
    logits = torch.full((3, 600), -torch.inf)
    logits[1] = 2.0
    logits.requires_grad_()
    shares = stable_softmax(logits)
    shares.backward(torch.ones_like(shares).index_fill(0, torch.tensor([0]), torch.nan))
    assert shares[0].eq(0).all()
    assert shares[2].eq(0).all()
    torch.testing.assert_close(shares[1].sum(), torch.tensor(1.0))
    assert logits.grad is not None
    assert logits.grad[0].eq(0).all()
    assert logits.grad[2].eq(0).all()


def test_what_is_masked_has_no_influence() -> None:
    keep = torch.tensor([[True, False, True], [False, False, False]])
    logits = torch.tensor([[1.0, torch.nan, 2.0], [torch.nan, torch.inf, 1.0]], requires_grad=True)
    shares = stable_softmax(logits, keep)
    shares.sum().backward()
    torch.testing.assert_close(shares[0, [0, 2]], torch.tensor([1.0, 2.0]).softmax(0))
    assert shares[0, 1] == 0
    assert shares[1].eq(0).all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_nan_that_is_kept_reaches_its_row_only() -> None:
    shares = stable_softmax(torch.tensor([[1.0, torch.nan], [1.0, 1.0]]))
    assert shares[0].isnan().all()
    assert shares[1].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("logits", "keep", "words"),
    [
        (torch.tensor(1.0), None, r"logits \[\] of torch.float32"),
        (torch.tensor([1, 2]), None, "torch.int64: rows of floating-point numbers"),
        (torch.tensor([1.0, 2.0]), torch.tensor([1, 0]), "keep is torch.int64, expected torch.bool"),
    ],
    ids=["no row", "integers", "keep of integers"],
)
def test_what_is_no_row_of_logits_is_refused(logits: torch.Tensor, keep: torch.Tensor | None, words: str) -> None:
    with pytest.raises(AttentionError, match=words):
        stable_softmax(logits, keep)


def test_no_logits_at_all() -> None:
    assert stable_softmax(torch.zeros(4, 0)).shape == (4, 0)


def test_gradient_is_that_of_finite_differences() -> None:
    logits = drawn(3, 5).requires_grad_()
    keep = torch.rand(3, 5, generator=torch.Generator().manual_seed(1)) > 0.3
    assert torch.autograd.gradcheck(lambda one: stable_softmax(one, keep), (logits,))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by torch.compile itself
def test_compiles_without_a_break() -> None:
    logits = drawn(3, 5, dtype=torch.float32)
    compiled = torch.compile(stable_softmax, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits), logits.softmax(-1))


def test_vmap_and_grad_of_torch_func_pass_through() -> None:
    logits, keep = drawn(4, 5, 6), drawn(5, 6) > 0
    each = torch.func.vmap(stable_softmax, in_dims=(0, None))(logits, keep)
    assert torch.equal(each, stable_softmax(logits, keep))
    found = torch.func.grad(lambda one: stable_softmax(one, keep).square().sum())(logits[0])
    leaf = logits[0].clone().requires_grad_()
    stable_softmax(leaf, keep).square().sum().backward()
    assert torch.equal(found, leaf.grad)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 1, 4)], ids=str)
def test_a_mask_of_other_rows_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(AttentionError, match="cannot be broadcast to logits"):
        stable_softmax(torch.zeros(1, 4), torch.ones(shape, dtype=torch.bool))
