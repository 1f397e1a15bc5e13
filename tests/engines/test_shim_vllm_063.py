"""The shim before paged_attention_v1 of vllm 0.6.3, which decodes; its prefill is torch's own attention.

One engine starts with the shim for each way in, counts or traces, and is told the other modes while it runs.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from patchkit.native.manifest import manifest_path
from patchkit.native.segment import Record
from tests.blackbox.command import patchkit
from tests.engines.conftest import Bench, Oracle
from tests.engines.driver import Answer, Engine
from tests.engines.expectation import assert_same
from tests.engines.process import asking
from tests.engines.recipe import HERE, TOKENS, VLLM_063, python_of, tree_path
from tests.engines.shimmed import Shimmed, calls_of, host_library, with_shim

pytestmark = pytest.mark.engines

LAYERS = 2
CALLS = (TOKENS - 1) * LAYERS
"""Of one answer: every decoding step of every layer."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What came of a mode: the answer, the processes and the records then, of all modes so far."""

    answer: Answer
    processes: list[dict[str, Any]]
    records: list[Record]


def tell(engine: Shimmed, oracle: Oracle, modes: Sequence[tuple[str, ...]]) -> list[Told]:
    """Start an engine, tell it one mode after the other (none: as it was started) and generate in each."""
    seen = []
    with engine.offline() as running:
        for words in modes:
            if words:
                engine.shim.set(*words)
            answer = running.generate(oracle.run("llama"))
            seen.append(Told(answer=answer, processes=engine.shim.status(), records=engine.shim.records()))
    return seen


