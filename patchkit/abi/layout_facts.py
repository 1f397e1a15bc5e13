"""Stored facts about the types of releases: their layout, vtable and way as an argument, and how that is known.

`facts/layouts.json.z`, zlib over JSON with `schema: 1`: releases -> struct -> record. A record has the parts `layout`,
`vtable`, `arguments` and `evidence`, each left out where it is not known. `patchkit abi probe` writes it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchkit.abi.arguments import Machine, Way, travel
from patchkit.abi.layout import Field, StructLayout
from patchkit.abi.layout_dwarf import ProbedType
from patchkit.abi.vtable import Slot, Vtable
from patchkit.errors import ObjectFormatError
from patchkit.record import dataclass

SCHEMA = 1
_LARGEST = 1 << 26
_PLAIN, _BITS = 4, 6  # numbers of a field: name, type, offset, size, and for a bit-field its first bit and their number
_BROKEN = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """How a record is known: what was read, by which command, and how far that proves what the release shipped."""

    source: str
    command: str
    proof: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeRecord:
    """What is known of one type of a release. `travels` is empty, `layout` and `vtable` None where nothing is known."""

    name: str
    layout: StructLayout | None
    vtable: Vtable | None
    travels: Mapping[Machine, tuple[Way, ...]]
    evidence: Evidence


Records = Mapping[str, TypeRecord]


def record_of(probed: ProbedType, evidence: Evidence, *, name: str = "") -> TypeRecord:
    """Return the record of a type that a probe read; `name` where it is stored under another one."""
    return TypeRecord(
        name=name or probed.passed.name,
        layout=probed.layout,
        vtable=probed.vtable,
        travels={machine: travel(probed.passed, machine) for machine in Machine},
        evidence=evidence,
    )


class StoredTypes:
    """What a file of facts holds. Records are made when a release is first asked for."""

    def __init__(self, releases: Mapping[str, Mapping[str, Any]], source: str) -> None:
        self._documents = releases
        self._source = source
        self._records: dict[str, Records] = {}

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases, as `NAME==VERSION`."""
        return tuple(self._documents)

    def of(self, release: str) -> Records:
        """Return type -> record of a release, nothing when it is not stored. ObjectFormatError for damaged ones."""
        if release not in self._records:
            try:
                self._records[release] = records_from(self._documents.get(release, {}))
            except _BROKEN as error:
                raise _damaged(self._source, error) from error
        return self._records[release]

    def content(self, added: Mapping[str, Records]) -> bytes:
        """Return the bytes of a file with these releases too, type by type: same records, same bytes."""
        releases = {name: dict(types) for name, types in self._documents.items()}
        for name, records in added.items():
            releases.setdefault(name, {}).update(records_document(records))
        document = {"schema": SCHEMA, "releases": releases}
        return zlib.compress(json.dumps(document, separators=(",", ":"), sort_keys=True).encode(), 9)


def read_types(path: Path) -> StoredTypes:
    """Read a file of facts, an empty one where there is none. ObjectFormatError when it is damaged or too new."""
    if not path.exists():
        return StoredTypes({}, path.name)
    try:
        inflater = zlib.decompressobj()
        document = json.loads(inflater.decompress(path.read_bytes(), _LARGEST))
        if document["schema"] != SCHEMA:
            raise ValueError(f"it is of schema {document['schema']!r}, and this is patchkit for schema {SCHEMA}")
        return StoredTypes(dict(document["releases"]), path.name)
    except (*_BROKEN, OSError, zlib.error) as error:
        raise _damaged(path.name, error) from error


def _damaged(source: str, error: Exception) -> ObjectFormatError:
    return ObjectFormatError(
        f"{source}: not facts about types that can be read", why=f"  {error}", hint="make it anew: `patchkit abi probe`"
    )


def records_document(records: Records) -> dict[str, Any]:
    """Return records for JSON."""
    return {name: record_document(record) for name, record in records.items()}


def records_from(document: Mapping[str, Any]) -> Records:
    """Read records from JSON. KeyError, TypeError, ValueError or AttributeError when they are none."""
    return {name: record_from(name, record) for name, record in document.items()}


def record_document(record: TypeRecord) -> dict[str, Any]:
    """Return a record for JSON."""
    document: dict[str, Any] = {}
    if record.layout is not None:
        document["layout"] = layout_document(record.layout)
    if record.vtable is not None:
        document["vtable"] = [[slot.place, slot.function] for slot in record.vtable.slots]
    if record.travels:
        document["arguments"] = {machine.value: [way.value for way in ways] for machine, ways in record.travels.items()}
    evidence = record.evidence
    document["evidence"] = {"source": evidence.source, "command": evidence.command, "proof": evidence.proof}
    return document


def record_from(name: str, document: Mapping[str, Any]) -> TypeRecord:
    """Read a record from JSON. KeyError, TypeError or ValueError when it is none."""
    layout, slots, evidence = document.get("layout"), document.get("vtable"), document["evidence"]
    return TypeRecord(
        name=name,
        layout=None if layout is None else layout_from(name, layout),
        vtable=None if slots is None else Vtable(name=name, slots=tuple(_slot(place, words) for place, words in slots)),
        travels={
            Machine(machine): tuple(Way(way) for way in ways) for machine, ways in document.get("arguments", {}).items()
        },
        evidence=Evidence(
            source=str(evidence["source"]), command=str(evidence["command"]), proof=str(evidence["proof"])
        ),
    )


def layout_document(layout: StructLayout) -> dict[str, Any]:
    """Return a layout for JSON: a field is name, type, offset, size, and for a bit-field first bit and bits."""
    return {
        "size": layout.size,
        "alignment": layout.alignment,
        "packed": layout.packed,
        "fields": [
            [field.name, field.type, field.offset, field.size]
            + ([] if field.bit_size is None else [field.bit_offset, field.bit_size])
            for field in layout.fields
        ],
    }


def layout_from(name: str, document: Mapping[str, Any]) -> StructLayout:
    """Read a layout from JSON. KeyError, TypeError or ValueError when it is none."""
    return StructLayout(
        name=name,
        size=_number(document["size"]),
        alignment=_number(document["alignment"]),
        packed=bool(document["packed"]),
        fields=tuple(_field(row) for row in document["fields"]),
    )


def _field(row: Any) -> Field:
    if not isinstance(row, list) or len(row) not in (_PLAIN, _BITS):
        raise TypeError(f"a field that is {row!r}")
    bits = [_number(one) for one in row[_PLAIN:]]
    return Field(
        name=str(row[0]),
        type=str(row[1]),
        offset=_number(row[2]),
        size=_number(row[3]),
        bit_offset=bits[0] if bits else None,
        bit_size=bits[1] if bits else None,
    )


def _slot(place: Any, words: Any) -> Slot:
    return Slot(place=_number(place), function=str(words))


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"expected a number of bytes, found {value!r}")
    return value
