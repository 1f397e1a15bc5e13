"""What was proved on a GPU: patchkit/native/proved.json says what records in benchmarks/results/ say, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from patchkit.native.symbols import HOOKS, read_symbols
from patchkit.resources import native_directory

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PROVED: list[dict[str, Any]] = json.loads((CHECKOUT / "patchkit" / "native" / "proved.json").read_text())
RECORDS = sorted((CHECKOUT / "benchmarks" / "results").glob("*-shim-*.json"))


def test_what_is_proved_is_what_was_recorded() -> None:
    recorded = [json.loads(path.read_text()) for path in RECORDS]
    assert [{key: value for key, value in record.items() if key != "seen"} for record in recorded] == PROVED


@pytest.mark.parametrize("proved", PROVED, ids=lambda proved: str(proved["entry_point"]))
def test_what_is_proved_is_an_entry_point_of_ours(proved: dict[str, Any]) -> None:
    assert proved["schema"] == 1
    assert proved["entry_point"] in HOOKS
    assert proved["symbol"] in {row.symbol for row in read_symbols(native_directory())}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_summary_follows_from_what_was_seen(path: Path) -> None:
    record = json.loads(path.read_text())
    modes, plain = record["seen"]["shim"]["modes"], record["seen"]["plain"]
    eager, captured, replayed = modes["count"]["counted"]
    assert (eager, captured, replayed) == (record["eager_calls"], record["captured_calls"], 0)
    assert record["counted"] == eager + captured
    for name in ("off", "count", "trace"):
        assert modes[name]["eager_digest"] == modes[name]["replayed_digest"] == plain["digests"]["as called"]
    for mode in modes.values():
        assert mode["replace"][1][1] == 0, "compared while capturing"
        pairs = zip(mode["allocations_in_capture"], plain["allocations_in_capture"], strict=True)
        assert all(ours <= theirs for ours, theirs in pairs)
