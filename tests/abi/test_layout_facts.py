"""Stored facts: the numbers that were measured on released torches and engines come out of them, struct by struct."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from patchkit.abi.arguments import Machine, Way
from patchkit.abi.layout import ChangeKind, compare_layouts
from patchkit.abi.layout_columns import ColumnResult, argument_column, argument_ways, layout_column, vtable_column
from patchkit.abi.layout_facts import Records, StoredTypes, read_types
from patchkit.abi.layout_lookup import find_release, find_types
from patchkit.abi.layout_record import record_torch
from patchkit.abi.snapshot import FACTS, LAYOUTS, stored_facts
from patchkit.errors import ObjectFormatError, UsageError

TORCHES = ("2.4.0", "2.8.0", "2.11.0", "2.13.0+cpu", "2.14.1")
ALL_TORCHES = (
    "2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.5.1", "2.6.0", "2.7.0", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1",
    "2.13.0", "2.13.0+cpu", "2.14.1",
)  # fmt: skip
SIZES = {
    "c10::TensorImpl": (184, 184, 184, 176, 176),
    "c10::StorageImpl": (88, 96, 96, 96, 96),
    "at::PhiloxCudaState": (24, 24, 32, 32, 32),
    "c10::intrusive_ptr_target": (16, 16, 16, 16, 16),
    "at::Tensor": (8,) * 5,
    "at::TensorBase": (8,) * 5,
    "at::Generator": (8,) * 5,
    "c10::Storage": (8,) * 5,
    "c10::SymInt": (8,) * 5,
    "c10::IValue": (16,) * 5,
    "c10::Scalar": (32,) * 5,
    "c10::ArrayRef<int64_t>": (16,) * 5,
    "c10::OptionalArrayRef<int64_t>": (24,) * 5,
    "std::optional<at::Tensor>": (16,) * 5,
    "std::optional<c10::ScalarType>": (2,) * 5,
    "c10::Device": (2,) * 5,
    "c10::TensorOptions": (8,) * 5,
    "c10::DataPtr": (32,) * 5,
    "c10::impl::SizesAndStrides": (88,) * 5,
    "DLManagedTensor": (64,) * 5,
    "DLTensor": (48,) * 5,
}
OFFSETS = {
    ("c10::TensorImpl", "sizes_and_strides_"): (64, 64, 64, 56, 56),
    ("c10::TensorImpl", "storage_offset_"): (152, 152, 152, 144, 144),
    ("c10::TensorImpl", "numel_"): (160, 160, 160, 152, 152),
    ("c10::TensorImpl", "data_type_"): (168, 168, 168, 160, 160),
    ("c10::TensorImpl", "device_opt_"): (170, 170, 170, 162, 162),
    ("c10::TensorImpl", "key_set_"): (176, 176, 176, 168, 168),
    ("c10::StorageImpl", "allocator_"): (64, 64, 64, 72, 72),
    ("c10::StorageImpl", "pyobj_slot_"): (72, 72, 72, 80, 80),
    ("c10::StorageImpl", "extra_meta_"): (None, 88, 88, 88, 88),
    ("c10::StorageImpl", "warn_deprecated_on_mutable_data_ptr_"): (61, 62, 62, 62, 62),
    ("c10::StorageImpl", "has_data_ptr_check_"): (59, None, None, None, None),
    ("c10::intrusive_ptr_target", "refcount_"): (8, 8, None, None, None),
    ("c10::intrusive_ptr_target", "weakcount_"): (12, 12, None, None, None),
    ("c10::intrusive_ptr_target", "combined_refcount_"): (None, None, 8, 8, 8),
    ("at::PhiloxCudaState", "captured_"): (20, 20, 24, 24, 24),
    ("c10::IValue", "tag"): (8,) * 5,
    ("c10::Scalar", "v"): (16,) * 5,
    ("DLTensor", "byte_offset"): (40,) * 5,
}
FLASH = {
    "2.5.9.post1": (448, 456),
    "2.6.0.post1": (456, 464),
    "2.6.3": (464, 472),
    "2.7.4.post1": (464, 472),
    "2.8.0.post2": (464, 472),
    "2.8.3": (464, 472),
}


def _of(release: str) -> Records:
    return stored_facts().layouts(release)


def _offset(release: str, struct: str, field: str) -> int | None:
    layout = _of(release)[struct].layout
    assert layout is not None
    return next((one.offset for one in layout.fields if one.name.rpartition("::")[2] == field), None)


@pytest.mark.parametrize("struct", SIZES)
@pytest.mark.parametrize(("place", "torch"), list(enumerate(TORCHES)), ids=TORCHES)
def test_size_is_the_measured_one(struct: str, place: int, torch: str) -> None:
    layout = _of(f"torch=={torch}")[struct].layout
    assert layout is not None
    assert layout.size == SIZES[struct][place]
    assert layout.alignment


@pytest.mark.parametrize(("struct", "field"), OFFSETS, ids=[f"{one}.{other}" for one, other in OFFSETS])
@pytest.mark.parametrize(("place", "torch"), list(enumerate(TORCHES)), ids=TORCHES)
def test_field_lies_where_it_was_measured(struct: str, field: str, place: int, torch: str) -> None:
    assert _offset(f"torch=={torch}", struct, field) == OFFSETS[struct, field][place]


@pytest.mark.parametrize("torch", ALL_TORCHES)
def test_every_torch_has_every_struct_with_its_evidence(torch: str) -> None:
    records = _of(f"torch=={torch}")
    assert SIZES.keys() <= records.keys()
    for record in records.values():
        assert record.travels.keys() == set(Machine)
        assert all((record.evidence.source, record.evidence.command, record.evidence.proof))
        assert record.layout is None or not record.layout.packed


@pytest.mark.parametrize("version", FLASH)
def test_flash_fwd_params_of_a_released_source(version: str) -> None:
    small, large = find_types("", _of(f"flash-attn=={version}"), "Flash_fwd_params")
    sizes = [one.layout.size for one in (small, large) if one.layout is not None]
    assert tuple(sizes) == FLASH[version]


@pytest.mark.parametrize(
    ("version", "size", "stores", "cleared"),
    [
        ("0.6.3", 456, 41, 450),
        ("0.8.5", 464, 41, 458),
        ("0.10.2", 464, 41, 458),
        ("0.16.0", 464, 41, 458),
        ("0.26.0", 472, 45, 466),
        ("0.33.0", 472, 45, 466),
    ],
)
def test_flash_fwd_params_of_vllm_is_proved_by_its_binary(version: str, size: int, stores: int, cleared: int) -> None:
    (record,) = [
        one for one in find_types("", _of(f"vllm=={version}"), "Flash_fwd_params") if "_vllm_fa3_C" not in one.name
    ]
    assert record.layout is not None
    assert record.layout.size == size
    assert f"all {stores} stores" in record.evidence.proof
    assert f"clears {cleared} bytes" in record.evidence.proof


# The offsets of the last fields tell apart what sizeof does not: three libraries have 656 bytes or have had them.
FA3 = {
    ("vllm==0.8.5", "_vllm_fa3_C"): (648, 66, 644, {"rng_state": 592, "num_sm": 640}),
    ("vllm==0.10.2", "_vllm_fa3_C"): (656, 123, 656, {"rng_state": 592, "num_sm": 640, "s_aux_ptr": 648}),
    ("vllm==0.16.0", "_vllm_fa3_C"): (672, 112, 672, {"s_aux_ptr": 648, "cp_tot_seqused_k": 664}),
    ("vllm==0.26.0", "_vllm_fa3_C"): (704, 297, 704, {"num_sm": 672, "s_aux_ptr": 680, "cp_tot_seqused_k": 696}),
    ("vllm==0.33.0", "_vllm_fa3_C"): (704, 297, 704, {"num_sm": 672, "s_aux_ptr": 680, "cp_tot_seqused_k": 696}),
    ("sgl-kernel==0.3.5", "flash_ops"): (656, 72, 656, {"rng_state": 592, "num_sm": 640, "sink_ptr": 648}),
    ("sgl-kernel==0.3.5", "common_ops, sparse"): (512, 64, 508, {"philox_args": 400, "block_count": 464}),
    ("sglang-kernel==0.4.10", "flash_ops"): (728, 305, 725, {"rng_state": 600, "num_sm": 680, "use_sparse_mask": 724}),
}


@pytest.mark.parametrize(("release", "library"), FA3, ids=[" ".join(key) for key in FA3])
def test_flash_fwd_params_of_fa3_and_of_sglang_is_proved_by_the_binary(release: str, library: str) -> None:
    size, accesses, cleared, offsets = FA3[release, library]
    record = _of(release)[f"Flash_fwd_params ({library})"]
    assert record.layout is not None
    assert record.layout.size == size
    assert f"all {accesses} reads and writes" in record.evidence.proof
    assert f"{cleared} bytes are cleared" in record.evidence.proof
    assert {name: _offset(release, record.name, name) for name in offsets} == offsets


def test_kernels_that_get_the_struct_by_value_are_part_of_the_proof() -> None:
    proof = _of("sgl-kernel==0.3.5")["Flash_fwd_params (common_ops, sparse)"].evidence.proof
    assert "80 kernels of its GPU code get 512 bytes by value" in proof


def test_another_torch_moves_the_members_behind_the_random_state() -> None:
    small, large = find_types("", _of("flash-attn==2.8.3"), "Flash_fwd_params")
    assert small.layout is not None
    assert large.layout is not None
    moved = [one.field for one in compare_layouts(small.layout, large.layout) if one.kind is ChangeKind.MOVED]
    assert moved[0] == "rng_state"


def test_tensor_impl_lost_eight_bytes_in_2_13_and_every_field_behind_them_moved() -> None:
    result = layout_column(_of("torch==2.12.1"), _of("torch==2.13.0+cpu"))
    here = [one for one in result.changes if getattr(one, "struct", "") == "c10::TensorImpl"]
    assert result.breaking
    assert "c10::TensorImpl: size: 184 bytes -> 176 bytes" in [one.words for one in here]
    assert "c10::TensorImpl.numel_: moved: offset 160 -> offset 152" in [one.words for one in here]


def test_the_reference_count_changed_its_width_at_one_size() -> None:
    result = layout_column(_of("torch==2.8.0"), _of("torch==2.11.0"))
    words = [one.words for one in result.changes]
    assert "c10::TensorImpl.intrusive_ptr_target::refcount_: removed: 4 bytes at offset 8 -> not there" in words
    assert result.breaking


def test_slots_of_tensor_impl_shift_from_three_on() -> None:
    result = vtable_column(_of("torch==2.9.1"), _of("torch==2.11.0"))
    here = [one.words for one in result.changes if getattr(one, "vtable", "") == "c10::TensorImpl"]
    assert "c10::TensorImpl::incref_pyobject() const: added: not there -> slot 3" in here
    assert any("slot 3 -> slot" in one for one in here)
    assert result.breaking


@pytest.mark.parametrize("column", [layout_column, vtable_column, argument_column])
@pytest.mark.parametrize("torch", ALL_TORCHES)
def test_a_torch_compared_with_itself_has_no_change(
    column: Callable[[Records, Records], ColumnResult], torch: str
) -> None:
    result = column(_of(f"torch=={torch}"), _of(f"torch=={torch}"))
    assert result.compared
    assert result.changes == ()
    assert result.unknown == ()


def test_headers_of_the_cpu_and_the_cuda_build_say_the_same() -> None:
    cpu, cuda = _of("torch==2.13.0+cpu"), _of("torch==2.13.0")
    assert [layout_column(cpu, cuda).changes, vtable_column(cpu, cuda).changes] == [(), ()]


ENTRY = (
    "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>, std::optional<c10::ScalarType>, "
    "std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat>)"
)


def test_arguments_of_an_entry_point_are_told_one_by_one() -> None:
    ways = argument_ways(ENTRY, _of("torch==2.8.0"))
    assert [dict(travels or {})[Machine.AMD64] for _, travels in ways] == [
        (Way.INTEGER, Way.INTEGER),
        *[(Way.INTEGER,)] * 5,
    ]


@pytest.mark.parametrize(
    ("entry_point", "amd64"),
    [
        ("f(at::Tensor, at::Tensor const&)", [(Way.ADDRESS,), (Way.INTEGER,)]),
        ("f(std::optional<at::Tensor>&, double) const", [(Way.INTEGER,), (Way.VECTOR,)]),
        ("f(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >)", [(Way.ADDRESS,)]),
        ("f(std::optional<double>, long)", [(Way.VECTOR, Way.INTEGER), (Way.INTEGER,)]),
        ("f(std::optional<c10::Scalar>)", [(Way.ADDRESS,)]),
        ("f(void (*)(void*), unsigned long)", [(Way.INTEGER,), (Way.INTEGER,)]),
        ("f()", []),
    ],
)
def test_a_parameter_travels_as_its_type_does(entry_point: str, amd64: list[tuple[Way, ...]]) -> None:
    ways = argument_ways(entry_point, _of("torch==2.8.0"))
    assert [dict(travels or {}).get(Machine.AMD64) for _, travels in ways] == amd64


def test_an_entry_point_with_a_type_that_nobody_recorded_is_not_known() -> None:
    result = argument_column(_of("torch==2.8.0"), _of("torch==2.11.0"), [ENTRY, "f(a::type::of::nobody)"])
    assert result.compared == (ENTRY,)
    assert result.unknown == ("f(a::type::of::nobody)",)


def test_an_argument_that_travels_otherwise_is_named() -> None:
    before = _of("torch==2.8.0")
    after = {**before, "std::optional<c10::Device>": before["at::Tensor"]}
    result = argument_column(before, after, [ENTRY])
    assert result.breaking
    assert result.changes[0].words == (
        f"{ENTRY}: parameter 4, std::optional<c10::Device> on amd64: "
        "integer register -> address of a temporary in an integer register"
    )


def test_the_stored_file_is_small_and_comes_out_as_it_went_in() -> None:
    stored = read_types(FACTS / LAYOUTS)
    assert (FACTS / LAYOUTS).stat().st_size < 200_000
    records = {release: stored.of(release) for release in stored.releases}
    assert StoredTypes({}, "").content(records) == (FACTS / LAYOUTS).read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not zlib",
        zlib.compress(b"[]"),
        zlib.compress(b'{"schema": 2, "releases": {}}'),
        zlib.compress(json.dumps({"schema": 1, "releases": {"a": {"b": {"layout": {}}}}}).encode()),
        zlib.compress(b'{"schema": 1, "releases": {"a": {"b": {"evidence": {}}}}}'),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_a_damaged_file_of_facts_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "facts").write_bytes(content)
    with pytest.raises(ObjectFormatError, match="not facts"):
        read_types(tmp_path / "facts").of("a")


def test_an_unknown_release_names_those_that_are_stored() -> None:
    with pytest.raises(UsageError) as raised:
        find_release(stored_facts().types, "torch==9.9")
    assert "torch==2.14.1" in raised.value.why


def test_an_unknown_type_names_a_similar_one() -> None:
    with pytest.raises(UsageError) as raised:
        find_types("torch==2.8.0", _of("torch==2.8.0"), "TensorImpel")
    assert "TensorImpl" in raised.value.why


def _installed_torch() -> Path | None:
    spec = find_spec("torch")
    found = Path(spec.origin).parent if spec is not None and spec.origin else None
    return found if found is not None and (found / "include" / "ATen").is_dir() else None


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.skipif(_installed_torch() is None, reason="no torch is installed with its headers")
def test_the_installed_torch_is_as_stored() -> None:
    root = _installed_torch()
    assert root is not None
    release, records = record_torch(root, compiler="g++", cxx11_abi=True)
    if release not in stored_facts().types.releases:
        pytest.skip(f"{release} is not stored")
    stored = _of(release)
    assert records.keys() == stored.keys()
    for column in (layout_column, vtable_column, argument_column):
        assert column(stored, records).changes == ()
