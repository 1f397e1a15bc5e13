"""sglang 0.5.1 on a CPU: patched it needs no package that is not there, and runs its own model classes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.engines.conftest import Bench, Oracle
from tests.engines.driver import Answer, Engine, Output
from tests.engines.expectation import assert_as_released, assert_same
from tests.engines.process import EngineError
from tests.engines.recipe import SGLANG_051

pytestmark = pytest.mark.engines

OWN = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
"""Its classes for the models that it has one for. llama is served, qwen2 generated offline."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a server gave: each prompt once, and all of them thrice at a time."""

    outputs: tuple[Output, ...]
    texts: list[str]
    log: str


@pytest.fixture(scope="module")
def patched(bench: Bench) -> Engine:
    return bench.patched(SGLANG_051)


@pytest.fixture(scope="module")
def answer(patched: Engine, oracle: Oracle) -> Answer:
    return patched.generate(oracle.run("qwen2"))


@pytest.fixture(scope="module")
def served(patched: Engine, oracle: Oracle) -> Served:
    prompts = oracle.prompts["llama"]
    with patched.serve(oracle.run("llama").model) as server:
        outputs, texts = server.outputs(prompts), server.burst(prompts * 3)
        return Served(outputs=outputs, texts=texts, log=server.child.said())


@pytest.fixture(scope="module")
def reverted(bench: Bench, patched: Engine, answer: Answer, served: Served) -> Engine:
    return bench.reverted(patched, standins="sglang")


def test_as_released_it_cannot_be_imported(bench: Bench, oracle: Oracle) -> None:
    with pytest.raises(EngineError, match="has no attribute '_is_amx_tile_supported'"):
        bench.released(SGLANG_051).generate(oracle.run("llama"))


def test_patched_the_server_gives_the_oracles_tokens(served: Served, oracle: Oracle) -> None:
    assert_same(served.outputs, oracle.outputs["llama", 1.0])


def test_patched_it_gives_the_oracles_tokens_offline(answer: Answer, oracle: Oracle) -> None:
    assert_same(answer.outputs[0], oracle.outputs["qwen2", 1.0])


def test_patched_it_runs_without_the_packages_it_asked_for(answer: Answer) -> None:
    assert answer.facts["strangers"] == []
    assert answer.facts["importable"] == []


@pytest.mark.parametrize("name", OWN)
def test_patched_it_runs_its_own_model_class(answer: Answer, served: Served, name: str) -> None:
    log = {"llama": served.log, "qwen2": answer.log}[name]
    assert f"type={OWN[name]}," in log
    assert "no SGLang implementation" not in log
    assert "TransformersForCausalLM" not in log


def test_the_patched_server_answers_a_burst(served: Served, oracle: Oracle) -> None:
    assert served.texts == [output.text for output in oracle.outputs["llama", 1.0]] * 3


def test_reverted_it_is_what_was_released_and_with_stand_ins_gives_the_oracles_tokens(
    reverted: Engine, oracle: Oracle
) -> None:
    assert_as_released(reverted)
    again = reverted.generate(oracle.run("llama"))
    assert_same(again.outputs[0], oracle.outputs["llama", 1.0])
    assert again.facts["strangers"] == ["sgl_kernel", "vllm"], "it does need them"
