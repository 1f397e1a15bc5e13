"""The structs of a matrix: how large a type is with each torch, and with which of them code that touches it fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchkit.abi.layout import StructLayout, compare_layouts, is_breaking
from patchkit.abi.layout_facts import Records
from patchkit.record import dataclass

# Shown though nothing of them changed: what inlined code of every extension reaches into.
_ALWAYS = ("at::Tensor", "c10::TensorImpl", "c10::StorageImpl", "at::PhiloxCudaState")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, kw_only=True, slots=True)
class StructCell:
    """A type with one torch: `size` in bytes, None where nothing is stored.

    `variant` is a letter: cells of a row with one letter can be exchanged, others not, though the size be the same.
    """

    size: int | None
    variant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StructRow:
    """A type of torch, a cell for each torch."""

    name: str
    cells: tuple[StructCell, ...]

    @property
    def changes(self) -> bool:
        """True when two torches do not agree."""
        return len({cell.variant for cell in self.cells if cell.size is not None}) > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStruct:
    """A struct that an engine's own libraries share: fixed when it was built."""

    engine: str
    name: str
    size: int


def struct_rows(torches: Sequence[Records]) -> tuple[StructRow, ...]:
    """Return the types that differ between torches, and those that every extension touches."""
    names = sorted({name for records in torches for name, one in records.items() if one.layout is not None})
    rows = (StructRow(name=name, cells=tuple(_cells(name, torches))) for name in names)
    return tuple(row for row in rows if row.changes or row.name in _ALWAYS)


def engine_structs(engine: str, records: Records) -> tuple[EngineStruct, ...]:
    """Return what is stored of an engine's own structs."""
    return tuple(
        EngineStruct(engine=engine, name=name, size=one.layout.size)
        for name, one in records.items()
        if one.layout is not None
    )


def _cells(name: str, torches: Sequence[Records]) -> Iterator[StructCell]:
    seen: list[StructLayout] = []
    for records in torches:
        layout = records[name].layout if name in records else None
        if layout is None:
            yield StructCell(size=None, variant="")
            continue
        place = next((at for at, one in enumerate(seen) if not _breaks(one, layout)), len(seen))
        if place == len(seen):
            seen.append(layout)
        yield StructCell(size=layout.size, variant=_LETTERS[place % len(_LETTERS)])


def _breaks(one: StructLayout, other: StructLayout) -> bool:
    return one != other and is_breaking(compare_layouts(one, other))
