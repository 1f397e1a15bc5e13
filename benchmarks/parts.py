"""The parts of a measurement, one after the other: one that fails, or takes its process with it, loses no other.

They share a process, so that what is loaded and compiled is there for all. Each that has ended is a line of
`parts.jsonl`, written at once: a run that is cut short shows how far it came.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LOG = "parts.jsonl"
_BETWEEN_PARTS = 75  # status of a process that wants to be started again for what is left

Part = Callable[[Path], str]
"""Measures, writes its record into a directory, and returns what was wrong, "" for nothing."""


def run_parts(names: Sequence[str], command: Sequence[str], directory: Path) -> int:
    """Have `command NAME...` work through the parts, and again for what is left where it died; 1 where one failed."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / LOG).unlink(missing_ok=True)
    left = list(names)
    while left:
        status = subprocess.run([*command, *left], check=False).returncode
        left = [name for name in left if name not in _ended(directory)]
        if left and status != _BETWEEN_PARTS:
            _note(directory, left[0], f"its process ended with status {status}", 0.0)
            left = left[1:]
    ended = _ended(directory)
    failed = [name for name in names if ended[name]]
    print(f"{len(names) - len(failed)} of {len(names)} parts done, records in {directory}")
    for name in failed:
        print(f"  {name}: {ended[name]}")
    return 1 if failed else 0


def work(parts: Mapping[str, Part], names: Sequence[str], directory: Path, *, is_usable: Callable[[], bool]) -> int:
    """Work through parts; after one that failed, go on only where `is_usable`: an error of a GPU may stay."""
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", flush=True)
        begun = time.monotonic()
        try:
            fault = parts[name](directory)
        except Exception as error:  # noqa: BLE001 -- whatever a part raises is its fault, and is in the log
            traceback.print_exc()
            fault = f"{type(error).__name__}: {(str(error) or type(error).__name__).splitlines()[0]}"
        _note(directory, name, fault, time.monotonic() - begun)
        if fault and not is_usable():
            return _BETWEEN_PARTS
    return 0


def _note(directory: Path, name: str, fault: str, seconds: float) -> None:
    with (directory / LOG).open("a") as log:
        log.write(json.dumps({"part": name, "fault": fault, "seconds": round(seconds, 1)}) + "\n")
    print(f"  {fault or 'done'}, {seconds:.1f} s", file=sys.stderr if fault else sys.stdout, flush=True)


def _ended(directory: Path) -> dict[str, str]:
    """Return the fault of every part that has ended."""
    log = directory / LOG
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    return {line["part"]: line["fault"] for line in lines}
