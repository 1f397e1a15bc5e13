"""The parts of patchkit.runtime that patches call, as a patch of their own: files of the layer like any other.

A patched engine imports nothing that is not in its own package. What `Needs-Runtime` names is therefore copied to
`<package>/_patchkit/`, by a diff that creates the files: the receipt, RECORD and a revert then know them as they know
every file that a patch creates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from patchkit.diff.parse import parse_patch
from patchkit.errors import SeriesError
from patchkit.stack import RUNTIME, WantedPatch
from patchkit.target import TargetTree
from patchkit.tree import Kind, TreeEntry

PLACE = "_patchkit"
_NEVER = "__pycache__"


def runtime_patch(parts: Collection[str], runtime: Path, tree: TargetTree) -> WantedPatch | None:
    """Return the patch that brings the named parts (and the package file that holds them); None for no parts.

    A part is a module or a package directly below `runtime`. Raises SeriesError for one that is not there.
    """
    if not parts:
        return None
    from patchkit.diff.produce import produce_diff

    files = {PurePosixPath("__init__.py"): b""}
    for part in sorted(parts):
        files.update(_part_files(part, runtime))
    base = tree.package / PLACE
    entries = {
        base / path: TreeEntry(kind=Kind.FILE, mode=0o644, content=content) for path, content in sorted(files.items())
    }
    raw = produce_diff({}, entries)
    patch = parse_patch(raw, source="patchkit.runtime")
    return WantedPatch(
        name=f"{RUNTIME}{', '.join(sorted(parts))}",
        sha256=hashlib.sha256(raw).hexdigest(),
        raw=raw,
        patch=patch,
        mapping="-p1",
        paths=tuple(("", str(path)) for path in entries),
        reverse=False,
        config="",
        enabled=True,
        reason="",
    )


def _part_files(part: str, runtime: Path) -> dict[PurePosixPath, bytes]:
    place = runtime / part
    if part.isidentifier() and place.is_dir():
        found = sorted(path for path in place.rglob("*.py") if _NEVER not in path.parts)
    elif part.isidentifier() and place.with_suffix(".py").is_file():
        found = [place.with_suffix(".py")]
    else:
        known = ", ".join(sorted(path.stem for path in runtime.glob("*") if path.stem.isidentifier())) or "none"
        raise SeriesError(
            f"Needs-Runtime: {part}: no such part of the runtime",
            why=f"this patchkit has: {known}",
            hint="install a patchkit that has it, or leave out the patch that needs it",
        )
    return {PurePosixPath(path.relative_to(runtime).as_posix()): path.read_bytes() for path in found}
