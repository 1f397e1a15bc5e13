"""Which release exports which symbol: 64-bit hashes of the names with a set of releases each, a few MB for all torches.

A name is looked up, never listed: that answers "does torch 2.8.0 have this?". Two names share a hash with a chance of
about n*m/2**64 for n stored and m asked, one in 10**10 for a whole engine.

The stored form (schema 1) is one line of JSON, then one zlib stream. The line has `schema`, `count` (N), `releases` and
`libraries` (names, in the order of their bits), and `patterns` (distinct sets of releases as bit masks). The stream has
the sorted hashes as eight planes of N bytes (the lowest bytes of all, then the next ones: the high planes of a sorted
list compress to nothing), two planes of N bytes with the number of each hash's pattern, and N bytes with the set of
libraries that export it in any release. A hash is BLAKE2b of the name with 8 bytes of digest, read little-endian.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from patchkit.errors import ObjectFormatError

SCHEMA = 1
_PLANES = 8
_LARGEST = 1 << 27
_LONGEST_LINE = 1 << 20


def hash_name(name: str | bytes) -> int:
    """Return the 64-bit hash that stands for a symbol's name."""
    written = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    return int.from_bytes(blake2b(written, digest_size=8).digest(), "little")


class SymbolTable:
    """Sets of releases by symbol. `releases` and `libraries` are in the order of their bits."""

    def __init__(
        self,
        *,
        releases: tuple[str, ...],
        libraries: tuple[str, ...],
        hashes: array[int],
        masks: array[int],
        homes: bytes,
    ) -> None:
        self.releases = releases
        self.libraries = libraries
        self._hashes = hashes
        self._masks = masks
        self._homes = homes
        self._bits = {release: 1 << bit for bit, release in enumerate(releases)}

    def __len__(self) -> int:
        return len(self._hashes)

    def mask(self, name: str | bytes) -> int:
        """Return the releases that export a symbol as bits, 0 for none."""
        place = self._place(name)
        return 0 if place is None else self._masks[place]

    def has(self, name: str | bytes, release: str) -> bool:
        """Tell whether a release exports a symbol."""
        return bool(self.mask(name) & self._bits[release])

    def releases_of(self, name: str | bytes) -> tuple[str, ...]:
        """Return the releases that export a symbol, in order."""
        mask = self.mask(name)
        return tuple(release for release in self.releases if mask & self._bits[release])

    def libraries_of(self, name: str | bytes) -> tuple[str, ...]:
        """Return the libraries that export a symbol in one release or another."""
        place = self._place(name)
        home = 0 if place is None else self._homes[place]
        return tuple(library for bit, library in enumerate(self.libraries) if home >> bit & 1)

    def hashes_of(self, release: str) -> frozenset[int]:
        """Return the hashes of all symbols that a release exports."""
        bit = self._bits[release]
        return frozenset(one for one, mask in zip(self._hashes, self._masks, strict=True) if mask & bit)

    def homes_of(self, release: str) -> dict[int, int]:
        """Return hash -> bits of `libraries` of all symbols that a release exports."""
        bit = self._bits[release]
        rows = zip(self._hashes, self._masks, self._homes, strict=True)
        return {one: home for one, mask, home in rows if mask & bit}

    def pack(self) -> bytes:
        """Return the stored form."""
        patterns = sorted(set(self._masks))
        numbers = {mask: number for number, mask in enumerate(patterns)}
        chosen = array("H", (numbers[mask] for mask in self._masks))
        columns = b"".join((_planes(self._hashes), _planes(chosen), self._homes))
        head = {
            "schema": SCHEMA,
            "count": len(self._hashes),
            "releases": self.releases,
            "libraries": self.libraries,
            "patterns": patterns,
        }
        return json.dumps(head, separators=(",", ":")).encode() + b"\n" + zlib.compress(columns, 9)

    def _place(self, name: str | bytes) -> int | None:
        wanted = hash_name(name)
        place = bisect_left(self._hashes, wanted)
        return place if place < len(self._hashes) and self._hashes[place] == wanted else None


def build_table(exports: Mapping[str, Mapping[str, Iterable[int]]]) -> SymbolTable:
    """Build a table from release -> library -> hashes. Releases and libraries keep the order given."""
    libraries = tuple(dict.fromkeys(library for per_library in exports.values() for library in per_library))
    masks: dict[int, int] = {}
    homes: dict[int, int] = {}
    for bit, per_library in enumerate(exports.values()):
        for library, hashes in per_library.items():
            home = 1 << libraries.index(library)
            for one in hashes:
                masks[one] = masks.get(one, 0) | 1 << bit
                homes[one] = homes.get(one, 0) | home
    ordered = sorted(masks)
    return SymbolTable(
        releases=tuple(exports),
        libraries=libraries,
        hashes=array("Q", ordered),
        masks=array("Q", (masks[one] for one in ordered)),
        homes=bytes(homes[one] for one in ordered),
    )


def unpack_table(content: bytes, name: str) -> SymbolTable:
    """Read the stored form; ObjectFormatError when it is damaged. `name` is what the error calls it."""
    line, _, packed = content.partition(b"\n")
    try:
        head = json.loads(line[:_LONGEST_LINE])
        if head["schema"] != SCHEMA:
            raise ValueError(f"it is of schema {head['schema']!r}, and this is patchkit for schema {SCHEMA}")
        count, patterns = int(head["count"]), [int(mask) for mask in head["patterns"]]
        releases, libraries = tuple(map(str, head["releases"])), tuple(map(str, head["libraries"]))
        if not 0 <= count <= _LARGEST // (_PLANES + 3):
            raise ValueError(f"it would have {count} symbols")
        inflater = zlib.decompressobj()
        columns = inflater.decompress(packed, count * (_PLANES + 3) + 1)
        if len(columns) != count * (_PLANES + 3):
            raise ValueError(f"its columns are {len(columns)} bytes, expected {count * (_PLANES + 3)}")
        chosen = _unite(columns[count * _PLANES : count * (_PLANES + 2)], "H")
        masks = array("Q", (patterns[number] for number in chosen))
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, zlib.error) as error:
        raise ObjectFormatError(
            f"{name}: not a symbol table that can be read", why=f"  {error}", hint="install patchkit-engines again"
        ) from error
    return SymbolTable(
        releases=releases,
        libraries=libraries,
        hashes=_unite(columns[: count * _PLANES], "Q"),
        masks=masks,
        homes=columns[count * (_PLANES + 2) :],
    )


def _planes(values: array[int]) -> bytes:
    """Return the lowest bytes of all values, then the next ones, and so on."""
    copy = array(values.typecode, values)
    if sys.byteorder == "big":
        copy.byteswap()
    plain, size = copy.tobytes(), values.itemsize
    return b"".join(plain[plane::size] for plane in range(size))


def _unite(planes: bytes, typecode: str) -> array[int]:
    """Undo `_planes`."""
    values = array(typecode)
    size = values.itemsize
    count = len(planes) // size
    plain = bytearray(len(planes))
    for plane in range(size):
        plain[plane::size] = planes[plane * count : (plane + 1) * count]
    values.frombytes(bytes(plain))
    if sys.byteorder == "big":
        values.byteswap()
    return values
