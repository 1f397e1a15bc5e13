"""What stands below a series that says so in its file `below`: the shipped one, with all its gates on.

As within a series, where a patch is cut on top of all those before it: a toggle that is off moves lines, and the files
as they are with all of them on are the base that tells where to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from patchkit.cut import place_cut, released_situation
from patchkit.errors import SeriesError, WrongTreeError
from patchkit.lock import LockedArtifact, LockedBelow, LockedFile, lock_command
from patchkit.overlay import PristineEntries
from patchkit.plan import Situation
from patchkit.record import dataclass, replace
from patchkit.resources import patches_directory
from patchkit.series import BELOW_NAME, Series, available_series, find_series, read_series
from patchkit.stack import WantedLayer, render_stack
from patchkit.target import TargetTree
from patchkit.tree import Entries, TreeEntry, file_sha256
from patchkit.wanted import Terms, package_parent, section_for


@dataclass(frozen=True, kw_only=True, slots=True)
class Lower:
    """The shipped series on a release: its `patches` by name and sha256, and what it makes of `files`.

    `ground` is the release with these files in it.
    """

    name: str
    patches: tuple[tuple[str, str], ...]
    files: Mapping[PurePosixPath, TreeEntry | None]
    ground: Entries

    def locked(self, files: Iterable[LockedFile], prefix: str) -> LockedBelow:
        """Return what a lock says of it, for these touched files; `prefix` stands before their paths in the tree."""
        found = ((file.path, self.sha256(prefix + file.path), file.pristine) for file in files)
        changed = tuple((path, here) for path, here, pristine in found if here != pristine)
        return LockedBelow(series=self.name, patches=self.patches, files=changed)

    def sha256(self, path: str) -> str | None:
        """Return the digest of a file as the series leaves it, None where there is none."""
        return _sha256(self.ground, path)


def render_lower(series: Series, tree: TargetTree, release: Entries, shipped: Series | None = None) -> Lower:
    """Place the shipped series for a tree on its release. `series` is the one that stands on it.

    Raises WrongTreeError where none is shipped for the tree, or where it does not apply.
    """
    lower = shipped or find_series(patches_directory(), tree)
    if lower is None:
        raise WrongTreeError(
            f"{series.directory}: stands on the shipped series, and there is none for {tree.engine} {tree.version}",
            why=f"its file `{BELOW_NAME}` says so",
            hint="`patchkit series list` shows what is shipped; without that file the series is cut on the release",
        )
    if lower.on_shipped:
        raise SeriesError(f"{lower.directory / BELOW_NAME}: the shipped series stands on itself", hint="delete it")
    layer, rendering = place_cut(lower, tree, release, lower.entries)
    refused = [f"{one.patch}: {one.outcome.value}: {one.reason}" for one in rendering.decisions if one.refused]
    if refused:
        raise WrongTreeError(
            f"{series.directory}: stands on {_name(lower)}, which does not apply to {tree.root}",
            why="\n".join(refused),
            hint="give the release that it was cut against",
        )
    files = {PurePosixPath(path): entry for path, entry in rendering.files}
    enabled = {wanted.name for wanted in layer.patches if wanted.enabled}
    return Lower(
        name=_name(lower),
        patches=tuple(sorted((one.name, one.patch.sha256) for one in lower.entries if one.name in enabled)),
        files=files,
        ground=PristineEntries(release, files),
    )


def released_lower(series: Series, tree: TargetTree, release: Entries) -> Lower | None:
    """Return what stands below a series on a release, None for nothing: the lock of the shipped series has it."""
    if not series.on_shipped:
        return None
    shipped = find_series(patches_directory(), tree)
    if shipped is not None:
        section_for(shipped, released_situation(tree, release), Terms())
    return render_lower(series, tree, release, shipped)


def shipped_for(series: Series, tree: TargetTree, release: Entries) -> Series | None:
    """Return the shipped series that `apply` puts below a user's one on a release; None where it puts none there."""
    shipped = find_series(patches_directory(), tree)
    if shipped is None or shipped.directory == series.directory:
        return None
    try:
        section_for(shipped, released_situation(tree, release), Terms())
    except (WrongTreeError, SeriesError):
        return None
    return shipped


