"""A whole measurement: the check first, then every workload, ours beside the peers in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from patchkit.attention import flex
from patchkit.attention.bench import BenchResult, bench
from patchkit.attention.case import check_cases
from patchkit.attention.check import check_kernels
from patchkit.attention.run import kernels_named
from patchkit.attention.workload import CPU, GPU, Workload
from patchkit.errors import UsageError
from patchkit.runtime.attention.registry import Kernel


def run_bench(
    *, names: Sequence[str], text: str, device: str, calls: int, seed: int, tell: Callable[[str], None]
) -> list[BenchResult]:
    """Return the results of the kernels of these names (all without) and the peers on workloads with a text in their
    name.

    A kernel that is wrong on any case of the check is not timed.
    """
    workloads = [one for one in _workloads(device) if text in one.name]
    if not workloads:
        raise UsageError(f"no workload has {text!r} in its name{_where(device)}", hint=_hint(text, device))
    kernels = (*kernels_named(names), *flex.KERNELS)
    wrong = _wrong_kernels(kernels, workloads, device, seed, tell)
    results: list[BenchResult] = []
    for workload in workloads:
        right = tuple(kernel for kernel in kernels if kernel.name not in wrong)
        tell(workload.name)
        results += bench(workload, right, device, calls=calls, seed=seed)
        results += [
            BenchResult(
                workload=workload.name,
                step=workload.step,
                kernel=kernel.name,
                yardstick=kernel.yardstick,
                fault=f"wrong in `attention check`: {wrong[kernel.name]}",
            )
            for kernel in kernels
            if kernel.name in wrong and kernel.step == workload.step
        ]
        if device == "cuda":
            torch.cuda.empty_cache()
    return results


def _wrong_kernels(
    kernels: tuple[Kernel, ...], workloads: Sequence[Workload], device: str, seed: int, tell: Callable[[str], None]
) -> dict[str, str]:
    """Return the first fault of every kernel of ours that is wrong on a case of the check, in the workloads' dtypes."""
    ours = tuple(kernel for kernel in kernels if not kernel.yardstick)
    dtypes = tuple(dict.fromkeys(workload.case.dtype for workload in workloads))
    wrong: dict[str, str] = {}
    case = ""
    for result in check_kernels(ours, check_cases(dtypes), device, seed=seed):
        if result.case.name != case:
            case = result.case.name
            tell(f"check: {case} ({result.case.dtype})")
        if result.faults:
            wrong.setdefault(result.kernel, f"{result.case.name}: {result.faults[0]}")
    return wrong


def _workloads(device: str) -> tuple[Workload, ...]:
    return GPU if device == "cuda" else CPU


def _where(device: str) -> str:
    return "" if device == "cuda" else " on a CPU"


def _hint(text: str, device: str) -> str:
    names = "; ".join(workload.name for workload in _workloads(device))
    elsewhere = device != "cuda" and any(text in workload.name for workload in GPU)
    return f"there are: {names}" + (f"\n  with {text!r} there are some for a GPU: --device cuda" if elsewhere else "")
