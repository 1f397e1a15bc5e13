"""A work directory for one patch: the package's text files as the series leaves them, and what became of them there.

The directory is apart from every tree, so that an edit is never confounded with a patched installation. A small file
in it, `.patchkit-edit.json`, says what it was made from.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from patchkit.archive import Artifact
from patchkit.author import split_series
from patchkit.counting import counted
from patchkit.decision import Decision, Outcome
from patchkit.errors import RefusedError, UnsafePathError, UsageError, WrongTreeError
from patchkit.locking import Rendered, render_series
from patchkit.record import dataclass
from patchkit.series import Series
from patchkit.tree import Entries, Kind, TreeEntry, open_entries
from patchkit.wanted import package_parent

EDIT_NAME = ".patchkit-edit.json"
SCHEMA = 1

Files = Mapping[PurePosixPath, TreeEntry]
"""Files by their path as a wheel has it: `sglang/x.py`, also where a checkout has `python/sglang/x.py`."""

_PROBE = 8000  # git looks for a NUL in so many bytes
_LARGEST_TEXT = 4 << 20
_LARGEST_NOTE = 16 << 20
_LITTER = (".pyc", ".pyo", ".orig", ".rej", ".swp", "~")
_LITTER_DIRECTORIES = frozenset({"__pycache__", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What a patch is edited on: the package's text files `below` the patch, and `with_patch`. The shipped series is
    in both where the patch's series stands on it.

    `hidden` are the files of the package that are no text: a work directory has none of them.
    """

    below: Files
    with_patch: Files
    hidden: frozenset[PurePosixPath]


@dataclass(frozen=True, kw_only=True, slots=True)
class EditNote:
    """What a work directory was made from: `below` is the digest of all files below the patch, `files` was written.

    `bare`: the patch's own change is not in it.
    """

    series: str
    patch: str
    source: str
    below: str
    files: tuple[tuple[str, str], ...]
    bare: bool = False


def edit_ground(series: Series, name: str, artifact: Artifact, *, bare: bool = False) -> Ground:
    """Render the package with the patches below one, and with it too unless `bare`: then it need not apply.

    Raises RefusedError when one of them does not apply, or when the patch holds what a work directory cannot show: a
    refresh would lose that.
    """
    lower, entry, _ = split_series(series, name)
    if entry.strip != 1:
        raise RefusedError(
            f"{name}: cannot be refreshed with -p{entry.strip}", hint="import it first: its names become -p1"
        )
    below = render_series(series, artifact, lower)
    above = render_series(series, artifact, (*lower, entry))
    _check_applies(below, must="")
    if not bare:
        _check_applies(above, must=name)
    _check_showable(above, name)
    pristine, hidden = _package_files(below.artifact)
    shown = below if bare else above
    return Ground(below=_rendered(below, pristine), with_patch=_rendered(shown, pristine), hidden=hidden)


