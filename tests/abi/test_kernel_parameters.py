"""Sizes of structs that GPU kernels get by value, read from cubins that were put together here."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from patchkit.abi.kernel_parameters import sizes_by_value, takes_value
from tests.abi.binaries import compile_shared, needs_compiler

_BY_VALUE = "_ZN5flash3runILi90EEEvNS_6ParamsE"
_PLAIN = "_Z3runILi90EEv6Params"
_OTHER = "_Z3runILi90EEvPfi"


def _attributes(*sizes: int) -> bytes:
    """An attribute without a size, then one for each parameter, as nvcc writes them."""
    rows = [struct.pack("<BBHI", 4, 0x0A, 4, 0), struct.pack("<BBH", 3, 0x1B, 255)]
    rows += [
        struct.pack("<BBHIHHI", 4, 0x17, 12, 0, at, 0, size << 18 | 0x11F000 & 0x3FFFF) for at, size in enumerate(sizes)
    ]
    return b"".join(rows)


def _cubin(kernels: dict[str, bytes]) -> bytes:
    names, places = b"\0", {}
    for name in (".shstrtab", *(f".nv.info.{kernel}" for kernel in kernels)):
        places[name] = len(names)
        names += name.encode() + b"\0"
    body = bytearray(names)
    rows = [(0, 0, 0, 0), (places[".shstrtab"], 3, 64, len(names))]
    for kernel, attributes in kernels.items():
        rows.append((places[f".nv.info.{kernel}"], 0x70000000, 64 + len(body), len(attributes)))
        body += attributes
    identity = b"\x7fELF\x02\x01\x01\x33".ljust(16, b"\0")
    start = 64 + len(body)
    header = struct.pack("<16sHHIQQQIHHHHHH", identity, 2, 190, 1, 0, 0, start, 0, 64, 0, 0, 64, len(rows), 1)
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, place, size, 0, 0, 1, 0) for at, kind, place, size in rows
    )
    return header + bytes(body) + table


def _library(tmp_path: Path, *cubins: bytes) -> Path:
    entries = b"".join(
        struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(one), 0, 0, 0, 0, 90, 0, 0, 0, 0, 0) + one for one in cubins
    )
    blob = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    numbers = ",".join(map(str, blob))
    attribute = '__attribute__((section(".nv_fatbin"), used, aligned(8)))'
    return compile_shared(tmp_path, "a.so", f"{attribute} static const unsigned char blob[] = {{{numbers}}};\n")


@needs_compiler
def test_sizes_of_all_kernels_are_read(tmp_path: Path) -> None:
    first = _cubin({_BY_VALUE: _attributes(512), _OTHER: _attributes(8, 4)})
    library = _library(tmp_path, first, _cubin({_PLAIN: _attributes(464)}))
    assert sizes_by_value(library, "Params") == (512, 464)
    assert sizes_by_value(library, "Flash_fwd_params") == ()


@needs_compiler
def test_a_kernel_with_more_parameters_says_nothing(tmp_path: Path) -> None:
    assert sizes_by_value(_library(tmp_path, _cubin({_PLAIN: _attributes(8, 464)})), "Params") == ()


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [
        lambda cubin: b"\x28\xb5\x2f\xfd" + cubin,  # compressed
        lambda cubin: cubin[:40],
        lambda cubin: cubin[:-70],
        lambda cubin: cubin[:0x3C] + b"\xff\xff" + cubin[0x3E:],
        lambda cubin: cubin[:0x28] + b"\xff" * 8 + cubin[0x30:],
        lambda cubin: cubin[:0x3E] + b"\xff\x00" + cubin[0x40:],
        lambda cubin: cubin.replace(struct.pack("<BBH", 4, 0x17, 12), struct.pack("<BBH", 4, 0x17, 0xFFFF)),
    ],
)
def test_damaged_code_says_little_and_ends(tmp_path: Path, damage: object) -> None:
    cubin = damage(_cubin({_PLAIN: _attributes(464)}))  # type: ignore[operator]
    assert sizes_by_value(_library(tmp_path, cubin), "Params") in ((), (464,))


@pytest.mark.parametrize(
    ("kernel", "takes"),
    [
        (_BY_VALUE, True),
        (_PLAIN, True),
        (_OTHER, False),
        ("_Z3runILi90EEvR6Params", False),
        ("_Z3runILi90EEv6Params6Params", False),
        ("_Z3runILi90EEv10More_Params", False),
        ("_ZN5flash3runILi90EEEvN5other6ParamsE", False),
        ("run", False),
    ],
)
def test_a_kernel_is_told_by_its_last_parameter(kernel: str, takes: bool) -> None:
    assert takes_value(kernel, "Params") is takes
