"""A struct drawn: a row for each field and for each hole between them."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.abi.layout import Field, Padding, StructLayout, paddings
from patchkit.counting import counted
from patchkit.record import dataclass

PADDING = "(padding)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A field, or a hole: then the type is "" and the field's name `(padding)`. A bit-field's places have `:bit`."""

    offset: str
    size: str
    field: str
    type: str

    @property
    def is_padding(self) -> bool:
        """True for a hole."""
        return self.field == PADDING


def draw(layout: StructLayout) -> tuple[Row, ...]:
    """Return the rows in the order of the bytes; members of a union stand beneath each other."""
    pieces: list[Field | Padding] = [*layout.fields, *paddings(layout)]
    return tuple(_row(piece) for piece in sorted(pieces, key=_place))


def title(layout: StructLayout) -> str:
    """Say what holds for the whole struct."""
    aligned = f", alignment {layout.alignment}" if layout.alignment else ""
    return f"{layout.name}  {counted(layout.size, 'byte')}{aligned}{', packed' if layout.packed else ''}"


def lines(layout: StructLayout) -> Iterator[tuple[str, bool]]:
    """Yield the lines of the table, and whether each is padding."""
    rows = [Row(offset="offset", size="size", field="field", type="type"), *draw(layout)]
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("offset", "size", "field")]
    for row in rows:
        text = f"  {row.offset:>{widths[0]}}  {row.size:>{widths[1]}}  {row.field:<{widths[2]}}  {row.type}"
        yield text.rstrip(), row.is_padding


def _place(piece: Field | Padding) -> tuple[int, int]:
    bit = piece.bit_offset if isinstance(piece, Field) else None
    return piece.offset, bit or 0


def _row(piece: Field | Padding) -> Row:
    if isinstance(piece, Padding):
        return Row(offset=str(piece.offset), size=str(piece.size), field=PADDING, type="")
    if piece.bit_size is None:
        return Row(offset=str(piece.offset), size=str(piece.size), field=piece.name, type=piece.type)
    return Row(
        offset=f"{piece.offset}:{piece.bit_offset}", size=f":{piece.bit_size}", field=piece.name, type=piece.type
    )
