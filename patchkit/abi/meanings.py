"""The rule base of `abi explain`: why a symbol, a symbol version or a library is missing, in words."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.abi.driver_api import introduced_in
from patchkit.abi.mangling import (
    StringAbi,
    has_c10_optional,
    identifiers,
    is_runtime_symbol,
    is_torch_symbol,
    string_abi,
)
from patchkit.abi.ranges import release_range
from patchkit.abi.snapshot import Facts
from patchkit.abi.system import split_version, version_key
from patchkit.abi.torch_build import cuda_major, stored_torch
from patchkit.pattern import compile_lazily

_STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
KNOWN_SYMBOLS: tuple[str, ...] = (
    *(f"_ZN3c104cuda9SetDeviceE{arguments}" for arguments in ("i", "a", "ab")),
    *(f"_ZN3c1013MessageLoggerC1E{arguments}" for arguments in ("PKcii", "PKciib", "NS_14SourceLocationEib")),
    *(f"_ZN3c105ErrorC2ENS_14SourceLocationE{text}" for text in ("Ss", _STRING)),
    *(f"_ZN5torch3jit17parseSchemaOrNameERK{text}{flag}" for text in ("Ss", _STRING) for flag in ("", "b")),
    *(f"_ZN3c106detail14torchCheckFailEPKcS2_jRK{text}" for text in ("Ss", _STRING)),
    *(f"_ZN3c106ivalue14ConstantString6createE{text}" for text in ("Ss", _STRING)),
    *(f"_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_{kind}b" for kind in "ij"),
    *("_ZNK2at10TensorBase4nameEv", "_ZNK2at10TensorBase4nameB5cxx11Ev"),
)
"""Symbols that users ask about, beside those that stored binaries import: they tell a function's other signatures."""

_TORCH_SPACES = frozenset({"c10", "at", "torch", "caffe2"})
# By prefix of a C function, the library of CUDA that has it and the package that brings it.
_LIBRARIES = (
    *(("cublasLt", "libcublasLt", "nvidia-cublas"), ("cublas", "libcublas", "nvidia-cublas")),
    *(("cudnn", "libcudnn", "nvidia-cudnn"), ("cusparse", "libcusparse", "nvidia-cusparse")),
    *(("cusolver", "libcusolver", "nvidia-cusolver"), ("nvrtc", "libnvrtc", "nvidia-cuda-nvrtc")),
    *(("cuda", "libcudart", "nvidia-cuda-runtime"), ("nvshmem", "libnvshmem", "nvidia-nvshmem")),
    *(("nvJitLink", "libnvJitLink", "nvidia-nvjitlink"), ("__nvJitLink", "libnvJitLink", "nvidia-nvjitlink")),
    *(("cufft", "libcufft", "nvidia-cufft"), ("curand", "libcurand", "nvidia-curand")),
    *(("cupti", "libcupti", "nvidia-cuda-cupti"), ("cuFile", "libcufile", "nvidia-cufile")),
)
# By the name of a library, the package that brings it; what has CUDA's own major in its name is told elsewhere.
_PACKAGES = {
    "libcudnn": "nvidia-cudnn",
    "libcufft": "nvidia-cufft",
    "libcufile": "nvidia-cufile",
    "libcupti": "nvidia-cuda-cupti",
    "libcurand": "nvidia-curand",
    "libcusolver": "nvidia-cusolver",
    "libcusparse": "nvidia-cusparse",
    "libcusparseLt": "nvidia-cusparselt",
    "libnvToolsExt": "nvidia-nvtx",
    "libnvshmem_host": "nvidia-nvshmem",
}
_DRIVER = compile_lazily(r"cu[A-Z]\w*")
_SONAME = compile_lazily(r"(lib[\w+-]+?)\.so(?:\.([0-9]+))?[0-9.]*")
# Which compiler's runtime ends at which GLIBCXX (libstdc++ manual, ABI policy), and who ships which glibc.
_GLIBCXX = (
    *(("3.4.19", "GCC 4.8"), ("3.4.22", "GCC 6"), ("3.4.24", "GCC 7"), ("3.4.25", "GCC 8"), ("3.4.28", "GCC 9 and 10")),
    *(("3.4.29", "GCC 11"), ("3.4.30", "GCC 12"), ("3.4.32", "GCC 13"), ("3.4.33", "GCC 14"), ("3.4.34", "GCC 15")),
)
_GLIBC = (
    *(("2.17", "RHEL 7"), ("2.27", "Ubuntu 18.04"), ("2.28", "RHEL 8, Debian 10"), ("2.31", "Ubuntu 20.04, Debian 11")),
    *(("2.34", "RHEL 9"), ("2.35", "Ubuntu 22.04"), ("2.36", "Debian 12"), ("2.39", "Ubuntu 24.04, RHEL 10")),
    *(("2.41", "Debian 13"),),
)


