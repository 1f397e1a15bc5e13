"""sglang 0.5.1 on a CPU: patched it needs no package that is not there, and runs its own model classes."""

from __future__ import annotations

import pytest

from tests.engines.conftest import Bench, Oracle
from tests.engines.driver import Answer, Engine
from tests.engines.expectation import assert_as_released, assert_same
from tests.engines.process import EngineError
from tests.engines.recipe import SGLANG_051

pytestmark = pytest.mark.engines

# It has no class of its own for opt.
OWN = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


@pytest.fixture(scope="module")
def patched(bench: Bench) -> Engine:
    return bench.patched(SGLANG_051)


@pytest.fixture(scope="module")
def answer(patched: Engine, oracle: Oracle) -> Answer:
    return patched.generate(*(oracle.run(name) for name in OWN))


@pytest.fixture(scope="module")
def served(patched: Engine, oracle: Oracle) -> list[str]:
    with patched.serve(oracle.run("llama").model) as server:
        return server.burst(oracle.prompts["llama"] * 3)


@pytest.fixture(scope="module")
def reverted(bench: Bench, patched: Engine, answer: Answer, served: list[str]) -> Engine:
    return bench.reverted(patched, standins="sglang")


def test_as_released_it_cannot_be_imported(bench: Bench, oracle: Oracle) -> None:
    with pytest.raises(EngineError, match="has no attribute '_is_amx_tile_supported'"):
        bench.released(SGLANG_051).generate(oracle.run("llama"))


def test_as_released_with_stand_ins_it_gives_the_oracles_tokens(bench: Bench, oracle: Oracle) -> None:
    answer = bench.released(SGLANG_051, standins="sglang").generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 1.0])
    assert answer.facts["strangers"] == ["sgl_kernel", "vllm"], "it does need them"


@pytest.mark.parametrize("name", OWN)
def test_patched_it_gives_the_oracles_tokens(answer: Answer, oracle: Oracle, name: str) -> None:
    assert_same(answer.outputs[list(OWN).index(name)], oracle.outputs[name, 1.0])


def test_patched_it_runs_without_the_packages_it_asked_for(answer: Answer) -> None:
    assert answer.facts["strangers"] == []
    assert answer.facts["importable"] == []


@pytest.mark.parametrize("name", OWN)
def test_patched_it_runs_its_own_model_class(answer: Answer, name: str) -> None:
    assert f"type={OWN[name]}," in answer.log
    assert "no SGLang implementation" not in answer.log
    assert "TransformersForCausalLM" not in answer.log


def test_the_patched_server_answers_a_burst(served: list[str], oracle: Oracle) -> None:
    assert served == [output.text for output in oracle.outputs["llama", 1.0]] * 3


def test_reverted_it_is_what_was_released(reverted: Engine, oracle: Oracle) -> None:
    assert_as_released(reverted)
    again = reverted.generate(oracle.run("llama"))
    assert_same(again.outputs[0], oracle.outputs["llama", 1.0])
