"""Which kernel answers each of the measured workloads on a device, and what the others say."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.attention.case import problem_of
from patchkit.attention.workload import GPU, Workload
from patchkit.errors import UsageError
from patchkit.record import dataclass
from patchkit.runtime.attention.problem import AttentionError
from patchkit.runtime.attention.registry import Verdict, choose

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A workload, the kernel chosen for it ("none") and why, and the verdict of every kernel."""

    workload: str
    chosen: str
    reason: str
    verdicts: tuple[Verdict, ...]


def list_workloads(device: str, text: str) -> list[Listed]:
    """Return what is chosen for the workloads with a text in their name."""
    workloads = [one for one in GPU if text in one.name]
    if not workloads:
        raise UsageError(
            f"no workload has {text!r} in its name", hint=f"there are: {'; '.join(one.name for one in GPU)}"
        )
    return [_listed(workload, device) for workload in workloads]


def _listed(workload: Workload, device: str) -> Listed:
    try:
        choice = choose(problem_of(workload.case, device, step=workload.step))
    except AttentionError as error:
        return Listed(workload=workload.name, chosen="none", reason=str(error), verdicts=())
    return Listed(workload=workload.name, chosen=choice.kernel.name, reason=choice.reason, verdicts=choice.verdicts)


def list_document(listed: Sequence[Listed], device: str) -> dict[str, object]:
    """Return the list for JSON."""
    return {
        "schema": SCHEMA,
        "device": device,
        "workloads": [
            {
                "workload": one.workload,
                "chosen": one.chosen,
                "reason": one.reason,
                "kernels": [
                    {"kernel": verdict.kernel, "refusal": verdict.refusal, "milliseconds": verdict.milliseconds}
                    for verdict in one.verdicts
                ],
            }
            for one in listed
        ],
    }
