"""Every kernel against the reference in float64, with outputs that hold NaN before and are guarded on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from patchkit.attention.case import AttentionCase, make_inputs, problem_of
from patchkit.counting import counted
from patchkit.record import dataclass
from patchkit.runtime.attention.problem import BACKWARD, FORWARD, Gradients, Inputs, Saved
from patchkit.runtime.attention.reference import attention_reference, gradients_reference, replace_tensors
from patchkit.runtime.attention.registry import Kernel

# The largest error of a row, as a part of the row's norm (or of a tenth of the usual norm, for smaller rows); lse is
# absolute, as a part of the largest score. Rounding a result to bfloat16 alone costs 2**-9; probabilities and sums cost
# as much again.
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
GRADIENT_TOLERANCE = {**TOLERANCE, "float32": 1e-4}
LSE_TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-3}

_GUARD = 64  # elements on each side of an output that nobody may write
_MARK = -7.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """What a kernel did with a case: `refusal` not empty where it does not take it, `faults` empty where it is right.

    `error` is the largest error of a row of any output, `tolerance` what was allowed.
    """

    kernel: str
    case: AttentionCase
    refusal: str
    error: float = 0.0
    tolerance: float = 0.0
    faults: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """True where nothing is wrong; a refusal is right too."""
        return not self.faults


def check_kernels(
    kernels: tuple[Kernel, ...], cases: Iterable[AttentionCase], device: str, *, seed: int = 0
) -> Iterator[CheckResult]:
    """Yield the result of every kernel on every case, case after case."""
    for case in cases:
        yield from _check_case(kernels, case, device, seed)


def _check_case(kernels: tuple[Kernel, ...], case: AttentionCase, device: str, seed: int) -> Iterator[CheckResult]:
    refusals = [(kernel, kernel.refusal(problem_of(case, device, step=kernel.step))) for kernel in kernels]
    able = [kernel for kernel, refusal in refusals if not refusal]
    yield from (CheckResult(kernel=one.name, case=case, refusal=refusal) for one, refusal in refusals if refusal)
    if not able:
        return
    inputs = make_inputs(case, device, seed=seed)
    exact = upcast(make_inputs(case, "cpu", seed=seed))
    out, lse = attention_reference(exact, case.pattern)
    for kernel in able:
        if kernel.step == FORWARD:
            yield _check_forward(kernel, case, inputs, out, lse)
    backwards = [kernel for kernel in able if kernel.step == BACKWARD]
    if backwards:
        saved = _saved(case, inputs, out, lse, seed)
        expected = _expected(exact, case, saved, out)
        for kernel in backwards:
            yield _check_backward(kernel, case, inputs, saved, expected)


def _check_forward(kernel: Kernel, case: AttentionCase, inputs: Inputs, out: Tensor, lse: Tensor) -> CheckResult:
    outputs = {"out": (tuple(out.shape), inputs.query.dtype), "lse": (tuple(lse.shape), torch.float32)}

    def run(given: dict[str, Tensor]) -> None:
        kernel.run(inputs, case.pattern, given["out"], given["lse"])

    found, faults = _run_guarded(run, outputs, inputs, twice=case.deterministic)
    if found is None:
        return CheckResult(kernel=kernel.name, case=case, refusal="", faults=faults)
    empty = lse == -torch.inf
    if not torch.equal(found["lse"][empty], lse[empty].float()):
        faults += ("lse of an empty row is not -inf",)
    if found["out"][empty.T].ne(0).any():
        faults += ("out of an empty row is not 0",)
    rest = ~empty
    scale = 1 + float(lse[rest].nan_to_num().abs().max()) if rest.any() else 1.0
    error, out_faults = compare_rows("out", found["out"], out, TOLERANCE[case.dtype])
    _, lse_faults = _compare_lse(found["lse"][rest], lse[rest], LSE_TOLERANCE[case.dtype] * scale)
    return CheckResult(
        kernel=kernel.name,
        case=case,
        refusal="",
        error=error,
        tolerance=TOLERANCE[case.dtype],
        faults=faults + out_faults + lse_faults,
    )


def _expected(exact: Inputs, case: AttentionCase, saved: Saved, out: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the gradients by name, and what they are for the rounded out that a backward is given.

    A backward subtracts delta_i = out_i . grad_out_i - grad_lse_i from every grad_out_i . v_j. Where a row looks at
    little but one key the difference is small, and the rounding of out alone moves the gradients of query and key by
    more than all that a kernel rounds (large scores, float16: 1.7e-2 of a row of the query's, against 5e-4). An
    error e in out acts as a gradient of -e_i . grad_out_i of lse, so that the reference tells what it moves.
    """
    grad_out = saved.grad_out.double().cpu()
    right = gradients_reference(exact, case.pattern, grad_out, _double(saved.grad_lse))
    change = ((out - saved.out.double().cpu()) * grad_out).sum(-1).T
    moved = gradients_reference(exact, case.pattern, torch.zeros_like(grad_out), change)
    names = [name for name in Gradients.__slots__ if getattr(right, name) is not None]
    return {name: (getattr(right, name), getattr(right, name) + getattr(moved, name)) for name in names}


