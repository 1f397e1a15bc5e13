"""Put snapshots together into the facts that the package carries: the files that `snapshot.Facts` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from patchkit.abi.facts import WheelFacts
from patchkit.abi.layout_facts import Records
from patchkit.abi.snapshot import (
    ENDING,
    LAYOUTS,
    SCHEMA,
    SYMBOLS,
    TORCH,
    WHEELS,
    Facts,
    Snapshot,
    deflate,
    wheel_document,
)
from patchkit.abi.symbol_table import build_table
from patchkit.errors import ObjectFormatError, RefusedError
from patchkit.pattern import compile_lazily
from patchkit.version import read_version

_NAME = compile_lazily(r"[a-z0-9](?:[a-z0-9-]{0,98}[a-z0-9])?")


def pack_facts(directory: Path, snapshots: Iterable[Snapshot]) -> tuple[str, ...]:
    """Write the snapshots over what a directory of facts holds, and return the releases that are there then."""
    from packaging.version import Version

    facts = Facts(directory)
    stored = facts.wheels
    wheels = {(one.distribution, one.version): one for one in stored}
    exports = _stored_exports(facts) if (directory / SYMBOLS).is_file() else {}
    layouts: dict[str, Records] = {}
    for snapshot in snapshots:
        wheel = snapshot.wheel
        _check_title(wheel)
        wheels[wheel.distribution, wheel.version] = wheel
        if wheel.distribution == TORCH:
            exports[wheel.version] = snapshot.exports
        if snapshot.layouts:
            layouts[wheel.title] = snapshot.layouts
    ordered = [wheels[key] for key in sorted(wheels, key=lambda key: (key[0], Version(key[1])))]
    table = build_table({version: exports[version] for version in sorted(exports, key=Version)})
    _make_directory(directory / WHEELS)
    for one in ordered:
        _write(directory / WHEELS / f"{one.title}{ENDING}", deflate({"schema": SCHEMA, "wheel": wheel_document(one)}))
    _write(directory / SYMBOLS, table.pack())
    if layouts:
        _write(directory / LAYOUTS, facts.types.content(layouts))
    return tuple(one.title for one in ordered)


def _check_title(wheel: WheelFacts) -> None:
    """A snapshot's name becomes a file's: only what a distribution can be called, in a version that can be ordered."""
    version = read_version(wheel.version)
    if version is None or str(version) != wheel.version or not _NAME.fullmatch(wheel.distribution):
        raise ObjectFormatError(
            f"{ascii(wheel.title)[:80]}: no distribution is called so",
            why="  expected a normalised name and a version of PEP 440",
            hint="make the snapshot anew with `patchkit abi snapshot`",
        )


def _stored_exports(facts: Facts) -> dict[str, Mapping[str, Iterable[int]]]:
    """Return release -> library -> hashes. A library that a release does not have is not named for it."""
    table = facts.symbols
    stored: dict[str, Mapping[str, Iterable[int]]] = {}
    for release in table.releases:
        homes = table.homes_of(release)
        wheel = facts.find(TORCH, release)
        own = {one.name for one in wheel.objects} if wheel else set(table.libraries)
        stored[release] = {
            library: [one for one, home in homes.items() if home >> bit & 1]
            for bit, library in enumerate(table.libraries)
            if library in own
        }
    return stored


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be made", why=f"  {error.strerror}", hint="check the place") from error


def _write(path: Path, content: bytes) -> None:
    staged = path.with_name(path.name + ".new")
    try:
        staged.write_bytes(content)
        staged.replace(path)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written", why=f"  {error.strerror}", hint="check the place") from error
