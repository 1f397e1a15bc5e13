"""The shim before paged_attention_v1 of vllm 0.6.3, which decodes; its prefill is torch's own attention."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.native.manifest import manifest_path
from patchkit.native.segment import Segment
from tests.blackbox.command import patchkit
from tests.engines.conftest import Bench, Oracle
from tests.engines.driver import Answer
from tests.engines.expectation import assert_same
from tests.engines.recipe import HERE, TOKENS, VLLM_063, python_of, tree_path
from tests.engines.shimmed import Shimmed, calls_of, host_library, with_shim

pytestmark = pytest.mark.engines

LAYERS = 2


@pytest.fixture(scope="module")
def counting(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Shimmed:
    return with_shim(bench.released(VLLM_063), tmp_path_factory.mktemp("segments"))


@pytest.fixture(scope="module")
def counted(counting: Shimmed, oracle: Oracle) -> Answer:
    return counting.generate(oracle.run("llama"))


def test_counted_it_gives_the_oracles_tokens(counted: Answer, oracle: Oracle) -> None:
    assert_same(counted.outputs[0], oracle.outputs["llama", 1.0])


def test_every_decoding_step_of_every_layer_is_counted(counting: Shimmed, counted: Answer) -> None:
    steps = counted.facts["runs"][0]["steps"]
    assert steps == TOKENS
    [process, *others] = counting.status()
    assert calls_of(process) == (steps - 1) * LAYERS
    assert [calls_of(other) for other in others] == [0] * len(others)
    [symbol] = [one for one in process["entry_points"] if one["calls"]]
    assert symbol["object"].endswith("vllm/_C.abi3.so")
    assert (symbol["way"], symbol["typed"]) == ("loaded object", True)


def test_traced_each_call_has_its_shapes(bench: Bench, oracle: Oracle, tmp_path: Path) -> None:
    engine = with_shim(bench.released(VLLM_063), tmp_path / "segments", "--mode", "trace")
    answer = engine.generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 1.0])
    [path] = [path for path in engine.segments.iterdir() if Segment(path).counted().calls]
    segment = Segment(path)
    records = list(segment.records())
    assert segment.lost == 0
    assert len(records) == segment.counted().calls == (TOKENS - 1) * LAYERS
    prompts = len(oracle.prompts["llama"])
    assert {record.q for record in records} == {(prompts, 4, 64)}
    assert {record.scale for record in records} == {64**-0.5}
    assert all(record.nanoseconds > 0 for record in records)
    segment.close()


def test_registered_anew_the_operator_is_counted_and_traced(bench: Bench, oracle: Oracle, tmp_path: Path) -> None:
    engine = with_shim(bench.released(VLLM_063), tmp_path / "segments", "--way", "dispatcher", "--mode", "trace")
    assert "LD_PRELOAD" not in engine.variables
    answer = engine.generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 1.0])
    process = engine.status()[0]
    assert calls_of(process) == (TOKENS - 1) * LAYERS
    [symbol] = [one for one in process["entry_points"] if one["calls"]]
    assert (symbol["way"], symbol["typed"]) == ("dispatcher", False)
    [path] = [path for path in engine.segments.iterdir() if Segment(path).counted().calls]
    segment = Segment(path)
    records = list(segment.records())
    segment.close()
    assert len(records) == (TOKENS - 1) * LAYERS
    prompts = len(oracle.prompts["llama"])
    assert {(record.q, record.o, record.scale) for record in records} == {((prompts, 4, 64),) * 2 + (64**-0.5,)}


def test_decoding_by_another_kernel_gives_the_oracles_tokens(bench: Bench, oracle: Oracle, tmp_path: Path) -> None:
    replaced = ("--mode", "replace", "--set", "every=5", "--replace", str(host_library(tmp_path)))
    engine = with_shim(bench.released(VLLM_063), tmp_path / "segments", *replaced)
    answer = engine.generate(oracle.run("llama"))
    assert_same(answer.outputs[0], oracle.outputs["llama", 1.0])
    process = engine.status()[0]
    assert calls_of(process) == (TOKENS - 1) * LAYERS
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


def test_half_the_scale_by_transform_is_half_the_scale_by_patch(bench: Bench, oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "half.diff").write_text(DECODING_AT_HALF)
    tree = bench.trees / "half"
    shutil.copytree(tree_path(VLLM_063), tree, symlinks=True)
    applied = patchkit("apply", "--root", tree, "--target", "vllm", "--patch", tmp_path / "half.diff")
    assert applied.status == 0, applied.said
    released = bench.released(VLLM_063)
    patched = replace(released, tree=tree).generate(oracle.run("llama"))
    half = ("--mode", "transform", "--set", "qk_scale=0.5")
    for way in ("preload", "dispatcher"):
        shimmed = with_shim(released, tmp_path / way, "--way", way, *half)
        transformed = shimmed.generate(oracle.run("llama"))
        assert_same(transformed.outputs[0], patched.outputs[0], logprob=0.0)
    whole = oracle.outputs["llama", 1.0]
    assert all(one.tokens != other.tokens for one, other in zip(patched.outputs[0], whole, strict=True))


@pytest.mark.parametrize("mode", ["count", "trace"])
def test_an_exception_of_the_operator_reaches_python_unchanged(bench: Bench, tmp_path: Path, mode: str) -> None:
    released = bench.released(VLLM_063)
    shimmed = with_shim(released, tmp_path / "segments", "--mode", mode)
    script = [python_of(VLLM_063), HERE / "inside" / "failing_op.py", released.tree / "vllm" / "_C.abi3.so"]
    said = [
        subprocess.run(script, env=engine.environment(), capture_output=True, text=True, check=True, timeout=300).stdout
        for engine in (released, shimmed)
    ]
    assert len(json.loads(said[0])) == 3, "the operator refuses the tensors"
    assert said[1] == said[0]
    assert calls_of(shimmed.status()[0]) == 3


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
    built, stage2 = Path(shimmed.variables["PATCHKIT_SHIM_STAGE2"]), tmp_path / "stage2.so"
    shutil.copy(built, stage2)
    manifest = manifest_path(built).read_text()
    assert before in manifest
    manifest_path(stage2).write_text(manifest.replace(before, after))
    script = [python_of(VLLM_063), HERE / "inside" / "failing_op.py", shimmed.tree / "vllm" / "_C.abi3.so"]
    seen = {**shimmed.environment(), "PATCHKIT_SHIM_STAGE2": str(stage2)}
    done = subprocess.run(script, env=seen, capture_output=True, text=True, check=True, timeout=300)
    [line] = [line for line in done.stderr.splitlines() if line.startswith("patchkit shim:")]
    assert line.startswith(f"patchkit shim: stage 2 {stage2}: {why}")
    assert line.endswith("; calls are passed through")
    [process] = [one for one in shimmed.status() if calls_of(one)]
    assert (calls_of(process), process["stage2"]["state"]) == (3, "refused")
