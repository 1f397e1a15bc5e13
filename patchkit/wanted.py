"""Layers as they are asked for: a series with its lock, gates and trailers obeyed, or a diff with its names mapped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath

from patchkit.config.autoconf import is_generated
from patchkit.config.dotconfig import Assignment, is_enabled
from patchkit.config.fault import Fault
from patchkit.counting import counted
from patchkit.diff.model import Patch
from patchkit.diff.parse import parse_patch
from patchkit.diff.text import inflate_patch
from patchkit.errors import SeriesError, UnsafePathError, WrongTreeError
from patchkit.generated import module_path
from patchkit.left_out import guarded_reason, unset_reason
from patchkit.lock import Lock, LockedArtifact, LockMatch, lock_command, match_lock
from patchkit.plan import Situation
from patchkit.receipt import Origin
from patchkit.record import dataclass, replace
from patchkit.resources import patches_directory, runtime_directory
from patchkit.series import PatchEntry, Series, applies, missing_requirements, retired, stale_entries
from patchkit.stack import WantedLayer, WantedPatch
from patchkit.strip import PathMap, file_paths, find_map
from patchkit.target import TargetTree
from patchkit.trailers import Toggle
from patchkit.tree import Entries, Kind, file_sha256, path_of

OTHER_RELEASE = "not for this release"


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """On what terms patches are taken: see the options of `apply`. `base` is the tree they were cut against.

    `configuration` are the settings by symbol, the last of each; `assignments` all of them, as they were given, and
    `unread` the lines of their files that set nothing.
    """

    strip: int | None = None
    reverse: bool = False
    package_only: bool = False
    strict: bool = False
    unlocked: bool = False
    base: Entries | None = None
    configuration: Mapping[str, Assignment] | None = None
    assignments: tuple[Assignment, ...] = ()
    unread: tuple[Fault, ...] = ()


class TreeNames:
    """Which paths name a file: those of the trees (as it is, as it was before patchkit), and what patches before make.

    The tree as it was belongs to it because a stack that deletes or renames a file must not hide its name.
    """

    def __init__(self, *trees: Entries) -> None:
        self._trees = trees
        self._known: dict[str, bool] = {}

    def exist(self, path: str) -> bool:
        """Tell whether a file or a link stands at a path; beyond a symlink one may, and is never reached."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = any(_names_a_file(tree, path_of(path)) for tree in self._trees)
        return known

    def add(self, paths: tuple[tuple[str, str], ...]) -> None:
        """Remember what a patch makes, for the patches after it."""
        self._known.update((new, True) for _, new in paths if new)


def _names_a_file(tree: Entries, path: PurePosixPath) -> bool:
    try:
        entry = tree.get(path)
    except UnsafePathError:  # it is meant, and refused with a reason when it comes to it: no other level is tried
        return True
    return entry is not None and entry.kind in (Kind.FILE, Kind.SYMLINK)


def series_layer(
    series: Series, origin: Origin, label: str, situation: Situation, terms: Terms, names: TreeNames
) -> WantedLayer:
    """Make a layer of a series: its lock compared with the pristine tree, its gates and trailers obeyed.

    Raises WrongTreeError when the lock names other files than the tree has, or no section is for this release and
    `unlocked` is not given; SeriesError when a requirement is not met or the lock is stale.
    """
    tree = situation.tree
    artifact = section_for(series, situation, terms)
    patches = tuple(_wanted_entry(entry, tree, terms, names) for entry in series.entries)
    enabled = {wanted.name for wanted in patches if wanted.enabled}
    satisfied = {wanted.name for wanted in patches if wanted.enabled or wanted.retired}
    faults = missing_requirements(series.entries, satisfied)
    if faults:
        raise SeriesError(
            f"{series.directory}: {counted(len(faults), 'requirement is', 'requirements are')} not met",
            why="\n".join(f"{fault.what}: {fault.why}" for fault in faults),
            hint=faults[0].hint,
        )
    needed = {part for entry in series.entries if entry.name in enabled for part in entry.trailers.needs_runtime}
    runtime = _runtime(needed, tree)
    return WantedLayer(
        number=0,
        origin=origin,
        name=label,
        patches=patches if runtime is None else (*patches, runtime),
        artifact=artifact,
        strict=True,  # what the lock's hashes prove needs no other proof
        base=terms.base,
        package_only=terms.package_only,
        trusted=False,
        applied_at="",
    )


