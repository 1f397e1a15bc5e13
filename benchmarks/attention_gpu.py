"""All that is measured of the attention kernels on a GPU, by one command.

    python -m benchmarks.attention_gpu pack DIR       fetches FlashAttention 3, builds the CUDA library where nvcc is,
                                                      packs all that the GPU machine needs
    python3 -m benchmarks.attention_gpu run --out R   there, in DIR: every part, its record in R as soon as it is there
                                     [--only TEXT]    parts with the text in their names; repeatable

Parts: `check bfloat16` and `check float16` (`attention check`), `cost per token` (attention_length.py), and each
workload of `attention bench` beside its peers (attention_peers.py). Status 1: a part failed, or a kernel was wrong in
it; the others are measured all the same. PATCHKIT_ATTENTION_LIBRARY names another library than the packed one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.parts import Part, run_parts, work
from patchkit.attention.build import LIBRARY, build_library
from patchkit.errors import PatchkitError, RefusedError
from patchkit.output import Output

if TYPE_CHECKING:
    from patchkit.attention.check import CheckResult

COMMAND = "python3 -m benchmarks.attention_gpu run"
VARIABLE = "PATCHKIT_ATTENTION_LIBRARY"
CHECKOUT = Path(__file__).resolve().parent.parent
_CHECKED = ("bfloat16", "float16")
_MOST_SLICES = 8  # each has a context on the GPU
_PACKED = ("patchkit", "native/attention", "benchmarks")


def main() -> int:
    """Pack, run, or work through parts in a process that `run` started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="{pack,run}")
    packing = commands.add_parser("pack")
    packing.add_argument("directory", type=Path)
    packing.set_defaults(act=lambda given: pack(given.directory))
    running = commands.add_parser("run")
    running.add_argument("--out", dest="directory", metavar="R", type=Path, required=True)
    running.add_argument("--only", metavar="TEXT", action="append", default=[], help="parts with this in their names")
    running.set_defaults(act=lambda given: run(given.directory, given.only))
    working = commands.add_parser("work")
    working.add_argument("directory", type=Path)
    working.add_argument("names", nargs="+")
    working.set_defaults(act=lambda given: work(parts(), given.names, given.directory, is_usable=_is_usable))
    given = parser.parse_args()
    try:
        status: int = given.act(given)
    except PatchkitError as error:
        Output().error(error)
        return int(error.status)
    return status


def pack(directory: Path) -> int:
    """Lay the kernels, these scripts, the CUDA library and FlashAttention 3 into a directory."""
    from patchkit.attention.peers import pack_peers

    ignored = shutil.ignore_patterns("__pycache__", "out", "results")
    for part in _PACKED:
        shutil.copytree(CHECKOUT / part, directory / part, dirs_exist_ok=True, ignore=ignored)
    shutil.copy(CHECKOUT / "pyproject.toml", directory)  # by which patchkit knows a checkout
    (directory / LIBRARY).unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copy(build_library(CHECKOUT / "native", Path(scratch)).library, directory)
    except RefusedError as error:
        print(f"without the CUDA library, which is built on the GPU machine then: {error.what}")
    pack_peers(directory, progress=print)
    print(f"packed; on the GPU machine, in {directory}: {COMMAND} --out results")
    return 0


def run(directory: Path, only: list[str]) -> int:
    """Run the parts that have one of the texts in their names, all without."""
    names = [name for name in parts() if not only or any(text in name for text in only)]
    if not names:
        print(f"no part has {' or '.join(only)} in its name; there are: {', '.join(parts())}", file=sys.stderr)
        return 2
    if not _has_gpu():
        print("there is no CUDA device here: pack, and run on a machine with one", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        if not os.environ.get(VARIABLE):
            packed = CHECKOUT / LIBRARY
            library = packed if packed.is_file() else build_library(CHECKOUT / "native", Path(scratch)).library
            os.environ[VARIABLE] = str(library)
        command = [sys.executable, "-m", "benchmarks.attention_gpu", "work", str(directory)]
        return run_parts(names, command, directory)


def parts() -> dict[str, Part]:
    """Return what is measured, by name, in order."""
    from patchkit.attention.workload import GPU

    return {
        **{f"check {dtype}": partial(_check, dtype) for dtype in _CHECKED},
        "cost per token": _cost_per_token,
        **{one.name: partial(_beside_peers, one.name) for one in GPU},
    }


def _check(dtype: str, directory: Path) -> str:
    from patchkit.attention.report import record_path
    from patchkit.attention.run import check_document, summaries

    results = check_in_slices(dtype, "cuda", slices=max(1, min(_MOST_SLICES, (os.cpu_count() or 1) // 2)))
    document = {**check_document(results, device="cuda", seed=0), "command": COMMAND, "device": _facts()}
    record_path(_facts(), f"check {dtype}", directory).write_text(json.dumps(document, indent=1) + "\n")
    faults = [f"{one.kernel}: {one.case.name}: {fault}" for one in results for fault in one.faults]
    for row in summaries(results):
        print(f"  {row.kernel}: {row.ran - row.wrong} of {row.ran} right, largest error {row.worst:.2f} of the allowed")
        if row.kernel.startswith(("hopper", "triton")) and not row.ran:
            faults.append(f"{row.kernel} took no case: {row.reasons[0][0]}")
    return "; ".join(faults)


def check_in_slices(dtype: str, device: str, *, slices: int, text: str = "") -> list[CheckResult]:
    """Return `attention check` of one dtype, made by some processes at once: what takes long is Triton's compiler."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    results: list[CheckResult] = []
    with ProcessPoolExecutor(slices, get_context("spawn")) as pool:
        asked = [pool.submit(_check_slice, dtype, device, text, number, slices) for number in range(slices)]
        for done, one in enumerate(as_completed(asked), 1):
            results += one.result()
            print(f"  {done} of {slices} slices of the cases", flush=True)
    return results


def _check_slice(dtype: str, device: str, text: str, number: int, slices: int) -> list[CheckResult]:
    import torch

    from patchkit.attention.case import check_cases
    from patchkit.attention.check import check_kernels
    from patchkit.attention.run import kernels_named

    torch.set_num_threads(1)
    cases = [case for case in check_cases((dtype,)) if text in case.name][number::slices]
    return list(check_kernels(kernels_named(()), cases, device))


def _cost_per_token(directory: Path) -> str:
    from benchmarks.attention_length import measure_lengths

    return measure_lengths(_facts(), COMMAND, directory)


def _beside_peers(workload: str, directory: Path) -> str:
    from benchmarks.attention_peers import results_of
    from patchkit.attention.report import table, write_records

    missing = _load_peers()
    results = list(results_of(workload))
    for line, _ in table(results):
        print(line, flush=True)
    write_records(results, _facts(), COMMAND, directory)
    faults = [f"{one.kernel}: {one.fault}" for one in results if one.fault]
    return "; ".join([missing, *faults] if missing else faults)


@cache
def _load_peers() -> str:
    """Load FlashAttention 3 once a process; return why it is not there."""
    from patchkit.attention.peers import load_peers

    try:
        load_peers(CHECKOUT)
    except RefusedError as error:
        return error.what
    return ""


@cache
def _facts() -> dict[str, object]:
    from patchkit.attention.device import device_facts

    return device_facts("cuda")


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _is_usable() -> bool:
    """Return whether the GPU still answers this process: after an illegal access it does not."""
    import torch

    try:
        torch.cuda.synchronize()
    except (RuntimeError, AssertionError):  # the latter by a torch without CUDA
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
