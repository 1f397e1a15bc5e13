"""What is wrong with a series: as it is written, and as it stands on the releases it is for.

Nothing stops at the first fault: findings are collected, each with its place, and shown together.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from patchkit.archive import Artifact
from patchkit.below import refused_beside, shipped_for
from patchkit.decision import Decision, FileDecision, Outcome
from patchkit.diff.crosscheck import crosscheck
from patchkit.diff.model import Change, FilePatch, Patch, Verdict
from patchkit.diff.render import render_patch
from patchkit.engine import find_engine
from patchkit.errors import PatchkitError
from patchkit.lock import LOCK_NAME, LockedArtifact, lock_command, match_lock
from patchkit.locking import Rendered, make_section, render_series, unproven_offsets
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.series import SERIES_NAME, PatchEntry, Series, applies, missing_requirements, retired, stale_entries
from patchkit.strip import strip_name
from patchkit.syntax import check_syntax
from patchkit.target import Layout, TargetTree
from patchkit.trailers import suspicious_trailers
from patchkit.tree import Kind, TreeEntry, file_sha256
from patchkit.undoing import undo_series
from patchkit.wanted import package_parent


class Severity(enum.Enum):
    """An error makes `lint` fail, a warning is for the reader."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something to mend. `place` is `file` or `file:line`."""

    severity: Severity
    place: str
    what: str


_PLACE = compile_lazily(r"(?P<place>[^\s:]+(?::[0-9]+)?): (?P<what>.+)", re.DOTALL)
_LINE = compile_lazily(r"line ([0-9]+): (.+)", re.DOTALL)
_PATCH_NAME = compile_lazily(r"[0-9]{4,}-.*\.patch(\.gz)?")


def unreadable(error: PatchkitError) -> Finding:
    """Turn the error of a series that cannot be read into a finding."""
    match = _PLACE.fullmatch(error.what)
    place, what = (match["place"], match["what"]) if match else (SERIES_NAME, error.what)
    return _error(place, "\n".join(part for part in (what, error.why, error.hint) if part))


def lint_series(series: Series, releases: Sequence[TargetTree] = ()) -> tuple[Finding, ...]:
    """Check a series by itself: no release is looked at. `releases` are those that a new lock would be made on."""
    findings = [finding for entry in series.entries for finding in _lint_patch(series.directory, entry)]
    findings += _lint_order(series)
    findings += _unlisted(series)
    findings += _lint_lock(series, releases)
    return tuple(findings)


def lint_on(series: Series, artifact: Artifact) -> tuple[Finding, ...]:
    """Check a series on a release: it applies, parses, gives the lock's bytes, and comes out again patch by patch."""
    place = artifact.file or str(artifact.tree.root)
    try:
        rendered = render_series(series, artifact)
    except PatchkitError as error:
        return (unreadable(error),)
    findings = [finding for one in rendered.decisions for finding in lint_decision(series, one)]
    findings += [
        _warning(f"{series.directory / shift.patch}:{shift.line_number}", shift.words)
        for shift in unproven_offsets(rendered)
    ]
    findings += _lint_syntax(rendered)
    if not rendered.refused:
        findings += _lint_section(series, rendered, place)
        findings += [_error(name, f"on {place}: {what}") for name, what in undo_series(rendered)]
        findings += _lint_beside(series, rendered)
    return tuple(findings)


def lint_decision(series: Series, decision: Decision) -> Iterator[Finding]:
    """Yield what is wrong with a patch as it was placed on a release, hunk by hunk."""
    place = str(series.directory / decision.patch)
    if decision.outcome is Outcome.UPSTREAMED:
        yield _error(place, f"{decision.reason}; say so with Retires-When")
    if decision.refused:
        yield _error(place, f"{decision.outcome.value}: {decision.reason}")
    for file in decision.files:
        if file.note:
            yield _warning(place, f"{file.name}: {file.note}; apply asks for --package-only")
        if file.refusal:
            yield from _refused_hunks(place, file)


