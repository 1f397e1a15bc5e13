"""Snapshots: what is known about released wheels, kept in the package, so that questions need no download.

`facts/wheels/NAME==VERSION.json.z` holds the record of an engine or of torch's libraries, `facts/torch.symbols` torch's
exports (see `symbol_table`), `facts/layouts.json.z` struct layouts: release -> struct -> record. A snapshot that
`patchkit abi snapshot` writes is one JSON document with the same records, and `layouts` keyed by struct name.
Both have `schema: 1`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from patchkit.abi.facts import Import, ObjectFacts, VersionNeed, WheelFacts
from patchkit.abi.layout_facts import Records, StoredTypes, read_types, records_document, records_from
from patchkit.abi.symbol_table import SymbolTable, unpack_table
from patchkit.engine import normalise_name
from patchkit.environment import directory_names
from patchkit.errors import ObjectFormatError
from patchkit.record import dataclass

SCHEMA = 1
FACTS = Path(__file__).resolve().parent / "facts"
WHEELS, SYMBOLS, LAYOUTS = "wheels", "torch.symbols", "layouts.json.z"
ENDING = ".json.z"
TORCH = "torch"
_LARGEST = 1 << 28
_MOST_LIBRARIES = 8  # a symbol table has a bit for each in a byte
_BROKEN = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OSError, zlib.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """One release as `abi snapshot` writes it. `exports` are those of torch's libraries as hashes, by library."""

    wheel: WheelFacts
    exports: Mapping[str, tuple[int, ...]]
    layouts: Records


class Facts:
    """All that is stored. Parts are read when they are first asked for."""

    def __init__(self, directory: Path = FACTS) -> None:
        self._directory = directory
        self._titles: tuple[tuple[str, str], ...] | None = None
        self._wheels: dict[tuple[str, str], WheelFacts] = {}
        self._symbols: SymbolTable | None = None
        self._types: StoredTypes | None = None

    @property
    def wheels(self) -> tuple[WheelFacts, ...]:
        """Every stored wheel: engines, kernels and torch, by name and in the order of release."""
        return tuple(self._wheel(name, version) for name, version in self.titles)

    @property
    def titles(self) -> tuple[tuple[str, str], ...]:
        """Name and version of every stored wheel, by name and in the order of release."""
        if self._titles is None:
            from packaging.version import Version

            directory = self._directory / WHEELS
            found = [name.removesuffix(ENDING).partition("==") for name in directory_names(directory)]
            try:
                ordered = sorted(((row[0], row[2]) for row in found), key=lambda row: (row[0], Version(row[1])))
            except ValueError as error:
                raise _damaged(str(directory), error) from error
            self._titles = tuple(ordered)
        return self._titles

    @property
    def symbols(self) -> SymbolTable:
        """Torch's exports."""
        if self._symbols is None:
            path = self._directory / SYMBOLS
            self._symbols = unpack_table(_content(path), str(path))
        return self._symbols

    @property
    def torches(self) -> tuple[str, ...]:
        """The stored releases of torch, oldest first."""
        return self.versions(TORCH)

    def find(self, distribution: str, version: str) -> WheelFacts | None:
        """Return a stored wheel, None when there is none of that name and version."""
        wanted = normalise_name(distribution)
        return self._wheel(wanted, version) if (wanted, version) in self.titles else None

    def versions(self, distribution: str) -> tuple[str, ...]:
        """Return the stored versions of a distribution."""
        return tuple(version for name, version in self.titles if name == normalise_name(distribution))

    @property
    def types(self) -> StoredTypes:
        """Layouts, vtables and ways of arguments of C++ types, by release."""
        if self._types is None:
            self._types = read_types(self._directory / LAYOUTS)
        return self._types

    def layouts(self, release: str) -> Records:
        """Return type -> record of a release (`torch==2.8.0`), nothing when none is stored."""
        return self.types.of(release)

    def _wheel(self, name: str, version: str) -> WheelFacts:
        if (name, version) not in self._wheels:
            path = self._directory / WHEELS / f"{name}=={version}{ENDING}"
            document = _inflate(path)
            try:
                self._wheels[name, version] = wheel_from(document["wheel"])
            except _BROKEN as error:
                raise _damaged(str(path), error) from error
        return self._wheels[name, version]


