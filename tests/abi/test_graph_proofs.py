"""Runs in CUDA graphs: read from their file, shown with their date; `not run` where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from patchkit.abi.graph_proofs import GraphProof, read_proofs
from patchkit.abi.matrix import build_matrix, chosen_engines, chosen_proofs, chosen_torches
from patchkit.abi.matrix_page import matrix_page
from patchkit.abi.snapshot import stored_facts
from patchkit.errors import ObjectFormatError
from patchkit.resources import proofs_file

RECORD = {
    "schema": 1,
    "device": "NVIDIA H200",
    "torch": "2.4.0",
    "engine": "vllm==0.6.3",
    "entry_point": "paged_attention_v1",
    "date": "2026-11-30",
    "eager_calls": 3,
    "captured_calls": 1,
    "counted": 4,
    "outputs_identical": True,
    "replay_works": True,
    "cuda_graph_safe": True,
}


def _read(tmp_path: Path, *records: Any) -> tuple[GraphProof, ...]:
    path = tmp_path / "proved.json"
    path.write_text(json.dumps(records))
    return read_proofs(path)


def _column(proofs: tuple[GraphProof, ...]) -> dict[str, str]:
    facts = stored_facts()
    wheels = chosen_engines(("vllm==0.6.3",), facts)
    matrix = build_matrix(wheels, chosen_torches(("2.4.0",), facts), proofs=chosen_proofs(proofs, wheels, facts))
    return {row.path: row.graph_words for row in matrix.rows}


def test_records_of_the_package_can_be_read() -> None:
    assert all(one.date for one in read_proofs(proofs_file()))


@pytest.mark.parametrize("proofs", [(), None], ids=["empty list", "no file"])
def test_without_a_run_every_file_is_not_run(tmp_path: Path, proofs: tuple[()] | None) -> None:
    read = read_proofs(tmp_path / "nothing.json") if proofs is None else _read(tmp_path)
    assert read == ()
    assert set(_column(read).values()) == {"not run"}


def test_a_run_stands_with_its_date_at_the_file_that_exports_the_entry_point(tmp_path: Path) -> None:
    column = _column(_read(tmp_path, RECORD))
    assert column["vllm/_C.abi3.so"] == "safe 2026-11-30"
    assert column["vllm/_moe_C.abi3.so"] == "not run"


def test_a_symbol_tells_the_file_whatever_the_entry_point_is_called(tmp_path: Path) -> None:
    facts = stored_facts().find("vllm", "0.6.3")
    assert facts is not None
    symbol = next(name for one in facts.objects for name in one.exports if name.startswith("_Z18paged_attention_v1"))
    column = _column(_read(tmp_path, {**RECORD, "entry_point": "hook_v1", "symbol": symbol, "ns_per_call": 20143}))
    assert column["vllm/_C.abi3.so"] == "safe 2026-11-30"
    assert column["vllm/_moe_C.abi3.so"] == "not run"


def test_one_unsafe_entry_point_makes_the_file_unsafe(tmp_path: Path) -> None:
    bad = {**RECORD, "entry_point": "paged_attention_v2", "date": "2026-11-29", "replay_works": False}
    proofs = _read(tmp_path, RECORD, {**bad, "cuda_graph_safe": False})
    assert _column(proofs)["vllm/_C.abi3.so"] == "unsafe 2026-11-29"
    assert "unsafe in CUDA graphs: the replay does not work (2026-11-29, NVIDIA H200, torch 2.4.0)" in proofs[1].words


def test_runs_of_other_stored_engines_are_left_out_and_those_of_no_engine_are_shown(tmp_path: Path) -> None:
    facts = stored_facts()
    proofs = _read(tmp_path, RECORD, {**RECORD, "engine": "a library"})
    wheels = chosen_engines(("vllm==0.33.0",), facts)
    assert [one.engine for one in chosen_proofs(proofs, wheels, facts)] == ["a library"]


def test_the_page_shows_them(tmp_path: Path) -> None:
    facts = stored_facts()
    wheels = chosen_engines(("vllm==0.6.3",), facts)
    page = matrix_page(build_matrix(wheels, (), proofs=_read(tmp_path, {**RECORD, "device": "<b>"})), {})
    assert "<td>safe 2026-11-30</td>" in page
    assert "&lt;b&gt;" in page


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": 2}, "schema 2"),
        ({"date": "yesterday"}, "YYYY-MM-DD"),
        ({"cuda_graph_safe": 1}, "true or false"),
        ({"counted": -1}, "number of calls"),
        ({"engine": ""}, "expected a text"),
        ({"replay_works": False}, "said to be safe"),
        ({"symbol": 3}, "expected a text"),
    ],
)
def test_a_record_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    with pytest.raises(ObjectFormatError, match="not records") as raised:
        _read(tmp_path, {**RECORD, **change})
    assert why in raised.value.why


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"[{}]", b"[" * 100_000])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "proved.json").write_bytes(content)
    with pytest.raises(ObjectFormatError):
        read_proofs(tmp_path / "proved.json")
