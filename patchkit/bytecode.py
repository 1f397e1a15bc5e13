"""The .pyc files of modules that patchkit changes: which there are, and how they are made anew."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from patchkit.errors import RefusedError
from patchkit.held import Directories

CACHE = "__pycache__"
_SUFFIX = ".pyc"
_SECONDS_FOR_ALL = 300.0

# Runs in the target's interpreter, of any version: [[source, pyc, optimisation], ...] on stdin, complaints on stdout.
_COMPILE = """
import importlib.util, json, os, py_compile, sys
tag = sys.implementation.cache_tag
for source, cached, optimize in json.load(sys.stdin):
    legacy = os.path.basename(os.path.dirname(cached)) != "__pycache__"
    if not legacy and os.path.basename(cached).split(".")[-2 - (optimize > 0)] != tag:
        continue
    try:
        new = [] if os.path.isdir(os.path.dirname(cached)) else [os.path.dirname(cached)]
        py_compile.compile(source, cfile=cached, doraise=True, optimize=optimize)
        if os.geteuid() == 0:
            status = os.stat(source)
            for path in new + [cached]:
                os.chown(path, status.st_uid, status.st_gid)
    except Exception as error:
        print(json.dumps("%s: %s" % (source, str(error).strip().splitlines()[-1:])))
"""


def find_bytecode(directories: Directories, modules: Iterable[str]) -> list[str]:
    """Return the .pyc files that belong to these sources (`a/b.py`), of all interpreters, sorted."""
    stems: dict[str, set[str]] = {}
    for module in modules:
        above, _, name = module.rpartition("/")
        stems.setdefault(above, set()).add(name.removesuffix(".py"))
    return sorted(found for above, wanted in stems.items() for found in _find_in(directories, above, wanted))


def recompile(
    root: Path, bytecode: Sequence[PurePosixPath], *, python: Path | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Make .pyc files anew that a transaction dropped, with the interpreter that will load them; return warnings.

    Nothing is started when there were none or the interpreter is not known; those of other interpreters and of
    sources that are gone stay away. SOURCE_DATE_EPOCH in `environment` makes them hash-based, as py_compile does.
    """
    wanted = [(str(root / source), str(root / path), level) for path in bytecode for source, level in [_source(path)]]
    wanted = [item for item in wanted if os.path.isfile(item[0])]  # noqa: PTH113 -- the item is a string for JSON
    if python is None or not wanted:
        return ()
    from patchkit.process import run_child

    try:
        completed = run_child(
            [str(python), "-I", "-c", _COMPILE],
            input=json.dumps(wanted).encode(),
            timeout=_SECONDS_FOR_ALL,
            environment=environment,
        )
    except RefusedError as error:
        return (f"bytecode was not made anew: {error.what}",)
    if completed.status:
        return (f"bytecode was not made anew: {completed.last_words.strip()}",)
    return tuple(f"bytecode was not made anew: {json.loads(line)}" for line in completed.stdout.splitlines())


def cached_path(source: PurePosixPath, python_version: str) -> PurePosixPath:
    """Return where CPython `3.11` keeps the bytecode of a source."""
    return source.parent / CACHE / f"{source.stem}.cpython-{''.join(python_version.split('.')[:2])}{_SUFFIX}"


def _find_in(directories: Directories, above: str, wanted: set[str]) -> Iterator[str]:
    prefix = f"{above}/" if above else ""
    names = directories.names(above)
    if CACHE in names:
        for name in directories.names(prefix + CACHE):
            if name.endswith(_SUFFIX) and _stem(name) in wanted:
                yield f"{prefix}{CACHE}/{name}"
    for name in names:
        if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX) in wanted:
            yield prefix + name


def _stem(name: str) -> str:
    """Return `a` for `a.cpython-311.pyc` and `a.cpython-311.opt-1.pyc`."""
    parts = name.removesuffix(_SUFFIX).split(".")
    if parts[-1].startswith("opt-"):
        parts.pop()
    return ".".join(parts[:-1])


def _source(bytecode: PurePosixPath) -> tuple[PurePosixPath, int]:
    """Return the source that a .pyc was made from, and the level of optimisation in its name."""
    above = bytecode.parent
    if above.name != CACHE:
        return bytecode.with_suffix(".py"), 0
    level = bytecode.name.removesuffix(_SUFFIX).rpartition(".opt-")[2]
    return above.parent / f"{_stem(bytecode.name)}.py", int(level) if level.isdecimal() else 0
