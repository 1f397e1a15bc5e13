"""Which kernels there are, which of them can answer a case here, why the others cannot, and which is fastest.

A family is a module of this package that holds KERNELS, a tuple of Kernel; it is loaded when it is first asked about,
and may need a library that is not installed. A new family is a row of FAMILIES.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from .problem import AttentionError, Problem

# The order is the order of preference where nothing was measured. `needs`: the library without which it cannot be
# loaded.
FAMILIES: tuple[tuple[str, str], ...] = (
    ("hopper", "triton"),
    ("hopper_decode", "triton"),
    ("hopper_paged", "triton"),
    ("triton_prefill", "triton"),
    ("triton_decode", "triton"),
    ("triton_paged", "triton"),
    ("triton_backward", "triton"),
    ("installed", ""),
    ("eager", ""),
)

Run = Callable[..., None]
"""Forward: run(inputs, pattern, out, lse). Backward: run(inputs, pattern, saved, gradients). Each writes every element
of what it is given last and returns nothing; see problem.py for the shapes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One way to answer a case. `refusal(problem)` is "" where it can, else the reason, in words for the user.

    `yardstick` is true for what is not ours: it is compared with, and chosen only where `choosable`.
    `computed(problem)`: the query-key pairs of a head that it computes, to be held beside those that are seen.
    `timed(inputs, pattern)`, with `saved` for a backward: the call that is timed in place of `run`, for a yardstick
    whose results must be copied.
    """

    name: str
    step: str
    summary: str
    refusal: Callable[[Problem], str]
    run: Run
    yardstick: bool = False
    choosable: bool = True
    computed: Callable[[Problem], int] | None = None
    timed: Callable[..., Callable[[], object]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Compilation:
    """A Triton kernel as CI compiles it for sm_90 without a GPU; a family lists its own in COMPILATIONS.

    `function` is what triton.jit made; `signature` names every argument that is not constexpr and its type ("*bf16",
    "i32", "fp32"); `constants` are the constexpr ones; `registers` the most of a thread, None where it is not bounded.
    """

    name: str
    function: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    registers: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """How long a kernel took on a device (its name as the driver tells it), median in milliseconds; dtype
    "bfloat16".
    """

    device: str
    kernel: str
    step: str
    dtype: str
    head_dim: int
    dense: bool
    paged: bool
    batch: int
    max_query: int
    max_key: int
    milliseconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a kernel says of a case: "" in `refusal` where it can; `milliseconds` of the nearest measurement, or
    None.
    """

    kernel: str
    refusal: str
    milliseconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The kernel that answers a case, why it and no other, and what every kernel said."""

    kernel: Kernel
    reason: str
    verdicts: tuple[Verdict, ...]


def load_kernels() -> tuple[tuple[Kernel, ...], tuple[Verdict, ...]]:
    """Return the kernels of all families that can be loaded, and a refusal for each family that cannot."""
    kernels: list[Kernel] = []
    missing: list[Verdict] = []
    for family, needs in FAMILIES:
        try:
            module = import_module(f".{family}", __package__)
        except ModuleNotFoundError as error:
            if not needs or (error.name or "").split(".")[0] != needs:
                raise
            missing.append(Verdict(kernel=family, refusal=f"{needs} is not installed"))
            continue
        kernels.extend(module.KERNELS)
    return tuple(kernels), tuple(missing)


def load_compilations() -> tuple[Compilation, ...]:
    """Return what CI compiles for sm_90, of all families that list some; raises ModuleNotFoundError without triton."""
    modules = [import_module(f".{family}", __package__) for family, needs in FAMILIES if needs == "triton"]
    return tuple(one for module in modules for one in getattr(module, "COMPILATIONS", ()))


def kernel_named(name: str) -> Kernel:
    """Return a kernel by name; raises AttentionError, with the names that there are."""
    kernels, missing = load_kernels()
    for kernel in kernels:
        if kernel.name == name:
            return kernel
    absent = "".join(f"; {verdict.kernel}: {verdict.refusal}" for verdict in missing)
    raise AttentionError(f"no kernel is called {name}; there are {', '.join(one.name for one in kernels)}{absent}")


def choose(problem: Problem, *, device_name: str = "") -> Choice:
    """Return the kernel for a case: the fastest measured on this device, else the first that can.

    Raises AttentionError where none can, with every reason.
    """
    kernels, missing = load_kernels()
    times = _times_near(problem, device_name or _device_name(problem.device))
    verdicts = list(missing)
    able: list[Kernel] = []
    for kernel in kernels:
        if kernel.step != problem.step or not kernel.choosable:
            continue
        refusal = kernel.refusal(problem)
        verdicts.append(Verdict(kernel=kernel.name, refusal=refusal, milliseconds=times.get(kernel.name)))
        if not refusal:
            able.append(kernel)
    if not able:
        reasons = "\n".join(f"  {verdict.kernel}: {verdict.refusal}" for verdict in verdicts)
        raise AttentionError(f"no kernel can run this {problem.step}\n{reasons}")
    fastest = min(able, key=lambda kernel: times.get(kernel.name, math.inf))  # the first of equals
    reason = "fastest of those measured here" if fastest.name in times else "first that can; nothing measured here"
    return Choice(kernel=fastest, reason=reason, verdicts=tuple(verdicts))


def _times_near(problem: Problem, device: str) -> dict[str, float]:
    """Return the milliseconds of every kernel that was measured at the lengths nearest to those of the problem."""
    from .measured import MEASURED

    traits = (device, problem.step, str(problem.dtype), problem.head_dim, problem.dense, problem.page_size > 0)
    alike = [
        one
        for one in MEASURED
        if (one.device, one.step, f"torch.{one.dtype}", one.head_dim, one.dense, one.paged) == traits
    ]
    if not alike:
        return {}
    nearest = min(alike, key=lambda one: _distance(one, problem))
    lengths = (nearest.batch, nearest.max_query, nearest.max_key)
    return {one.kernel: one.milliseconds for one in alike if (one.batch, one.max_query, one.max_key) == lengths}


def _distance(one: Measurement, problem: Problem) -> float:
    pairs = ((one.batch, problem.batch), (one.max_query, problem.max_query), (one.max_key, problem.max_key))
    return sum(abs(math.log(max(measured, 1) / max(asked, 1))) for measured, asked in pairs)


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"
