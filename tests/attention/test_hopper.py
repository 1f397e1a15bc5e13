"""The CUDA kernel for Hopper as far as a machine without a GPU can tell: that it compiles, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from patchkit.attention.case import SHAPES, problem_of
from patchkit.attention.workload import GPU, visible_pairs

pytestmark = pytest.mark.kernels
_needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_it_compiles_for_hopper_with_nothing_spilled_or_serialized(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "native" / "attention" / "prefill.cu"
    target = ("-gencode=arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-Xptxas", "-v")
    command = ["nvcc", *target, "-cubin", "-o", str(tmp_path / "prefill.cubin"), str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "serialized" not in run.stderr
    spills = [line for line in run.stderr.splitlines() if "spill" in line]
    assert spills
    assert all(" 0 bytes spill stores, 0 bytes spill loads" in line for line in spills)


@_needs_triton
def test_it_refuses_what_is_not_hopper() -> None:
    from patchkit.runtime.attention.hopper import KERNELS

    assert all(KERNELS[0].refusal(problem_of(case, "cpu")) for case in SHAPES)


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
