"""The shim in the engines' tests: built by the command, put into a process's environment, told and read back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.native.segment import Record, Segment
from tests.blackbox.command import patchkit
from tests.engines.driver import Engine
from tests.engines.recipe import cache_root, python_of


@dataclass(frozen=True, kw_only=True)
class Shim:
    """What brings the shim into a process. `segments` is where the processes count."""

    variables: Mapping[str, str]
    segments: Path

    def status(self) -> list[dict[str, Any]]:
        """Return what `native status` says of the processes, those that were called most first."""
        said = patchkit("native", "status", "--json", PATCHKIT_SHIM_DIRECTORY=str(self.segments))
        processes: list[dict[str, Any]] = said.report["processes"]
        return sorted(processes, key=calls_of, reverse=True)

    def set(self, *words: str) -> None:
        """Tell every process that runs, with `native set`."""
        told = patchkit("native", "set", *words, seconds=60, PATCHKIT_SHIM_DIRECTORY=str(self.segments))
        assert told.status == 0, told.said

    def records(self) -> list[Record]:
        """Return the records of the one process that was called; none may be lost."""
        [path] = [path for path in self.segments.iterdir() if Segment(path).counted().calls]
        segment = Segment(path)
        records = list(segment.records())
        assert segment.lost == 0
        segment.close()
        return records


@dataclass(frozen=True, kw_only=True)
class Shimmed(Engine):
    """An engine whose processes start with the shim."""

    shim: Shim

    def environment(self) -> dict[str, str]:
        own, variables = super().environment(), self.shim.variables
        paths = [part.get("PYTHONPATH") for part in (variables, own)]
        return {**own, **variables, "PYTHONPATH": ":".join(path for path in paths if path)}


def build_shim(tree: Path, python: Path, segments: Path, *options: str) -> Shim:
    """Build the shim for a tree with the real command; what was built before is kept."""
    segments.mkdir(parents=True, exist_ok=True)
    asked = ("--target", "vllm", "--root", tree, "--python", python, *options)
    cache = str(cache_root() / "native")
    said = patchkit("native", "env", *asked, seconds=600, PATCHKIT_NATIVE=cache, LD_PRELOAD="", PYTHONPATH="")
    assert said.status == 0, said.said
    words = [shlex.split(line) for line in said.out.splitlines()]
    variables = dict(pair.split("=", 1) for _, pair in words)
    return Shim(variables={**variables, "PATCHKIT_SHIM_DIRECTORY": str(segments)}, segments=segments)


def with_shim(engine: Engine, segments: Path, *options: str) -> Shimmed:
    """Return an engine of vLLM with the shim."""
    shim = build_shim(engine.tree, python_of(engine.recipe), segments, *options)
    return Shimmed(recipe=engine.recipe, tree=engine.tree, work=engine.work, one_process=engine.one_process, shim=shim)


def host_library() -> Path:
    """Build the project's own library with the real command; it is another kernel for the mode replace."""
    cache = str(cache_root() / "native")
    built = patchkit("native", "build", "--target", "host", "--json", seconds=600, PATCHKIT_NATIVE=cache)
    return Path(built.report["stage1"]).with_name("libpatchkit-host.so")


def calls_of(process: Mapping[str, Any]) -> int:
    """Return the calls of all entry points of a process."""
    return sum(int(one["calls"]) for one in process["entry_points"])