@pytest.fixture(scope="module")
def preloaded(bench: Bench, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """Return what came of counting, tracing, half the scale and another kernel."""
    segments = tmp_path_factory.mktemp("segments")
    engine = with_shim(bench.released(VLLM_063), segments, "--replace", str(host_library()))
    modes = ((), ("mode=trace",), ("mode=transform", "qk_scale=0.5"), ("mode=replace", "every=5"))
    return tell(engine, oracle, modes)


@pytest.fixture(scope="module")
def dispatched(bench: Bench, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """Return what came of tracing and of half the scale, where the operator is registered anew."""
    anew = ("--way", "dispatcher", "--mode", "trace")
    engine = with_shim(bench.released(VLLM_063), tmp_path_factory.mktemp("segments"), *anew)
    assert "LD_PRELOAD" not in engine.shim.variables
    return tell(engine, oracle, ((), ("mode=transform", "qk_scale=0.5")))


def test_counted_it_gives_the_oracles_tokens(preloaded: list[Told], oracle: Oracle) -> None:
    assert_same(preloaded[0].answer.outputs[0], oracle.outputs["llama", 1.0])


def test_every_decoding_step_of_every_layer_is_counted(preloaded: list[Told]) -> None:
    assert preloaded[0].answer.facts["runs"][0]["steps"] == TOKENS
    [process, *others] = preloaded[0].processes
    assert calls_of(process) == CALLS
    assert [calls_of(other) for other in others] == [0] * len(others)
    [symbol] = [one for one in process["entry_points"] if one["calls"]]
    assert symbol["object"].endswith("vllm/_C.abi3.so")
    assert (symbol["way"], symbol["typed"]) == ("loaded object", True)
    assert preloaded[0].records == []


def test_traced_each_call_has_its_shapes(preloaded: list[Told], oracle: Oracle) -> None:
    assert_same(preloaded[1].answer.outputs[0], oracle.outputs["llama", 1.0])
    records = preloaded[1].records
    assert len(records) == calls_of(preloaded[1].processes[0]) - CALLS == CALLS
    prompts = len(oracle.prompts["llama"])
    assert {record.q for record in records} == {(prompts, 4, 64)}
    assert {record.scale for record in records} == {64**-0.5}
    assert all(record.nanoseconds > 0 for record in records)


def test_registered_anew_the_operator_is_counted_and_traced(dispatched: list[Told], oracle: Oracle) -> None:
    assert_same(dispatched[0].answer.outputs[0], oracle.outputs["llama", 1.0])
    process, records = dispatched[0].processes[0], dispatched[0].records
    assert calls_of(process) == CALLS
    [symbol] = [one for one in process["entry_points"] if one["calls"]]
    assert (symbol["way"], symbol["typed"]) == ("dispatcher", False)
    assert len(records) == CALLS
    prompts = len(oracle.prompts["llama"])
    assert {(record.q, record.o, record.scale) for record in records} == {((prompts, 4, 64),) * 2 + (64**-0.5,)}


def test_decoding_by_another_kernel_gives_the_oracles_tokens(preloaded: list[Told], oracle: Oracle) -> None:
    assert_same(preloaded[3].answer.outputs[0], oracle.outputs["llama", 1.0])
    process = preloaded[3].processes[0]
    assert calls_of(process) - calls_of(preloaded[2].processes[0]) == CALLS
    assert process["replace"] == {"replaced": 24, "compared": 6, "differed": 0}


DECODING_AT_HALF = """\
--- a/vllm/attention/ops/paged_attn.py
+++ b/vllm/attention/ops/paged_attn.py
@@ -103,5 +103,6 @@
         blocksparse_block_size: int = 64,
         blocksparse_head_sliding_step: int = 0,
     ) -> torch.Tensor:
+        scale = scale * 0.5
         if blocksparse_vert_stride is not None and blocksparse_vert_stride > 1:
             # use blocksparse paged attention
"""
"""The shim reaches decoding alone, so the patch that it is compared with changes decoding alone."""


@pytest.fixture(scope="module")
def decoding_at_half(bench: Bench, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    patch, tree = tmp_path_factory.mktemp("half") / "half.diff", bench.trees / "half"
    patch.write_text(DECODING_AT_HALF)
    shutil.copytree(tree_path(VLLM_063), tree, symlinks=True)
    applied = patchkit("apply", "--root", tree, "--target", "vllm", "--patch", patch)
    assert applied.status == 0, applied.said
    return replace(bench.released(VLLM_063), tree=tree).generate(oracle.run("llama"))


def test_half_the_scale_by_transform_is_half_the_scale_by_patch(
    preloaded: list[Told], dispatched: list[Told], decoding_at_half: Answer, oracle: Oracle
) -> None:
    patched = decoding_at_half.outputs[0]
    for told in (preloaded[2], dispatched[1]):
        assert_same(told.answer.outputs[0], patched, logprob=0.0)
    whole = oracle.outputs["llama", 1.0]
    assert all(one.tokens != other.tokens for one, other in zip(patched, whole, strict=True))


def failing_op(engine: Engine) -> list[object]:
    return [python_of(VLLM_063), HERE / "inside" / "failing_op.py", engine.tree / "vllm" / "_C.abi3.so"]


def test_an_exception_of_the_operator_reaches_python_unchanged(bench: Bench, tmp_path: Path) -> None:
    """Counting and tracing."""
    released = bench.released(VLLM_063)
    with asking(failing_op(released), released.environment()) as ask:
        said = ask("")
    assert all(said), "the operator refuses the tensors"
    shimmed = with_shim(released, tmp_path / "segments")
    with asking(failing_op(shimmed), shimmed.environment()) as ask:
        assert ask("") == said
        assert calls_of(shimmed.shim.status()[0]) == 3
        shimmed.shim.set("mode=trace")
        assert ask("") == said
        assert calls_of(shimmed.shim.status()[0]) == 6


def test_the_doctor_says_what_was_seen(bench: Bench) -> None:
    tree = bench.released(VLLM_063).tree
    with_torch = ("--python", python_of(VLLM_063))
    said = patchkit("native", "doctor", "--target", "vllm", "--root", tree, *with_torch, "--json")
    assert said.status == 0, said.said
    found = {one["name"]: one["chosen"] for one in said.report["entry_points"]}
    assert found == {"paged_attention_v1": "LD_PRELOAD", "paged_attention_v2": "LD_PRELOAD"}
    ways = {way["method"]: (way["reaches"], way["why"]) for way in said.report["entry_points"][0]["ways"]}
    assert ways["the engine's plugin"] == (False, "vllm 0.6.3+cpu loads its libraries before its plugins")
    assert ways["torch dispatcher"][0], ways["torch dispatcher"][1]
    missing = [one["symbol"] for one in said.report["missing"]]
    assert any("KSs" in symbol for symbol in missing), "the other C++ ABI is not in this library"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("torch 2.13.0+cpu", "torch 2.8.0", "it was built for torch 2.8.0, the process has 2.13.0+cpu"),
        ("cxx11 1", "cxx11 0", "it was built for the C++ ABI 0, the process has 1"),
        ("c10 ", "c10 00", "it was built for a libc10.so with build-id 00"),
    ],
    ids=["torch", "C++ ABI", "libc10.so"],
)
def test_a_stage_2_for_another_torch_is_not_opened(
    bench: Bench, tmp_path: Path, before: str, after: str, why: str
) -> None:
    shimmed = with_shim(bench.released(VLLM_063), tmp_path / "segments")
    built, stage2 = Path(shimmed.shim.variables["PATCHKIT_SHIM_STAGE2"]), tmp_path / "stage2.so"
    shutil.copy(built, stage2)
    manifest = manifest_path(built).read_text()
    assert before in manifest
    manifest_path(stage2).write_text(manifest.replace(before, after))
    seen = {**shimmed.environment(), "PATCHKIT_SHIM_STAGE2": str(stage2)}
    command = list(map(str, failing_op(shimmed)))
    done = subprocess.run(command, env=seen, input="\n", capture_output=True, text=True, check=True, timeout=300)
    [line] = [line for line in done.stderr.splitlines() if line.startswith("patchkit shim:")]
    assert line.startswith(f"patchkit shim: stage 2 {stage2}: {why}")
    assert line.endswith("; calls are passed through")
    [process] = [one for one in shimmed.shim.status() if calls_of(one)]
    assert (calls_of(process), process["stage2"]["state"]) == (3, "refused")
