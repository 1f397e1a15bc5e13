"""Which libraries of an engine define which entry points: what a build and the doctor start from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from patchkit.errors import ObjectFormatError, RefusedError
from patchkit.native.library import Library, read_library
from patchkit.native.symbols import EntryPoint
from patchkit.record import dataclass, replace
from patchkit.target import TargetTree


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetLibraries:
    """The libraries of a tree that some rows may be in, and those that could not be read, in words."""

    libraries: tuple[Library, ...]
    unreadable: tuple[str, ...]

    def defining(self, symbol: str) -> tuple[Library, ...]:
        """Return the libraries that define a symbol."""
        return tuple(one for one in self.libraries if any(export.symbol == symbol for export in one.exports))


def find_libraries(tree: TargetTree, rows: Sequence[EntryPoint]) -> TargetLibraries:
    """Read the libraries below the engine's package whose names fit a row."""
    wanted = {row.symbol for row in rows}
    found, unreadable = [], []
    for path in _shared_objects(tree.root / tree.package):
        if not any(fnmatch(path.name, row.object) for row in rows):
            continue
        try:
            found.append(read_library(path, wanted))
        except ObjectFormatError as error:
            unreadable.append(str(error))
    return TargetLibraries(libraries=tuple(found), unreadable=tuple(unreadable))


def buildable(rows: Sequence[EntryPoint], found: TargetLibraries, tree: TargetTree) -> tuple[EntryPoint, ...]:
    """Return the rows that a library of the tree defines; RefusedError where there is none."""
    kept = tuple(row for row in rows if found.defining(row.symbol))
    if kept:
        return kept
    looked = [f"  {library.path}" for library in found.libraries] + [f"  {text}" for text in found.unreadable]
    raise RefusedError(
        f"no entry point of {tree.engine} {tree.version} that the shim knows",
        why="\n".join(looked) or f"  no library below {tree.root / tree.package} is one that has some",
        hint="--symbol NAME counts the calls of any exported function; `nm -D LIBRARY` lists them",
    )


def narrowed(found: TargetLibraries, rows: Sequence[EntryPoint]) -> tuple[Library, ...]:
    """Return the libraries that define at least one of the rows, with these exports alone."""
    names = {row.symbol for row in rows}
    kept = (
        replace(one, exports=tuple(export for export in one.exports if export.symbol in names))
        for one in found.libraries
    )
    return tuple(one for one in kept if one.exports)


def _shared_objects(package: Path) -> Iterator[Path]:
    for base, directories, names in os.walk(package):
        directories.sort()
        for name in sorted(names):
            if name.endswith(".so") or ".so." in name:
                path = Path(base, name)
                if path.is_file():
                    yield path