def _runtime(parts: Collection[str], tree: TargetTree) -> WantedPatch | None:
    if not parts:
        return None
    from patchkit.travelling import runtime_patch

    return runtime_patch(parts, runtime_directory(), tree)


def ad_hoc_layer(raw: bytes, path: Path, tree: TargetTree, terms: Terms, names: TreeNames) -> WantedLayer:
    """Make a layer of one diff; its strip level and prefix are found from the tree unless `strip` is given."""
    patch = parse_patch(raw, source=str(path))
    if terms.reverse:
        from patchkit.diff.reverse import reverse_patch

        patch = reverse_patch(patch)
    path_map = find_map(patch, tree, names.exist, strip=terms.strip)
    wanted = WantedPatch(
        name=path.name,
        sha256=patch.sha256,
        raw=inflate_patch(raw, source=str(path)),
        patch=patch,
        mapping=path_map.words,
        paths=_patch_paths(patch, path_map, tree, names),
        reverse=terms.reverse,
        config="",
        enabled=True,
        reason="",
    )
    return WantedLayer(
        number=0,
        origin=Origin.AD_HOC,
        name=f"{path.name} (reversed)" if terms.reverse else path.name,
        patches=(wanted,),
        artifact=None,
        strict=terms.strict,
        base=terms.base,
        package_only=terms.package_only,
        trusted=False,
        applied_at="",
    )


def _wanted_entry(entry: PatchEntry, tree: TargetTree, terms: Terms, names: TreeNames) -> WantedPatch:
    trailers = entry.trailers
    reason, is_retired = _left_out(entry, tree, terms)
    path_map = find_map(entry.patch, tree, names.exist, strip=entry.strip)
    return WantedPatch(
        name=entry.name,
        sha256=entry.patch.sha256,
        raw=entry.raw,
        patch=entry.patch,
        mapping=path_map.words,
        paths=_patch_paths(entry.patch, path_map, tree, names),
        reverse=False,
        config=trailers.config,
        enabled=not reason,
        reason=reason,
        retired=is_retired,
    )


def _left_out(entry: PatchEntry, tree: TargetTree, terms: Terms) -> tuple[str, bool]:
    """Return why a patch is not applied ("" when it is), and whether because it is retired."""
    trailers = entry.trailers
    if retired(entry, tree):
        return f"retired: {trailers.retires_when} is true of {tree.version}", True
    if not applies(entry, tree):
        return f"{OTHER_RELEASE}: applies to {trailers.applies_to}", False
    if trailers.config and not is_enabled(trailers.config, terms.configuration or {}):
        reason = guarded_reason if trailers.toggle is Toggle.GUARD else unset_reason
        return reason(trailers.config), False
    return "", False


def _patch_paths(patch: Patch, path_map: PathMap, tree: TargetTree, names: TreeNames) -> tuple[tuple[str, str], ...]:
    paths = tuple(_inside(*file_paths(file, path_map, names.exist), tree) for file in patch.files)
    names.add(paths)
    return paths


def _inside(old: str, new: str, tree: TargetTree) -> tuple[str, str]:
    """Leave out what an installed tree must not get: anything that is not below the engine's package."""
    if not tree.installed:
        return old, new
    package = f"{tree.package}/"
    inside = [path for path in (old, new) if path.startswith(package)]
    named = [path for path in (old, new) if path]
    return (old, new) if len(inside) == len(named) else ("", "")


