"""The hooks of FlashAttention 2 and 3 before stand-ins for their libraries, on the CPU.

A stand-in has the entry points' names and types and registers the operators. benchmarks.native_gpu runs the real
library of FlashAttention 3; that of 2 has not been run. One process makes the calls without the shim, another makes
them under it and is told every mode while it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.command import CHECKOUT
from tests.engines.flash_standin import RELEASES, Release, built_standin
from tests.engines.process import asking
from tests.engines.recipe import HERE, VLLM_063, python_of
from tests.engines.shimmed import Shim, build_shim

pytestmark = pytest.mark.engines

UNTOLD = {"every": 0, "qk_scale": 1, "window": 0, "tolerance": 1e-4}
"""What `set` is told besides what a test says, since what it is not told stays."""

Caller = Callable[..., dict[str, Any]]
"""Makes a call of every case, with a factor on the scale and a window."""


@dataclass(frozen=True, kw_only=True)
class Under:
    """A process under the shim, of a release's stand-in."""

    release: Release
    caller: Caller
    shim: Shim

    def call(self, window: int = 0, **told: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """Set the mode and make the calls; return what they gave, and what came to the process's counts by them."""
        self.shim.set(*(f"{name}={value}" for name, value in {**UNTOLD, **told}.items()))
        before = self.counts()
        answer = self.caller(window=window)
        return answer, _difference(self.counts(), before)

    def counts(self) -> dict[str, Any]:
        [process] = self.shim.status()
        calls = {one["symbol"]: one["calls"] for one in process["entry_points"]}
        return {"calls": calls, "records": process["records"], "replace": process["replace"]}


def _difference(after: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    return {
        kind: {name: count - before[kind].get(name, 0) for name, count in counts.items()}
        for kind, counts in after.items()
    }


@pytest.fixture(scope="module", params=RELEASES, ids=["fa2", "fa3"])
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    return chosen


@pytest.fixture(scope="module")
def standin(release: Release) -> Path:
    return built_standin(release)


@pytest.fixture(scope="module")
def plain(release: Release, standin: Path) -> Iterator[Caller]:
    with _calling(release, standin, {}) as call:
        yield call


@pytest.fixture(scope="module")
def under(release: Release, standin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Under]:
    segments, replaced = tmp_path_factory.mktemp("segments"), ("--replace", str(standin / "libother.so"))
    shim = build_shim(standin / "tree", python_of(VLLM_063), segments, "--mode", "off", *replaced)
    with _calling(release, standin, shim.variables) as call:
        call()  # from here on there is a process to tell
        yield Under(release=release, caller=call, shim=shim)


@contextlib.contextmanager
def _calling(release: Release, standin: Path, variables: Mapping[str, str]) -> Iterator[Caller]:
    """Start a process that makes a call of every case when it is asked."""
    script = [python_of(VLLM_063), HERE / "inside" / "flash_calls.py", release.library_in(standin / "tree")]
    with asking(script, {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", **variables}) as ask:

        def call(scale: float = 1.0, window: int = 0) -> dict[str, Any]:
            answer: dict[str, Any] = ask(f"{scale} {window}")
            return answer

        yield call


@pytest.mark.parametrize(("mode", "counted", "traced"), [("off", 0, 0), ("count", 1, 0), ("trace", 1, 1)])
def test_what_changes_no_argument_changes_no_bit(
    plain: Caller, under: Under, mode: str, counted: int, traced: int
) -> None:
    answer, came = under.call(mode=mode)
    assert answer["digest"] == plain()["digest"]
    calls = under.release.calls
    assert sorted(came["calls"].values()) == [counted * made for made in calls]
    assert came["records"] == {"written": traced * sum(calls), "unrecorded": 0}


@pytest.mark.parametrize(
    ("told", "scale", "window"),
    [({"qk_scale": 0.5}, 0.5, 0), ({"window": 64}, 1.0, 64)],
    ids=["scale", "window"],
)
def test_a_transform_is_a_call_with_that_argument(
    plain: Caller, under: Under, told: dict[str, Any], scale: float, window: int
) -> None:
    answer, came = under.call(mode="transform", **told)
    assert answer["digest"] == plain(scale, window)["digest"]
    assert answer["digest"] != plain()["digest"]
    written = came["records"]["written"]
    assert written == sum(under.release.calls)
    assert {record.window for record in under.shim.records()[-written:]} == {window}


# Every second first: which call is a second one is counted as long as the process lasts.
@pytest.mark.parametrize(("every", "window"), [(2, 0), (0, 0), (1, 0), (0, 48)])
def test_another_kernel_gives_the_same(plain: Caller, under: Under, every: int, window: int) -> None:
    answer, came = under.call(window, mode="replace", every=every)
    calls = under.release.calls
    compared = sum(len(range(0, made, every)) for made in calls) if every else 0
    assert came["replace"] == {"replaced": sum(calls) - compared, "compared": compared, "differed": 0}
    for ours, theirs in zip(answer["samples"], plain(window=window)["samples"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_at_a_difference_the_real_function_goes_on_alone(plain: Caller, under: Under) -> None:
    answer, came = under.call(mode="replace", every=1, tolerance=0)
    entry_points = len(under.release.calls)
    assert came["replace"] == {"replaced": 0, "compared": entry_points, "differed": entry_points}
    assert answer["digest"] == plain()["digest"]
