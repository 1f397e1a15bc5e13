"""Runs a command and says what it cost: CPU time of it and its children, wall time, largest resident set."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of a command. Times in milliseconds, `rss` in MiB (of the largest process, not their sum)."""

    status: int
    cpu: float
    wall: float
    rss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Median, least and largest of several runs; `rss` is the largest."""

    runs: int
    cpu: float
    cpu_min: float
    cpu_max: float
    wall: float
    wall_min: float
    rss: float


def run(command: Sequence[str], *, directory: Path, log: Path) -> Run:
    """Run a command to its end, its output going to a file.

    The child counts from its fork on, so the caller should be a small process: its own resident set is the least that
    can be seen of the child's.
    """
    with log.open("wb") as output:
        began = time.perf_counter()
        child = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)  # it is waited for: Popen must not try again
    return Run(
        status=child.returncode,
        cpu=1000 * (usage.ru_utime + usage.ru_stime),
        wall=1000 * wall,
        rss=usage.ru_maxrss / 1024,
    )


def summarize(runs: Sequence[Run]) -> Summary:
    """Fold several runs of one command."""
    cpu = [run.cpu for run in runs]
    wall = [run.wall for run in runs]
    return Summary(
        runs=len(runs),
        cpu=statistics.median(cpu),
        cpu_min=min(cpu),
        cpu_max=max(cpu),
        wall=statistics.median(wall),
        wall_min=min(wall),
        rss=max(run.rss for run in runs),
    )


def machine() -> str:
    """Say in one line what the numbers were measured on."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"load {load} at the start"
    )


def tool_version(tool: str) -> str:
    """Return what a tool says of its version, "" when it is not installed."""
    if shutil.which(tool) is None:
        return ""
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    return said[0] if said else ""