@lru_cache(maxsize=1)
def stored_facts() -> Facts:
    """Return what the package carries."""
    return Facts()


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    """Return the JSON document of a snapshot."""
    return {
        "schema": SCHEMA,
        "wheel": wheel_document(snapshot.wheel),
        "exports": {library: [f"{one:016x}" for one in hashes] for library, hashes in snapshot.exports.items()},
        "layouts": records_document(snapshot.layouts),
    }


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot; ObjectFormatError when it is none."""
    try:
        document = json.loads(_content(path))
        _check_schema(document)
        exports = {str(key): tuple(map(_hash, value)) for key, value in document["exports"].items()}
        if len(exports) > _MOST_LIBRARIES:
            raise ValueError(f"it has the exports of {len(exports)} libraries")
        return Snapshot(
            wheel=wheel_from(document["wheel"]), exports=exports, layouts=records_from(document.get("layouts", {}))
        )
    except _BROKEN as error:
        raise _damaged(str(path), error) from error


def wheel_document(wheel: WheelFacts) -> dict[str, object]:
    """Return the JSON form of a wheel's facts; what is empty is left out of its objects."""
    document = {name: getattr(wheel, name) for name in WheelFacts.__slots__ if name != "objects"}
    return {**document, "objects": [_object_document(one) for one in wheel.objects]}


def wheel_from(document: Mapping[str, Any]) -> WheelFacts:
    """Read the JSON form. ValueError, KeyError or TypeError when it is not one."""
    return WheelFacts(
        distribution=_text(document["distribution"]),
        version=_text(document["version"]),
        file=_text(document["file"]),
        sha256=_text(document["sha256"]),
        tags=_texts(document["tags"]),
        requires_python=_text(document["requires_python"]),
        requires=_texts(document["requires"]),
        extras=_texts(document["extras"]),
        objects=tuple(_object_from(one) for one in document["objects"]),
    )


def _object_document(facts: ObjectFacts) -> dict[str, object]:
    document: dict[str, object] = {name: value for name in ObjectFacts.__slots__ if (value := getattr(facts, name))}
    if facts.versions:
        document["versions"] = [[need.library, need.version] for need in facts.versions]
    if facts.imports:
        document["imports"] = [[one.name, one.version, int(one.weak)] for one in facts.imports]
    return document


def _object_from(document: Mapping[str, Any]) -> ObjectFacts:
    return ObjectFacts(
        path=_text(document["path"]),
        machine=_text(document.get("machine", "")),
        soname=_text(document.get("soname", "")),
        build_id=_text(document.get("build_id", "")),
        fault=_text(document.get("fault", "")),
        needed=_texts(document.get("needed", ())),
        search=_texts(document.get("search", ())),
        exports=_texts(document.get("exports", ())),
        architectures=_texts(document.get("architectures", ())),
        schemas=_texts(document.get("schemas", ())),
        versions=tuple(
            VersionNeed(library=_text(library), version=_text(version))
            for library, version in document.get("versions", ())
        ),
        imports=tuple(
            Import(name=_text(name), version=_text(version), weak=bool(weak))
            for name, version, weak in document.get("imports", ())
        ),
    )


def deflate(document: Mapping[str, object]) -> bytes:
    """Return the stored form of a document."""
    return zlib.compress(json.dumps(document, separators=(",", ":"), sort_keys=True).encode(), 9)


def _inflate(path: Path) -> dict[str, Any]:
    try:
        inflater = zlib.decompressobj()
        document: dict[str, Any] = json.loads(inflater.decompress(_content(path), _LARGEST))
        _check_schema(document)
    except _BROKEN as error:
        raise _damaged(str(path), error) from error
    return document


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is larger than any snapshot")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise _damaged(str(path), error) from error


def _check_schema(document: Any) -> None:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ValueError(f"it is of schema {found!r}, and this is patchkit for schema {SCHEMA}")


def _damaged(name: str, error: Exception) -> ObjectFormatError:
    return ObjectFormatError(
        f"{name}: not a snapshot that can be read", why=f"  {error}", hint="make it anew with `patchkit abi snapshot`"
    )


def _hash(text: str) -> int:
    value = int(text, 16)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"a hash is out of range: {text[:40]}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {type(value).__name__}")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"expected a list, found {type(values).__name__}")
    return tuple(_text(value) for value in values)