def _check_backward(
    kernel: Kernel, case: AttentionCase, inputs: Inputs, saved: Saved, wanted: dict[str, tuple[Tensor, Tensor]]
) -> CheckResult:
    outputs = {name: (tuple(tensor.shape), inputs.query.dtype) for name, (tensor, _) in wanted.items()}

    def run(given: dict[str, Tensor]) -> None:
        kernel.run(inputs, case.pattern, saved, Gradients(**given))

    found, faults = _run_guarded(run, outputs, inputs, twice=case.deterministic)
    if found is None:
        return CheckResult(kernel=kernel.name, case=case, refusal="", faults=faults)
    worst, tolerance = 0.0, GRADIENT_TOLERANCE[case.dtype]
    for name, (tensor, given) in wanted.items():
        error, more = compare_rows(f"gradient of {name}", found[name], tensor, tolerance, also=given)
        worst, faults = max(worst, error), faults + more
    return CheckResult(kernel=kernel.name, case=case, refusal="", error=worst, tolerance=tolerance, faults=faults)


def _saved(case: AttentionCase, inputs: Inputs, out: Tensor, lse: Tensor, seed: int) -> Saved:
    """Return what a right forward would have left, and gradients of out and lse drawn at random."""
    generator = torch.Generator().manual_seed(seed + 1)
    device, dtype = inputs.query.device, case.torch_dtype
    grad_out = torch.randn(out.shape, generator=generator)
    for row in case.odd_rows[1:]:
        grad_out[row, 0, 5] = torch.nan
    return Saved(
        out=out.to(dtype).to(device),
        lse=lse.float().to(device),
        grad_out=grad_out.to(dtype).to(device),
        grad_lse=torch.randn(lse.shape, generator=generator).to(device),
    )


def _run_guarded(
    run: Callable[[dict[str, Tensor]], None],
    outputs: dict[str, tuple[tuple[int, ...], torch.dtype]],
    inputs: Inputs,
    *,
    twice: bool,
) -> tuple[dict[str, Tensor] | None, tuple[str, ...]]:
    """Run a kernel into outputs full of NaN; return them on the CPU, and what was written that must not be."""
    before = _bits(inputs)
    device = inputs.query.device
    runs = []
    faults: tuple[str, ...] = ()
    for _ in range(2 if twice else 1):
        whole = {name: _guarded(shape, dtype, device) for name, (shape, dtype) in outputs.items()}
        given = {name: whole[name][_GUARD:-_GUARD].view(outputs[name][0]) for name in outputs}
        try:
            run(given)
        except Exception as error:  # noqa: BLE001 -- whatever a kernel or Triton raises is its fault, and is reported
            return None, (f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",)
        faults += tuple(f"wrote outside {name}" for name, one in whole.items() if not _guards_hold(one))
        runs.append({name: tensor.detach().cpu() for name, tensor in given.items()})
    if any(not torch.equal(old, new) for old, new in zip(before, _bits(inputs), strict=True)):
        faults += ("changed its inputs",)
    if twice and any(not torch.equal(_as_bits(runs[0][name]), _as_bits(runs[1][name])) for name in outputs):
        faults += ("gave other bits the second time",)
    return runs[0], faults


def _guarded(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    elements = torch.Size(shape).numel()
    whole = torch.full((elements + 2 * _GUARD,), _MARK, dtype=dtype, device=device)
    whole[_GUARD:-_GUARD] = torch.nan
    return whole


def _guards_hold(whole: Tensor) -> bool:
    return bool((whole[:_GUARD] == _MARK).all() and (whole[-_GUARD:] == _MARK).all())


def _bits(inputs: Inputs) -> list[Tensor]:
    fields = (getattr(inputs, name) for name in Inputs.__slots__)
    return [_as_bits(field).clone() for field in fields if isinstance(field, Tensor)]


def _as_bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor


def compare_rows(
    name: str, found: Tensor, expected: Tensor, tolerance: float, *, also: Tensor | None = None
) -> tuple[float, tuple[str, ...]]:
    """Return the largest error of a row (the last dimension), and what is wrong with it.

    A row may be as near to that of `also` instead; what is allowed does not grow by it.
    """
    found = found.double()
    if not torch.equal(found.isnan(), expected.isnan()):
        more = int((found.isnan() & ~expected.isnan()).sum())
        fewer = int((~found.isnan() & expected.isnan()).sum())
        return float("inf"), (f"{name}: NaN in {counted(more, 'place')} too many, missing in {fewer}",)
    if not expected.numel():
        return 0.0, ()
    found, expected = found.nan_to_num(), expected.nan_to_num()
    norms = expected.norm(dim=-1)
    usual = float(norms.square().mean().sqrt())
    distances = (found - expected).norm(dim=-1)
    if also is not None:
        distances = torch.minimum(distances, (found - also.nan_to_num()).norm(dim=-1))
    errors = distances / norms.clamp(min=max(0.1 * usual, 1e-30))
    worst = float(errors.max())
    if worst <= tolerance:
        return worst, ()
    place = [int(index) for index in torch.unravel_index(errors.argmax(), errors.shape)]
    return worst, (f"{name}: error {worst:.2e} in row {place}, allowed {tolerance:.1e}",)


def _compare_lse(found: Tensor, expected: Tensor, tolerance: float) -> tuple[float, tuple[str, ...]]:
    found = found.double()
    if not torch.equal(found.isnan(), expected.isnan()):
        return float("inf"), ("lse: NaN where none belongs, or none where it belongs",)
    worst = float((found - expected).nan_to_num().abs().max()) if expected.numel() else 0.0
    return worst, () if worst <= tolerance else (f"lse: off by {worst:.2e}, allowed {tolerance:.1e}",)


def upcast(inputs: Inputs) -> Inputs:
    """Return the same call in float64."""
    names = ("query", "key", "value", "anchor_key", "anchor_value")
    tensors = {name: tensor.double() for name in names if (tensor := getattr(inputs, name)) is not None}
    return replace_tensors(inputs, tensors)


def _double(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.double().cpu()
