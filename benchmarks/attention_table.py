"""The table of docs/attention-kernels.md, and the rows of runtime/attention/measured.py, from the records in
benchmarks/results/.

python -m benchmarks.attention_table            the table, in Markdown
python -m benchmarks.attention_table --python   the rows by which a kernel is chosen
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
SCHEMA = 1
_OTHERS = ("-shim-", "-cost-", "-check-")  # records of something else than a workload's kernels


def read_records(directory: Path) -> list[dict[str, Any]]:
    """Return a directory's records of kernels in the order of their names; ValueError for one of another schema."""
    records = []
    for path in sorted(path for path in directory.glob("*.json") if not any(kind in path.name for kind in _OTHERS)):
        record = json.loads(path.read_text())
        if record.get("schema") != SCHEMA or "shape" not in record:
            raise ValueError(f"{path}: no record of `attention bench`")
        records.append(record)
    return records


def markdown(records: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table: a row per kernel that was timed, ours in bold, the fastest first, after its workload's name."""
    yield "| workload | kernel | ms, median (10 to 90 %) | TFLOP/s | error | computed / visible |"
    yield "|---|---|---|---|---|---|"
    for record in sorted(records, key=_order):
        timed = [one for one in record["results"] if one["milliseconds"] is not None]
        for number, one in enumerate(sorted(timed, key=lambda result: float(result["milliseconds"]))):
            workload = "" if number else record["workload"]
            name = one["kernel"] if one["yardstick"] else f"**{one['kernel']}**"
            spread = f"{one['tenth_percentile']:.4g} to {one['ninetieth_percentile']:.4g}"
            ratio = "" if one["computed_ratio"] is None else f"{one['computed_ratio']:.2f}"
            error = f"{one['error']:.1e}" if one["error"] else "not measured"
            yield (
                f"| {workload} | {name} | {one['milliseconds']:.4g} ({spread}) | {one['teraflops']:.4g} "
                f"| {error} | {ratio} |"
            )


def _order(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return where a workload stands: prefill, dense, paged, backward; the longer and the more sequences the later."""
    shape = record["shape"]
    dense, paged = shape["window"] is None, shape["page_size"] > 0
    return (
        shape["step"] == "backward",
        paged,
        dense,
        -shape["head_dim"],
        shape["max_key"],
        shape["max_query"],
        shape["batch"],
    )


def measurements(records: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a Measurement(...) per timed result of a GPU."""
    for record in records:
        shape = record["shape"]
        if shape is None or "cuda" not in record["device"]:
            continue
        fields = {
            "device": record["device"]["device"],
            "step": shape["step"],
            "dtype": shape["dtype"],
            "head_dim": shape["head_dim"],
            "dense": shape["window"] is None,
            "paged": shape["page_size"] > 0,
            "batch": shape["batch"],
            "max_query": shape["max_query"],
            "max_key": shape["max_key"],
        }
        for one in record["results"]:
            if one["milliseconds"] is not None:
                row = {**fields, "kernel": one["kernel"], "milliseconds": one["milliseconds"]}
                yield f"    Measurement({', '.join(f'{name}={value!r}' for name, value in row.items())}),"


if __name__ == "__main__":
    found = read_records(RESULTS)
    for line in (measurements if "--python" in sys.argv[1:] else markdown)(found):
        print(line)
