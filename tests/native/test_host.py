"""The host library: attention by the definition, its errors, and the program that is linked with it."""

from __future__ import annotations

import ctypes
import math
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.native.build import HOST_LIBRARY, BuildArtifact
from patchkit.resources import native_directory
from tests.native.workshop import Workshop, run

pytestmark = pytest.mark.xdist_group("native")


class Wide(ctypes.Structure):
    """struct patchkit_attention."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("size", "version")),
        *((name, ctypes.POINTER(ctypes.c_float)) for name in "qkvo"),
        *((f"{name}_stride", ctypes.c_int64 * 3) for name in "qkvo"),
        ("kv_lens", ctypes.POINTER(ctypes.c_int32)),
        *((name, ctypes.c_int32) for name in ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")),
        ("scale", ctypes.c_float),
        ("window", ctypes.c_int32),
        ("causal", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
    )


class Config(ctypes.Structure):
    """struct patchkit_attention_config."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("size", "version")),
        *((name, ctypes.c_int32) for name in ("heads", "head_dim")),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_uint32),
    )


@pytest.fixture
def shim(workshop: Workshop) -> BuildArtifact:
    return workshop.host_shim()


@pytest.fixture
def library(shim: BuildArtifact) -> ctypes.CDLL:
    return ctypes.CDLL(str(shim.directory / HOST_LIBRARY))


def floats(count: int, seed: int) -> ctypes.Array[ctypes.c_float]:
    chance = random.Random(seed)  # noqa: S311 -- numbers, no secrets
    return (ctypes.c_float * count)(*(chance.uniform(-1, 1) for _ in range(count)))


def wide(
    *, batch: int, q_len: int, kv_len: int, heads: int, kv_heads: int, dim: int, causal: bool, window: int
) -> Wide:
    q, o = floats(batch * q_len * heads * dim, 1), floats(batch * q_len * heads * dim, 4)
    k, v = floats(batch * kv_len * kv_heads * dim, 2), floats(batch * kv_len * kv_heads * dim, 3)
    own = (ctypes.c_int64 * 3)(q_len * heads * dim, heads * dim, dim)
    other = (ctypes.c_int64 * 3)(kv_len * kv_heads * dim, kv_heads * dim, dim)
    return Wide(
        ctypes.sizeof(Wide),
        1,
        q,
        k,
        v,
        o,
        own,
        other,
        other,
        own,
        None,
        batch,
        q_len,
        kv_len,
        heads,
        kv_heads,
        dim,
        0.3,
        window,
        int(causal),
        0,
    )


def by_the_definition(call: Wide, batch: int, query: int, head: int) -> list[float]:
    position = call.kv_len - call.q_len + query
    keys = [
        key
        for key in range(call.kv_len)
        if (not call.causal or key <= position) and (not call.window or key > position - call.window)
    ]
    shared = head // (call.heads // call.kv_heads)

    def row(
        values: ctypes.Array[ctypes.c_float], stride: ctypes.Array[ctypes.c_int64], token: int, at: int
    ) -> list[float]:
        begin = batch * stride[0] + token * stride[1] + at * stride[2]
        return [values[begin + d] for d in range(call.head_dim)]

    q = row(call.q, call.q_stride, query, head)
    scores = [
        call.scale * math.fsum(a * b for a, b in zip(q, row(call.k, call.k_stride, key, shared), strict=True))
        for key in keys
    ]
    weights = [math.exp(score - max(scores)) for score in scores]
    rows = [row(call.v, call.v_stride, key, shared) for key in keys]
    return [
        math.fsum(weight * values[d] for weight, values in zip(weights, rows, strict=True)) / math.fsum(weights)
        for d in range(call.head_dim)
    ]


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 2), (3, 1)])
def test_wide_form_is_the_definition(
    library: ctypes.CDLL, causal: bool, window: int, heads: int, kv_heads: int
) -> None:
    call = wide(batch=2, q_len=5, kv_len=7, heads=heads, kv_heads=kv_heads, dim=6, causal=causal, window=window)
    assert library.patchkit_attention_run(ctypes.byref(call)) == 0
    for batch in range(2):
        for query in range(5):
            for head in range(heads):
                at = batch * call.o_stride[0] + query * call.o_stride[1] + head * call.o_stride[2]
                assert [call.o[at + d] for d in range(6)] == pytest.approx(
                    by_the_definition(call, batch, query, head), abs=1e-6
                )