def write_work(directory: Path, ground: Ground, note: EditNote) -> None:
    """Write a work directory, which must be new or empty. The note is written last: without it nothing is refreshed."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        hint = "name another directory with --work"
        raise UsageError(f"{directory}: not empty", why="what is there would be taken for your edit", hint=hint)
    for path, entry in ground.with_patch.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as stream:
            stream.write(entry.content)
            os.fchmod(stream.fileno(), 0o755 if entry.mode & 0o100 else 0o644)
    with (directory / EDIT_NAME).open("xb") as stream:
        stream.write(_render_note(note))


def make_note(series: Series, name: str, artifact: Artifact, ground: Ground, *, bare: bool = False) -> EditNote:
    """Say what a work directory is made from."""
    files = ((str(path), _sha256(entry.content)) for path, entry in ground.with_patch.items())
    return EditNote(
        series=str(series.directory.resolve()),
        patch=name,
        source=str(artifact.tree.root.resolve()),
        below=_digest_of(ground.below),
        files=tuple(sorted(files)),
        bare=bare,
    )


def read_note(directory: Path) -> EditNote:
    """Read what a work directory was made from; UsageError when it is none."""
    place = directory / EDIT_NAME
    if not directory.is_dir():
        raise UsageError(
            f"{directory}: no such directory",
            why="the work directory of a patch is read there",
            hint="`patchkit series edit` makes one",
        )
    try:
        entry = open_entries(directory).get(PurePosixPath(EDIT_NAME))
        if entry is None or entry.kind is not Kind.FILE or len(entry.content) > _LARGEST_NOTE:
            raise UsageError(
                f"{directory}: not a work directory",
                why=f"it has no {EDIT_NAME}",
                hint="`patchkit series edit` makes one",
            )
        return _checked_note(json.loads(entry.content), place)
    except (ValueError, RecursionError) as error:
        raise _damaged(place, str(error)) from error


def check_note(note: EditNote, series: Series, name: str, ground: Ground) -> None:
    """Refuse a work directory that was made for another patch, or from other files than those now below the patch."""
    if note.patch != name or note.series != str(series.directory.resolve()):
        raise UsageError(
            f"this work directory is for {note.patch}",
            why=f"it was made for {note.patch} of {note.series}, not for {name} of {series.directory.resolve()}",
            hint=f"name the work directory of {name}, or make one with `patchkit series edit`",
        )
    if note.below != _digest_of(ground.below):
        raise WrongTreeError(
            f"{name}: what lies below the patch is not what it was when `series edit` ran",
            why="the release is another one, or an earlier patch or the shipped series below changed; "
            "the patch would undo that",
            hint="run `patchkit series edit` again into a new directory and take your edit over",
        )


def edited_files(directory: Path, ground: Ground, package: str) -> tuple[Files, Files]:
    """Return what differs: files as they are below the patch, and as they are in the work directory.

    New and deleted files count; what an editor, git or Python left behind does not. Raises RefusedError for what a
    patch of a package cannot have, and for rejects: hunks that `patch` left out, which the patch would lose.
    """
    found = dict(_work_files(directory, open_entries(directory), package))
    covered = sorted(found.keys() & ground.hidden)
    if covered:
        what = f"{directory / covered[0]}: the package has a compiled or large file of that name"
        raise RefusedError(what, why="a refreshed patch has text files only", hint="take it out of the work directory")
    _check_rejects(directory, package)
    before = {path: entry for path, entry in ground.below.items() if not _same(entry, found.get(path))}
    after = {path: entry for path, entry in found.items() if not _same(entry, ground.below.get(path))}
    return before, after


def is_unedited(directory: Path, ground: Ground, note: EditNote, package: str) -> bool:
    """Tell whether the work directory is as `series edit` wrote it, and that is what the patch still makes."""
    found = {
        str(path): _sha256(entry.content) for path, entry in _work_files(directory, open_entries(directory), package)
    }
    makes = {str(path): _sha256(entry.content) for path, entry in ground.with_patch.items()}
    return found == dict(note.files) == makes


def _check_applies(rendered: Rendered, *, must: str) -> None:
    """Refuse when a patch is refused, or when the one that `must` be there is left out of this release."""
    stuck = [
        one
        for one in rendered.decisions
        if one.refused or (one.patch == must and one.outcome in (Outcome.UPSTREAMED, Outcome.DISABLED, Outcome.RETIRED))
    ]
    if stuck:
        raise RefusedError(
            f"{counted(len(stuck), 'patch does not apply', 'patches do not apply')} to {rendered.artifact.tree.root}",
            why="\n".join(f"{one.patch}: {one.outcome.value}: {one.reason}" for one in stuck),
            hint=_mending(stuck[0]),
        )


def _mending(first: Decision) -> str:
    if not first.refused:
        return "give the release that the series was cut against"
    mend = f"`patchkit series edit {first.patch} --bare` writes the files without its change: make it there and refresh"
    return f"give the release that the series was cut against; or mend it: {mend}"


def _check_showable(rendered: Rendered, name: str) -> None:
    wanted = next(one for one in rendered.layer.patches if one.name == name)
    lost = [
        file.new_name or file.old_name or ""
        for file, paths in zip(wanted.patch.files, wanted.paths, strict=True)
        if file.binary is not None or not any(paths)
    ]
    if lost:
        raise RefusedError(
            f"{name}: a refresh would lose parts of it",
            why="\n".join(f"binary, or not in this tree: {one}" for one in lost),
            hint="move them to a patch of their own",
        )


def _rendered(rendered: Rendered, pristine: Files) -> Files:
    files = dict(pristine)
    prefix = package_parent(rendered.artifact.tree)
    for path, entry in rendered.files.items():
        place = PurePosixPath(str(path).removeprefix(prefix))
        files.pop(place, None)
        if entry is not None and _is_text(entry):
            files[place] = entry
    return files


def _package_files(artifact: Artifact) -> tuple[Files, frozenset[PurePosixPath]]:
    """Return the package's text files, and the paths of what is none: compiled or large files, links."""
    prefix = package_parent(artifact.tree)
    files = {}
    hidden = set()
    for path in sorted(set(_package_paths(artifact))):
        place = PurePosixPath(str(path).removeprefix(prefix))
        entry = None if path.suffix == ".so" else artifact.entries.get(path)
        if entry is not None and _is_text(entry):
            files[place] = entry
        elif path.suffix == ".so" or (entry is not None and entry.kind is not Kind.DIRECTORY):
            hidden.add(place)
    return files, frozenset(hidden)


