"""What compiled functions read and write tells whether a library was made with a layout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.abi.layout import StructLayout
from patchkit.abi.layout_binary import check_binary, takes_reference
from patchkit.abi.probe import Probe, run_probe
from patchkit.errors import RefusedError
from patchkit.record import replace

STRUCT = """
struct params {
    void *q; void *k;
    long stride[3];
    int heads, head_dim;
    float scale, softcap;
    bool is_bf16, is_causal;
    unsigned char dtype;
    double theta;
    int *table;
    bool last;
};
"""
FUNCTION = """
void outside();
void set_params_fprop(params &p, void *q, void *k, long stride, int heads, float scale, bool causal, double theta) {
    outside();
    p.q = q; p.k = k; p.stride[0] = stride; p.heads = heads; p.head_dim = 64; p.scale = scale; p.softcap = 0.0f;
    p.is_bf16 = heads == 3; p.is_causal = causal; p.theta = theta; p.last = true;
    outside();
}
long other(int, params &p) { return *(long *)((char *)&p + 3); }
bool run_mha_fwd(const params &p) { return p.theta > 1.0 && p.table && p.head_dim <= 128 && !p.is_causal; }
bool run_mha_fwd_combine(params &p, long n) {
    if (n > 3) outside();
    return p.stride[1] > n && p.dtype == 3;
}
"""

pytestmark = [
    pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")
    for tool in ("g++", "objdump", "nm", "strip")
]


def _layout(struct: str) -> StructLayout:
    (probed,) = run_probe(Probe(preamble=(struct,), types=(("params", "params"),), includes=()), "g++")
    assert probed.layout is not None
    return probed.layout


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("library")
    (directory / "f.cpp").write_text(STRUCT + FUNCTION)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "f.cpp", "-o", "libf.so"], cwd=directory, check=True)
    return directory / "libf.so"


def test_a_library_fits_the_layout_that_it_was_made_with(library: Path) -> None:
    layout = _layout(STRUCT.replace("long stride[3];", "long stride, second, third;"))
    found = check_binary(library, layout)
    assert found.odd == ()
    assert found.agreeing >= 12
    assert found.reach == next(field.end for field in layout.fields if field.name == "last")
    assert [name[:12] for name in found.functions] == ["_Z16set_para", "_Z19run_mha_"]
    assert found.fits(layout)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int heads, head_dim;", "long heads, head_dim;"),
        ("float scale, softcap;", "float scale; double softcap;"),
        ("bool is_bf16, is_causal;", "int is_bf16; bool is_causal;"),
        ("    void *q; void *k;\n", "    int version; void *q; void *k;\n"),
        ("    double theta;\n", "    float leftpad; double theta; long more;\n"),
    ],
)
def test_a_layout_with_one_member_changed_does_not_fit(library: Path, old: str, new: str) -> None:
    assert STRUCT.count(old) == 1
    layout = _layout(STRUCT.replace(old, new).replace("long stride[3];", "long stride, second, third;"))
    found = check_binary(library, layout)
    assert found.odd
    assert not found.fits(layout)


def test_a_library_that_is_stripped_tells_by_its_dynamic_symbols(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "libf.so"
    subprocess.run(["strip", "-o", str(stripped), str(library)], check=True)
    layout = _layout(STRUCT.replace("long stride[3];", "long stride, second, third;"))
    assert check_binary(stripped, layout) == check_binary(library, layout)


def test_a_library_without_such_a_function_is_refused(library: Path) -> None:
    with pytest.raises(RefusedError, match="no function that takes a nothing by reference"):
        check_binary(library, replace(_layout(STRUCT), name="nothing"))


@pytest.mark.parametrize(
    ("symbol", "takes"),
    [
        ("_Z16set_params_fpropR16Flash_fwd_paramsm", True),
        ("_ZN5flash16set_params_fpropERNS_16Flash_fwd_paramsEm", True),
        ("_Z3runiR16Flash_fwd_params", False),
        ("_Z3runRK16Flash_fwd_params", False),
        ("_Z3runR16Flash_bwd_params", False),
        ("_Z3runR16Flash_fwd_params.cold", False),
        ("_Z4run_IfEvR16Flash_fwd_params", False),
        ("_ZN5other3runER16Flash_fwd_params", False),
        ("main", False),
    ],
)
def test_functions_are_told_by_their_first_parameter(symbol: str, takes: bool) -> None:
    assert takes_reference(symbol, "Flash_fwd_params") is takes


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(RefusedError):
        check_binary(tmp_path / "x.so", _layout(STRUCT))
