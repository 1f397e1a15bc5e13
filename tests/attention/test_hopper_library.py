"""How the library of the Hopper kernels is called: what C lays out is what Python fills, and no other one is called.

A library of g++'s stands for nvcc's: it has the same header, and keeps what it is given.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from patchkit.attention.case import SHAPES, make_inputs
from patchkit.record import replace
from patchkit.runtime.attention import hopper_library
from patchkit.runtime.attention.problem import AttentionError, Pattern
from patchkit.runtime.attention.reference import replace_tensors

_NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
_KERNELS = {"patchkit_prefill": "PatchkitPrefill", "patchkit_decode": "PatchkitDecode"}

# `offset name size` of every member as the compiler lays it out, and the bytes of the last call.
_LIBRARY = """
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include "call.h"

#define SHOWN(type, name) \\
    text += std::to_string(offsetof(Record, name)) + " " #name " " + std::to_string(sizeof(Record::name)) + "\\n";

#define KERNEL(function, record, list) \\
    static record last_##function; \\
    extern "C" const char *function##_members() { return PATCHKIT_MEMBERS(list); } \\
    extern "C" int function(const record *call, void *) { last_##function = *call; return STATUS; } \\
    extern "C" const record *function##_last() { return &last_##function; } \\
    extern "C" const char *function##_layout() \\
    { \\
        using Record = record; \\
        static std::string text; \\
        text = std::to_string(sizeof(Record)) + "\\n"; \\
        list(SHOWN) return text.c_str(); \\
    }

KERNEL(patchkit_prefill, PatchkitPrefill, PATCHKIT_PREFILL)
KERNEL(patchkit_decode, PatchkitDecode, PATCHKIT_DECODE)
"""

Build = Callable[..., Path]


@pytest.fixture
def build(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Build a library, with changes to the header, and name it to the kernels."""

    def make(*changes: tuple[str, str], source: str = _LIBRARY, status: int = 0) -> Path:
        directory = tmp_path / f"library{len(list(tmp_path.iterdir()))}"
        directory.mkdir()
        header = (checkout / "native" / "attention" / "call.h").read_text()
        for old, new in changes:
            assert old in header
            header = header.replace(old, new)
        (directory / "call.h").write_text(header)
        (directory / "library.cpp").write_text(source)
        command = ["g++", "-std=c++17", "-shared", "-fPIC", f"-DSTATUS={status}", "-o", "library.so", "library.cpp"]
        subprocess.run(command, cwd=directory, check=True)
        monkeypatch.setenv("PATCHKIT_ATTENTION_LIBRARY", str(directory / "library.so"))
        return directory / "library.so"

    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=0))
    return make


def _told(library: Path, function: str) -> str:
    call = getattr(ctypes.CDLL(str(library)), function)
    call.restype = ctypes.c_char_p
    said: bytes = call()
    return said.decode()


@pytest.mark.parametrize("name", _KERNELS)
def test_python_lays_a_record_out_as_the_compiler_does(build: Build, name: str) -> None:
    library = build()
    record = hopper_library._entry(str(library), name).record
    size, *members = _told(library, f"{name}_layout").splitlines()
    places = [(one[0], getattr(record, one[0])) for one in record._fields_]
    assert [f"{place.offset} {member} {place.size}" for member, place in places] == members
    assert ctypes.sizeof(record) == int(size)


def test_lists_change_only_with_their_number(build: Build) -> None:
    lists = "".join(_told(build(), f"{name}_members") for name in _KERNELS)
    assert lists.startswith(f"{hopper_library.CALLS};")
    digest = hashlib.sha256(lists.encode()).hexdigest()[:16]
    assert digest == "075cec94db3877f3", (
        "raise PATCHKIT_CALLS and CALLS, so that older libraries are not called; then note this digest"
    )


def _last(library: Path, name: str) -> Any:
    last = getattr(ctypes.CDLL(str(library)), f"{name}_last")
    last.restype = ctypes.POINTER(hopper_library._entry(str(library), name).record)
    return last().contents


def _inputs(case: str) -> tuple[Any, Any, torch.Tensor, torch.Tensor]:
    (found,) = (one for one in SHAPES if one.name == case)
    inputs = make_inputs(replace(found, dtype="bfloat16"), "cpu")
    out = torch.empty_like(inputs.query, memory_format=torch.contiguous_format)
    return inputs, found.pattern, out, torch.empty(inputs.heads, len(out))


