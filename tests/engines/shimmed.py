"""The shim in the engines' tests: built by the command, put into an engine's environment, read back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.blackbox.command import patchkit
from tests.engines.driver import Engine
from tests.engines.recipe import cache_root, python_of


@dataclass(frozen=True, kw_only=True)
class Shimmed(Engine):
    """An engine whose processes start with the shim. `segments` is where they count."""

    variables: Mapping[str, str] = field(default_factory=dict)
    segments: Path = Path()

    def environment(self) -> dict[str, str]:
        own = super().environment()
        paths = [part.get("PYTHONPATH") for part in (self.variables, own)]
        return {**own, **self.variables, "PYTHONPATH": ":".join(path for path in paths if path)}

    def status(self) -> list[dict[str, Any]]:
        """Return what `native status` says of the processes, those that were called first."""
        said = patchkit("native", "status", "--json", PATCHKIT_SHIM_DIRECTORY=str(self.segments))
        processes: list[dict[str, Any]] = said.report["processes"]
        return sorted(processes, key=calls_of, reverse=True)


def with_shim(engine: Engine, segments: Path, *options: str) -> Shimmed:
    """Build the shim for an engine with the real command, and return the engine with it."""
    segments.mkdir(parents=True, exist_ok=True)
    asked = ("--target", engine.recipe.engine, "--root", engine.tree, "--python", python_of(engine.recipe), *options)
    cache = cache_root() / "native"
    said = patchkit("native", "env", *asked, seconds=600, PATCHKIT_NATIVE=str(cache), LD_PRELOAD="", PYTHONPATH="")
    assert said.status == 0, said.said
    words = [shlex.split(line) for line in said.out.splitlines()]
    variables = dict(pair.split("=", 1) for _, pair in words)
    return Shimmed(
        recipe=engine.recipe,
        tree=engine.tree,
        work=engine.work,
        one_process=engine.one_process,
        variables={**variables, "PATCHKIT_SHIM_DIRECTORY": str(segments)},
        segments=segments,
    )


def host_library(directory: Path) -> Path:
    """Build the project's own library with the real command; it is another kernel for the mode replace."""
    built = patchkit("native", "build", "--target", "host", "--json", PATCHKIT_NATIVE=str(directory))
    return Path(built.report["stage1"]).with_name("libpatchkit-host.so")


def calls_of(process: Mapping[str, Any]) -> int:
    """Return the calls of all entry points of a process."""
    return sum(int(one["calls"]) for one in process["entry_points"])
