"""What the benchmark beside the peers shares with `attention bench`, as far as that shows without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.attention_cases import FORWARDS, PAGED, PREFILLS, MadePrefill
from benchmarks.attention_peers import BACKWARD_NAME, result_of
from patchkit.attention.workload import GPU
from patchkit.record import replace
from patchkit.runtime.attention import eager
from patchkit.runtime.attention.problem import Pattern
from patchkit.runtime.attention.registry import kernel_named


def test_every_workload_is_one_of_bench_and_has_a_result() -> None:
    names = [case.name for case in FORWARDS] + [BACKWARD_NAME]
    assert names == [one.name for one in GPU]
    assert {case.name for case in (*PAGED, *PREFILLS)} == {case.name for case in FORWARDS}
    for name in names:
        result = result_of(name, "flex", [1.0, 2.0, 4.0], 1e-3)
        assert result.timing is not None
        assert (result.timing.median, result.yardstick, result.teraflops > 0) == (2.0, True, True)


@pytest.mark.parametrize("case", [PREFILLS[4], PREFILLS[5]], ids=lambda case: str(case.name))
def test_error_of_a_result_is_that_of_its_rounding_and_sees_a_wrong_row(case: Any) -> None:
    lengths = (61,) * len(case.query_lengths)
    small = replace(case, query_lengths=lengths, key_lengths=lengths, heads=2, kv_heads=2)
    made = MadePrefill(small, "cpu")
    eager.forward(made.inputs, small.pattern, made.out, made.lse)
    made.results["ours"] = made.out
    assert 1e-5 < made.error("ours") < 2e-3
    made.results["wrong"] = torch.where(torch.arange(len(made.out))[:, None, None] == 0, 0, made.out)
    assert made.error("wrong") > 0.1


@pytest.mark.parametrize(
    ("pattern", "window"), [(Pattern(), (511, 0)), (Pattern(window=None), (-1, 0))], ids=["window", "dense"]
)
def test_flash3_is_called_with_its_window_and_the_outputs_place(
    monkeypatch: pytest.MonkeyPatch, pattern: Pattern, window: tuple[int, int]
) -> None:
    class Operators:
        def fwd(self, *given: Any) -> tuple[Any, ...]:
            return given

    monkeypatch.setattr("patchkit.runtime.attention.installed._flash3_operators", Operators)
    small = replace(PREFILLS[0], query_lengths=(9,), key_lengths=(9,), pattern=pattern)
    made = MadePrefill(small, "cpu")
    timed = kernel_named("flash3").timed
    assert timed is not None
    given: Any = timed(made.inputs, pattern)()
    assert len(given) == 37  # as vLLM 0.26.0 declares it
    assert given[25:27] == window
    assert given[6].shape == made.inputs.query.shape