def _lint_patch(directory: Path, entry: PatchEntry) -> Iterator[Finding]:
    place = str(directory / entry.name)
    if not entry.patch.files:
        yield _warning(place, "has no change yet: `patchkit series edit`, then `refresh`")
    if render_patch(entry.patch) != entry.raw:
        yield _error(place, "written out again it is not the same bytes: a bug in patchkit's reader, please report it")
    if not entry.trailers.subject:
        yield _warning(place, "has no subject: nobody will know what it is for")
    for text in suspicious_trailers(entry.patch.preamble):
        match = _LINE.fullmatch(text)
        yield _warning(f"{place}:{match[1]}", match[2]) if match else _warning(place, text)
    for text in crosscheck(entry.raw, entry.patch) if entry.patch.files else ():
        match = _PLACE.fullmatch(text)
        yield _error(match["place"], match["what"]) if match else _error(place, text)
    for file in entry.patch.files:
        yield from _lint_file(place, file, entry.patch)


def _lint_file(place: str, file: FilePatch, patch: Patch) -> Iterator[Finding]:
    blank = list(_blank_ends(file, crlf=patch.crlf))
    if blank:
        more = f" (and {len(blank) - 1} more in this file)" if len(blank) > 1 else ""
        yield _warning(f"{place}:{blank[0]}", f"an added line ends in blanks{more}")
    name = file.new_name or ""
    if file.change is Change.CREATE and name.endswith(".py") and file.binary is None:
        path, after = PurePosixPath(name), _created(file)
        for message in check_syntax({path: (b"", after)}, python=None, python_version="").values():
            yield _error(f"{place}:{file.line_number}", f"the new file {name} does not parse: {message}")


def _blank_ends(file: FilePatch, *, crlf: bool) -> Iterator[int]:
    """Yield the patch's line numbers of added lines that end in blanks; a CR belongs to the line end."""
    for hunk in file.hunks:
        for number, line in enumerate(hunk.lines, hunk.line_number + 1):
            text = line.removesuffix(b"\r")
            text = text.removesuffix(b"\r") if crlf else text
            if line.startswith(b"+") and text.endswith((b" ", b"\t")):
                yield number


def _created(file: FilePatch) -> bytes:
    return b"".join(line[1:] + b"\n" for hunk in file.hunks for line in hunk.lines if line.startswith(b"+"))


def _lint_order(series: Series) -> Iterator[Finding]:
    names = {entry.name for entry in series.entries}
    for fault in missing_requirements(series.entries, names):
        yield _error(str(series.directory / SERIES_NAME), f"{fault.what}: {fault.why}")


def _unlisted(series: Series) -> Iterator[Finding]:
    named = {entry.name for entry in series.entries}
    try:
        there = sorted(path.name for path in series.directory.iterdir())
    except OSError as error:
        yield _error(str(series.directory), f"cannot be listed: {error.strerror}")
        return
    for name in there:
        if _PATCH_NAME.fullmatch(name) and name not in named:
            yield _warning(str(series.directory / name), "is not named in `series`: it is never applied")


def _lint_lock(series: Series, releases: Sequence[TargetTree]) -> Iterator[Finding]:
    place = str(series.directory / LOCK_NAME)
    command = f"`{lock_command(series.directory, releases)}`"
    if series.lock is None:
        yield _warning(place, f"is missing: apply refuses without --unlocked; {command} writes it")
        return
    stale = stale_entries(series)
    if stale:
        yield _error(place, f"is stale, it differs for {', '.join(stale)}: run {command}")
        return
    if not series.lock.artifacts:
        yield _warning(place, "names no release: apply refuses without --unlocked")
    for section in series.lock.artifacts:
        locked = {file.path for file in section.files}
        for entry in series.entries:
            for path in sorted(_touched(entry, series, section) - locked):
                yield _error(place, f"{section.file}: does not cover {path}, which {entry.name} touches")


def _touched(entry: PatchEntry, series: Series, section: LockedArtifact) -> set[str]:
    """Return the paths below the engine's package that a patch names, if it is for the section's release."""
    engine = find_engine(series.engine)
    release = release_of(series, section.version)
    if engine is None or retired(entry, release) or not applies(entry, release):
        return set()
    names = {name for file in entry.patch.files for name in _authoritative(file)}
    split = [strip_name(name, entry.strip) for name in names]
    below = set()
    for path in (pair[1] for pair in split if pair is not None):
        for package in map(PurePosixPath, engine.packages):
            if path.startswith(f"{package}/"):
                below.add(str(PurePosixPath(path).relative_to(package.parent)))
    return below


def _authoritative(file: FilePatch) -> Iterator[str]:
    """Yield the names that certainly are paths: of a traditional header the old one may be a backup's."""
    if file.new_name is not None:
        yield file.new_name
    if file.old_name is not None and (file.git or file.new_name is None):
        yield file.old_name


