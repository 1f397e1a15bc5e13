"""`patchkit attention build`: what takes part in a build, what is kept, and what a compiler says."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.attention.build import LIBRARY, build_library
from patchkit.errors import RefusedError
from tests.cli.said import Patchkit

# Says a version, notes that it ran, and writes its output; the last argument is the source.
_NVCC = """#!/bin/sh
if [ "$1" = --version ]; then cat "$(dirname "$0")/version"; exit; fi
echo run >> "$(dirname "$0")/runs"
for last; do :; done
if grep -q broken "$last"; then echo "$last: broken is undefined" >&2; exit 2; fi
cp "$last" libpatchkit_attention.so
"""


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a compiler that copies, first on the PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "version").write_text("release 13.0")
    (directory / "nvcc").write_text(_NVCC)
    (directory / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    return directory


@pytest.fixture
def native(tmp_path: Path) -> Path:
    sources = tmp_path / "native" / "attention"
    sources.mkdir(parents=True)
    (sources / "prefill.cu").write_text("kernel")
    (sources / "hopper.cuh").write_text("header")
    (sources / "call.h").write_text("record")
    return sources.parent


def runs(nvcc: Path) -> int:
    return len((nvcc / "runs").read_text().splitlines())


def test_the_same_is_compiled_once(nvcc: Path, native: Path, tmp_path: Path) -> None:
    told: list[str] = []
    first = build_library(native, tmp_path / "cache", on_start=lambda: told.append("compiling"))
    second = build_library(native, tmp_path / "cache", on_start=lambda: told.append("again"))
    assert (first.fresh, second.fresh, runs(nvcc), told) == (True, False, 1, ["compiling"])
    assert first.library == second.library
    assert first.library.name == LIBRARY
    assert first.library.read_text() == "kernel"
    assert "sm_90a" in first.command
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.library.parent.name]


@pytest.mark.usefixtures("nvcc")
def test_sources_may_be_named_by_a_relative_path(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(native.parent)
    assert build_library(Path(native.name), tmp_path / "cache").library.read_text() == "kernel"


@pytest.mark.parametrize(
    "changed", [*(f"native/attention/{name}" for name in ("prefill.cu", "hopper.cuh", "call.h")), "bin/version"]
)
def test_what_takes_part_is_compiled_anew(nvcc: Path, native: Path, tmp_path: Path, changed: str) -> None:
    first = build_library(native, tmp_path / "cache")
    (tmp_path / changed).write_text("other")
    second = build_library(native, tmp_path / "cache")
    assert (second.fresh, runs(nvcc)) == (True, 2)
    assert second.library != first.library
    assert first.library.is_file()


@pytest.mark.usefixtures("nvcc")
def test_a_compiler_that_fails_is_shown_and_nothing_is_kept(native: Path, tmp_path: Path) -> None:
    (native / "attention" / "prefill.cu").write_text("broken")
    with pytest.raises(RefusedError, match="nvcc ended with 2") as caught:
        build_library(native, tmp_path / "cache")
    assert "broken is undefined" in caught.value.why
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.usefixtures("nvcc")
def test_a_cache_that_cannot_be_written(native: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(RefusedError, match="cannot be written") as caught:
        build_library(native, tmp_path / "cache")
    assert "PATCHKIT_NATIVE" in caught.value.hint


@pytest.mark.usefixtures("nvcc")
def test_a_cache_that_others_can_write_to_is_refused(native: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build_library(native, cache)
    cache.chmod(0o777)
    with pytest.raises(RefusedError, match="not safe to load code from"):
        build_library(native, cache)


def test_without_nvcc_it_says_what_to_install(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.attention.build._USUAL_TOOLKIT", "/nonexistent/cuda")
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_HOME", "/nonexistent/home")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    said = patchkit("attention", "build")
    assert said.status == 1
    assert "looked on the PATH and in /nonexistent/home/bin, /nonexistent/cuda/bin" in said.err
    assert "CUDA toolkit" in said.err


@pytest.mark.parametrize("named", ["CUDA_HOME", "CUDA_PATH", ""])
def test_nvcc_is_found_beside_the_path(
    nvcc: Path, native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    others = os.environ["PATH"].split(os.pathsep)[1:]
    monkeypatch.setenv("PATH", os.pathsep.join(place for place in others if not (Path(place) / "nvcc").exists()))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr("patchkit.attention.build._USUAL_TOOLKIT", str(nvcc.parent))
    if named:
        monkeypatch.setattr("patchkit.attention.build._USUAL_TOOLKIT", "/nonexistent/cuda")
        monkeypatch.setenv(named, str(nvcc.parent))
    built = build_library(native, tmp_path / "cache")
    assert built.command.startswith(str(nvcc / "nvcc"))


@pytest.mark.usefixtures("nvcc")
def test_command_prints_the_path_alone(patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHKIT_NATIVE", str(tmp_path / "cache"))
    said = patchkit("attention", "build")
    assert said.status == 0
    assert Path(said.out.removesuffix("\n")).is_file()
    assert "compiling with nvcc" in said.err
    document = patchkit("attention", "build", "--json").document
    assert (document["library"], document["fresh"], document["command"]) == (said.out.strip(), False, None)


@pytest.mark.usefixtures("nvcc")
def test_a_user_without_a_home_is_told_to_name_a_place(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATCHKIT_NATIVE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as in a container that runs as any number
    said = patchkit("attention", "build")
    assert (said.status, said.out) == (1, "")
    assert "there is no place to keep builds in" in said.err
    assert "next: PATCHKIT_NATIVE=DIR names one" in said.err


@pytest.mark.usefixtures("nvcc")
def test_a_path_that_nobody_can_read_is_no_success(checkout: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATCHKIT_NATIVE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "patchkit", "attention", "build"]
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(command, cwd=checkout, env=environment, stdout=full, stderr=subprocess.PIPE, check=False)
    assert run.returncode == 1
    assert b"error: the output could not be written" in run.stderr


@pytest.mark.usefixtures("nvcc")
def test_two_builds_at_once_print_the_same_path(checkout: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATCHKIT_NATIVE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "patchkit", "attention", "build"]
    both = [subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    said = [one.communicate()[0].decode() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert said[0] == said[1]
    assert Path(said[0].rstrip("\n")).is_file()


@pytest.mark.kernels
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_real_compiler_makes_a_library_with_the_entry_point(checkout: Path, tmp_path: Path) -> None:
    built = build_library(checkout / "native", tmp_path / "cache")
    library = ctypes.CDLL(str(built.library))
    for kernel, member in (("prefill", "max_query"), ("decode", "page_bits")):
        assert hasattr(library, f"patchkit_{kernel}")
        told = getattr(library, f"patchkit_{kernel}_members")
        told.restype = ctypes.c_char_p
        assert f";int32_t {member};".encode() in told()
