"""What a mangled name says, its words, ranges of releases, floors of the driver."""

from __future__ import annotations

import pytest

from patchkit.abi.demangle import demangle, in_words
from patchkit.abi.driver_api import introduced_in
from patchkit.abi.mangling import (
    StringAbi,
    has_c10_optional,
    identifiers,
    is_torch_symbol,
    qualified_name,
    string_abi,
)
from patchkit.abi.ranges import release_range
from patchkit.abi.system import split_version, version_key

_NEW = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", StringAbi.OLD),
        (f"_ZN3c106detail14torchCheckFailEPKcS2_jRK{_NEW}", StringAbi.NEW),
        ("_ZNK2at10TensorBase4nameB5cxx11Ev", StringAbi.NEW),
        ("_ZN3c104cuda9SetDeviceEa", StringAbi.NONE),
        ("_ZN3c107SsThingEi", StringAbi.NONE),  # Ss within an identifier is no string
        ("_ZN3c103fooILi125EEEvRKSs", StringAbi.OLD),  # 125 is a value, not the length of an identifier
        ("_ZN3c103fooERKS0_s", StringAbi.NONE),  # a substitution, then a short
        ("ncclSend", StringAbi.NONE),
    ],
)
def test_kind_of_string_is_read(name: str, wanted: StringAbi) -> None:
    assert string_abi(name) is wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("_ZN2at3fooEN3c108optionalIlEE", True),
        ("_ZN2at3fooENS_8optionalIN3c105TaggyEEE", True),
        ("_ZN2at3fooESt8optionalIlE", False),
        ("_ZN2at8fooOptioE", False),
    ],
)
def test_kind_of_optional_is_read(name: str, wanted: bool) -> None:
    assert has_c10_optional(name) is wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("_ZN3c104cuda9SetDeviceEa", True),
        ("_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev", True),
        ("aoti_torch_delete_tensor_object", True),
        ("torch_call_dispatcher", True),
        ("_ZN4mine2atEv", True),
        ("_ZN4mine3c1xEv", False),
        ("_ZNSt6vectorIiSaIiEED1Ev", False),
        ("cudaMalloc", False),
        ("PyTorch_Nothing", False),
    ],
)
def test_symbols_of_torch_are_known_by_name(name: str, wanted: bool) -> None:
    assert is_torch_symbol(name) is wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("_ZN3c104cuda9SetDeviceEa", ("c10", "cuda", "SetDevice")),
        ("_ZNK2at10TensorBase4nameB5cxx11Ev", ("at", "TensorBase", "name")),
        ("_ZN3c1013MessageLoggerC1EPKcii", ("c10", "MessageLogger", "C")),
        ("_ZN3c1013MessageLoggerD2Ev", ("c10", "MessageLogger", "D")),
        ("_ZNR5torch7Library4_defEON3c1014FunctionSchemaE", ("torch", "Library", "_def")),
        ("_ZNK2at10TensorBase8data_ptrIlEEPT_v", ()),
        ("_ZN3c10ltERKNS_6SymIntEi", ()),
        ("_Z3foov", ()),
        ("plain", ()),
        ("_ZN", ()),
        ("_ZN9", ()),
    ],
)
def test_qualified_name_is_read(name: str, wanted: tuple[str, ...]) -> None:
    assert qualified_name(name) == wanted


@pytest.mark.parametrize(
    "name", ["_Z" + "1a" * 60000, "_ZN" + "9" * 60000, "_Z" + "S" * 60000, "_ZN3c10" + "K" * 60000]
)
def test_long_name_is_read_to_its_end(name: str) -> None:
    identifiers(name)
    qualified_name(name)
    assert string_abi(name) is StringAbi.NONE


def test_names_are_put_into_words_all_at_once() -> None:
    words = demangle(["_ZN3c104cuda9SetDeviceEa", "plain", "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "_Z)"])
    assert words["_ZN3c104cuda9SetDeviceEa"] == "c10::cuda::SetDevice(signed char)"
    assert words["_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"].endswith("std::string const&)")
    assert "plain" not in words
    assert in_words("_Z)") == "_Z)"
    assert in_words(f"_Z1fRK{_NEW}") == "f(std::__cxx11::string const&)"


def test_without_a_demangler_of_the_system_the_runtime_library_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert in_words("_ZN3c104cuda9SetDeviceEa") == "c10::cuda::SetDevice(signed char)"


def test_without_any_the_name_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert in_words("_ZN3c104cuda9SetDeviceEa") == "_ZN3c104cuda9SetDeviceEa"


_KNOWN = ("2.2.2", "2.3.0", "2.4.0", "2.13.0", "2.13.0+cpu", "2.14.1")


@pytest.mark.parametrize(
    ("releases", "wanted"),
    [
        ((), ""),
        (("2.3.0",), "2.3.0"),
        (("2.2.2", "2.3.0", "2.13.0"), "2.2.2 to 2.3.0, 2.13.0"),
        (("2.13.0", "2.13.0+cpu", "2.14.1"), "2.13.0 to 2.14.1"),
        (("2.13.0", "2.14.1"), "2.13.0 to 2.14.1"),
        (("2.13.0+cpu",), "2.13.0+cpu"),
    ],
)
def test_releases_are_said_as_ranges(releases: tuple[str, ...], wanted: str) -> None:
    assert release_range(releases, _KNOWN) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cuGreenCtxStreamCreate", "12.5"),
        ("cuGreenCtxCreate", "12.4"),
        ("cuMemCreate", ""),  # 10.2: every driver in use has it
        ("cuMemAlloc_v2", ""),
        ("cuStreamBatchMemOp_v2", ""),
        ("cuTensorMapEncodeTiled", "12.0"),
        ("cuNothing", ""),
    ],
)
def test_driver_functions_have_their_version(name: str, wanted: str) -> None:
    assert introduced_in(name) == wanted


def test_versions_are_ordered_by_number() -> None:
    assert version_key("2.9") < version_key("2.28") < version_key("2.28.1")
    assert version_key("2.\N{SUPERSCRIPT NINE}") == (2,)
    assert split_version("GLIBC_2.28") == ("GLIBC", "2.28")
    assert split_version("GLIBC_PRIVATE") == split_version("") == ("", "")
