"""Measures patchkit beside its peers: `make bench`, or `python -m benchmarks.run [options] [SCENARIO ...]`.

All contenders of a scenario take turns in one run, each on a fresh copy of the tree that is made, and flushed, outside
the measurement. Before a number counts, the contender's tree is compared with the reference's (git's). CPU is user and
system time of the command with its children. The table goes to stdout, everything to a JSON file as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.abi import abi_check, abi_matrix
from benchmarks.measure import Run, Summary, machine, run, summarize, tool_version
from benchmarks.scenarios import CHECKOUT, Contender, Scenario, UnavailableError, patchkit
from benchmarks.scenarios import SCENARIOS as PATCHING

# What a tool leaves behind for itself. A RECORD is patchkit's to keep right; the others know nothing of it.
OWN = re.compile(r"(^|/)(\.patchkit|\.pc)(/|$)|\.orig$|\.rej$|\.dist-info/RECORD$")
PEERS = ("git", "patch", "quilt", "nm", "abidw")
SCENARIOS = {**PATCHING, "abi-check": abi_check, "abi-matrix": abi_matrix}
_GET_FLAGS, _SET_FLAGS, _TOP_DIRECTORY = 0x80086601, 0x40086602, 0x00020000  # linux/fs.h, for a long of 8 bytes
DOCS = CHECKOUT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


class WrongResultError(Exception):
    """A contender failed, or made another tree than the reference."""


def main() -> int:
    """Run the scenarios that the command line names; 1 when patchkit is over a limit or failed."""
    options = _options()
    os.environ.update(GIT_CEILING_DIRECTORIES=tempfile.gettempdir(), GIT_CONFIG_NOSYSTEM="1", LC_ALL="C.UTF-8")
    os.environ["PYTHONPATH"] = str(CHECKOUT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed command has its bytecode
    report: dict[str, Any] = {"schema": 1, "machine": machine(), "versions": _versions(), "scenarios": {}}
    print(report["machine"])
    print("; ".join(report["versions"].values()), flush=True)
    good = True
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as scratch:
        for name in options.scenario or SCENARIOS:
            place = Path(scratch, name)
            place.mkdir()
            _spread(place)
            good = _run_scenario(name, place, options.runs, report) and good
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.docs:
        _write_docs(report)
    return 0 if good else 1


def _run_scenario(name: str, place: Path, runs: int, report: dict[str, Any]) -> bool:
    """Measure a scenario, print its table and add it to the report; False when patchkit is over a limit or failed."""
    try:
        scenario = SCENARIOS[name](place / "made")
        summaries = _measure(scenario, place, runs)
    except (UnavailableError, WrongResultError, subprocess.CalledProcessError) as error:
        print(f"\n{name}: not measured: {error}", flush=True)
        return isinstance(error, UnavailableError)
    missed = _missed(scenario, summaries)
    _print(scenario, summaries, missed)
    report["scenarios"][name] = {
        "what": scenario.what,
        "missed": missed,
        "contenders": {contender: dataclasses.asdict(summary) for contender, summary in summaries.items()},
    }
    return not missed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("scenario", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)} (default: all)")
    parser.add_argument("--runs", type=int, default=9, help="of each contender; the median is shown (default: 9)")
    parser.add_argument("--json", type=Path, default=CHECKOUT / "benchmarks" / "out" / "bench.json")
    parser.add_argument("--docs", action="store_true", help="write the figures into docs/benchmarks.md")
    options = parser.parse_args()
    if unknown := [name for name in options.scenario if name not in SCENARIOS]:
        parser.error(f"no such scenario: {', '.join(unknown)}")
    return options


def _write_docs(report: Mapping[str, Any]) -> None:
    """Replace what stands between the two marks of the page by the figures of this run."""
    rows = ["| scenario | tool | CPU ms | min..max | wall ms | RSS MiB |", "|---|---|---:|---:|---:|---:|"]
    for scenario in report["scenarios"].values():
        for name, took in scenario["contenders"].items():
            spread = f"{took['cpu_min']:.0f}..{took['cpu_max']:.0f}"
            cells = (scenario["what"], name, f"{took['cpu']:.0f}", spread, f"{took['wall']:.0f}", f"{took['rss']:.0f}")
            rows.append(f"| {' | '.join(cells)} |")
    text = "\n".join([f"{report['machine']}; {'; '.join(report['versions'].values())}.", "", *rows])
    before, _, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def _versions() -> dict[str, str]:
    said = subprocess.run(["sh", "-c", f"{patchkit()} --version"], capture_output=True, text=True, check=False).stdout
    versions = {"patchkit": said.strip()}
    for tool in PEERS:
        version = tool_version(tool)
        versions[tool] = version if tool in version.lower() else f"{tool} {version or 'is not installed'}"
    return versions


def _measure(scenario: Scenario, scratch: Path, runs: int) -> dict[str, Summary]:
    """Let the contenders take turns; a peer that is not installed is left out.

    ext4 passes over inodes that were freed within the last minutes one by one, so that after a few thousand deletions
    every new file costs several times what it costs a user, git's and quilt's own deletions included. So the copies
    stay until all scenarios are through, and do not lie side by side.
    """
    contenders = [contender for contender in scenario.contenders if _is_installed(contender)]
    contenders.sort(key=lambda contender: not contender.reference)
    taken: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    wanted: dict[str, bytes] | None = None
    for turn in range(runs):
        for contender in contenders:
            box = scratch / f"box-{turn}-{contenders.index(contender)}"
            _copy(scenario.tree, box)
            one = run(["sh", "-c", contender.command], directory=box, log=scratch / "log")
            if one.status:
                said = (scratch / "log").read_text(errors="replace").strip()
                raise WrongResultError(f"{contender.name} ended with {one.status}:\n{said[-2000:]}")
            if turn == 0 and scenario.tree:
                made = _changed(scenario.tree, box)
                wanted = made if wanted is None else wanted
                _compare(contender.name, made, wanted)
            taken[contender.name].append(one)
    return {
        contender.name: summarize(taken[contender.name])
        for contender in scenario.contenders
        if taken.get(contender.name)
    }


def _is_installed(contender: Contender) -> bool:
    tool = contender.name.split()[0]
    return tool not in PEERS or shutil.which(tool) is not None


def _copy(tree: Path | None, box: Path) -> None:
    if tree is None:
        box.mkdir()
        return
    subprocess.run(["cp", "-a", str(tree), str(box)], check=True)
    os.sync()


def _spread(place: Path) -> None:
    """Have each directory made in a place put its files into inodes of its own, as `chattr +T` does; only ext4 can."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flags = bytearray(struct.calcsize("l"))
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", struct.unpack("l", flags)[0] | _TOP_DIRECTORY))
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(descriptor)


