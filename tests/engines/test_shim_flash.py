"""The hooks of FlashAttention 2 and 3 before stand-ins for their libraries, on the CPU.

A stand-in has the entry points' names and types and registers the operators. benchmarks.native_gpu runs the real
library of FlashAttention 3; that of 2 has not been run.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchkit.attention.peers import LIBRARY
from patchkit.native.segment import Segment
from tests.blackbox.command import CHECKOUT, patchkit
from tests.dist_info import write_dist_info
from tests.engines.recipe import HERE, VLLM_063, python_of
from tests.native.workshop import PROGRAMS

pytestmark = pytest.mark.engines


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a stand-in is made from, and the calls that each of its entry points gets."""

    version: str
    library: str
    source: str
    calls: tuple[int, ...]


RELEASES = (
    Release(version="0.6.3", library="vllm_flash_attn_c.abi3.so", source="flash_standin_fa2.cpp", calls=(2, 4)),
    Release(version="0.26.0", library=LIBRARY, source="flash_standin_fa3.cpp", calls=(3,)),
)


@dataclass(frozen=True, kw_only=True)
class Standin:
    """A tree with the stand-in, and another kernel for it."""

    release: Release
    tree: Path
    replacement: Path
    cache: Path

    @property
    def library(self) -> Path:
        return self.tree / "vllm" / "vllm_flash_attn" / self.release.library

    def call(self, scale: float = 1.0, window: int = 0, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Make a call of every case in a process of its own."""
        script = [
            str(python_of(VLLM_063)),
            str(HERE / "inside" / "flash_calls.py"),
            str(self.library),
            str(scale),
            str(window),
        ]
        seen = {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", **(variables or {})}
        done = subprocess.run(script, env=seen, capture_output=True, text=True, check=False, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def shimmed(self, segments: Path, *options: str, window: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
        """Make the calls under the shim; return what they gave, and what `native status` says of the process."""
        segments.mkdir()
        asked = ("--target", "vllm", "--root", self.tree, "--python", python_of(VLLM_063), *options)
        said = patchkit("native", "env", *asked, seconds=600, PATCHKIT_NATIVE=str(self.cache), LD_PRELOAD="")
        assert said.status == 0, said.said
        variables = dict(shlex.split(line)[1].split("=", 1) for line in said.out.splitlines())
        answer = self.call(window=window, variables={**variables, "PATCHKIT_SHIM_DIRECTORY": str(segments)})
        report = patchkit("native", "status", "--json", PATCHKIT_SHIM_DIRECTORY=str(segments)).report
        [process] = report["processes"]
        return answer, process


@pytest.fixture(scope="module", params=RELEASES, ids=["fa2", "fa3"])
def standin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Standin:
    directory = tmp_path_factory.mktemp("flash")
    release: Release = request.param
    made = Standin(
        release=release,
        tree=directory / "tree",
        replacement=directory / "libother.so",
        cache=directory / "native",
    )
    made.library.parent.mkdir(parents=True)
    (made.tree / "vllm" / "__init__.py").touch()
    write_dist_info(made.tree, "vllm", release.version)
    site = subprocess.run(
        [python_of(VLLM_063), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    torch = Path(site.stdout.strip()) / "torch"
    headers = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
    shared = ["g++", "-O0", "-fPIC", "-shared", "-Wl,--build-id=sha1"]
    linked = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    source = HERE / "inside" / release.source
    subprocess.run([*shared, "-std=c++20", *headers, source, "-o", made.library, *linked], check=True, timeout=900)
    include = f"-I{CHECKOUT / 'native' / 'include'}"
    subprocess.run([*shared, include, PROGRAMS / "replacement.cpp", "-o", made.replacement], check=True, timeout=120)
    return made


@pytest.fixture(scope="module")
def plain(standin: Standin) -> dict[str, Any]:
    return standin.call()


@pytest.mark.parametrize(("mode", "counted", "traced"), [("off", 0, 0), ("count", 1, 0), ("trace", 1, 1)])
def test_what_changes_no_argument_changes_no_bit(
    standin: Standin, plain: dict[str, Any], tmp_path: Path, mode: str, counted: int, traced: int
) -> None:
    answer, process = standin.shimmed(tmp_path / "segments", "--mode", mode)
    assert answer["digest"] == plain["digest"]
    calls = standin.release.calls
    assert sorted(one["calls"] for one in process["entry_points"]) == [counted * made for made in calls]
    assert process["records"] == {"written": traced * sum(calls), "unrecorded": 0}


@pytest.mark.parametrize(
    ("word", "scale", "window"), [("qk_scale=0.5", 0.5, 0), ("window=64", 1.0, 64)], ids=["scale", "window"]
)
def test_a_transform_is_a_call_with_that_argument(
    standin: Standin, plain: dict[str, Any], tmp_path: Path, word: str, scale: float, window: int
) -> None:
    segments = tmp_path / "segments"
    answer, _ = standin.shimmed(segments, "--mode", "transform", "--set", word)
    assert answer["digest"] == standin.call(scale, window)["digest"]
    assert answer["digest"] != plain["digest"]
    segment = Segment(next(segments.iterdir()))
    assert {record.window for record in segment.records()} == {window}
    segment.close()


@pytest.mark.parametrize(("every", "window"), [(0, 0), (1, 0), (2, 0), (0, 48)])
def test_another_kernel_gives_the_same(standin: Standin, tmp_path: Path, every: int, window: int) -> None:
    other = ("--mode", "replace", "--set", f"every={every}", "--replace", str(standin.replacement))
    answer, process = standin.shimmed(tmp_path / "segments", *other, window=window)
    calls = standin.release.calls
    compared = sum(len(range(0, made, every)) for made in calls) if every else 0
    assert process["replace"] == {"replaced": sum(calls) - compared, "compared": compared, "differed": 0}
    for ours, theirs in zip(answer["samples"], standin.call(window=window)["samples"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_at_a_difference_the_real_function_goes_on_alone(
    standin: Standin, plain: dict[str, Any], tmp_path: Path
) -> None:
    strict = ("--mode", "replace", "--set", "every=1", "--set", "tolerance=0", "--replace", str(standin.replacement))
    answer, process = standin.shimmed(tmp_path / "segments", *strict)
    entry_points = len(standin.release.calls)
    assert process["replace"] == {"replaced": 0, "compared": entry_points, "differed": entry_points}
    assert answer["digest"] == plain["digest"]
