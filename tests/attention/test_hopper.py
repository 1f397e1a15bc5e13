"""The CUDA kernels for Hopper as far as a machine without a GPU can tell: that they compile, and what they refuse."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from patchkit.attention.case import SHAPES, problem_of
from patchkit.attention.workload import GPU, visible_pairs
from patchkit.record import replace
from patchkit.runtime.attention.problem import Pattern

pytestmark = pytest.mark.kernels
_needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_it_compiles_for_hopper_with_nothing_spilled_or_serialized(checkout: Path, tmp_path: Path, name: str) -> None:
    source = checkout / "native" / "attention" / f"{name}.cu"
    target = ("-gencode=arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-Xptxas", "-v")
    command = ["nvcc", *target, "-cubin", "-o", str(tmp_path / f"{name}.cubin"), str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "serialized" not in run.stderr
    spills = [line for line in run.stderr.splitlines() if "spill" in line]
    assert spills
    assert all(" 0 bytes spill stores, 0 bytes spill loads" in line for line in spills)


@_needs_triton
def test_it_refuses_what_is_not_hopper() -> None:
    from patchkit.runtime.attention import hopper, hopper_decode, hopper_paged

    for kernel in (*hopper.KERNELS, *hopper_decode.KERNELS, *hopper_paged.KERNELS):
        assert {kernel.refusal(problem_of(case, "cpu")) for case in SHAPES} == {
            "is built for Hopper (compute capability 9.0)"
        }


@_needs_triton
def test_decode_takes_batches_that_fill_the_gpu_and_says_why_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from patchkit.runtime.attention import hopper_decode

    monkeypatch.setattr(hopper_decode, "library_refusal", lambda *_: "")
    (kernel,) = hopper_decode.KERNELS
    said = {case.name: kernel.refusal(problem_of(case, "cuda")) for case in SHAPES}
    full = {name: reason for name, reason in said.items() if name.startswith("full batch")}
    assert len(full) > 5
    assert set(full.values()) == {""}
    assert said["paged decode"].startswith("does not split keys, and 6 sequences times kv heads")
    assert said["paged, several queries"] == "takes at most one query a sequence"
    assert said["odd lengths"].startswith("takes a paged cache")
    assert said["paged decode, soft cap, learned anchors"].startswith("takes positive scales, no soft cap")
    dense = next(case for case in SHAPES if case.name == "paged decode, dense")
    many = replace(dense, query_lengths=(1,) * 90, key_lengths=(9000,) * 90)
    assert "180 sequences" in kernel.refusal(problem_of(many, "cuda"))
    windowed = replace(many, pattern=Pattern())
    assert kernel.refusal(problem_of(windowed, "cuda")) == ""


@_needs_triton
def test_over_pages_it_takes_sizes_that_eight_divides_and_says_why_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from patchkit.runtime.attention import hopper, hopper_paged

    monkeypatch.setattr(hopper, "library_refusal", lambda *_: "")
    (kernel,) = hopper_paged.KERNELS
    said = {case.name: kernel.refusal(problem_of(case, "cuda")) for case in SHAPES}
    sizes = "takes a paged cache, in pages of a multiple of 8 tokens"
    for name in ("odd lengths", "dense", "pages of 8", "pages of 48, head dim 128", "head dim 128, multi-query"):
        assert said[f"paged chunks, {name}"] == "", name
    assert said["paged chunks, keys that nobody sees hold NaN"] == said["odd lengths"] == sizes
    assert said["paged, pages of one token"] == sizes
    assert said["paged chunks, head dim 96"] == "takes head dims 64 and 128, not 96/96"
    assert said["paged chunks, both-sided"] == "takes causal patterns without soft cap and learned anchors"


@_needs_triton
def test_kernels_compute_at_least_what_is_seen() -> None:
    from patchkit.runtime.attention import hopper, triton_prefill

    for workload in GPU:
        if workload.case.page_size:
            continue
        for kernel in (hopper.KERNELS[0], triton_prefill.KERNELS[0]):
            assert kernel.computed is not None
            ratio = kernel.computed(problem_of(workload.case, "cuda")) / visible_pairs(workload.case)
            assert 1 <= ratio < 1.5, (workload.name, kernel.name)
