"""What a series makes of a released tree: every verdict, and by hash what its lock says of that release."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from patchkit.archive import Artifact
from patchkit.below import Lower, released_lower
from patchkit.counting import counted
from patchkit.cut import layer_paths, place_cut
from patchkit.decision import Decision, Outcome
from patchkit.diff.model import Verdict
from patchkit.dist import recorded_sha256
from patchkit.drift import check_workable
from patchkit.errors import RefusedError, SeriesError, UsageError
from patchkit.lock import Lock, LockedArtifact, LockedFile, stale_patches
from patchkit.record import dataclass, replace
from patchkit.series import PatchEntry, Series
from patchkit.session import Session, Standing
from patchkit.stack import Rendering, WantedLayer
from patchkit.target import TargetTree
from patchkit.tree import Entries, Kind, TreeEntry, file_sha256
from patchkit.version import read_public
from patchkit.wanted import package_parent


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A series on a pristine tree: all gates on, retired patches and those for other releases left out.

    `artifact` is what the series stands on: the `release`, or that with a `lower` series on it.
    """

    artifact: Artifact
    release: Artifact
    lower: Lower | None
    layer: WantedLayer
    rendering: Rendering

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What each patch came to, in the order of the series."""
        return self.rendering.decisions

    @property
    def refused(self) -> tuple[Decision, ...]:
        """The patches that do not apply, or that the release has already."""
        return tuple(one for one in self.decisions if one.refused or one.outcome is Outcome.UPSTREAMED)

    @property
    def files(self) -> dict[PurePosixPath, TreeEntry | None]:
        """Every file that the series changes, as it leaves it."""
        return {PurePosixPath(path): entry for path, entry in self.rendering.files}


@dataclass(frozen=True, kw_only=True, slots=True)
class Relocked:
    """A lock made anew. `dropped` are sections that are gone: patches changed, and their release was not given."""

    lock: Lock
    dropped: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """A hunk (`line_number` is its line in the patch) that was placed `offset` lines from where it says."""

    patch: str
    line_number: int
    path: str
    offset: int

    @property
    def words(self) -> str:
        """Say it."""
        return f"offset {self.offset:+d} in {self.path}, scope unproven"


def installed_artifact(session: Session) -> Artifact:
    """Take an opened tree, as it was before patchkit, for a release. Raises TreeChangedError when it drifted."""
    check_workable(session)
    situation = session.situation
    replaced = session.condition.standing is Standing.REPLACED
    receipt = None if replaced else situation.receipt
    entries = situation.entries if replaced else situation.pristine
    record = _record(situation.tree, entries)
    return Artifact(
        file=situation.tree.distribution if record is not None else "",
        sha256=record.state.sha256 if record is not None else "",
        tree=situation.tree,
        entries=entries,
        touched=tuple(file.path for file in receipt.files) if receipt is not None else (),
    )


def ground_of(series: Series, release: Artifact) -> tuple[Artifact, Lower | None]:
    """Return what a series is cut on: the release, or that with the shipped series on it where the series says so."""
    lower = released_lower(series, release.tree, release.entries)
    if lower is None:
        return release, None
    return replace(release, entries=lower.ground, touched=(*release.touched, *lower.files)), lower


def render_series(
    series: Series,
    release: Artifact,
    entries: Sequence[PatchEntry] | None = None,
    *,
    switched_on: Collection[str] | None = None,
) -> Rendered:
    """Place the patches of a series (or the first few of them, `entries`) on a released tree.

    `switched_on` are the gates that are on, None for all.
    """
    ground, lower = ground_of(series, release)
    patches = series.entries if entries is None else entries
    layer, rendering = place_cut(series, ground.tree, ground.entries, patches, switched_on=switched_on)
    return Rendered(artifact=ground, release=release, lower=lower, layer=layer, rendering=rendering)


def make_section(rendered: Rendered) -> LockedArtifact:
    """Return the lock's section for a rendering. Raises RefusedError when a patch does not apply."""
    artifact = rendered.release
    if rendered.refused:
        lines = [f"{one.patch}: {one.outcome.value}: {one.reason}" for one in rendered.refused]
        what = f"{counted(len(lines), 'patch does not apply', 'patches do not apply')} to {artifact.file}"
        raise RefusedError(what, why="\n".join(lines), hint="`patchkit series lint` shows every hunk")
    prefix = package_parent(artifact.tree)
    final = rendered.files
    record = _record(artifact.tree, artifact.entries)
    recorded = record.content if record is not None else b""
    files = []
    for path in layer_paths(rendered.layer):
        pristine = file_sha256(artifact.entries.get(PurePosixPath(path)))
        listed = recorded_sha256(recorded, path)
        if listed is not None and listed != pristine:
            raise _edited(artifact, path)
        place = PurePosixPath(path)
        patched = file_sha256(final[place] if place in final else rendered.artifact.entries.get(place))
        files.append(LockedFile(path=path.removeprefix(prefix), pristine=pristine, patched=patched))
    below = rendered.lower.locked(files, prefix) if rendered.lower is not None else None
    version = _public(artifact.tree.version)
    return LockedArtifact(file=artifact.file, sha256=artifact.sha256, version=version, files=tuple(files), below=below)


def relock(series: Series, sections: Sequence[LockedArtifact]) -> Relocked:
    """Put sections into the series' lock. Those of other releases stay while no patch changed since they were made."""
    patches = tuple(sorted((entry.name, entry.patch.sha256) for entry in series.entries))
    given = {section.file for section in sections}
    if len(given) != len(sections):
        names = ", ".join(section.file for section in sections)
        raise UsageError("the same release is given twice", why=names, hint="one section has one file")
    others = [one for one in series.lock.artifacts if one.file not in given] if series.lock is not None else []
    changed = series.lock is not None and bool(stale_patches(series.lock, patches))
    kept = () if changed else others
    return Relocked(
        lock=Lock(artifacts=(*kept, *sections), patches=patches),
        dropped=tuple(one.file for one in others) if changed else (),
    )


def check_released(artifact: Artifact) -> None:
    """Refuse to lock against what nobody released: a checkout, a tree without RECORD."""
    if not artifact.file:
        raise RefusedError(
            f"{artifact.tree.root}: not a released file, nor an installation of one",
            why="a lock names a wheel, or an installed distribution by its RECORD; this tree has none",
            hint="give the wheel with --artifact, or an installation with --target or --root",
        )


def unproven_offsets(rendered: Rendered) -> tuple[Shift, ...]:
    """Return every hunk that stands elsewhere than it says: nothing but its context shows that this is right."""
    return tuple(
        Shift(
            patch=decision.patch, line_number=placement.hunk.line_number, path=str(file.path), offset=placement.offset
        )
        for decision in rendered.decisions
        for file in decision.files
        for placement in file.placements
        if placement.verdict is Verdict.OFFSET
    )


def _record(tree: TargetTree, entries: Entries) -> TreeEntry | None:
    entry = entries.get(PurePosixPath(tree.distribution, "RECORD")) if tree.distribution else None
    return entry if entry is not None and entry.kind is Kind.FILE else None


def _edited(artifact: Artifact, path: str) -> RefusedError:
    return RefusedError(
        f"{artifact.tree.root}/{path}: not as released",
        why="its sha256 is not the one in RECORD: somebody edited it",
        hint="lock against the released wheel (--artifact), or reinstall the engine",
    )


def _public(version: str) -> str:
    public = read_public(version)
    if public is None:
        raise SeriesError(f"{version!r}: not a version", why="a section of a lock is for one release")
    return str(public)
