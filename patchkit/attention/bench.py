"""Every kernel on the measured cases: checked on sampled rows first, timed only when right, beside the peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from patchkit.attention.case import make_inputs, problem_of
from patchkit.attention.check import GRADIENT_TOLERANCE, LSE_TOLERANCE, TOLERANCE, compare_rows, upcast
from patchkit.attention.timing import Timing, time_call
from patchkit.attention.workload import Workload, operations, visible_pairs
from patchkit.record import dataclass, replace
from patchkit.runtime.attention import eager
from patchkit.runtime.attention.problem import FORWARD, Gradients, Inputs, Saved
from patchkit.runtime.attention.reference import attention_reference
from patchkit.runtime.attention.registry import Kernel
from patchkit.runtime.attention.triton_support import interpreted

_SAMPLED = 48  # rows that are held against the reference
_PEER_FACTOR = 1.2
_NAMES = ("query", "key", "value")


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchResult:
    """What a kernel did with a workload. `refusal`: it does not take it; `fault`: it is wrong, and was not timed.

    `teraflops` counts visible pairs only; `error` is that of the whole output as a part of its norm, on the sampled
    rows; `computed_ratio` the pairs computed for each visible one, None where the kernel does not say.
    """

    workload: str
    step: str
    kernel: str
    yardstick: bool
    refusal: str = ""
    fault: str = ""
    error: float = 0.0
    timing: Timing | None = None
    teraflops: float = 0.0
    computed_ratio: float | None = None


def bench(
    workload: Workload, kernels: tuple[Kernel, ...], device: str, *, calls: int, seed: int = 0
) -> Iterator[BenchResult]:
    """Yield the result of every kernel of the workload's step on one set of inputs, yardsticks first.

    Ours must not be more than 1.2 times as far from float64 as the nearest yardstick, where one ran.
    """
    case = workload.case
    problem = problem_of(case, device, step=workload.step)
    mine = sorted((one for one in kernels if one.step == workload.step), key=lambda one: not one.yardstick)
    inputs = make_inputs(case, device, seed=seed, drawn_on=device)
    prepared = _Prepared(inputs, workload, seed)
    yardsticks: list[float] = []
    for kernel in mine:
        refusal = kernel.refusal(problem)
        if not refusal and kernel.name.startswith("triton") and interpreted():
            refusal = "Triton interprets here: its time says nothing"
        if refusal:
            yield BenchResult(
                workload=workload.name,
                step=workload.step,
                kernel=kernel.name,
                yardstick=kernel.yardstick,
                refusal=refusal,
            )
            continue
        result = _bench_kernel(kernel, prepared, device, calls, yardsticks)
        if kernel.yardstick and not result.fault:
            yardsticks.append(result.error)
        yield result


class _Prepared:
    """The inputs of a workload and what is right for them: of a forward some rows, of a backward all gradients."""

    def __init__(self, inputs: Inputs, workload: Workload, seed: int) -> None:
        self.inputs, self.workload = inputs, workload
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(inputs.query.shape[0], generator=generator)
        self.rows = order[:_SAMPLED].sort().values.to(inputs.query.device)
        pattern = workload.case.pattern
        self.out, self.lse = attention_reference(inputs, pattern, rows=self.rows.tolist(), dtype=torch.float64)

    @cached_property
    def exact(self) -> Saved:
        """Out and lse in float64 by the eager kernel, which `attention check` holds against the reference."""
        inputs = upcast(self.inputs)
        out = inputs.query.new_empty(*inputs.query.shape[:2], inputs.value.shape[-1])
        lse = inputs.query.new_empty(inputs.heads, inputs.query.shape[0])
        eager.forward(inputs, self.workload.case.pattern, out, lse)
        generator = torch.Generator(out.device).manual_seed(1)
        grad_out = torch.randn(out.shape, generator=generator, device=out.device).to(self.inputs.query.dtype)
        return Saved(out=out, lse=lse, grad_out=grad_out.double())

    @cached_property
    def saved(self) -> Saved:
        """The same as a forward in the workload's dtype leaves it."""
        dtype = self.inputs.query.dtype
        exact = self.exact
        return Saved(out=exact.out.to(dtype), lse=exact.lse.float(), grad_out=exact.grad_out.to(dtype))

    @cached_property
    def gradients(self) -> Gradients:
        """The gradients in float64 by the eager kernel."""
        return self._gradients(self.exact)

    @cached_property
    def gradients_given(self) -> Gradients:
        """The same for the rounded out that a backward is given; `check` says why that is right too."""
        exact = self.exact
        return self._gradients(Saved(out=self.saved.out.double(), lse=exact.lse, grad_out=exact.grad_out))

    def _gradients(self, saved: Saved) -> Gradients:
        inputs = upcast(self.inputs)
        made = Gradients(**{name: torch.empty_like(getattr(inputs, name)) for name in _NAMES})
        eager.backward(inputs, self.workload.case.pattern, saved, made)
        return made


