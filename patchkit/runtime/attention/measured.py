"""How long the kernels took, per device: what `registry.choose` prefers by. From benchmarks/results/, medians."""

from __future__ import annotations

from .registry import Measurement

MEASURED: tuple[Measurement, ...] = ()
