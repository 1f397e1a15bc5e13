"""Which running processes may have an engine's Python files as they were: what Linux says of them under /proc.

A module that was imported leaves no mark there. What does is a library of the engine that is mapped, and a command line
that runs the engine. Of a process that shows neither nothing is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath

from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.target import TargetTree

_OURS = compile_lazily(r"(?:^|/)patchkit(?:/__main__\.py)?$")
_INTERPRETER = compile_lazily(r"(?:python|pypy)[\d.]*t?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningProcess:
    """A process that may have imported the engine, its command line, and what speaks for it."""

    pid: int
    command: str
    evidence: str


def processes_with(tree: TargetTree, proc: Path = Path("/proc")) -> tuple[RunningProcess, ...]:
    """Return the Python processes that may have imported a tree's package, by their ids; () where there is no /proc."""
    try:
        pids = sorted(int(place.name) for place in proc.iterdir() if place.name.isdecimal())
    except OSError:
        return ()
    return tuple(found for pid in pids if pid != os.getpid() for found in _look_at(proc / str(pid), tree))


def _look_at(place: Path, tree: TargetTree) -> Iterator[RunningProcess]:
    try:
        words = place.joinpath("cmdline").read_bytes().decode("utf-8", "backslashreplace").split("\0")[:-1]
    except OSError:  # it has ended
        return
    if not words or not _is_python(place, words[0]) or any(_OURS.search(word) for word in words[:3]):
        return
    evidence = _evidence(place, words[1:], tree)
    if evidence:
        yield RunningProcess(pid=int(place.name), command=" ".join(words), evidence=evidence)


def _is_python(place: Path, name: str) -> bool:
    try:
        name = str(place.joinpath("exe").readlink())
    except OSError:  # another user's: the name that it was started by has to do
        return _INTERPRETER.match(PurePosixPath(name).name) is not None
    return _INTERPRETER.match(PurePosixPath(name).name) is not None


def _evidence(place: Path, words: list[str], tree: TargetTree) -> str:
    """Return what shows that a process uses the package, "" for nothing. Its libraries say of which tree."""
    package = f"{tree.root.joinpath(tree.package).resolve()}/"
    mapped = [line.split(None, 5)[-1] for line in _maps(place) if ".so" in line]
    inside = next((path for path in mapped if path.startswith(package)), None)
    if inside is not None:
        return f"has {PurePosixPath(inside.removesuffix(' (deleted)')).name} loaded"
    elsewhere = f"/{tree.package.name}/"
    if any(f"/site-packages{elsewhere}" in path for path in mapped):
        return ""  # that of another environment
    return "its command line runs it" if _runs(words, tree.package.name) else ""


def _runs(words: list[str], package: str) -> bool:
    """Tell whether an interpreter's arguments run a package: its module, its script, or code that imports it."""
    for before, word in pairwise(["", *words]):
        if before == "-m":
            return word == package or word.startswith(f"{package}.")
        if before == "-c":
            return re.search(rf"\b(?:import|from)\s+{re.escape(package)}\b", word) is not None
        if not word.startswith("-"):
            return package in PurePosixPath(word).parts
    return False


def _maps(place: Path) -> list[str]:
    try:
        return place.joinpath("maps").read_text(errors="backslashreplace").splitlines()
    except OSError:
        return []
