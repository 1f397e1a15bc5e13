"""Guards on what people carry: a real patch of sglang, hunk by hunk, and what vllm releases change in C++ and CUDA."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import guards, guards_csrc
from tests.blackbox import released

pytestmark = pytest.mark.network
SLIME = guards.PATCHES / "slime-v0.5.9" / "01-sglang.patch"


@pytest.mark.skipif(not SLIME.is_file(), reason="no real patches beside this checkout")
def test_every_hunk_of_a_real_patch_under_its_own_toggle() -> None:
    try:
        tree = released.released_tree("sglang", "0.5.9")
    except released.UnreachableError as error:
        pytest.skip(f"pip does not bring sglang 0.5.9: {error}")
    report = guards.judge(SLIME.read_bytes(), tree, strip=2)
    assert (report.hunks, report.files, report.verified, report.whole) == (167, 49, 49, 49)
    assert report.refusals == []
    assert report.share("refused") < 1
    assert report.share("statement") >= 58
    assert report.share("function") <= 6
    assert report.growth <= 2.5
    assert report.compared >= 200
    assert report.mutants > 150
    assert report.survivors == 0


def sdist_of(version: str, scratch: Path) -> Path:
    """Return the unpacked sdist of vllm, which pip leaves to the stub that it is handed as the build backend."""
    kept, stub = scratch / version, scratch / f"stub-{version}" / "setuptools"
    stub.mkdir(parents=True)
    stub.joinpath("__init__.py").write_text(released._BACKEND)
    wanted = ("--no-build-isolation", "--no-binary", "vllm", "-d", str(scratch), f"vllm=={version}")
    said = released._pip("download", *wanted, may_fail=True, KEEP_SDIST=str(kept), PYTHONPATH=str(stub.parent))
    if not (kept / "csrc").is_dir():
        pytest.skip(f"pip does not bring the sdist of vllm {version}: {said}")
    return kept


@pytest.mark.skipif(shutil.which("unifdef") is None or shutil.which("g++") is None, reason="no unifdef or no g++")
def test_changes_of_a_release_come_back_exactly_from_unifdef_and_the_preprocessor(tmp_path: Path) -> None:
    found = guards_csrc.judge(sdist_of("0.7.2", tmp_path), sdist_of("0.7.3", tmp_path))
    assert found["files"] > 10
    assert found["regions"] > 50
    assert found["wrong"] == 0
