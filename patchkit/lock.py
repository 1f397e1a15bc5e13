"""series.lock: what a series was proved against, by hash, and whether a tree and the patches are still that.

JSON, `{"schema": 1, "patches": {name: sha256}, "artifacts": [{file, sha256, version, files: {path: {pristine,
patched}}}]}`, keys sorted, so that two people who lock the same series write the same bytes. The section of a series
that stands on the shipped one also has `below`: {series, patches: {name: sha256}, files: {path: sha256}}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from patchkit.counting import counted_of
from patchkit.errors import SeriesError
from patchkit.pattern import compile_lazily
from patchkit.quoting import typed_path
from patchkit.record import dataclass
from patchkit.target import TargetTree
from patchkit.version import same_public

SCHEMA = 1
LOCK_NAME = "series.lock"

_HEX, _SHA256_LENGTH = "0123456789abcdef", 64
# As strip._REFUSED; and what is no byte of a name, which is \udc80 to \udcff.
_UNWRITABLE = compile_lazily(r"[\x00\n\r\ud800-\udc7f\udd00-\udfff]")
_CONTROL = compile_lazily(r"[\x00-\x1f\x7f]")
_SIZE_LIMIT = 64 * 1024 * 1024
_AGAIN = "write it anew: patchkit series lock --patches DIR --artifact WHEEL"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedFile:
    """A touched file by hash: as released, and after the whole series. None: it is not there."""

    path: str
    pristine: str | None
    patched: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedBelow:
    """What stood below a series: another one by name, with its patches by name and sha256.

    `files` are those of the touched files that it changes, by hash as it leaves them (None: it takes them away).
    """

    series: str
    patches: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedArtifact:
    """A released file that the series was cut and proved against; `version` is its public version.

    `below` is what stood between it and the series, None for nothing.
    """

    file: str
    sha256: str
    version: str
    files: tuple[LockedFile, ...]
    below: LockedBelow | None = None

    @property
    def ground(self) -> dict[str, str | None]:
        """Every touched file by hash as the series finds it: as released, or as what stands below leaves it."""
        released = {file.path: file.pristine for file in self.files}
        return released | dict(self.below.files) if self.below is not None else released


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """series.lock: a section per released artifact and the sha256 of every patch, by name."""

    artifacts: tuple[LockedArtifact, ...]
    patches: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LockMatch:
    """Which section of a lock a tree is: `artifact` is None when none is, then `reason` says why.

    `mismatched` are the files of the closest section whose content differs from the tree's.
    """

    artifact: LockedArtifact | None
    mismatched: tuple[str, ...]
    reason: str


def read_lock(path: Path) -> Lock:
    """Read a series.lock; SeriesError when it is not one."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(_SIZE_LIMIT + 1)
    except OSError as error:
        raise SeriesError(f"{path}: cannot be read", why=str(error.strerror)) from error
    if len(raw) > _SIZE_LIMIT:
        raise SeriesError(f"{path}: larger than {_SIZE_LIMIT >> 20} MiB", hint=_AGAIN)
    return parse_lock(raw, source=str(path))


def parse_lock(raw: bytes, *, source: str) -> Lock:
    """Read the bytes of a series.lock; every value is checked, unknown keys are refused."""
    try:
        document = json.loads(raw, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise SeriesError(f"{source}: not JSON", why=str(error), hint=_AGAIN) from error
    return _LockReader(source).lock(document)


def render_lock(lock: Lock) -> bytes:
    """Write a lock: sorted, indented, one newline at the end."""
    document = {
        "schema": SCHEMA,
        "patches": dict(lock.patches),
        "artifacts": [
            {
                "file": artifact.file,
                "sha256": artifact.sha256,
                "version": artifact.version,
                "files": {file.path: {"pristine": file.pristine, "patched": file.patched} for file in artifact.files},
                **({} if artifact.below is None else {"below": _below_fields(artifact.below)}),
            }
            for artifact in sorted(lock.artifacts, key=lambda artifact: (artifact.version, artifact.file))
        ],
    }
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True) + "\n").encode()


def _below_fields(below: LockedBelow) -> dict[str, object]:
    return {"series": below.series, "patches": dict(below.patches), "files": dict(below.files)}


def match_lock(lock: Lock, *, version: str, pristine: Callable[[str], str | None]) -> LockMatch:
    """Find the section that a tree is: of its public version, with every pristine hash equal.

    `pristine` gives the sha256 of a path's unpatched content in the tree, None when nothing is there.
    """
    sections = [artifact for artifact in lock.artifacts if _same_public(artifact.version, version)]
    if not sections:
        known = ", ".join(dict.fromkeys(artifact.version for artifact in lock.artifacts)) or "none"
        return LockMatch(artifact=None, mismatched=(), reason=f"no section for {version or '?'}; locked are: {known}")
    hashes: dict[str, str | None] = {}
    compared = []
    for artifact in sections:
        for file in artifact.files:
            if file.path not in hashes:
                hashes[file.path] = pristine(file.path)
        differing = tuple(file.path for file in artifact.files if hashes[file.path] != file.pristine)
        if not differing:
            return LockMatch(artifact=artifact, mismatched=(), reason="")
        compared.append((differing, artifact))
    differing, closest = min(compared, key=lambda pair: len(pair[0]))
    reason = f"{counted_of(len(differing), len(closest.files), 'file', 'differs', 'differ')} from {closest.file}"
    return LockMatch(artifact=None, mismatched=differing, reason=reason)


