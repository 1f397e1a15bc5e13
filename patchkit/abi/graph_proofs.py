"""What was proved about CUDA graphs by running an entry point on a GPU: `proved.json` of native, written there.

A JSON list of records, each with `schema: 1`; an entry point that nobody ran has none. Nothing is concluded from code:
whether a call can be captured and replayed shows only when it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from patchkit.abi.facts import ObjectFacts, WheelFacts
from patchkit.errors import ObjectFormatError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

SCHEMA = 1
SAFE, UNSAFE, NOT_RUN = "safe", "unsafe", "not run"
_DATE = compile_lazily(r"\d{4}-\d{2}-\d{2}")
_TEXTS = ("device", "torch", "engine", "entry_point", "date")
_FLAGS = ("outputs_identical", "replay_works", "cuda_graph_safe")


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphProof:
    """One run: `engine` as pip writes it, `date` of the run, and what came out.

    `entry_point` is the shim's name for it, `symbol` the mangled one, "" where the record has none. `counted` are the
    calls that the shim saw of the `eager_calls` and `captured_calls` that were made.
    """

    device: str
    torch: str
    engine: str
    entry_point: str
    date: str
    eager_calls: int
    captured_calls: int
    counted: int
    outputs_identical: bool
    replay_works: bool
    cuda_graph_safe: bool
    symbol: str = ""

    @property
    def verdict(self) -> str:
        """`safe` or `unsafe`."""
        return SAFE if self.cuda_graph_safe else UNSAFE

    @property
    def words(self) -> str:
        """Say it in one line."""
        where = f"{self.date}, {self.device}, torch {self.torch}"
        reasons = [
            words
            for holds, words in (
                (self.outputs_identical, "outputs differ"),
                (self.replay_works, "the replay does not work"),
            )
            if not holds
        ]
        why = f": {', '.join(reasons)}" if reasons else ""
        return f"{self.engine} {self.entry_point}: {self.verdict} in CUDA graphs{why} ({where})"


def read_proofs(path: Path) -> tuple[GraphProof, ...]:
    """Read the records, none where the file is not there: then nothing was run. ObjectFormatError when damaged."""
    if not path.exists():
        return ()
    try:
        document = json.loads(path.read_bytes())
        if not isinstance(document, list):
            raise TypeError(f"it is not a list of records but {type(document).__name__}")
        return tuple(map(_proof, document))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ObjectFormatError(
            f"{path.name}: not records of CUDA graph runs that can be read",
            why=f"  {error}",
            hint="install patchkit-engines again",
        ) from error


def proofs_of(facts: ObjectFacts, wheel: WheelFacts, proofs: Iterable[GraphProof]) -> tuple[GraphProof, ...]:
    """Return the runs of entry points that a shared object of a wheel exports."""
    return tuple(one for one in proofs if one.engine == wheel.title and _is_exported(one, facts))


def graph_cell(proofs: Sequence[GraphProof]) -> tuple[str, str]:
    """Return the verdict over the runs of one shared object and the day of the latest that decides it, "" for none."""
    deciding = [one for one in proofs if not one.cuda_graph_safe] or proofs
    if not deciding:
        return NOT_RUN, ""
    return deciding[0].verdict, max(one.date for one in deciding)


def _is_exported(proof: GraphProof, facts: ObjectFacts) -> bool:
    """Tell whether an entry point is among the exports: by its symbol, else by its name as that of a function."""
    if proof.symbol:
        return proof.symbol in facts.exports
    within = f"_Z{len(proof.entry_point)}{proof.entry_point}"
    return any(name == proof.entry_point or name.startswith(within) for name in facts.exports)


def _proof(record: Any) -> GraphProof:
    if not isinstance(record, Mapping) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, Mapping) else type(record).__name__
        raise ValueError(f"a record is of schema {found!r}, and this is patchkit for schema {SCHEMA}")
    texts = {name: _text(name, record[name]) for name in _TEXTS}
    flags = {name: _flag(name, record[name]) for name in _FLAGS}
    if not _DATE.fullmatch(texts["date"]):
        raise ValueError(f"date: expected YYYY-MM-DD, found {texts['date'][:40]!r}")
    if flags["cuda_graph_safe"] and not flags["replay_works"]:
        raise ValueError(f"{texts['entry_point'][:80]}: said to be safe, though the replay does not work")
    return GraphProof(
        device=texts["device"],
        torch=texts["torch"],
        engine=texts["engine"],
        entry_point=texts["entry_point"],
        date=texts["date"],
        eager_calls=_count("eager_calls", record["eager_calls"]),
        captured_calls=_count("captured_calls", record["captured_calls"]),
        counted=_count("counted", record["counted"]),
        outputs_identical=flags["outputs_identical"],
        replay_works=flags["replay_works"],
        cuda_graph_safe=flags["cuda_graph_safe"],
        symbol=_text("symbol", record["symbol"]) if "symbol" in record else "",
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name}: expected a text, found {value!r}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected true or false, found {value!r}")
    return value


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{name}: expected a number of calls, found {value!r}")
    return value
