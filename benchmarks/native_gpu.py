"""The shim before FlashAttention 3 of vllm's wheel, on one GPU: counts, captures, replays, modes, cost.

    python -m benchmarks.native_gpu pack DIR     fetches the library, packs all that the GPU machine needs
    python -m benchmarks.native_gpu run --out R  there, in DIR: builds, runs, writes the record to R

The record's first keys are those of patchkit/native/proved.json, in which `abi matrix` looks; below `seen` is all that
was seen. What a call costs is measured on a function that does nothing (benchmarks.native, on the same machine): the
way to the operator itself varies by more. Exit status 1: the record says `cuda_graph_safe: false`, or
`outputs_identical: false`.
"""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import native
from benchmarks.attention_gpu import CHECKOUT
from benchmarks.two_machines import pack_or_run
from patchkit.attention.peers import DISTRIBUTION, LIBRARY, SPECIFIER, pack_peers
from patchkit.fetch import fetch_distribution
from patchkit.native.build import BuildArtifact, BuildRequest, build
from patchkit.native.compiler import compile_with, find_toolchain
from patchkit.native.launch import launch_environment, plan_launch
from patchkit.native.library import read_library
from patchkit.native.settings import Settings
from patchkit.native.symbols import entry_points, read_symbols
from patchkit.native.torch_tree import read_torch
from tests.native.workshop import Workshop

COMMAND = "python -m benchmarks.native_gpu run"
RECORD = "nvidia-h200-shim-fa3.json"
ROUNDS = 3
INSIDE = ("-m", "benchmarks.native_gpu_inside")
_PARTS = ("patchkit", "native", "benchmarks", "tests/native")
_NVCC = ("-gencode=arch=compute_90,code=sm_90", "-O2", "-std=c++17", "-shared", "-cudart", "static")


def main() -> int:
    """Pack or run."""
    return pack_or_run(__doc__, pack_all, run_all)


def pack_all(directory: Path) -> int:
    """Lay the shim's sources, this script and the library into a directory (about 12 MB)."""
    ignored = shutil.ignore_patterns("__pycache__", "out", "facts", "results")
    for part in _PARTS:
        shutil.copytree(CHECKOUT / part, directory / part, dirs_exist_ok=True, ignore=ignored)
    shutil.copy(CHECKOUT / "pyproject.toml", directory)  # by which patchkit knows a checkout
    pack_peers(directory, progress=print)
    for needed in ("cffi", "pycparser"):  # the build reads shim.h with them
        with tempfile.TemporaryDirectory() as scratch:
            root = fetch_distribution(needed, "", Path(scratch), progress=print, python_version="3.12")
            shutil.copytree(root, directory, dirs_exist_ok=True)
    print(f"packed; on the GPU machine, in {directory}: python3 -m benchmarks.native_gpu run --out results")
    return 0


def run_all(directory: Path) -> int:
    """Run everything and write the record."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        library = unpack(work)
        artifact = build_shim(library, work / "cache")
        replacement = build_replacement(work)
        seen = run_children(artifact, library, replacement, work)
        (work / "calls").mkdir()
        seen["calls"] = native.measure(Workshop(directory=work / "calls"), ROUNDS)
    record = {**proof(seen, artifact), "seen": seen}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({key: value for key, value in record.items() if key != "seen"}, indent=1))
    return 0 if record["cuda_graph_safe"] and record["outputs_identical"] else 1


def unpack(work: Path) -> Path:
    """Return the library of the wheel, unpacked under its own name."""
    library = work / LIBRARY
    with lzma.open(CHECKOUT / f"{LIBRARY}.xz") as packed, library.open("wb") as to:
        shutil.copyfileobj(packed, to)
    return library


def build_shim(library: Path, cache: Path) -> BuildArtifact:
    """Build both stages for the library and for the torch of this interpreter, as `patchkit native build` does."""
    version = SPECIFIER.removeprefix("==")
    rows = entry_points(read_symbols(CHECKOUT / "native"), DISTRIBUTION, version)
    found = read_library(library, {row.symbol for row in rows})
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        raise SystemExit("no torch in this interpreter")
    request = BuildRequest(
        native=CHECKOUT / "native",
        rows=tuple(row for row in rows if any(row.symbol == export.symbol for export in found.exports)),
        libraries=(found,),
        torch=read_torch(Path(torch.origin).parent),
        toolchain=find_toolchain(),
    )
    return build(request, cache, on_start=lambda: print("compiling the shim", flush=True))


def build_replacement(work: Path) -> Path:
    """Compile the kernel that the mode `replace` calls."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise SystemExit("nvcc is not on the PATH")
    include = f"-I{CHECKOUT / 'native' / 'include'}"
    source = str(CHECKOUT / "tests" / "native" / "programs" / "replacement.cpp")
    output = work / "libreplacement.so"
    compile_with((nvcc, *_NVCC, "-x", "cu", "-Xcompiler", "-fPIC", include, "-o", str(output), source), work)
    return output