@pytest.mark.kernels
@_NEEDS_TRITON
def test_every_member_of_a_prefill_has_its_value(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchkit.runtime.attention import hopper

    library = build()
    mended: list[torch.Tensor] = []
    monkeypatch.setattr("patchkit.runtime.attention.triton_prefill.mend", lambda *given, **_: mended.append(given[4]))
    inputs, pattern, out, lse = _inputs("slices of wider tensors")
    hopper.run(inputs, pattern, out, lse)
    call = _last(library, "patchkit_prefill")
    found = {name: getattr(call, name) for name, _ in call._fields_}
    (odd,) = mended
    assert found == {
        "query": inputs.query.data_ptr(),
        "key": inputs.key.data_ptr(),
        "value": inputs.value.data_ptr(),
        "out": out.data_ptr(),
        "lse": lse.data_ptr(),
        "query_starts": inputs.query_starts.data_ptr(),
        "key_starts": inputs.key_starts.data_ptr(),
        "key_lengths": None,
        "table": None,
        "odd": odd.data_ptr(),
        "next": odd.data_ptr() - 4,
        "query_row": 2 * 4 * 64,
        "query_head": 64,
        "key_page": 0,
        "key_row": 2 * 2 * 64,
        "key_head": 64,
        "value_page": 0,
        "value_row": 2 * 2 * 64,
        "value_head": 64,
        "table_row": 0,
        "tokens": 61,
        "key_tokens": 61,
        "pages": 0,
        "page_size": 0,
        "batch": 1,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 64,
        "pack": 2,
        "bfloat": 1,
        "odd_room": len(odd) - 1,
        "window": 24,
        "anchors": 5,
        "max_query": 61,
        "factor": pytest.approx(64**-0.5 * 1.4426950408889634),
    }


@pytest.mark.kernels
@_NEEDS_TRITON
def test_bounds_that_32_bits_do_not_hold_are_those_of_what_there_is(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchkit.runtime.attention import hopper

    library = build()
    monkeypatch.setattr("patchkit.runtime.attention.triton_prefill.mend", lambda *_, **__: None)
    inputs, _, out, lse = _inputs("slices of wider tensors")
    unknown = dataclasses.replace(inputs, max_query=2**40, max_key=2**40)
    hopper.run(unknown, Pattern(window=2**33, anchors=2**32), out, lse)
    call = _last(library, "patchkit_prefill")
    assert (call.max_query, call.window, call.anchors) == (61, 1 << 30, 1 << 30)


@pytest.mark.kernels
@_NEEDS_TRITON
def test_every_member_that_tells_of_pages_has_its_value(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchkit.runtime.attention import hopper_paged

    library = build()
    monkeypatch.setattr("patchkit.runtime.attention.triton_prefill.mend", lambda *_, **__: None)
    inputs, pattern, out, lse = _inputs("paged chunks, pages of 48, head dim 128")
    hopper_paged.run(inputs, pattern, out, lse)
    call = _last(library, "patchkit_prefill")
    row = 2 * 128
    expected = {
        "key": inputs.key.data_ptr(),
        "value": inputs.value.data_ptr(),
        "key_starts": None,
        "key_lengths": inputs.key_lengths.data_ptr(),
        "table": inputs.block_table.data_ptr(),
        **{f"{name}_page": 48 * row for name in ("key", "value")},
        **{f"{name}_row": row for name in ("key", "value")},
        **{f"{name}_head": 128 for name in ("key", "value")},
        "table_row": inputs.block_table.shape[1],
        "tokens": 92,
        "key_tokens": 0,
        "pages": inputs.key.shape[0],
        "page_size": 48,
        "batch": 5,
        "max_query": 67,
    }
    assert {name: getattr(call, name) for name in expected} == expected


@pytest.mark.kernels
@_NEEDS_TRITON
@pytest.mark.parametrize("cache", ["steps in odd bytes", "has no page"])
def test_a_cache_that_cannot_be_read_goes_to_triton(build: Build, monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
    from patchkit.runtime.attention import hopper_paged

    library = build()
    asked: list[Any] = []
    monkeypatch.setattr("patchkit.runtime.attention.triton_paged.run", lambda *given: asked.append(given[0]))
    inputs, pattern, out, lse = _inputs("paged chunks, pages of 8")
    odd = torch.empty(*inputs.key.shape[:-1], 65, dtype=inputs.key.dtype)[..., :64]
    key = odd if cache == "steps in odd bytes" else inputs.key[:0]
    hopper_paged.run(replace_tensors(inputs, {"key": key, "value": key}), pattern, out, lse)
    assert len(asked) == 1
    assert not _last(library, "patchkit_prefill").key


@pytest.mark.kernels
@_NEEDS_TRITON
def test_every_member_of_a_decode_has_its_value(build: Build) -> None:
    from patchkit.runtime.attention import hopper_decode

    library = build()
    inputs, pattern, out, lse = _inputs("paged decode, three kv heads")
    hopper_decode.run(inputs, pattern, out, lse)
    call = _last(library, "patchkit_decode")
    page = 16 * 3 * 64
    assert {name: getattr(call, name) for name, _ in call._fields_} == {
        "query": inputs.query.data_ptr(),
        "key": inputs.key.data_ptr(),
        "value": inputs.value.data_ptr(),
        "out": out.data_ptr(),
        "lse": lse.data_ptr(),
        "query_starts": inputs.query_starts.data_ptr(),
        "key_lengths": inputs.key_lengths.data_ptr(),
        "table": inputs.block_table.data_ptr(),
        "query_row": 9 * 64,
        "query_head": 64,
        "key_page": page,
        "key_row": 3 * 64,
        "key_head": 64,
        "value_page": page,
        "value_row": 3 * 64,
        "value_head": 64,
        "table_row": inputs.block_table.shape[1],
        "tokens": 2,
        "batch": 2,
        "heads": 9,
        "kv_heads": 3,
        "head_dim": 64,
        "bfloat": 1,
        "page_bits": 4,
        "window": 24,
        "anchors": 5,
        "dense": 0,
        "factor": pytest.approx(64**-0.5 * 1.4426950408889634),
    }


@pytest.mark.kernels
@_NEEDS_TRITON
def test_a_status_of_cuda_is_an_error(build: Build) -> None:
    from patchkit.runtime.attention import hopper_decode

    build(status=98)
    with pytest.raises(AttentionError, match="patchkit_decode could not be started: CUDA error 98"):
        hopper_decode.run(*_inputs("paged decode"))


@pytest.mark.parametrize(
    ("changes", "source", "why"),
    [
        ([('CALLS "2"', 'CALLS "1"')], _LIBRARY, "was built for calls of version 1, these are of version 2"),
        ([], 'extern "C" int patchkit_decode(const void *, void *) { return 0; }', "was built from older sources"),
    ],
    ids=["other version", "before there were versions"],
)
def test_a_stale_library_is_not_called(build: Build, changes: list[tuple[str, str]], source: str, why: str) -> None:
    library = build(*changes, source=source)
    refusal = hopper_library.loading_refusal(str(library), "patchkit_decode")
    assert refusal.startswith(str(library))
    assert why in refusal
    assert refusal.endswith("build it again: patchkit attention build")
    with pytest.raises(AttentionError, match=why):
        hopper_library.start("patchkit_decode", {}, torch.device("cpu"))


def test_members_that_differ_under_the_same_version_are_named(build: Build) -> None:
    library = build(("page_bits", "page_shift"))
    members = hopper_library._entry(str(library), "patchkit_decode").members
    call = dict.fromkeys(members - {"page_shift"} | {"page_bits"}, 0)
    with pytest.raises(AttentionError, match="patchkit_decode takes other members: page_bits, page_shift"):
        hopper_library.start("patchkit_decode", call, torch.device("cpu"))


def test_what_is_no_library_and_what_is_not_there_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATCHKIT_ATTENTION_LIBRARY", raising=False)
    path = tmp_path / "library.so"
    assert (
        hopper_library.loading_refusal(hopper_library.library_path(), "patchkit_decode")
        == "libpatchkit_attention.so is not built"
    )
    monkeypatch.setenv("PATCHKIT_ATTENTION_LIBRARY", str(path))
    said = hopper_library.loading_refusal(hopper_library.library_path(), "patchkit_decode")
    assert said == f"{path}, which PATCHKIT_ATTENTION_LIBRARY names, is not there"
    path.write_text("cut short")
    assert f"{path} cannot be loaded (" in hopper_library.loading_refusal(
        hopper_library.library_path(), "patchkit_decode"
    )
