"""The one command for the machine with the GPU: what it packs, and that a part that fails loses no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import attention_gpu
from benchmarks.attention_peers import BACKWARD_NAME
from benchmarks.parts import LOG, run_parts
from patchkit.attention.run import run_checks
from patchkit.attention.workload import GPU
from patchkit.errors import RefusedError

# Parts that end in every way there is; each writes what process it ran in.
_WORKER = """
import os, sys
from pathlib import Path
from benchmarks.parts import work

def record(name, fault=""):
    def part(directory):
        (directory / f"{name}.json").write_text(str(os.getpid()))
        return fault
    return part

def fails(directory):
    raise ValueError("no such kernel\\nmore")

def dies(directory):
    os._exit(9)

def breaks_the_gpu(directory):
    global usable
    usable = False
    raise RuntimeError("illegal memory access")

usable = True
parts = {
    "first": record("first"), "fails": fails, "dies": dies, "second": record("second"), "breaks": breaks_the_gpu,
    "third": record("third"), "wrong": record("wrong", "out: error 0.5"), "last": record("last"),
}
sys.exit(work(parts, sys.argv[2:], Path(sys.argv[1]), is_usable=lambda: usable))
"""


def _run(checkout: Path, tmp_path: Path, names: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("PYTHONPATH", str(checkout))
    (tmp_path / "worker.py").write_text(_WORKER)
    command = [sys.executable, str(tmp_path / "worker.py"), str(tmp_path / "results")]
    return run_parts(names, command, tmp_path / "results")


def test_a_part_that_fails_or_dies_loses_no_other(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["first", "fails", "dies", "second", "breaks", "third", "wrong", "last"]
    assert _run(checkout, tmp_path, names, monkeypatch) == 1
    results = tmp_path / "results"
    lines = [json.loads(line) for line in (results / LOG).read_text().splitlines()]
    assert {line["part"]: line["fault"] for line in lines} == {
        "first": "",
        "fails": "ValueError: no such kernel",
        "dies": "its process ended with status 9",
        "second": "",
        "breaks": "RuntimeError: illegal memory access",
        "third": "",
        "wrong": "out: error 0.5",
        "last": "",
    }
    processes = [(results / f"{name}.json").read_text() for name in ("first", "second", "third", "wrong", "last")]
    assert len(set(processes[:3])) == 3, "after a death and after an error that stays, another process goes on"
    assert len(set(processes[2:])) == 1, "else it is the same"
    said = capfd.readouterr().out
    assert "[1/8] first\n  done, " in said
    assert f"4 of 8 parts done, records in {results}\n  fails: ValueError: no such kernel\n" in said


def test_parts_that_all_end_are_a_success(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(checkout, tmp_path, ["first", "last"], monkeypatch) == 0
    assert _run(checkout, tmp_path, ["last"], monkeypatch) == 0
    assert len((tmp_path / "results" / LOG).read_text().splitlines()) == 1, "the log is that of the last run"


def test_parts_are_the_checks_the_cost_per_token_and_every_workload() -> None:
    assert list(attention_gpu.parts()) == [
        "check bfloat16",
        "check float16",
        "cost per token",
        *(one.name for one in GPU),
    ]


def test_slices_of_a_check_are_the_check() -> None:
    sliced = attention_gpu.check_in_slices("float32", "cpu", slices=2, text="head dim")
    whole = run_checks(names=(), dtypes=("float32",), text="head dim", device="cpu", seed=0)
    names = sorted((one.case.name, one.kernel, one.error, one.refusal) for one in sliced)
    assert names == sorted((one.case.name, one.kernel, one.error, one.refusal) for one in whole)
    assert any(not one.refusal for one in sliced)


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        (["check"], ["check bfloat16", "check float16"]),
        (["cost", "backward"], ["cost per token", BACKWARD_NAME]),
    ],
    ids=str,
)
def test_some_are_chosen_by_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: list[str], chosen: list[str]
) -> None:
    asked: list[tuple[list[str], str]] = []

    def note(names: list[str], _command: list[str], _directory: Path) -> int:
        asked.append((names, os.environ["PATCHKIT_ATTENTION_LIBRARY"]))
        return 0

    monkeypatch.setattr(attention_gpu, "run_parts", note)
    monkeypatch.setattr(attention_gpu, "_has_gpu", lambda: True)
    monkeypatch.setattr(attention_gpu, "CHECKOUT", tmp_path)
    monkeypatch.setenv("PATCHKIT_ATTENTION_LIBRARY", "")
    packed = tmp_path / "libpatchkit_attention.so"
    packed.write_text("packed")
    assert attention_gpu.run(tmp_path / "results", only) == 0
    assert asked == [(chosen, str(packed))]


def test_a_text_that_is_in_no_name_lists_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert attention_gpu.run(tmp_path, ["prefil 32k"]) == 2
    assert "no part has prefil 32k in its name; there are: check bfloat16, check float16" in capsys.readouterr().err


def test_without_a_gpu_it_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attention_gpu, "_has_gpu", lambda: False)
    assert attention_gpu.run(tmp_path, []) == 1
    assert "there is no CUDA device here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_library_and_nvcc_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(_native: Path, _cache: Path) -> object:
        raise RefusedError("there is no nvcc", hint="install the CUDA toolkit")

    monkeypatch.setattr(attention_gpu, "_has_gpu", lambda: True)
    monkeypatch.setattr(attention_gpu, "CHECKOUT", tmp_path)
    monkeypatch.setattr(attention_gpu, "build_library", build)
    monkeypatch.delenv("PATCHKIT_ATTENTION_LIBRARY", raising=False)
    monkeypatch.setattr("sys.argv", ["attention_gpu", "run", "--out", str(tmp_path / "results")])
    assert attention_gpu.main() == 1
    assert "error: there is no nvcc\nnext: install the CUDA toolkit\n" in capsys.readouterr().err


@pytest.mark.parametrize("nvcc", [True, False], ids=["with nvcc", "without nvcc"])
def test_what_is_packed_runs_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], nvcc: bool
) -> None:
    def build(_native: Path, cache: Path) -> object:
        if not nvcc:
            raise RefusedError("there is no nvcc")
        (cache / "libpatchkit_attention.so").write_text("library")
        return type("Built", (), {"library": cache / "libpatchkit_attention.so"})

    monkeypatch.setattr(attention_gpu, "build_library", build)
    monkeypatch.setattr(
        "patchkit.attention.peers.pack_peers", lambda directory, progress: (directory / "fa3.xz").write_text("peer")
    )
    packed = tmp_path / "packed"
    assert attention_gpu.pack(packed) == 0
    assert (packed / "libpatchkit_attention.so").is_file() == nvcc
    assert "python3 -m benchmarks.attention_gpu run --out results" in capsys.readouterr().out
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-m", "benchmarks.attention_gpu", "run", "--out", "results", "--only", "nothing"]
    run = subprocess.run(command, cwd=packed, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2, run.stderr
    assert "there are: check bfloat16" in run.stderr
    assert (packed / "native" / "attention" / "call.h").is_file()
    assert (packed / "pyproject.toml").is_file()
