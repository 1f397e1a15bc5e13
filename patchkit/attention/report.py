"""What was measured: as a table for people, as a document, and as a record per workload in a directory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from patchkit.attention.bench import BenchResult
from patchkit.attention.workload import CPU, GPU, shape_document
from patchkit.counting import counted
from patchkit.pattern import compile_lazily

SCHEMA = 1
_NO_NAME = compile_lazily(r"[^a-z0-9]+")


def bench_document(results: Sequence[BenchResult], facts: dict[str, object], command: str) -> dict[str, object]:
    """Return results for JSON, with the device and the command."""
    return {
        "schema": SCHEMA,
        "command": command,
        "device": facts,
        "results": [_result_document(result) for result in results],
    }


def _result_document(result: BenchResult) -> dict[str, object]:
    timing = result.timing
    return {
        "workload": result.workload,
        "step": result.step,
        "kernel": result.kernel,
        "yardstick": result.yardstick,
        "refusal": result.refusal,
        "fault": result.fault,
        "error": result.error if math.isfinite(result.error) else None,
        "milliseconds": None if timing is None else round(timing.median, 5),
        "tenth_percentile": None if timing is None else round(timing.low, 5),
        "ninetieth_percentile": None if timing is None else round(timing.high, 5),
        "calls": 0 if timing is None else timing.calls,
        "teraflops": round(result.teraflops, 2),
        "computed_ratio": result.computed_ratio,
    }


def table(results: Sequence[BenchResult]) -> Iterator[tuple[str, str]]:
    """Yield (line, style): a head line per workload, its kernels from the fastest on, then who was wrong or refused."""
    for workload in dict.fromkeys(result.workload for result in results):
        yield workload, "head"
        mine = [result for result in results if result.workload == workload]
        timed = sorted((one for one in mine if one.timing), key=lambda one: one.timing.median if one.timing else 0.0)
        for result in timed:
            yield _timed_line(result), ""
        for result in mine:
            if result.fault:
                yield f"  {result.kernel}: wrong, not timed: {result.fault}", "bad"
        for result in mine:
            if result.refusal:
                yield f"  {result.kernel}: {result.refusal}", "dim"


def _timed_line(result: BenchResult) -> str:
    timing = result.timing
    if timing is None:
        return ""
    spread = f"{timing.low:.4g} to {timing.high:.4g}"
    ratio = "" if result.computed_ratio is None else f", computes {result.computed_ratio:.2f} x what is seen"
    return (
        f"  {result.kernel:<20} {timing.median:10.4g} ms ({spread}, {counted(timing.calls, 'call')}), "
        f"{result.teraflops:.4g} TFLOP/s, error {result.error:.2e}{ratio}"
    )


def write_records(
    results: Sequence[BenchResult], facts: dict[str, object], command: str, directory: Path
) -> list[Path]:
    """Write a record per workload, named after device and workload; a record that is there is replaced."""
    import json

    written = []
    for workload in dict.fromkeys(result.workload for result in results):
        mine = [result for result in results if result.workload == workload]
        path = record_path(facts, workload, directory)
        shapes = [shape_document(one) for one in (*GPU, *CPU) if one.name == workload]
        document = {
            **bench_document(mine, facts, command),
            "workload": workload,
            "shape": shapes[0] if shapes else None,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
        written.append(path)
    return written


def record_path(facts: dict[str, object], name: str, directory: Path) -> Path:
    """Return the file of a record, named after the device and what it is of, in a directory that is made."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{_slug(str(facts['device']))}-{_slug(name)}.json"


def _slug(name: str) -> str:
    return _NO_NAME.sub("-", name.lower()).strip("-")