def test_narrow_form_is_the_wide_one(library: ctypes.CDLL) -> None:
    call = wide(batch=2, q_len=6, kv_len=6, heads=3, kv_heads=3, dim=5, causal=True, window=0)
    config = Config(ctypes.sizeof(Config), 1, 3, 5, call.scale, 1)
    assert library.patchkit_attention_run(ctypes.byref(call)) == 0
    count = 2 * 6 * 3 * 5
    wanted = [call.o[at] for at in range(count)]
    o = floats(count, 9)
    assert library.patchkit_attention_configure(ctypes.byref(config)) == 0
    library.attention_forward(call.q, call.k, call.v, o, 2, 6)
    assert list(o) == wanted


def test_a_query_without_a_key_gets_zeros(library: ctypes.CDLL) -> None:
    call = wide(batch=1, q_len=2, kv_len=2, heads=1, kv_heads=1, dim=4, causal=False, window=0)
    call.kv_lens = (ctypes.c_int32 * 1)(0)
    assert library.patchkit_attention_run(ctypes.byref(call)) == 0
    assert [call.o[at] for at in range(8)] == [0.0] * 8


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"size": 8}, 1),
        ({"version": 2}, 1),
        ({"batch": 0}, 2),
        ({"kv_heads": 3}, 2),
        ({"window": -1}, 2),
        ({"q": None}, 2),
    ],
    ids=str,
)
def test_wide_form_refuses(library: ctypes.CDLL, changes: dict[str, object], status: int) -> None:
    call = wide(batch=1, q_len=2, kv_len=2, heads=2, kv_heads=1, dim=4, causal=False, window=0)
    for name, value in changes.items():
        setattr(call, name, value)
    before = [call.o[at] for at in range(16)]
    assert library.patchkit_attention_run(ctypes.byref(call)) == status
    assert [call.o[at] for at in range(16)] == before


def test_narrow_form_without_a_configuration_aborts_and_says_why(shim: BuildArtifact) -> None:
    code = f"import ctypes; ctypes.CDLL({str(shim.directory / HOST_LIBRARY)!r}).attention_forward(0, 0, 0, 0, 1, 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr.startswith("attention_forward: heads and head_dim are unknown")


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_under_a_sanitizer_the_program_is_clean(workshop: Workshop, segments: Path, sanitizer: str) -> None:
    host = native_directory() / "host"
    name = sanitizer.partition(",")[0]
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    workshop.library(f"libhost-{name}.so", str(host / "attention.c"), *flags, "-lm")
    program = workshop.compile(f"host-{name}", str(host / "program.c"), f"-lhost-{name}", *flags)
    ran = run([program, 30, 4], segments)
    if "FATAL: ThreadSanitizer: unexpected memory mapping" in ran.err:
        pytest.skip("this kernel lays out memory as this ThreadSanitizer does not know it")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == run([workshop.host_shim().program, 30, 4], segments).out


def test_under_the_address_sanitizer_the_shim_counts(workshop: Workshop, shim: BuildArtifact, segments: Path) -> None:
    host = native_directory() / "host"
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    workshop.library("libhost-address.so", str(host / "attention.c"), *flags, "-lm")
    program = workshop.compile("host-address", str(host / "program.c"), "-lhost-address", *flags)
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    ran = run(
        [program, 30, 4], segments, shim, LD_PRELOAD=f"{runtime.stdout.strip()}:{shim.stage1}", PATCHKIT_SHIM_STAGE2=""
    )
    assert (ran.status, ran.err) == (0, "")
    assert ran.calls("attention_forward") == [120]
