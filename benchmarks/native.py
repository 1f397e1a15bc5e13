"""ns per call through the shim, beside a direct call through the PLT: `python -m benchmarks.native [--rounds N]`.

The function that is called does nothing, so that all that is measured is the way to it. Each round is a process of its
own, which takes the least of many batches; the rows take turns, and the least of all rounds is judged. Exit status 1: a
row is over its limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from patchkit.native.settings import Settings
from tests.native.workshop import Workshop, environment

CHECKOUT = Path(__file__).resolve().parent.parent

ROWS: dict[str, tuple[Settings | None, bool, float]] = {
    "direct, through the PLT": (None, False, 0.0),
    "off": (Settings(mode="off"), True, 0.0),
    "count, stage 1 alone": (Settings(), False, 1.0),
    "count, typed stage 2 bound": (Settings(), True, 1.0),
    "trace": (Settings(mode="trace"), True, 58.0),
}
"""Settings (None: no shim), whether stage 2 is there, and how many ns it may be above the direct call (0: no limit).

The limits come from a machine on which a direct call takes 2 ns: 3, 3 and 60 ns in all.
"""

_START_RUNS = 200


def main() -> int:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.native", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="processes of each row; the least counts (default: 9)")
    parser.add_argument("--json", type=Path, default=CHECKOUT / "benchmarks" / "out" / "native.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        report = measure(Workshop(directory=Path(scratch)), options.rounds)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{report['machine']}\n\n  {'':38} {'least ns':>9} {'above direct':>13} {'limit':>6}")
    for name, row in report["rows"].items():
        limit = f"{row['limit']:.0f}" if row["limit"] else ""
        print(f"  {name:38} {row['least']:9.2f} {row['above']:13.2f} {limit:>6}")
    for name, took in report["starts"].items():
        print(f"  {name:38} {took:9.2f} ms")
    over = [name for name, row in report["rows"].items() if row["limit"] and row["above"] > row["limit"]]
    for name in over:
        print(f"  OVER: {name}")
    return 1 if over else 0


def measure(workshop: Workshop, rounds: int) -> dict[str, Any]:
    """Return the least time of a call, how much that is above a direct one, ns, and what a start costs, ms."""
    workshop.library("libempty.so", "empty.c")
    program = workshop.compile("nanoseconds", "nanoseconds.c", "-lempty")
    shim, segments = workshop.host_shim(), workshop.directory / "segments"
    segments.mkdir()
    taken: dict[str, list[float]] = {name: [] for name in ROWS}
    for _ in range(rounds):
        for name, (settings, typed, _) in ROWS.items():
            artifact = None if settings is None else shim
            variables = {} if typed else {"PATCHKIT_SHIM_STAGE2": ""}
            seen = environment([program], segments, artifact, settings, variables)
            done = subprocess.run([str(program), "200"], env=seen, capture_output=True, text=True, check=True)
            taken[name].append(float(done.stdout.split()[1]))
    rows = {
        name: {"least": min(found), "above": min(found) - min(next(iter(taken.values()))), "limit": ROWS[name][2]}
        for name, found in taken.items()
    }
    return {"machine": machine(), "rounds": rounds, "rows": rows, "starts": _starts(str(shim.stage1))}


def _starts(stage1: str) -> Mapping[str, float]:
    """Return what /bin/true takes without and under the preload, the median of many, in turn."""
    import time

    taken: dict[str, list[float]] = {"/bin/true": [], "/bin/true under the preload": []}
    for _ in range(_START_RUNS):
        for name, variables in zip(taken, ({}, {"LD_PRELOAD": stage1, "PATCHKIT_SHIM": "/nowhere"}), strict=True):
            began = time.perf_counter()
            subprocess.run(["/bin/true"], env=variables, check=True)
            taken[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(found) for name, found in taken.items()}


if __name__ == "__main__":
    sys.exit(main())
