"""What the commands of `patchkit native` have in common: the target's entry points, libraries and build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from patchkit.cli.options import Choice, select_tree, tree_options
from patchkit.errors import UsageError
from patchkit.native.build import BuildArtifact, BuildRequest, build
from patchkit.native.cache import cache_directory
from patchkit.native.launch import LaunchPlan, plan_launch
from patchkit.native.plugin import WAYS
from patchkit.native.settings import MODES, Settings, parse_settings
from patchkit.native.symbols import HOST, NO_HOOK, EntryPoint, entry_points, named_entry_points, read_symbols
from patchkit.native.target_libraries import TargetLibraries, buildable, find_libraries, narrowed
from patchkit.native.torch_tree import find_torch
from patchkit.output import Output
from patchkit.record import dataclass
from patchkit.resources import native_directory
from patchkit.target import TargetTree

_Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """A target with the entry points that are known for its release; `tree` is None for the host library."""

    tree: TargetTree | None
    rows: tuple[EntryPoint, ...]
    found: TargetLibraries


def target_options(function: _Function) -> _Function:
    """Add the options that name a tree, and --symbol; the function gets `choice` and `symbols`."""
    symbol = click.option("--symbol", "symbols", multiple=True, help="Count this exported function too. Repeatable.")
    return tree_options(symbol(function))


def setting_options(function: _Function) -> _Function:
    """Add the options of a launch; the function gets them as `settings`, `programs`, `replacement` and `way`."""

    @click.option(
        "--mode", type=click.Choice(MODES), default="count", help="What is done with a call (default: count)."
    )
    @click.option("--set", "words", multiple=True, metavar="NAME=VALUE", help="qk_scale=0.5, window=256. Repeatable.")
    @click.option(
        "--replace",
        "replacement",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A library with patchkit_attention_run, for --mode replace.",
    )
    @click.option(
        "--program",
        "programs",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A program to be awake in, beside the target's interpreter. Repeatable.",
    )
    @click.option(
        "--way",
        type=click.Choice(WAYS),
        default=WAYS[0],
        help="How the shim is let in: LD_PRELOAD (default), or a plugin of vLLM on PYTHONPATH that opens it before the "
        "libraries, or registers torch's operators anew. `doctor` says which reach what.",
    )
    @wraps(function)
    def with_settings(*args: Any, mode: str, words: tuple[str, ...], **kwargs: Any) -> Any:
        return function(*args, settings=parse_settings([f"mode={mode}", *words], Settings()), **kwargs)

    return with_settings


def open_ground(choice: Choice, symbols: tuple[str, ...], output: Output) -> Ground:
    """Find the target and read its libraries."""
    rows = read_symbols(native_directory())
    if choice.target == HOST:
        if symbols:
            raise UsageError("--symbol goes with an engine", why="  the host library has one entry point")
        own = tuple(row for row in rows if row.engine == HOST)
        return Ground(tree=None, rows=own, found=TargetLibraries(libraries=(), unreadable=()))
    tree = select_tree(choice, output)
    known = (*entry_points(rows, tree.engine, tree.version), *named_entry_points(symbols, tree.engine))
    return Ground(tree=tree, rows=known, found=find_libraries(tree, known))


def build_ground(ground: Ground, output: Output) -> BuildArtifact:
    """Build the shim for a target, or take what is there."""
    from patchkit.native.compiler import find_toolchain

    rows, libraries, torch = ground.rows, ground.found.libraries, None
    if ground.tree is not None:
        rows = buildable(ground.rows, ground.found, ground.tree)
        libraries = narrowed(ground.found, rows)
        if any(row.hook != NO_HOOK for row in rows):
            torch = find_torch(ground.tree)
    for text in ground.found.unreadable:
        output.note(f"warning: {text}", style="doubt")
    request = BuildRequest(
        native=native_directory(), rows=rows, libraries=libraries, torch=torch, toolchain=find_toolchain()
    )
    return build(request, cache_directory(), on_start=lambda: output.progress("compiling"))


def plan_ground(
    ground: Ground,
    artifact: BuildArtifact,
    settings: Settings,
    *,
    programs: tuple[Path, ...],
    replacement: Path | None,
    way: str,
    surroundings: Mapping[str, str],
) -> LaunchPlan:
    """Return how the target is started; UsageError when its interpreter is not known."""
    own = artifact.program if ground.tree is None else ground.tree.python
    if own is None and not programs:
        raise UsageError(
            "which program is the engine?",
            why="  nothing tells the interpreter that the tree belongs to",
            hint="--python EXE",
        )
    awake = (*(() if own is None else (own,)), *programs)
    return plan_launch(artifact, settings, programs=awake, surroundings=surroundings, replacement=replacement, way=way)