def run_children(artifact: BuildArtifact, library: Path, replacement: Path, work: Path) -> dict[str, Any]:
    """Run the processes, those without the shim and those with it in turn."""
    plan = plan_launch(artifact, Settings(), programs=(Path(sys.executable),), surroundings={}, replacement=replacement)
    segments = work / "segments"
    segments.mkdir()
    below = {**launch_environment(plan, os.environ), "PATCHKIT_SHIM_DIRECTORY": str(segments)}
    seen: dict[str, Any] = {"plain": _child("plain", library, os.environ), "shim": _child("shim", library, below)}
    seen["cost"] = {"without": [], "with": []}
    for _ in range(ROUNDS):
        seen["cost"]["without"].append(_child("cost", library, os.environ)["ns"])
        seen["cost"]["with"].append(_child("cost", library, below)["ns"])
    return seen


def _child(what: str, library: Path, environment: Any) -> dict[str, Any]:
    command = [sys.executable, *INSIDE, what, str(library)]
    done = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    print(f"{what}: status {done.returncode}", flush=True)
    if done.stderr:
        print(done.stderr[-3000:], file=sys.stderr, flush=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**document, "said": done.stderr.splitlines()}


def proof(seen: dict[str, Any], artifact: BuildArtifact) -> dict[str, Any]:
    """Judge what was seen; the keys of patchkit/native/proved.json."""
    from patchkit.attention.device import device_facts

    facts = device_facts("cuda")
    modes, digests = seen["shim"]["modes"], seen["plain"]["digests"]
    counting = modes["count"]
    expected = {
        "off": "as called",
        "count": "as called",
        "trace": "as called",
        "transform, qk_scale": "half the scale",
        "transform, window": "window",
    }
    eager = {name: modes[name]["eager_digest"] == digests[what] for name, what in expected.items()}
    replayed = {name: modes[name]["replayed_digest"] == digests[what] for name, what in expected.items()}
    rows = seen["calls"]["rows"]
    return {
        "schema": 1,
        "device": facts["device"],
        "driver": facts["driver_version"],
        "torch": seen["shim"]["torch"],
        "cuda": facts["cuda"],
        "engine": f"{DISTRIBUTION}{SPECIFIER}",
        "entry_point": artifact.rows[0].name,
        "symbol": artifact.rows[0].symbol,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": COMMAND,
        "eager_calls": counting["eager_calls"],
        "captured_calls": counting["captured_calls"],
        "replays": counting["replays"],
        "counted": sum(counting["counted"]),
        "outputs_identical": all(eager.values()),
        "replay_works": all(replayed.values()),
        "ns_per_call": round(min(one["without"] for one in seen["cost"]["without"])),
        "ns_per_call_added": round(rows["count, typed stage 2 bound"]["above"], 2),
        "ns_per_traced_call_added": round(rows["trace"]["above"], 2),
        "cuda_graph_safe": all(replayed.values()) and is_safe_while_capturing(seen),
    }


def is_safe_while_capturing(seen: dict[str, Any]) -> bool:
    """Tell whether every mode captured without more memory than the library takes itself, and compared nothing."""
    own = seen["plain"]["allocations_in_capture"]
    for mode in seen["shim"]["modes"].values():
        _, compared, differed = mode["replace"][1]
        if compared or differed or any(a > b for a, b in zip(mode["allocations_in_capture"], own, strict=True)):
            return False
    return all(seen["shim"]["kept"].values())


if __name__ == "__main__":
    sys.exit(main())