def symbol_meanings(name: str, releases: tuple[str, ...], *, signatures: bool, facts: Facts) -> tuple[str, ...]:
    """Return what a symbol says about the binary that needs it, most telling first.

    `releases` are the stored torches that have it, `signatures` tells whether another form of the function is known.
    """
    if is_torch_symbol(name):
        return tuple(_of_torch(name, releases, signatures=signatures, facts=facts))
    return tuple(_of_others(name))


def version_meanings(version: str) -> tuple[str, ...]:
    """Say what asks for a symbol version and who has it."""
    family, number = split_version(version)
    rows, what = (_GLIBC, "glibc") if family == "GLIBC" else (_GLIBCXX, "libstdc++")
    said = [f"the binary was built on a system with a newer {what} than this one; it needs at least {version}"]
    if family != "CXXABI":
        having = next((name for limit, name in rows if version_key(limit) >= version_key(number)), "")
        said += [f"it is there from {having} on"] if having else ["none of the systems that are known here has it"]
    if what == "glibc":
        said.append("glibc cannot be replaced below a system: take a newer image, or a wheel for an older manylinux")
    else:
        said.append("a newer libstdc++.so.6 can stand beside the system's: conda's libstdcxx-ng, or LD_LIBRARY_PATH")
    said.append("an engine that cannot load it may say only `No module named ...`; `abi check` names every such file")
    return tuple(said)


def library_meanings(name: str, facts: Facts) -> tuple[str, ...]:
    """Say whose library it is and why the loader does not find it."""
    match = _SONAME.fullmatch(name)
    if match is None:
        return ()
    major = cuda_major((name,))
    if major is not None:
        fitting = [one for one in facts.torches if stored_torch(facts, one).cuda_major == major]
        said = [f"a library of CUDA {major}: the binary was built for CUDA {major}, and the environment has another"]
        if fitting:
            said.append(f"torch is linked with CUDA {major} in {release_range(fitting, facts.torches)}")
        said.append("what is preloaded, or no Python, finds it only by RPATH, LD_LIBRARY_PATH or ld.so.cache")
        return tuple(said)
    if match[1].startswith(("libtorch", "libc10")):
        return (
            "torch's own library: found because `import torch` has loaded it before; import torch first",
            "a program that does not, needs an RPATH to torch/lib; `abi check` shows the RPATH that it has",
        )
    if match[1] in ("libcuda", "libnvidia-ml"):
        return ("part of the GPU's driver, not of CUDA: install the driver, or start the container with GPU access",)
    package = _PACKAGES.get(match[1])
    if package is not None:
        return (
            f"NVIDIA's {package}-cu12 or {package}-cu13, whichever torch requires, brings it (or {package} itself)",
            "it is found because `import torch` loads it before, or by RPATH; a system's CUDA may have another version",
        )
    if match[1] == "libnccl":
        return ("NCCL: nvidia-nccl-cu12 or nvidia-nccl-cu13, whichever torch requires",)
    return ("a library of the system that no Python package brings: install it with the system's package manager",)


