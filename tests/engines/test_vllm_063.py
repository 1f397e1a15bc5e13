"""vllm 0.6.3 on a CPU: its version, the softmax scale and the scheduler's trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.blackbox.command import patchkit
from tests.engines.conftest import Bench, Oracle
from tests.engines.driver import Answer, Engine
from tests.engines.expectation import assert_as_released, assert_same
from tests.engines.recipe import MODELS, TOKENS, VLLM_063

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def released(bench: Bench, oracle: Oracle) -> Answer:
    return bench.released(VLLM_063).generate(*(oracle.run(name) for name in MODELS))


@pytest.fixture(scope="module")
def patched(bench: Bench) -> Engine:
    return bench.patched(VLLM_063)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "steps"


@pytest.fixture(scope="module")
def answer(patched: Engine, oracle: Oracle) -> Answer:
    """The patched engine with its toggles off."""
    return patched.generate(oracle.run("llama"))


@pytest.fixture(scope="module")
def switched(bench: Bench, patched: Engine, answer: Answer, oracle: Oracle, trace: Path) -> Answer:
    """Both toggles on, the scale 1, without and with a file for the trace."""
    engine = bench.set(patched, "CONFIG_QK_SCALE=y", "CONFIG_QK_SCALE_VALUE=1.0", "CONFIG_SCHED_TRACE=y")
    return engine.generate(oracle.run("llama"), oracle.run("llama", VLLM_SCHED_TRACE=str(trace)))


@pytest.fixture(scope="module")
def halved(bench: Bench, patched: Engine, switched: Answer, oracle: Oracle) -> Answer:
    return bench.set(patched, "CONFIG_QK_SCALE_VALUE=0.5").generate(oracle.run("llama"))


@pytest.fixture(scope="module")
def back(bench: Bench, patched: Engine, halved: Answer, oracle: Oracle) -> Answer:
    return bench.set(patched, "CONFIG_QK_SCALE=n").generate(oracle.run("llama"))


@pytest.fixture(scope="module")
def guard_series(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the series as one of a user's, with the scale behind guards."""
    place = tmp_path_factory.mktemp("guarded") / "vllm"
    series = bench.patches / "vllm"
    shutil.copytree(series / "0.6.3", place / "0.6.3", ignore=shutil.ignore_patterns("series.lock"))
    shutil.copy(series / "Kconfig", place)
    (patch,) = (place / "0.6.3").glob("*-qk-scale.patch")
    patch.write_bytes(patch.read_bytes().replace(b"\nConfig: QK_SCALE\n", b"\nConfig: QK_SCALE\nToggle: guard\n"))
    return place.parent


@pytest.fixture(scope="module")
def guarded(bench: Bench, patched: Engine, back: Answer, oracle: Oracle, guard_series: Path) -> Answer:
    """The scale behind guards, applied while it is off, and flipped."""
    engine = bench.replaced(patched, guard_series)
    assert "if CONFIG_QK_SCALE:" in (engine.tree / "vllm" / "attention" / "layer.py").read_text()
    settings = ("CONFIG_QK_SCALE=y", "CONFIG_QK_SCALE_VALUE=0.5")
    return bench.set(engine, *settings, patches=guard_series).generate(oracle.run("llama"))


@pytest.fixture(scope="module")
def served(
    bench: Bench,
    patched: Engine,
    guarded: Answer,
    guard_series: Path,
    oracle: Oracle,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, list[str], Path]:
    """Return what the traced server says of its version, its answers to a burst, and the trace.

    The scale's guards are off again.
    """
    trace = tmp_path_factory.mktemp("trace") / "steps"
    bench.set(patched, "CONFIG_QK_SCALE=n", "CONFIG_SCHED_TRACE=y", patches=guard_series)
    with patched.serve(oracle.run("llama").model, VLLM_SCHED_TRACE=str(trace)) as server:
        version = json.loads(server.get("/version"))["version"]
        return version, server.burst(oracle.prompts["llama"] * 3), trace


@pytest.fixture(scope="module")
def reverted(bench: Bench, patched: Engine, served: object) -> Engine:
    return bench.reverted(patched)


@pytest.mark.parametrize("name", MODELS)
def test_as_released_it_gives_the_oracles_tokens(released: Answer, oracle: Oracle, name: str) -> None:
    assert_same(released.outputs[MODELS.index(name)], oracle.outputs[name, 1.0])


def test_as_released_it_does_not_know_its_version(released: Answer) -> None:
    assert released.facts["version"] == "dev"


def test_patched_it_reports_its_version(answer: Answer, served: tuple[str, list[str], Path]) -> None:
    assert answer.facts["version"] == "0.6.3+cpu"
    assert served[0] == "0.6.3+cpu"
    assert "Failed to read commit hash" not in answer.log


def test_patched_it_gives_the_oracles_tokens(answer: Answer, oracle: Oracle) -> None:
    assert_same(answer.outputs[0], oracle.outputs["llama", 1.0])


def test_a_scale_of_one_changes_nothing(answer: Answer, switched: Answer) -> None:
    assert_same(switched.outputs[0], answer.outputs[0], logprob=0.0)


def test_a_scale_of_one_half_gives_what_a_model_with_that_scale_gives(halved: Answer, oracle: Oracle) -> None:
    half = oracle.outputs["llama", 0.5]
    assert_same(halved.outputs[0], half)
    whole = oracle.outputs["llama", 1.0]
    assert all(one.tokens != other.tokens for one, other in zip(half, whole, strict=True))


def test_switched_off_again_the_scale_is_the_models(answer: Answer, back: Answer) -> None:
    assert_same(back.outputs[0], answer.outputs[0], logprob=0.0)


def test_behind_guards_the_scale_flips_at_the_next_start(guarded: Answer, oracle: Oracle) -> None:
    assert_same(guarded.outputs[0], oracle.outputs["llama", 0.5])


def test_the_trace_point_fires_once_a_step(answer: Answer, switched: Answer, oracle: Oracle, trace: Path) -> None:
    assert_same(switched.outputs[1], answer.outputs[0], logprob=0.0)
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    assert len(steps) == switched.facts["runs"][1]["steps"] == TOKENS
    assert [step["step"] for step in steps] == list(range(TOKENS))
    prompts = len(oracle.prompts["llama"])
    assert [step["prefills"] for step in steps] == [prompts] + [0] * (TOKENS - 1)
    assert [step["batched_tokens"] for step in steps] == [oracle.prompt_tokens["llama"]] + [prompts] * (TOKENS - 1)


def test_the_server_whose_guards_are_off_again_answers_a_burst(
    served: tuple[str, list[str], Path], oracle: Oracle
) -> None:
    _, texts, trace = served
    assert texts == [output.text for output in oracle.outputs["llama", 1.0]] * 3
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    assert sum(step["prefills"] for step in steps) == len(texts)
    assert max(step["scheduled"] for step in steps) > 1, "the burst was batched"


def test_reverted_it_is_what_was_released(reverted: Engine, bench: Bench, oracle: Oracle) -> None:
    assert_as_released(reverted)
    assert "not patched" in patchkit("status", "--target", "vllm", "--root", reverted.tree).said
    again = reverted.generate(oracle.run("llama"))
    assert again.facts["version"] == "dev"
    assert_same(again.outputs[0], oracle.outputs["llama", 1.0])
