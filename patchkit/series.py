"""patches/<engine>/<version>/: the patches of a series in their order, with their trailers and their lock.

The `series` file is quilt's: a patch a line, `-pN` behind it, `#` comments; quilt itself pushes a series of ours.
Names in it are hostile: a patch lies below the directory of its series, whatever `..` or a symlink says.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from patchkit.confined import confine, read_below
from patchkit.diff.model import Patch
from patchkit.diff.parse import parse_patch
from patchkit.diff.text import MAX_RAW, inflate_patch
from patchkit.errors import PatchkitError, SeriesError
from patchkit.lock import LOCK_NAME, Lock, read_lock, stale_patches
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.specifier import accepts, plain_release, split_target
from patchkit.target import TargetTree
from patchkit.trailers import Trailers, parse_trailers
from patchkit.version import read_public

SERIES_NAME = "series"
BELOW_NAME = "below"
SHIPPED = "shipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchEntry:
    """One line of a series file with the patch it names; it has no files when `series new` has just made it.

    `raw` are the patch file's bytes, inflated where it is gz: they have the patch's sha256.
    """

    name: str
    strip: int
    trailers: Trailers
    patch: Patch
    raw: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A series as it lies on disk. `version` is the directory's name, `directory` where it was read from.

    `on_shipped`: it is cut on top of the shipped series, not on the release.
    """

    engine: str
    version: str
    directory: Path
    entries: tuple[PatchEntry, ...]
    lock: Lock | None
    on_shipped: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesLine:
    """One patch of a series file as it is written there; `name` is normalised and below the directory."""

    name: str
    strip: int
    line_number: int


_SERIES_LIMIT = 4 << 20
_COMMENT = compile_lazily(r"(?:^|\s)#.*")
_STRIP = compile_lazily(r"-p([0-9]{1,3})")
_CONTROL = compile_lazily(r"[\x00-\x1f\x7f-\x9f]")
_QUILT = "a line is a patch's name, then at most `-pN`, then at most a `# comment`"


def read_series(directory: Path, *, engine: str, version: str) -> Series:
    """Read `series`, every patch it names, and `below` and `series.lock` where there are such.

    All faults are looked for; the error shows the first in full and lists the others.
    """
    faults: list[PatchkitError] = []
    entries = tuple(read_entries(directory, faults))
    lock = _lock_of(directory, faults)
    on_shipped = False
    try:
        on_shipped = stands_on_shipped(directory)
    except PatchkitError as error:
        faults.append(error)
    if faults:
        raise _together(faults)
    return Series(
        engine=engine, version=version, directory=directory, entries=entries, lock=lock, on_shipped=on_shipped
    )


def stands_on_shipped(directory: Path) -> bool:
    """Tell whether the file `below` of a series says `shipped`; SeriesError when it says anything else."""
    place = str(directory / BELOW_NAME)
    if not os.path.lexists(place):
        return False
    text = read_below(directory, BELOW_NAME, limit=_SERIES_LIMIT, place=place).decode("utf-8", "surrogateescape")
    words = [word for line in text.split("\n") for word in _COMMENT.sub("", line).split()]
    if words != [SHIPPED]:
        raise SeriesError(
            f"{place}: does not say what stands below the series",
            why=f"expected the word `{SHIPPED}`, found {ascii(' '.join(words))[:120]}",
            hint="a series that is cut on the release itself has no such file",
        )
    return True


def stale_entries(series: Series) -> tuple[str, ...]:
    """Return the names for which the lock of a series is stale; nothing without a lock."""
    if series.lock is None:
        return ()
    patches = stale_patches(series.lock, ((entry.name, entry.patch.sha256) for entry in series.entries))
    moved = any((section.below is not None) is not series.on_shipped for section in series.lock.artifacts)
    return (BELOW_NAME, *patches) if moved else patches


def read_entries(directory: Path, faults: list[PatchkitError]) -> Iterator[PatchEntry]:
    """Yield the patches of a series that can be read; what is wrong with the others is added to `faults`."""
    source = directory / SERIES_NAME
    text = read_below(directory, SERIES_NAME, limit=_SERIES_LIMIT, place=str(source))
    for line in parse_series(text, source=str(source), faults=faults):
        try:
            yield read_patch_entry(directory, line, place=f"{source}:{line.line_number}")
        except PatchkitError as error:
            faults.append(error)