def _of_torch(name: str, releases: tuple[str, ...], *, signatures: bool, facts: Facts) -> Iterator[str]:
    found = identifiers(name)
    plain = [one for one in facts.torches if "+" not in one]
    own = name.startswith("_Z") and bool(found) and not releases and _TORCH_SPACES.isdisjoint(found[:1])
    if "hip" in found or any("_hip_" in one for one in found):
        yield "of torch for ROCm: no facts are stored about its builds, which change separately"
    if own:
        yield f"`{found[0]}` is not of torch, only its arguments are: the engine's own, left out of its build"
        return
    yield from _of_strings(name, facts)
    if has_c10_optional(name):
        yield f"c10::optional: built with torch 2.1 or older; torch {plain[0]} and newer have std::optional instead"
    elif "optional" in found and not releases:
        yield "std::optional: built with a newer torch than one that has c10::optional (2.1 and older)"
    if found[:3] == ("c10", "cuda", "SetDevice"):
        yield "SetDevice changed twice: (int), then (signed char), then (signed char, bool)"
    if name.startswith(("aoti_torch_", "torch_")):
        yield "stable C interface of torch: once there it stays, so a torch that lacks it is too old"
    if releases and set(plain) <= set(releases):
        yield "every stored release has it: is torch imported before the library that needs it?"
    if releases:
        yield "the torch that is installed is another than the binary was built for: take one of the releases above"
        return
    yield f"not in any release from {plain[0]} to {plain[-1]} that is stored: built for an older, newer or other torch"
    if signatures:
        yield "its function exists with other signatures: a build between two releases (nightly, NGC's `2.x.0a0`)"
    yield "of a container or nightly build the version number says nothing: `abi check` compares symbols"


def _of_strings(name: str, facts: Facts) -> Iterator[str]:
    kind = string_abi(name)
    tagged = name.replace("Ev", "B5cxx11Ev", 1)  # a name with parameters has no such place, and stays as it is
    if kind is StringAbi.NONE and tagged != name and facts.symbols.mask(tagged):
        yield "it returns a std::string: where that is the new one, its name has [abi:cxx11]"
        kind = StringAbi.OLD
    if kind is StringAbi.NONE:
        return
    having = [one for one in facts.torches if stored_torch(facts, one).string_abi is kind]
    flag = {StringAbi.OLD: "0, old std::string", StringAbi.NEW: "1, new std::string (__cxx11)"}[kind]
    where = f"of the index: {release_range(having, facts.torches)}" if having else "of the index: none"
    yield f"built with _GLIBCXX_USE_CXX11_ABI={flag}; such torch builds {where}"
    if kind is StringAbi.OLD:
        yield "NGC containers had the new std::string earlier: there, build the engine against their torch"


def _of_others(name: str) -> Iterator[str]:
    if name.startswith("nccl"):
        yield "a function of NCCL: the libnccl.so.2 that was loaded first is older than the one it was built with"
        yield "look for two: nvidia-nccl-cu12 beside nvidia-nccl-cu13, a system's libnccl, LD_LIBRARY_PATH"
        return
    for prefix, library, package in _LIBRARIES:
        if name.startswith(prefix):
            yield f"a function of {library} ({package}): that is older than the binary needs, or not among its NEEDED"
            return
    if _DRIVER.fullmatch(name):
        version = introduced_in(name)
        since = f", there since CUDA {version}" if version else ""
        yield f"a function of the driver API{since}: libcuda.so.1 comes with the GPU's driver"
        yield "the driver is older than that: update it, or take a build for an older CUDA"
        return
    if name == "iJIT_NotifyEvent":
        yield "a function that MKL had up to 2024.0: a torch built with that one (conda's) beside a newer MKL"
        yield "install mkl<2024.1, or torch from the index, which carries its own"
        return
    if name.startswith(("Py", "_Py")):
        yield "a function of CPython: built for another Python version than this one"
        return
    if name.startswith("_Z"):
        found = identifiers(name)
        if is_runtime_symbol(name):
            yield "of the C++ runtime: libstdc++.so.6 is older than the compiler that built the binary"
        elif found:
            yield f"`{found[0]}` is not of torch: the engine's own, left out of its build, or a library's"
        return
    yield "of none of the libraries that are known here (torch, CUDA, NCCL, CPython, C++ runtime)"
