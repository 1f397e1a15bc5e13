"""The stores of a compiled function tell whether a library was made with a layout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.abi.layout import StructLayout
from patchkit.abi.layout_binary import check_binary
from patchkit.abi.probe import Probe, run_probe
from patchkit.errors import RefusedError

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
"""

pytestmark = [
    pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")
    for tool in ("g++", "objdump", "nm")
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
    found = check_binary(library, "set_params_fprop", layout)
    assert found.odd == ()
    assert found.agreeing >= 8
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
    found = check_binary(library, "set_params_fprop", layout)
    assert found.odd
    assert not found.fits(layout)


def test_a_function_that_is_not_there_is_refused(library: Path) -> None:
    with pytest.raises(RefusedError, match="0 functions nothing"):
        check_binary(library, "nothing", _layout(STRUCT))


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(RefusedError):
        check_binary(tmp_path / "x.so", "set_params_fprop", _layout(STRUCT))
