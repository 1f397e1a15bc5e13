"""The table in the documentation and the rows of measured.py are made from records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.attention_table import RESULTS, markdown, measurements, read_records
from patchkit.attention.bench import BenchResult
from patchkit.attention.report import write_records
from patchkit.attention.timing import Timing
from patchkit.attention.workload import GPU
from patchkit.runtime.attention.measured import MEASURED
from patchkit.runtime.attention.registry import FAMILIES, Measurement

DOCS = RESULTS.parent.parent / "docs"


def results() -> list[BenchResult]:
    return [
        BenchResult(
            workload=GPU[0].name,
            step="forward",
            kernel=kernel,
            yardstick=kernel == "flex",
            timing=Timing(median=median, low=0.9 * median, high=1.1 * median, calls=9),
            teraflops=200.0,
            error=2e-3,
        )
        for kernel, median in (("flex", 1.25), ("ours", 0.75))
    ]


def _rows(records: list[dict[str, Any]]) -> list[Measurement]:
    text = "\n".join(["(", *measurements(records), ")"])
    rows: tuple[Measurement, ...] = eval(text, {"Measurement": Measurement})  # noqa: S307 -- what we just wrote
    return list(rows)


def test_a_record_becomes_rows(tmp_path: Path) -> None:
    write_records(results(), {"device": "NVIDIA H200", "cuda": "13.0"}, "patchkit attention bench", tmp_path)
    records = read_records(tmp_path)
    assert list(markdown(records))[2:] == [
        "| prefill 32k, D 128 | **ours** | 0.75 (0.675 to 0.825) | 200 | 2.0e-03 |  |",
        "|  | flex | 1.25 (1.125 to 1.375) | 200 | 2.0e-03 |  |",
    ]
    rows = _rows(records)
    assert [(row.kernel, row.milliseconds, row.max_key, row.dense) for row in rows] == [
        ("flex", 1.25, 32768, False),
        ("ours", 0.75, 32768, False),
    ]


def test_measurements_of_a_cpu_choose_nothing(tmp_path: Path) -> None:
    write_records(results(), {"device": "x86_64"}, "patchkit attention bench", tmp_path)
    assert list(measurements(read_records(tmp_path))) == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"schema": 2}')
    with pytest.raises(ValueError, match="no record"):
        read_records(tmp_path)


def test_the_kernels_are_chosen_by_the_records_that_are_kept() -> None:
    assert sorted(_rows(read_records(RESULTS)), key=repr) == sorted(MEASURED, key=repr)


def test_the_table_in_the_documentation_is_that_of_the_records() -> None:
    assert "\n".join(["", *markdown(read_records(RESULTS)), ""]) in (DOCS / "attention-kernels.md").read_text()


def test_the_table_has_the_short_before_the_long_and_the_backward_last() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in markdown(read_records(RESULTS))]
    assert [name for name in rows[2:] if name.strip("| ")] == [
        "prefill 16k, D 128",
        "prefill 32k, D 128",
        "prefill 64k, D 128",
        "prefill 128k, D 128",
        "prefill 32k, D 64",
        "dense 32k, D 128",
        "dense 8 x 2k, D 64",
        "decode 56 x 32k, page 16",
        "draft 8 x 4 of 32k, page 16",
        "draft 56 x 4 of 32k, page 16",
        "draft 56 x 8 of 32k, page 16",
        "chunk 8 x 2k of 32k, page 16",
        "prefill 32k, D 128, backward",
    ]


def test_the_documentation_names_every_family_in_order() -> None:
    after = (DOCS / "attention.md").read_text().partition("| family | what |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [line.split("`")[1] for line in after.splitlines()]
    assert named == [family for family, _ in FAMILIES]