def parse_series(text: bytes, *, source: str, faults: list[PatchkitError]) -> tuple[SeriesLine, ...]:
    """Read the lines of a series file; what is wrong with a line is added to `faults`, and the line left out."""
    first_lines: dict[str, int] = {}
    lines = []
    for number, raw_line in enumerate(text.decode("utf-8", errors="surrogateescape").split("\n"), 1):
        words = (_COMMENT.sub("", raw_line) if "#" in raw_line else raw_line).split()
        if not words:
            continue
        try:
            line = _series_line(words, number, first_lines)
        except ValueError as error:
            faults.append(_line_fault(f"{source}:{number}", raw_line, *error.args))
            continue
        first_lines[line.name] = number
        lines.append(line)
    return tuple(lines)


def read_patch_entry(directory: Path, line: SeriesLine, *, place: str) -> PatchEntry:
    """Read the patch that a line names; `place` is the line's `file:line` for messages."""
    source = f"{directory}/{line.name}"
    raw = inflate_patch(read_below(directory, line.name, limit=MAX_RAW, place=place), source=source)
    if raw.startswith(b"\x1f\x8b"):
        raise SeriesError(f"{place}: {line.name} is compressed twice", why="its sha256 would not be that of the patch")
    patch = parse_entry(raw, source=source)
    return PatchEntry(
        name=line.name,
        strip=line.strip,
        trailers=parse_trailers(patch.preamble, source=source),
        patch=patch,
        raw=raw,
    )


def parse_entry(raw: bytes, *, source: str) -> Patch:
    """Read the bytes of a series' patch: as any diff, or as `series new` writes it, without a change."""
    return _without_change(raw, source=source) or parse_patch(raw, source=source)


