"""The check finds what is wrong with a kernel: it is itself checked with kernels that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from patchkit.attention.case import SHAPES, AttentionCase
from patchkit.attention.check import CheckResult, check_kernels, upcast
from patchkit.attention.run import check_document, summaries
from patchkit.record import replace
from patchkit.runtime.attention import eager
from patchkit.runtime.attention.problem import BACKWARD, FORWARD, Gradients, Inputs, Pattern, Saved
from patchkit.runtime.attention.reference import attention_reference
from patchkit.runtime.attention.registry import Kernel

CASE = AttentionCase(name="case", query_lengths=(30, 2), key_lengths=(30, 1), dtype="float32", deterministic=True)


def right(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    eager.forward(inputs, pattern, out, lse)


def wide_window(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    right(inputs, Pattern(window=(pattern.window or 0) + 1, anchors=pattern.anchors), out, lse)


def unwritten(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    right(inputs, pattern, out, lse)
    out[3, 1, 5] = torch.nan


def beyond(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    right(inputs, pattern, out, lse)
    torch.as_strided(out, (1,), (1,), out.storage_offset() + out.numel()).fill_(0)


def before(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    right(inputs, pattern, out, lse)
    torch.as_strided(lse, (1,), (1,), lse.storage_offset() - 1).fill_(0)


def meddling(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    right(inputs, pattern, out, lse)
    inputs.key.mul_(2)


class _InterpreterError(Exception):
    """What Triton raises is of a kind of its own."""


def raising(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    raise _InterpreterError("out of registers\nmore")


def empty_rows(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    right(inputs, pattern, out, lse)
    out[30] = 1e-9
    lse[:, 30] = -1e30


def wrong_lse(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
    right(inputs, pattern, out, lse)
    lse.mul_(1.4427)  # to the base of 2


class Restless:
    """Gives other bits at every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
        right(inputs, pattern, out, lse)
        self.calls += 1
        out[0, 0, 0] *= 1 + 1e-6 * self.calls


WRONG: dict[str, tuple[Callable[..., None], str]] = {
    "window off by one": (wide_window, "out: error"),
    "an element unwritten": (unwritten, "out: NaN in 1 place too many"),
    "writes behind the output": (beyond, "wrote outside out"),
    "writes before the output": (before, "wrote outside lse"),
    "changes its inputs": (meddling, "changed its inputs"),
    "raises": (raising, "raised _InterpreterError: out of registers"),
    "empty rows": (empty_rows, "lse of an empty row is not -inf"),
    "lse to another base": (wrong_lse, "lse: off by"),
    "other bits": (Restless(), "gave other bits the second time"),
}


def kernel(run: Callable[..., None], step: str = FORWARD, refusal: str = "") -> Kernel:
    return Kernel(name="kernel", step=step, summary="", refusal=lambda _: refusal, run=run)


def check(run: Callable[..., None], case: AttentionCase = CASE, step: str = FORWARD) -> CheckResult:
    (result,) = check_kernels((kernel(run, step),), [case], "cpu")
    return result


def test_a_right_kernel_has_no_fault() -> None:
    assert check(right).faults == ()


@pytest.mark.parametrize("name", WRONG)
def test_fault_is_found(name: str) -> None:
    run, words = WRONG[name]
    assert any(fault.startswith(words) for fault in check(run).faults), check(run).faults


def test_nan_that_leaks_is_found() -> None:
    def leaking(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
        right(inputs, pattern, out, lse)
        out[:, 0, 0] += 0 * inputs.value.sum()

    case = next(one for one in SHAPES if one.name == "a NaN that some rows see")
    assert "too many" in check(leaking, replace(case, dtype="float32")).faults[0]


def test_nan_that_is_hidden_is_found() -> None:
    def hiding(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
        right(inputs, pattern, out, lse)
        out.nan_to_num_()

    case = next(one for one in SHAPES if one.name == "a NaN that some rows see")
    assert "missing in" in check(hiding, replace(case, dtype="float32")).faults[0]


def test_wrong_gradient_is_found() -> None:
    def twice(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
        eager.backward(inputs, pattern, saved, gradients)
        gradients.value.mul_(1.01)

    def without_lse(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
        bare = Saved(out=saved.out, lse=saved.lse, grad_out=saved.grad_out)
        eager.backward(inputs, pattern, bare, gradients)

    assert check(eager.backward, step=BACKWARD).faults == ()
    assert check(twice, step=BACKWARD).faults[0].startswith("gradient of value: error")
    assert check(without_lse, step=BACKWARD).faults[0].startswith("gradient of query: error")


LARGE = next(one for one in SHAPES if one.name == "large scores")
HALVES = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def scaled(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
    eager.backward(inputs, pattern, saved, gradients)
    gradients.query.mul_(1.05)


def without_a_key(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
    eager.backward(inputs, Pattern(window=(pattern.window or 0) - 1, anchors=pattern.anchors), saved, gradients)


def without_delta(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
    bare = Saved(out=torch.zeros_like(saved.out), lse=saved.lse, grad_out=saved.grad_out, grad_lse=saved.grad_lse)
    eager.backward(inputs, pattern, bare, gradients)


def delta_off(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
    """As if out had been rounded ten times as coarsely."""
    coarse = saved.out + 10 * 2.0**-11 * saved.out.abs() * torch.randn(saved.out.shape, dtype=saved.out.dtype)
    given = Saved(out=coarse, lse=saved.lse, grad_out=saved.grad_out, grad_lse=saved.grad_lse)
    eager.backward(inputs, pattern, given, gradients)


@HALVES
def test_gradients_of_large_scores_are_right_for_the_out_that_was_given(dtype: str) -> None:
    assert check(eager.backward, replace(LARGE, dtype=dtype), BACKWARD).faults == ()


@HALVES
@pytest.mark.parametrize("run", [scaled, without_a_key, without_delta])
def test_wrong_gradient_of_large_scores_is_found(run: Callable[..., None], dtype: str) -> None:
    assert check(run, replace(LARGE, dtype=dtype), BACKWARD).faults[0].startswith("gradient of query: error")


def test_coarser_delta_of_large_scores_is_found() -> None:
    assert check(delta_off, replace(LARGE, dtype="float16"), BACKWARD).faults[0].startswith("gradient of query: error")


def test_a_backward_with_an_exact_out_of_its_own_is_right_too() -> None:
    def exact(inputs: Inputs, pattern: Pattern, saved: Saved, gradients: Gradients) -> None:
        out, lse = attention_reference(upcast(inputs), pattern)
        own = Saved(out=out, lse=lse, grad_out=saved.grad_out.double(), grad_lse=saved.grad_lse)
        eager.backward(upcast(inputs), pattern, own, gradients)

    assert check(exact, replace(LARGE, dtype="float16"), BACKWARD).faults == ()


def test_refusals_are_counted_with_their_reason() -> None:
    results = list(check_kernels((kernel(right, refusal="no GPU"), kernel(right)), [CASE], "cpu"))
    (row,) = summaries(results)
    assert (row.ran, row.wrong, row.refused, row.reasons) == (1, 0, 1, (("no GPU", 1),))
    document = check_document(results, device="cpu", seed=0)
    assert document["schema"] == 1
    assert document["right"] is True


def test_every_shape_has_a_name_of_its_own() -> None:
    assert len({case.name for case in SHAPES}) == len(SHAPES)