def _package_paths(artifact: Artifact) -> Iterator[PurePosixPath]:
    """List the package only: a site-packages has many others."""
    package = artifact.tree.package
    listing: Iterable[PurePosixPath] = artifact.entries
    if artifact.tree.root.is_dir():
        listing = (package / path for path in open_entries(artifact.tree.root / package))
    for path in (*listing, *artifact.touched):
        if path.is_relative_to(package) and not _is_litter(path):
            yield path


def _is_text(entry: TreeEntry) -> bool:
    return entry.kind is Kind.FILE and len(entry.content) <= _LARGEST_TEXT and b"\0" not in entry.content[:_PROBE]


def _is_litter(path: PurePosixPath) -> bool:
    return path.name.endswith(_LITTER) or path.name.startswith(".#") or bool(_LITTER_DIRECTORIES & set(path.parts))


def _work_files(directory: Path, entries: Entries, package: str) -> Iterator[tuple[PurePosixPath, TreeEntry]]:
    top = PurePosixPath(package)
    standing = entries.get(top)
    if standing is None or standing.kind is not Kind.DIRECTORY:
        what = f"{directory / package}: not there, or not a directory"
        raise RefusedError(what, why="it would delete the whole package", hint="make the work directory anew")
    for below in open_entries(directory / package):
        path = top / below
        if _is_litter(path):
            continue
        entry = entries[path]
        if entry.kind in (Kind.SYMLINK, Kind.OTHER):
            what = f"{directory / path}: is a {entry.kind.value}"
            raise UnsafePathError(what, why="a patch of a package has plain files only", hint="put a file in its place")
        if entry.kind is Kind.FILE:
            yield path, entry


def _check_rejects(directory: Path, package: str) -> None:
    """Refuse hunks that did not apply here; `series edit` writes no such file."""
    rejects = sorted(
        str(directory / package / path) for path in open_entries(directory / package) if path.name.endswith(".rej")
    )
    if rejects:
        raise RefusedError(
            f"{directory}: {counted(len(rejects), 'file')} with rejected hunks",
            why="\n".join(rejects),
            hint="make in the files what they would have changed, or leave it; remove the .rej, then refresh again",
        )


def _same(one: TreeEntry, other: TreeEntry | None) -> bool:
    return other is not None and one.content == other.content and (one.mode ^ other.mode) & 0o100 == 0


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(files: Files) -> str:
    lines = sorted(f"{_sha256(entry.content)} {path}" for path, entry in files.items())
    return _sha256("\n".join(lines).encode("utf-8", "surrogateescape"))


def _render_note(note: EditNote) -> bytes:
    document = {
        "schema": SCHEMA,
        "series": note.series,
        "patch": note.patch,
        "source": note.source,
        "below": note.below,
        "files": dict(note.files),
        "bare": note.bare,
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _checked_note(document: object, place: Path) -> EditNote:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise _damaged(place, f"expected schema {SCHEMA}")
    words = {name: document.get(name) for name in ("series", "patch", "source", "below")}
    files = document.get("files")
    if not all(isinstance(word, str) for word in words.values()) or not isinstance(files, dict):
        raise _damaged(place, "expected series, patch, source, below and files")
    pairs = tuple((str(path), str(sha256)) for path, sha256 in files.items())
    return EditNote(**{name: str(word) for name, word in words.items()}, files=pairs, bare=document.get("bare") is True)


def _damaged(place: Path, why: str) -> UsageError:
    return UsageError(f"{place}: damaged", why=why, hint="`patchkit series edit` into a new directory writes it anew")
