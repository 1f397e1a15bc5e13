"""Which kernel answers a case, and what is said of the others."""

from __future__ import annotations

import pytest
import torch

from patchkit.attention.case import AttentionCase, make_inputs, problem_of
from patchkit.attention.check import check_kernels
from patchkit.record import replace
from patchkit.runtime.attention import installed, measured, registry
from patchkit.runtime.attention.ops import attention
from patchkit.runtime.attention.problem import BACKWARD, AttentionError, Pattern
from patchkit.runtime.attention.reference import attention_reference
from patchkit.runtime.attention.registry import Measurement, choose, kernel_named, load_kernels

DENSE = AttentionCase(
    name="dense", query_lengths=(64, 64), key_lengths=(64, 64), dtype="float32", pattern=Pattern(window=None)
)
SPARSE = AttentionCase(name="sparse", query_lengths=(100,), key_lengths=(100,), dtype="float32")


def measurement(kernel: str, milliseconds: float, *, length: int = 64, device: str = "cpu") -> Measurement:
    return Measurement(
        device=device,
        kernel=kernel,
        step="forward",
        dtype="float32",
        head_dim=64,
        dense=True,
        paged=False,
        batch=2,
        max_query=length,
        max_key=length,
        milliseconds=milliseconds,
    )


def test_every_kernel_says_can_or_why_not() -> None:
    choice = choose(problem_of(SPARSE, "cpu"))
    assert choice.kernel.name == "eager"
    said = {verdict.kernel: verdict.refusal for verdict in choice.verdicts}
    assert said["eager"] == ""
    assert said["torch_flash_cpu"].startswith("dense attention only")
    assert said["cudnn"] == "needs CUDA"


def test_dense_goes_to_what_is_installed_and_says_so() -> None:
    choice = choose(problem_of(DENSE, "cpu"))
    assert choice.kernel.name == "torch_flash_cpu"
    assert choice.reason == "first that can; nothing measured here"


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_scales_that_are_not_positive_are_not_given_to_what_is_installed(scale: float) -> None:
    case = replace(DENSE, pattern=Pattern(window=None, scale=scale))
    choice = choose(problem_of(case, "cpu"))
    assert choice.kernel.name == "eager"
    assert {one.kernel: one.refusal for one in choice.verdicts}["torch_flash_cpu"] == "takes positive scales"
    inputs = make_inputs(case, "cpu")
    torch.testing.assert_close(attention(inputs, case.pattern), attention_reference(inputs, case.pattern))


def test_the_fastest_of_those_measured_here_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (measurement("torch_flash_cpu", 3.0), measurement("eager", 2.0), measurement("eager", 9.0, device="another"))
    monkeypatch.setattr(measured, "MEASURED", rows)
    choice = choose(problem_of(DENSE, "cpu"))
    assert choice.kernel.name == "eager"
    assert choice.reason == "fastest of those measured here"
    assert {verdict.kernel: verdict.milliseconds for verdict in choice.verdicts}["torch_flash_cpu"] == 3.0


def test_times_of_other_lengths_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        measurement("torch_flash_cpu", 3.0),
        measurement("eager", 4.0),
        measurement("eager", 0.1, length=2),
        measurement("torch_flash_cpu", 0.2, length=2),
    )
    monkeypatch.setattr(measured, "MEASURED", rows)
    assert choose(problem_of(DENSE, "cpu")).kernel.name == "torch_flash_cpu"


def test_nobody_can_says_why_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FAMILIES", (("installed", ""),))
    with pytest.raises(AttentionError, match="no kernel can run this forward\n  cudnn: needs CUDA"):
        choose(problem_of(SPARSE, "cpu"))
    with pytest.raises(AttentionError, match="no kernel can run this backward"):
        choose(problem_of(SPARSE, "cpu", step=BACKWARD))


def test_a_family_without_its_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, package: str | None) -> object:
        raise ModuleNotFoundError(name="some_library.part")

    monkeypatch.setattr(registry, "FAMILIES", (("some_family", "some_library"),))
    monkeypatch.setattr(registry, "import_module", missing)
    kernels, refusals = load_kernels()
    assert kernels == ()
    assert [(one.kernel, one.refusal) for one in refusals] == [("some_family", "some_library is not installed")]


def test_a_family_that_is_broken_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FAMILIES", (("nowhere", "some_library"),))
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        load_kernels()


def test_names_are_unique_and_found() -> None:
    names = [kernel.name for kernel in load_kernels()[0]]
    assert len(names) == len(set(names))
    assert kernel_named("eager").name == "eager"
    with pytest.raises(AttentionError, match="no kernel is called fastest; there are "):
        kernel_named("fastest")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both-sided"])
def test_installed_attention_of_a_cpu_is_right(dtype: str, causal: bool) -> None:
    case = AttentionCase(
        name="dense",
        query_lengths=(37, 37),
        key_lengths=(37, 37),
        dtype=dtype,
        heads=6,
        kv_heads=3,
        pattern=Pattern(window=None, causal=causal, scale=0.3),
    )
    results = {one.kernel: one for one in check_kernels(installed.KERNELS, [case], "cpu")}
    assert results["torch_flash_cpu"].refusal == ""
    assert results["torch_flash_cpu"].faults == ()
    assert torch.backends.cudnn.is_available() or results["cudnn"].refusal