def section_for(series: Series, situation: Situation, terms: Terms) -> LockedArtifact | None:
    """Return the lock's section for this tree, its paths as the tree has them; None on `unlocked` terms.

    WrongTreeError and SeriesError are as in `series_layer`.
    """
    tree = situation.tree
    place = series.directory / "series.lock"
    if series.lock is None:
        if terms.unlocked:
            return None
        raise WrongTreeError(
            f"{series.directory}: the series has no lock",
            why="without one nothing proves which files it was cut against",
            hint=f"`{lock_command(series.directory, (tree,))}` makes one; --unlocked asks every hunk for its own proof",
        )
    stale = stale_entries(series)
    if stale and terms.unlocked:
        return None
    if stale:
        names = ", ".join(stale)
        raise SeriesError(
            f"{place}: the lock is stale",
            why=f"differs for {names}",
            hint=f"run `{lock_command(series.directory, (tree,))}`",
        )
    prefix = package_parent(tree)
    match = match_lock(series.lock, version=tree.version, pristine=_pristine_hash(situation.pristine, prefix))
    if match.artifact is not None:
        return _in_tree(match.artifact, prefix)
    if terms.unlocked:
        return None
    gone = _gone_receipt(series.lock, match, situation, prefix)
    raise gone or WrongTreeError(
        f"{tree.engine} {tree.version} in {tree.root} is not what the series was cut against",
        why="\n".join((f"{place}: {match.reason}", *(f"  differs: {path}" for path in match.mismatched))),
        hint=_beside_lock(series, tree, match),
    )


def _beside_lock(series: Series, tree: TargetTree, match: LockMatch) -> str:
    """Return what helps where no section of the lock is the tree's; a new one is for who owns the series."""
    unlocked = (
        "--unlocked takes it all the same, and every hunk then needs its own proof; "
        "--base DIR, an unpatched tree of a locked release, gives it"
    )
    if match.mismatched or series.directory.is_relative_to(patches_directory()):
        return f"apply to the release named in the lock; or {unlocked}"
    return f"{unlocked}\nwhere the plan holds, `{lock_command(series.directory, (tree,))}` makes the section"


def _in_tree(artifact: LockedArtifact, prefix: str) -> LockedArtifact:
    files = tuple(replace(file, path=prefix + file.path) for file in artifact.files)
    below = artifact.below
    if below is not None:
        below = replace(below, files=tuple((prefix + path, sha256) for path, sha256 in below.files))
    return replace(artifact, files=files, below=below)


def gone_receipt(series: Series, situation: Situation) -> WrongTreeError | None:
    """Return what `apply` says of a tree that has a series and has lost its receipt, None for any other tree."""
    if series.lock is None or situation.receipt is not None:
        return None
    prefix = package_parent(situation.tree)
    match = match_lock(series.lock, version=situation.tree.version, pristine=_pristine_hash(situation.pristine, prefix))
    return None if match.artifact is not None else _gone_receipt(series.lock, match, situation, prefix)


def _gone_receipt(lock: Lock, match: LockMatch, situation: Situation, prefix: str) -> WrongTreeError | None:
    """Say of a tree that was patched and has lost its receipt what no other release would help."""
    tree, digest = situation.tree, _pristine_hash(situation.pristine, prefix)
    whole = any(all(digest(file.path) == file.patched for file in artifact.files) for artifact in lock.artifacts)
    mark = "every file is as series.lock says the series makes it" if whole else ""
    if not whole and situation.receipt is None and match.mismatched:
        mark = _mark(lock, match.mismatched, situation, digest)
    if not mark:
        return None
    having = "has this series already, but its" if whole else "was patched, but the"
    return WrongTreeError(
        f"{tree.engine} {tree.version} in {tree.root} {having} receipt is gone",
        why=f"{mark}; without `.patchkit` nothing can be reverted",
        hint="leave it as it is, or install the release again and apply; copy `.patchkit` along with the package",
    )


def _mark(lock: Lock, mismatched: tuple[str, ...], situation: Situation, digest: Callable[[str], str | None]) -> str:
    """Say what shows that the files which are not the release's were patched, "" for nothing."""
    made = {(file.path, file.patched) for artifact in lock.artifacts for file in artifact.files}
    there = [path for path in mismatched if (path, digest(path)) in made]
    if there:
        return f"{there[0]} is as series.lock says the series makes it, other files are not"
    constants = module_path(situation.tree)
    entry = situation.pristine.get(constants)
    if entry is not None and is_generated(entry.content):
        return f"{mismatched[0]} is not the release's, and {constants} stands there, which only patchkit writes"
    return ""


def package_parent(tree: TargetTree) -> str:
    """Return what stands before the package's name below the root: `python/` in sglang's source layout."""
    parent = str(tree.package.parent)
    return "" if parent == "." else f"{parent}/"


def _pristine_hash(pristine: Entries, prefix: str) -> Callable[[str], str | None]:
    return lambda path: file_sha256(pristine.get(path_of(prefix + path)))
