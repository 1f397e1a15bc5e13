"""How an engine is started with the shim: the variables, and what LD_PRELOAD becomes beside what is in it already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from patchkit.errors import RefusedError, UsageError
from patchkit.native.build import STAGE1, BuildArtifact
from patchkit.native.plugin import WAYS
from patchkit.native.program import program_faults
from patchkit.native.settings import Settings, check_dispatched, check_settings, numbers
from patchkit.native.symbols import HOOKS
from patchkit.quoting import typed
from patchkit.record import dataclass

_SEPARATORS = " :\n\t"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """What is set for the engine's process, and which programs the shim will be awake in."""

    variables: tuple[tuple[str, str], ...]
    programs: tuple[str, ...]


def plan_launch(
    artifact: BuildArtifact,
    settings: Settings,
    *,
    programs: tuple[Path, ...],
    surroundings: Mapping[str, str],
    replacement: Path | None,
    way: str = WAYS[0],
) -> LaunchPlan:
    """Return the variables. `programs` are the engine's interpreters, `surroundings` the variables that are set now.

    RefusedError for a path that LD_PRELOAD cannot hold, UsageError for settings that would change nothing, and for a
    `way` that leads nowhere.
    """
    check_settings(settings, artifact.rows, named=Settings.__slots__)
    if way == "dispatcher":
        check_dispatched(settings)
    if settings.mode == "replace" and replacement is None:
        raise UsageError("mode=replace needs a library", hint="--replace LIBRARY: one as attention.h says")
    real = tuple(os.path.realpath(program) for program in programs)
    if faults := [fault for program in programs for fault in program_faults(program)]:
        raise RefusedError(
            "the shim cannot be awake in this program",
            why="\n".join(f"  {fault}" for fault in faults),
            hint="--python EXE and --program EXE name programs themselves, not scripts that start them",
        )
    if any(":" in program for program in real):
        raise RefusedError(f"a colon is in the path of the interpreter: {', '.join(real)}")
    variables = {
        **_way_in(artifact, way, surroundings),
        "PATCHKIT_SHIM": ":".join(dict.fromkeys(real)),
        "PATCHKIT_SHIM_INSIDE": "0",
        "PATCHKIT_SHIM_SETTINGS": ":".join(map(str, numbers(settings))),
    }
    if artifact.stage2 is not None:
        variables["PATCHKIT_SHIM_STAGE2"] = str(artifact.stage2)
    if replacement is not None:
        variables["PATCHKIT_SHIM_REPLACE"] = str(replacement.absolute())
    return LaunchPlan(variables=tuple(variables.items()), programs=real)


def _way_in(artifact: BuildArtifact, way: str, surroundings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that bring stage 1 into the engine."""
    if way == "preload":
        return {"LD_PRELOAD": compose_preload(surroundings.get("LD_PRELOAD", ""), artifact.stage1)}
    if any(row.engine != "vllm" for row in artifact.rows):
        raise UsageError(
            f"--way {way} is a plugin of vLLM", why="  no other engine loads plugins", hint="--way preload"
        )
    others = [part for part in surroundings.get("PYTHONPATH", "").split(":") if part and part != str(artifact.plugin)]
    found = {
        "PYTHONPATH": ":".join([str(artifact.plugin), *others]),
        "PATCHKIT_SHIM_WAY": way,
        "PATCHKIT_SHIM_STAGE1": str(artifact.stage1),
    }
    if way == "plugin":
        return found
    hooks = [(HOOKS[row.hook], row.symbol) for row in artifact.rows if row.hook in HOOKS]
    return {**found, "PATCHKIT_SHIM_OPERATORS": ",".join(f"{hook.operator}={symbol}" for hook, symbol in hooks)}


def compose_preload(present: str, stage1: Path) -> str:
    """Put stage 1 behind what is preloaded already; a stage 1 of an earlier launch is left out."""
    ours = str(stage1)
    if any(separator in ours for separator in _SEPARATORS):
        raise RefusedError(
            f"LD_PRELOAD cannot hold {ours!r}",
            why="  a blank or a colon ends a name there",
            hint="PATCHKIT_NATIVE=DIR names a cache without",
        )
    others = [part for part in present.replace(" ", ":").split(":") if part and Path(part).name != STAGE1]
    return ":".join([*others, ours])


def launch_environment(plan: LaunchPlan, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the engine's process."""
    return {**environment, **dict(plan.variables)}


def export_lines(plan: LaunchPlan) -> list[str]:
    """Return the variables as lines for a shell, an env file or a Dockerfile's RUN."""
    return [f"export {name}={typed(value)}" for name, value in plan.variables]


def path_file(plan: LaunchPlan, stage1: Path) -> str:
    """Return a line for a .pth file: it opens stage 1 for all that is loaded after it, and only when opted in.

    Another way in where LD_PRELOAD cannot be set. Nothing is imported but ctypes, and that only in an engine.
    """
    variables = {name: value for name, value in plan.variables if name not in ("LD_PRELOAD", "PYTHONPATH")}
    told = "".join(f"os.environ.setdefault({name!r}, {value!r}); " for name, value in variables.items())
    opened = f"__import__('ctypes').CDLL({str(stage1)!r}, mode=__import__('ctypes').RTLD_GLOBAL)"
    inner = f"if os.environ.get('PATCHKIT_SHIM_PTH') == '1': {told}{opened}"
    return f"import os; exec({inner!r})\n"