def available_series(patches_dir: Path, engine: str) -> tuple[tuple[str, Path], ...]:
    """Return the version label and directory of every series for the engine, the newest version last.

    Series lie in `<dir>/<engine>/<version>/`; a user's directory may be a series itself, labelled by its own name.
    """
    if (patches_dir / SERIES_NAME).is_file():
        return ((patches_dir.absolute().name, patches_dir),)
    try:
        found = [path for path in (patches_dir / engine).iterdir() if (path / SERIES_NAME).is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    key = _plain_key if all(plain_release(path.name) for path in found) else _version_key
    return tuple((path.name, path) for path in sorted(found, key=lambda path: (key(path.name), path.name)))


def find_series(patches_dir: Path, tree: TargetTree) -> Series | None:
    """Choose the series for a tree; None when the directory has none.

    The directory named like the tree's public version; else the newest in which every patch names the version in
    Applies-To. A user's directory that is a series itself is meant for the tree, unless all its patches name another
    engine: whether each of them applies to this version is then `applies`' answer.
    """
    labelled = available_series(patches_dir, tree.engine)
    if labelled and labelled[0][1] == patches_dir:
        series = read_series(patches_dir, engine=tree.engine, version=labelled[0][0])
        return series if _is_for_engine(series.entries, tree.engine) else None
    for label, directory in reversed(labelled):
        if _is_release(label, tree.version):
            return read_series(directory, engine=tree.engine, version=label)
    for label, directory in reversed(labelled):
        if _is_meant_for(directory, tree):
            return read_series(directory, engine=tree.engine, version=label)
    return None


def _is_meant_for(directory: Path, tree: TargetTree) -> bool:
    """Tell whether every patch of a series names the tree's version; behind one that does not nothing is read."""
    faults: list[PatchkitError] = []
    empty = True
    for entry in read_entries(directory, faults):
        if not entry.trailers.applies_to or not applies(entry, tree):
            return False
        empty = False
    return bool(faults) or not empty


def applies(entry: PatchEntry, tree: TargetTree) -> bool:
    """Tell whether Applies-To admits the tree; a patch without it applies everywhere."""
    return not entry.trailers.applies_to or _admits(entry.trailers.applies_to, tree)


def retired(entry: PatchEntry, tree: TargetTree) -> bool:
    """Tell whether Retires-When is true of the tree: the release has what the patch brought."""
    return bool(entry.trailers.retires_when) and _admits(entry.trailers.retires_when, tree)


def missing_requirements(entries: Sequence[PatchEntry], enabled: Collection[str]) -> tuple[SeriesError, ...]:
    """Return an error for every Requires of an enabled patch that is not met by an enabled patch before it.

    `enabled` are names; those that the release has already (retired, upstreamed) count as enabled.
    """
    places = {entry.name: place for place, entry in enumerate(entries)}
    return tuple(
        _unmet(entry.name, required, why)
        for entry in entries
        if entry.name in enabled
        for required in entry.trailers.requires
        if (why := _why_unmet(places, entry.name, required, enabled))
    )


def _series_line(words: Sequence[str], number: int, first_lines: Mapping[str, int]) -> SeriesLine:
    """Read the words of a line; ValueError(what, why) when quilt or patchkit would not take them."""
    name, *options = words
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name or _CONTROL.search(name):
        raise ValueError(f"{name!r} is not a path below the series", "patches lie in the directory of their series")
    if str(path) in first_lines:
        raise ValueError(f"{path} is in the series twice", f"first on line {first_lines[str(path)]}")
    if options[:1] == ["-p"]:
        options = ["".join(options[:2]), *options[2:]]
    if "-R" in options:
        raise ValueError("-R: a series has no reversed patches", "write the reversed change as a patch of its own")
    strip = _STRIP.fullmatch(options[0]) if options else None
    if len(options) > 1 or (options and strip is None):
        raise ValueError(f"unknown option {(options[1:] if strip else options)[0]!r}", _QUILT)
    return SeriesLine(name=str(path), strip=int(strip.group(1)) if strip else 1, line_number=number)


def _line_fault(place: str, line: str, what: str, why: str) -> SeriesError:
    number = place.rpartition(":")[2]
    return SeriesError(f"{place}: {what}", why=f"  {number} | {ascii(line[:120])[1:-1]}\n{why}")


def _lock_of(directory: Path, faults: list[PatchkitError]) -> Lock | None:
    """Read the lock; a fault of it is added to the others."""
    path = directory / LOCK_NAME
    if not os.path.lexists(path):
        return None
    try:
        return read_lock(confine(directory, LOCK_NAME, place=str(path)))
    except PatchkitError as error:
        faults.append(error)
        return None


def _together(faults: Sequence[PatchkitError]) -> PatchkitError:
    first, *others = faults
    if not others:
        return first
    return SeriesError(first.what, why="\n".join([first.why, *(error.what for error in others)]), hint=first.hint)


def _without_change(raw: bytes, *, source: str) -> Patch | None:
    """Return the patch that `series new` writes, a header that ends in `---`; None for any other bytes."""
    if not raw.rstrip(b"\n").endswith(b"\n---"):
        return None
    return Patch(
        source=source,
        sha256=hashlib.sha256(raw).hexdigest(),
        preamble=raw,
        files=(),
        footer=b"",
        crlf=False,
    )


def _plain_key(label: str) -> tuple[object, ...]:
    return plain_release(label) or ()


def _version_key(label: str) -> tuple[object, ...]:
    """Return an order of version labels: those that are none come first, local versions do not count."""
    public = read_public(label)
    return (False,) if public is None else (True, public)


def _is_release(label: str, version: str) -> bool:
    """Tell whether a directory's name is the public version of a tree."""
    public = version.partition("+")[0]
    release, wanted = plain_release(label), plain_release(public)
    if release is not None and wanted is not None:
        return release == wanted
    known = _version_key(public)
    return bool(known[0]) and _version_key(label) == known


def _admits(target: str, tree: TargetTree) -> bool:
    engine, specifier = split_target(target)
    return engine == tree.engine and accepts(specifier, tree.version.partition("+")[0])


def _is_for_engine(entries: Iterable[PatchEntry], engine: str) -> bool:
    named = [entry.trailers.applies_to for entry in entries]
    return not named or any(not target or split_target(target)[0] == engine for target in named)


def _why_unmet(places: dict[str, int], name: str, required: str, enabled: Collection[str]) -> str:
    if required not in places:
        return f"{required} is not in the series"
    if places[required] >= places[name]:
        return f"{required} comes later in the series"
    return "" if required in enabled else f"{required} is not enabled"


def _unmet(name: str, required: str, why: str) -> SeriesError:
    return SeriesError(f"{name}: requires {required}", why=why, hint=f"enable {required}, or leave {name} out too")
