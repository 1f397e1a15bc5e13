"""Names of a diff that enters a series: as a wheel has its files, found from a tree or known from the names alone."""

from __future__ import annotations

from pathlib import PurePosixPath

from patchkit.archive import Artifact
from patchkit.author import NamePaths
from patchkit.diff.model import FilePatch, Patch
from patchkit.engine import ENGINES
from patchkit.errors import UnsafePathError, UsageError
from patchkit.strip import file_paths, find_map, safe_path
from patchkit.tree import Kind
from patchkit.wanted import package_parent


def names_in_tree(patch: Patch, artifact: Artifact, *, strip: int | None) -> tuple[NamePaths, str]:
    """Map names by looking into the tree; also say what was chosen. Names outside of the package lead nowhere."""
    path_map = find_map(patch, artifact.tree, lambda path: _exists(artifact, path), strip=strip)
    prefix = package_parent(artifact.tree)
    package = f"{artifact.tree.package}/"

    def name_paths(file: FilePatch) -> tuple[str, str]:
        old, new = file_paths(file, path_map, lambda path: _exists(artifact, path))
        if not all(path.startswith(package) for path in (old, new) if path):
            return "", ""
        return old.removeprefix(prefix), new.removeprefix(prefix)

    return name_paths, path_map.words


def names_as_written(patch: Patch) -> NamePaths:
    """Take names that are `a/` and `b/` before an engine's package, as in `a/vllm/envs.py`; UsageError for others."""
    if not patch.files or not any(any(_named(file)) for file in patch.files):
        names = ", ".join(
            dict.fromkeys(name for file in patch.files for name in (file.old_name, file.new_name) if name)
        )
        raise UsageError(
            f"{patch.source}: nothing tells which files of a package it means",
            why=f"expected names such as a/vllm/envs.py, found {names or 'none'}",
            hint="name the tree with --target, --root or --artifact: the names are then looked for in it",
        )
    return _named


def _named(file: FilePatch) -> tuple[str, str]:
    old, new = (_below(name) for name in (file.old_name, file.new_name))
    missing = (file.old_name is not None and not old) or (file.new_name is not None and not new)
    return ("", "") if missing else (old, new)


def _below(name: str | None) -> str:
    """Return the path behind `a/` or `b/` when it begins with an engine's package, and not with a checkout of it."""
    side, _, path = (name or "").partition("/")
    package, _, below = path.partition("/")
    known = package in {engine.package for engine in ENGINES}
    if side not in ("a", "b") or not known or below.startswith(("python/", f"{package}/")):
        return ""
    return str(safe_path(path, shown=name or ""))


def _exists(artifact: Artifact, path: str) -> bool:
    try:
        entry = artifact.entries.get(PurePosixPath(path))
    except UnsafePathError:
        return False
    return entry is not None and entry.kind in (Kind.FILE, Kind.SYMLINK)