def _bench_kernel(kernel: Kernel, prepared: _Prepared, device: str, calls: int, yardsticks: list[float]) -> BenchResult:
    workload = prepared.workload
    run, judge = _forward_of(kernel, prepared) if workload.step == FORWARD else _backward_of(kernel, prepared)
    base = BenchResult(workload=workload.name, step=workload.step, kernel=kernel.name, yardstick=kernel.yardstick)
    try:
        run()
    except Exception as raised:  # noqa: BLE001 -- whatever a kernel or Triton raises is its fault, and is reported
        return replace(base, fault=f"raised {type(raised).__name__}: {(str(raised) or chr(10)).splitlines()[0]}")
    error, fault = judge()
    if not fault and not kernel.yardstick and yardsticks and error > _PEER_FACTOR * min(yardsticks):
        fault = f"error {error:.2e}, a yardstick has {min(yardsticks):.2e}"
    if fault:
        return replace(base, fault=fault, error=error)
    timing = time_call(_timed(kernel, prepared) or run, device, calls=calls, replayed=workload.replayed)
    computed = kernel.computed and kernel.computed(problem_of(workload.case, device, step=workload.step))
    return replace(
        base,
        error=error,
        timing=timing,
        teraflops=operations(workload) / timing.median / 1e9,
        computed_ratio=computed / visible_pairs(workload.case) if computed else None,
    )


def _timed(kernel: Kernel, prepared: _Prepared) -> Callable[[], object] | None:
    """Return the call that a yardstick is timed by, None where it is its `run`."""
    if kernel.timed is None:
        return None
    pattern = prepared.workload.case.pattern
    if kernel.step == FORWARD:
        return kernel.timed(prepared.inputs, pattern)
    return kernel.timed(prepared.inputs, pattern, prepared.saved)


_Judge = Callable[[], "tuple[float, str]"]


def _forward_of(kernel: Kernel, prepared: _Prepared) -> tuple[Callable[[], None], _Judge]:
    inputs, case = prepared.inputs, prepared.workload.case
    tokens = inputs.query.shape[0]
    out = inputs.query.new_full((tokens, case.heads, case.value_width), torch.nan)
    lse = inputs.query.new_full((case.heads, tokens), torch.nan, dtype=torch.float32)

    def run() -> None:
        kernel.run(inputs, case.pattern, out, lse)

    def judge() -> tuple[float, str]:
        found, sums = out[prepared.rows], lse[:, prepared.rows].double()
        _, faults = compare_rows("out", found, prepared.out, TOLERANCE[case.dtype])
        off = float((sums - prepared.lse).abs().max())
        if not off <= LSE_TOLERANCE[case.dtype] * (1 + float(prepared.lse.abs().max())):
            faults += (f"lse: off by {off:.2e}",)
        if bool(out.isnan().any()) or bool(lse.isnan().any()):
            faults += ("left elements unwritten",)
        return _relative(found.double(), prepared.out), "; ".join(faults)

    return run, judge


def _backward_of(kernel: Kernel, prepared: _Prepared) -> tuple[Callable[[], None], _Judge]:
    inputs, case, saved = prepared.inputs, prepared.workload.case, prepared.saved
    made = {name: torch.full_like(getattr(inputs, name), torch.nan) for name in _NAMES}
    gradients = Gradients(**made)

    def run() -> None:
        kernel.run(inputs, case.pattern, saved, gradients)

    def judge() -> tuple[float, str]:
        faults: tuple[str, ...] = ()
        errors = []
        for name in _NAMES:
            right, given = getattr(prepared.gradients, name), getattr(prepared.gradients_given, name)
            tolerance = GRADIENT_TOLERANCE[case.dtype]
            _, more = compare_rows(f"gradient of {name}", made[name], right, tolerance, also=given)
            faults += more
            errors.append(_relative(made[name].double(), right))
        return max(errors), "; ".join(faults)

    return run, judge


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