def lock_command(directory: Path, releases: Iterable[TargetTree] = ()) -> str:
    """Return the command that makes a series' lock anew, as one types it, on releases that are at hand."""
    return f"patchkit series lock --patches {typed_path(directory, 'DIR')} {release_options(releases)}"


def release_options(releases: Iterable[TargetTree]) -> str:
    """Return the options that name wheels and trees; without any the wheel is for the user to name."""
    options = [
        f"--artifact {typed_path(tree.root, 'WHEEL')}"
        if tree.root.suffix == ".whl"
        else f"--target {tree.engine} --root {typed_path(tree.root, 'DIR')}"
        for tree in releases
    ]
    return " ".join(options) or "--artifact WHEEL"


def stale_patches(lock: Lock, patches: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names whose sha256 is not the lock's: changed, new, or gone from the series."""
    differing = frozenset(lock.patches) ^ frozenset(patches)
    return tuple(sorted({name for name, _ in differing}))


def _is_plain(text: str) -> bool:
    """Tell whether a text is of visible ASCII and blanks, as nearly all are: then no pattern has to be compiled."""
    return text.isascii() and text.isprintable()


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twins = sorted({key for key, _ in pairs if sum(other == key for other, _ in pairs) > 1})
        raise ValueError(f"key given twice: {twins[0]!r}")
    return found


def _same_public(locked: str, version: str) -> bool:
    return locked == version or same_public(locked, version)


@dataclass(frozen=True, slots=True)
class _LockReader:
    """Reads the parts of one document; `source` names it in errors."""

    source: str

    def lock(self, document: object) -> Lock:
        if isinstance(document, dict) and document.get("schema") != SCHEMA:
            why = f"this patchkit reads schema {SCHEMA}, the file says {document.get('schema')!r}"
            raise SeriesError(f"{self.source}: unknown schema", why=why, hint="install a patchkit that knows it")
        fields = self._keys(document, {"schema", "patches", "artifacts"}, "the lock")
        patches = self._mapping(fields["patches"], "patches")
        sections = fields["artifacts"]
        if not isinstance(sections, list):
            raise self._fault("artifacts", "a list", sections)
        return Lock(
            artifacts=tuple(self._artifact(section, f"artifacts[{index}]") for index, section in enumerate(sections)),
            patches=tuple(sorted((self._path(name), self._sha256(sha, name)) for name, sha in patches.items())),
        )

    def _artifact(self, section: object, place: str) -> LockedArtifact:
        expected = {"file", "sha256", "version", "files"}
        layered = isinstance(section, dict) and "below" in section
        fields = self._keys(section, {*expected, "below"} if layered else expected, place)
        files = self._mapping(fields["files"], f"{place}.files")
        return LockedArtifact(
            file=self._word(fields["file"], f"{place}.file"),
            sha256=self._sha256(fields["sha256"], place),
            version=self._word(fields["version"], f"{place}.version"),
            files=tuple(self._file(path, states) for path, states in sorted(files.items())),
            below=self._below(fields["below"], f"{place}.below") if layered else None,
        )

    def _below(self, section: object, place: str) -> LockedBelow:
        fields = self._keys(section, {"series", "patches", "files"}, place)
        series = fields["series"]
        if not isinstance(series, str):
            raise self._fault(f"{place}.series", "a name", series)
        patches = self._mapping(fields["patches"], f"{place}.patches")
        files = self._mapping(fields["files"], f"{place}.files")
        return LockedBelow(
            series=self._path(series),
            patches=tuple(sorted((self._path(name), self._sha256(sha, name)) for name, sha in patches.items())),
            files=tuple(sorted((self._path(path), self._optional_sha256(sha, path)) for path, sha in files.items())),
        )

    def _file(self, path: str, states: object) -> LockedFile:
        fields = self._keys(states, {"pristine", "patched"}, path)
        pristine, patched = (self._optional_sha256(fields[name], path) for name in ("pristine", "patched"))
        return LockedFile(path=self._path(path), pristine=pristine, patched=patched)

    def _path(self, path: str) -> str:
        parts = path.split("/")
        if (not _is_plain(path) and _UNWRITABLE.search(path)) or not all(parts) or {".", ".."} & set(parts):
            raise self._fault("a path", "a relative path without `.` and `..`", path)
        return path

    def _sha256(self, value: object, place: str) -> str:
        if not isinstance(value, str) or len(value) != _SHA256_LENGTH or value.strip(_HEX):
            raise self._fault(place, "a sha256 in hex", value)
        return value

    def _optional_sha256(self, value: object, place: str) -> str | None:
        return None if value is None else self._sha256(value, place)

    def _word(self, value: object, place: str) -> str:
        if not isinstance(value, str) or not value or "/" in value or (not _is_plain(value) and _CONTROL.search(value)):
            raise self._fault(place, "a name", value)
        return value

    def _mapping(self, value: object, place: str) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self._fault(place, "an object", value)
        return cast("Mapping[str, object]", value)

    def _keys(self, value: object, expected: set[str], place: str) -> Mapping[str, object]:
        fields = self._mapping(value, place)
        if set(fields) != expected:
            raise self._fault(place, f"the keys {', '.join(sorted(expected))}", ", ".join(sorted(fields)))
        return fields

    def _fault(self, place: str, expected: str, found: object) -> SeriesError:
        what = f"{self.source}: {ascii(place)[1:-1]} is malformed"
        return SeriesError(what, why=f"expected {expected}, found {ascii(found)[:120]}", hint=_AGAIN)