def refused_beside(
    layer: WantedLayer, shipped: Series, tree: TargetTree, release: Entries
) -> Iterator[tuple[str, str]]:
    """Yield (patch, why) for what was cut on the release and does not hold above the shipped series.

    That is tried as it is without a setting, and with all its toggles on.
    """
    told: set[str] = set()
    for switched_on, when in ((frozenset[str](), ""), (None, " with its toggles on")):
        _, below = place_cut(shipped, tree, release, shipped.entries, switched_on=switched_on)
        files = {PurePosixPath(path): entry for path, entry in below.files}
        touched = frozenset(path for path, _ in below.files)
        above = render_stack(PristineEntries(release, files), (layer,), pristine=release, touched=touched)
        for decision in above.decisions:
            if decision.refused and decision.patch not in told:
                told.add(decision.patch)
                yield decision.patch, f"does not hold above {_name(shipped)}{when}: {decision.reason}"


def stand_on_lower(
    layer: WantedLayer, series: Series, situation: Situation, terms: Terms, shipped: Series | None
) -> WantedLayer:
    """Give the layer of a series the base that it was cut against: the release with the shipped series on it.

    Raises WrongTreeError when its lock has other files there. Without a lock no tree is known to be the base.
    """
    tree = situation.tree
    if terms.base is not None:
        cut_on, version = _shipped_for_base(series, tree, terms.base)
        lower = render_lower(series, replace(tree, version=version), terms.base, cut_on)
    elif layer.artifact is not None:
        lower = render_lower(series, tree, situation.pristine, shipped)
    else:
        return layer
    if layer.artifact is not None:
        _check_lower(layer.artifact, lower, series, tree)
    return replace(layer, base=lower.ground)


def _shipped_for_base(series: Series, tree: TargetTree, base: Entries) -> tuple[Series, str]:
    """Return the shipped series that was cut against a base, and the release that this is: maybe not the tree's."""
    prefix = package_parent(tree)
    for label, directory in reversed(available_series(patches_directory(), tree.engine)):
        shipped = read_series(directory, engine=tree.engine, version=label)
        for section in shipped.lock.artifacts if shipped.lock is not None else ():
            if all(_sha256(base, prefix + one.path) == one.pristine for one in section.files):
                return shipped, section.version
    raise WrongTreeError(
        f"{series.directory}: stands on the shipped series, and none was cut against what --base names",
        why="its files are not those of a release in any series.lock",
        hint="give the release itself, unpacked and not patched",
    )


def _sha256(entries: Entries, path: str) -> str | None:
    return file_sha256(entries.get(PurePosixPath(path)))


def _check_lower(artifact: LockedArtifact, lower: Lower, series: Series, tree: TargetTree) -> None:
    differing = [path for path, digest in artifact.ground.items() if lower.sha256(path) != digest]
    if not differing:
        return
    prefix = package_parent(tree)
    what = (*_changes(artifact.below, lower), *(f"  differs: {path.removeprefix(prefix)}" for path in differing))
    raise WrongTreeError(
        f"{series.directory}: {lower.name} below it is not what it was locked on",
        why="\n".join(what),
        hint=f"prove the series anew: patchkit series lint {series.directory}, edit and refresh what it names, then "
        f"{lock_command(series.directory, (tree,))}",
    )


def _changes(below: LockedBelow | None, lower: Lower) -> Iterator[str]:
    """Say in which patches the lower series is another than the locked one."""
    locked, now = dict(below.patches) if below is not None else {}, dict(lower.patches)
    for name in sorted(locked.keys() | now.keys()):
        if locked.get(name) != now.get(name):
            words = "new" if name not in locked else "gone" if name not in now else "changed"
            yield f"{lower.name}: {name} is {words}"


def _name(series: Series) -> str:
    return f"{series.engine}/{series.version}"