def release_of(series: Series, version: str) -> TargetTree:
    """Return a release that is known by its version only, for Applies-To and Retires-When."""
    return TargetTree(
        engine=series.engine,
        version=version,
        root=series.directory,
        package=PurePosixPath(),
        layout=Layout.WHEEL,
        distribution="",
        python=None,
        python_version="",
        evidence=(),
    )


def _refused_hunks(place: str, file: FileDecision) -> Iterator[Finding]:
    bad = [one for one in file.placements if one.verdict not in (Verdict.EXACT, Verdict.OFFSET)]
    for placement in bad:
        yield _error(f"{place}:{placement.hunk.line_number}", f"{placement.verdict.value}: {placement.reason}")


def _lint_syntax(rendered: Rendered) -> Iterator[Finding]:
    """Check every Python file that the series leaves, by the interpreter of the tree where it is known."""
    artifact = rendered.artifact
    files = {
        path: (_content(artifact.entries.get(path)), entry.content)
        for path, entry in rendered.files.items()
        if entry is not None and entry.kind is Kind.FILE and path.suffix == ".py"
    }
    tree = artifact.tree
    for path, message in check_syntax(files, python=tree.python, python_version=tree.python_version).items():
        yield _error(f"{artifact.file or tree.root}", f"{path} does not parse after the series: {message}")


def _content(entry: TreeEntry | None) -> bytes:
    return b"" if entry is None else entry.content


def _lint_beside(series: Series, rendered: Rendered) -> Iterator[Finding]:
    """Warn of what applies to the release and not above the shipped series, where `apply` puts it."""
    artifact = rendered.release
    shipped = None if series.on_shipped else shipped_for(series, artifact.tree, artifact.entries)
    way = "apply with --no-shipped, or begin a series with `series new --on-shipped`"
    for name, what in refused_beside(rendered.layer, shipped, artifact.tree, artifact.entries) if shipped else ():
        yield _warning(str(series.directory / name), f"{what}; {way}")


def _lint_section(series: Series, rendered: Rendered, place: str) -> Iterator[Finding]:
    """Compare the lock's section for this release with what the series makes of it now."""
    artifact, lock = rendered.release, series.lock
    if lock is None:
        return
    lock_place = str(series.directory / LOCK_NAME)
    try:
        made = make_section(rendered)
    except PatchkitError as error:
        yield unreadable(error)
        return
    for section in lock.artifacts:
        if section.file == artifact.file and artifact.file.endswith(".whl") and section.sha256 != artifact.sha256:
            yield _error(lock_place, f"{section.file}: the file that is given has another sha256")
    match = match_lock(lock, version=artifact.tree.version, pristine=partial(_pristine_digest, artifact))
    if match.artifact is None:
        yield _error(lock_place, f"does not know {place}: {match.reason}")
        yield from (_error(lock_place, f"{place}: {path} has another pristine sha256") for path in match.mismatched)
        return
    yield from (_error(lock_place, f"{place}: {what}") for what in _differences(match.artifact, made))
    if match.artifact.below is not None and made.below is not None and match.artifact.below != made.below:
        what = f"{made.below.series} below changed since"
        yield _warning(lock_place, f"{place}: {what}; `{lock_command(series.directory, (artifact.tree,))}` notes it")


def _pristine_digest(artifact: Artifact, path: str) -> str | None:
    return file_sha256(artifact.entries.get(PurePosixPath(package_parent(artifact.tree) + path)))


def _differences(section: LockedArtifact, now: LockedArtifact) -> Iterator[str]:
    locked, made = ({file.path: file for file in one.files} for one in (section, now))
    below, ground = section.ground, now.ground
    for path in sorted(made.keys() | locked.keys()):
        if path not in locked:
            yield f"{path} is touched and not in the lock"
        elif path not in made:
            yield f"{path} is in the lock and not touched"
        elif below[path] != ground[path]:
            yield f"{path} is another below the series than the lock says"
        elif made[path].patched != locked[path].patched:
            yield f"{path} does not become what the lock says"


def _error(place: str, what: str) -> Finding:
    return Finding(severity=Severity.ERROR, place=place, what=what)


def _warning(place: str, what: str) -> Finding:
    return Finding(severity=Severity.WARNING, place=place, what=what)
