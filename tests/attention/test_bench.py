"""Measurements: what is counted, who is timed, and what is written."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch
from torch import Tensor

from patchkit.attention.bench import BenchResult, bench
from patchkit.attention.case import AttentionCase, problem_of
from patchkit.attention.peers import LIBRARY, load_peers, pack_peers
from patchkit.attention.plot import plot
from patchkit.attention.report import bench_document, table, write_records
from patchkit.attention.timing import Timing, time_call
from patchkit.attention.workload import CPU, GPU, Workload, operations, visible_pairs
from patchkit.errors import RefusedError
from patchkit.runtime.attention import eager
from patchkit.runtime.attention.problem import BACKWARD, FORWARD, Inputs, Pattern
from patchkit.runtime.attention.registry import Kernel

CASE = AttentionCase(name="case", query_lengths=(40,), key_lengths=(40,), dtype="float32")


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both-sided"])
@pytest.mark.parametrize("window", [None, 1, 7, 50])
@pytest.mark.parametrize("anchors", [0, 3, 60])
@pytest.mark.parametrize("lengths", [(30, 30), (4, 30), (30, 4), (5, 0)], ids=str)
def test_visible_pairs_are_those_of_the_pattern(
    causal: bool, window: int | None, anchors: int, lengths: tuple[int, int]
) -> None:
    queries, keys = lengths
    pattern = Pattern(window=window, anchors=anchors, causal=causal)
    case = AttentionCase(name="", query_lengths=(queries, 1), key_lengths=(keys, 1), pattern=pattern, learned=2)
    seen = sum(int(pattern.sees(torch.arange(m - n, m), torch.arange(m)).sum()) for n, m in ((queries, keys), (1, 1)))
    assert visible_pairs(case) == seen + 2 * (queries + 1)


def test_operations_are_two_a_product() -> None:
    pairs = visible_pairs(CASE) * CASE.heads
    assert operations(Workload(case=CASE)) == 2 * pairs * 128
    assert operations(Workload(case=CASE, step=BACKWARD)) == 2 * pairs * 5 * 64


def test_the_first_row_has_the_known_number_of_operations() -> None:
    # 230 TFLOP/s at 1.27 ms was published for this shape: visible pairs only.
    assert operations(GPU[0]) / 1.27e-3 / 1e12 == pytest.approx(230, rel=0.01)


def results_of(kernels: tuple[Kernel, ...], workload: Workload) -> list[BenchResult]:
    return list(bench(workload, kernels, "cpu", calls=2))


@pytest.mark.parametrize("workload", CPU, ids=lambda one: f"{one.name} {one.case.pattern.window}")
def test_eager_is_right_and_timed(workload: Workload) -> None:
    short = AttentionCase(
        name="short", query_lengths=(90,), key_lengths=(90,), dtype="float32", pattern=workload.case.pattern
    )
    (result,) = results_of(eager.KERNELS, Workload(case=short, step=workload.step))
    assert result.fault == ""
    assert result.timing is not None
    assert result.timing.calls == 2
    assert result.error < 1e-5


def test_what_is_wrong_is_not_timed() -> None:
    def wrong(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
        eager.forward(inputs, Pattern(window=3), out, lse)

    (result,) = results_of(
        (Kernel(name="wrong", step=FORWARD, summary="", refusal=lambda _: "", run=wrong),), Workload(case=CASE)
    )
    assert result.timing is None
    assert "out: error" in result.fault


def test_ours_may_not_be_much_less_exact_than_a_yardstick() -> None:
    def rounded(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
        eager.forward(inputs, pattern, out, lse)
        out.mul_(1 + 1e-5)

    kernels = (
        Kernel(name="ours", step=FORWARD, summary="", refusal=lambda _: "", run=rounded),
        Kernel(name="peer", step=FORWARD, summary="", refusal=lambda _: "", run=eager.forward, yardstick=True),
    )
    peer, ours = results_of(kernels, Workload(case=CASE))
    assert (peer.kernel, peer.fault) == ("peer", "")
    assert ours.fault.startswith("error 1.0")


def test_a_yardstick_is_timed_without_its_copies() -> None:
    called: list[str] = []

    def run(inputs: Inputs, pattern: Pattern, out: Tensor, lse: Tensor) -> None:
        called.append("run")
        eager.forward(inputs, pattern, out, lse)

    peer = Kernel(
        name="peer",
        step=FORWARD,
        summary="",
        refusal=lambda _: "",
        run=run,
        yardstick=True,
        timed=lambda inputs, pattern: lambda: called.append("timed"),
    )
    (result,) = results_of((peer,), Workload(case=CASE))
    assert result.timing is not None
    assert called == ["run", "timed", "timed", "timed"]


def test_facts_of_a_case_are_those_of_its_tensors() -> None:
    for workload in GPU:
        problem = problem_of(workload.case, "cuda", step=workload.step)
        assert problem.device == "cuda"
        assert problem.batch == len(workload.case.query_lengths)
        assert problem.dense == workload.case.name.startswith("dense")
        assert (problem.page_size > 0) == workload.case.name.endswith("page 16")


def test_timing_is_a_median_with_its_spread() -> None:
    calls: list[int] = []
    timing = time_call(lambda: calls.append(1), "cpu", calls=9)
    assert len(calls) == 10, "the first call is not counted"
    assert timing.low <= timing.median <= timing.high


RESULTS = [
    BenchResult(
        workload="prefill 1k, D 64",
        step=FORWARD,
        kernel="slow <&>",
        yardstick=True,
        error=1e-3,
        timing=Timing(median=2.0, low=1.5, high=3.0, calls=5),
        teraflops=1.0,
    ),
    BenchResult(
        workload="prefill 1k, D 64",
        step=FORWARD,
        kernel="fast",
        yardstick=False,
        timing=Timing(median=1.0, low=0.5, high=1.0, calls=5),
        computed_ratio=1.25,
    ),
    BenchResult(workload="prefill 1k, D 64", step=FORWARD, kernel="wrong", yardstick=False, fault="out: error"),
    BenchResult(workload="decode", step=FORWARD, kernel="absent", yardstick=False, refusal="needs CUDA"),
]


def test_table_has_the_fastest_first_and_says_who_is_missing() -> None:
    lines = [line for line, _ in table(RESULTS)]
    assert lines[0] == "prefill 1k, D 64"
    assert lines[1].split()[0] == "fast"
    assert "computes 1.25 x what is seen" in lines[1]
    assert lines[3:] == ["  wrong: wrong, not timed: out: error", "decode", "  absent: needs CUDA"]


def test_plot_is_a_picture_with_a_bar_per_timed_kernel() -> None:
    picture = ET.fromstring(plot(RESULTS, title="a & b"))  # noqa: S314 -- our own text
    space = "{http://www.w3.org/2000/svg}"
    bars = [float(one.attrib["width"]) for one in picture.findall(f"{space}rect") if "x" in one.attrib]
    words = [one.text for one in picture.findall(f"{space}text")]
    assert bars[1] == pytest.approx(2 * bars[0], abs=0.1)
    assert words[:3] == ["a & b", "prefill 1k, D 64", "fast"]
    assert "slow <&>" in words
    assert "decode" not in words


def test_records_are_a_file_per_workload(tmp_path: Path) -> None:
    written = write_records(RESULTS, {"device": "NVIDIA H200"}, "patchkit attention bench", tmp_path / "results")
    assert [path.name for path in written] == ["nvidia-h200-prefill-1k-d-64.json", "nvidia-h200-decode.json"]
    document = json.loads(written[0].read_text())
    shape = document.pop("shape")
    assert (shape["head_dim"], shape["max_key"], shape["window"]) == (64, 1024, 128)
    assert document.pop("workload") == "prefill 1k, D 64"
    assert document == json.loads(
        json.dumps(bench_document(RESULTS[:3], {"device": "NVIDIA H200"}, "patchkit attention bench"))
    )
    assert document["schema"] == 1
    assert document["results"][1]["milliseconds"] == 1.0


def test_an_error_that_is_no_number_is_none_in_json() -> None:
    wrong = BenchResult(workload="w", step=FORWARD, kernel="k", yardstick=False, fault="wrong", error=float("nan"))
    text = json.dumps(bench_document([wrong], {}, ""), allow_nan=False)
    assert json.loads(text)["results"][0]["error"] is None


def test_peers_that_are_not_there_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no peers in"):
        load_peers(tmp_path)
    (tmp_path / f"{LIBRARY}.xz").write_bytes(b"not xz")
    with pytest.raises(RefusedError, match="no peers in"):
        load_peers(tmp_path)


def test_peers_are_packed_small_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(name: str, specifier: str, directory: Path, **_: object) -> Path:
        fetched.append(name + specifier)
        library = directory / "vllm" / "vllm_flash_attn" / LIBRARY
        library.parent.mkdir(parents=True)
        library.write_bytes(b"no library" * 1000)
        return directory

    monkeypatch.setattr("patchkit.fetch.fetch_distribution", fetch)
    packed = pack_peers(tmp_path / "peers", progress=lambda _: None)
    assert pack_peers(tmp_path / "peers", progress=lambda _: None) == packed
    assert fetched == ["vllm==0.26.0"]
    assert [path.name for path in packed.parent.iterdir()] == [f"{LIBRARY}.xz"]
    assert lzma.decompress(packed.read_bytes()) == b"no library" * 1000
    with pytest.raises(RefusedError, match="cannot be loaded into torch"):
        load_peers(tmp_path / "peers")