def _changed(tree: Path, box: Path) -> dict[str, bytes]:
    """Return the files of the box that differ from the tree's; files that are gone as b"gone"."""
    changed: dict[str, bytes] = {}
    for base, _, names in os.walk(box):
        for name in names:
            path = Path(base, name)
            key = path.relative_to(box).as_posix()
            if OWN.search(key):
                continue
            content, old = path.read_bytes(), tree / key
            if not old.is_file() or old.read_bytes() != content:
                changed[key] = content
    for base, _, names in os.walk(tree):
        for name in names:
            key = Path(base, name).relative_to(tree).as_posix()
            if not (box / key).is_file():
                changed[key] = b"gone"
    return changed


def _compare(name: str, made: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> None:
    if not wanted:
        raise WrongResultError(f"{name} changed nothing")
    different = sorted(key for key in {*made, *wanted} if made.get(key) != wanted.get(key))
    if different:
        raise WrongResultError(f"{name} made another tree than the reference: {', '.join(different[:5])}")


def _missed(scenario: Scenario, summaries: Mapping[str, Summary]) -> list[str]:
    """Say which limits patchkit is over."""
    ours = summaries["patchkit"]
    missed = []
    if scenario.cpu_limit and ours.cpu > scenario.cpu_limit:
        missed.append(f"{ours.cpu:.0f} ms of CPU, wanted {scenario.cpu_limit:.0f}")
    if scenario.rss_limit and ours.rss > scenario.rss_limit:
        missed.append(f"{ours.rss:.0f} MiB, wanted {scenario.rss_limit:.0f}")
    missed += [
        f"{ours.cpu:.0f} ms of CPU, {rival} takes {summaries[rival].cpu:.0f}"
        for rival in scenario.rivals
        if rival in summaries and ours.cpu >= summaries[rival].cpu
    ]
    return missed


def _print(scenario: Scenario, summaries: Mapping[str, Summary], missed: list[str]) -> None:
    print(f"\n{scenario.name}: {scenario.what}")
    print(f"  {'':20} {'CPU ms':>8} {'min..max':>13} {'wall ms':>9} {'min':>7} {'RSS MiB':>8} {'runs':>5}")
    for name, took in summaries.items():
        spread = f"{took.cpu_min:.0f}..{took.cpu_max:.0f}"
        print(f"  {name:20} {took.cpu:8.0f} {spread:>13} {took.wall:9.0f} ", end="")
        print(f"{took.wall_min:7.0f} {took.rss:8.0f} {took.runs:5}")
    for line in missed:
        print(f"  OVER: {line}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
