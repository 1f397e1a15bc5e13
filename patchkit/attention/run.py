"""A whole check: which kernels on which cases, and what came of it, per kernel and as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from patchkit.attention.case import check_cases
from patchkit.attention.check import CheckResult, check_kernels
from patchkit.errors import UsageError
from patchkit.record import dataclass
from patchkit.runtime.attention.problem import AttentionError
from patchkit.runtime.attention.registry import Kernel, kernel_named, load_kernels

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """What a kernel did: cases it ran, cases it was wrong on, cases it refused and why, its worst error by what is
    allowed.
    """

    kernel: str
    ran: int
    wrong: int
    refused: int
    reasons: tuple[tuple[str, int], ...]
    worst: float
    worst_case: str


def run_checks(
    *, names: Sequence[str], dtypes: Sequence[str], text: str, device: str, seed: int
) -> Iterator[CheckResult]:
    """Yield the results of the kernels of these names (all without) on the cases whose name has the text."""
    cases = [case for case in check_cases(tuple(dtypes)) if text in case.name]
    if not cases:
        hint = "`patchkit attention check` without --case names each as it runs"
        raise UsageError(f"no case has {text!r} in its name", hint=hint)
    yield from check_kernels(kernels_named(names), cases, device, seed=seed)


def kernels_named(names: Sequence[str]) -> tuple[Kernel, ...]:
    """Return the kernels of these names, all without; raises UsageError with the names that there are."""
    if not names:
        return load_kernels()[0]
    try:
        return tuple(kernel_named(name) for name in dict.fromkeys(names))
    except AttentionError as error:
        raise UsageError(str(error)) from error


def summaries(results: Sequence[CheckResult]) -> list[Summary]:
    """Return a summary per kernel, in the order in which they appear."""
    return [_summary(name, [one for one in results if one.kernel == name]) for name in _names(results)]


def _names(results: Sequence[CheckResult]) -> list[str]:
    return list(dict.fromkeys(result.kernel for result in results))


def _summary(kernel: str, results: list[CheckResult]) -> Summary:
    ran = [result for result in results if not result.refusal]
    worst = max(ran, key=lambda result: result.error / (result.tolerance or 1.0), default=None)
    return Summary(
        kernel=kernel,
        ran=len(ran),
        wrong=sum(not result.right for result in ran),
        refused=len(results) - len(ran),
        reasons=tuple(Counter(result.refusal for result in results if result.refusal).most_common()),
        worst=0.0 if worst is None else worst.error / (worst.tolerance or 1.0),
        worst_case="" if worst is None else f"{worst.case.name}, {worst.case.dtype}",
    )


def check_document(results: Sequence[CheckResult], *, device: str, seed: int) -> dict[str, object]:
    """Return a check for JSON."""
    return {
        "schema": SCHEMA,
        "device": device,
        "torch": torch.__version__,
        "seed": seed,
        "right": all(result.right for result in results),
        "results": [_result_document(result) for result in results],
    }


def _result_document(result: CheckResult) -> dict[str, object]:
    return {
        "kernel": result.kernel,
        "case": result.case.name,
        "dtype": result.case.dtype,
        "refusal": result.refusal,
        "error": result.error if result.error < float("inf") else None,
        "tolerance": result.tolerance,
        "faults": list(result.faults),
    }
