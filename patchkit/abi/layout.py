"""Struct layouts, and what a change in one means for code that was compiled against the other.

`sizeof` alone cannot tell: flash-attention has two structs of one name and 656 bytes whose last members lie elsewhere.
So layouts are compared field by field: place, size, type, order, and packing and alignment of the whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from patchkit.counting import counted
from patchkit.record import dataclass

_FLOATS = frozenset({"float", "double", "long double", "_Float16", "__float128", "_Float128"})
_INTEGERS = frozenset({"bool", "_Bool", "char", "short", "int", "long", "unsigned", "signed", "__int128", "size_t"})
_INTEGERS_BY_SUFFIX = ("_t",)  # int32_t, uint8_t, wchar_t


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A member: where it lies, in bytes from the start of the struct. Members of base classes are `base::name`.

    `bit_offset` counts from `offset`; it and `bit_size` are None but for a bit-field.
    """

    name: str
    type: str
    offset: int
    size: int
    bit_offset: int | None = None
    bit_size: int | None = None

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size


@dataclass(frozen=True, kw_only=True, slots=True)
class StructLayout:
    """How a compiler lays a struct out; fields in the order of the declaration.

    `alignment` in bytes, 0 where its source does not say. `packed`: a member lies where its own alignment forbids it,
    or the whole is aligned less than its members.
    """

    name: str
    size: int
    alignment: int
    packed: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Padding:
    """Bytes that belong to no field."""

    offset: int
    size: int


class ChangeKind(str, enum.Enum):
    """What differs between two layouts of one struct."""

    SIZE = "size"
    ALIGNMENT = "alignment"
    PACKED = "packed"
    REORDERED = "reordered"
    MOVED = "moved"
    RESIZED = "resized"
    RETYPED = "type"
    RENAMED = "renamed"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutChange:
    """One difference. `field` is "" where it is about the whole struct; `before` and `after` are for people.

    `breaking`: code compiled against one of the two reads or writes the wrong bytes in a struct made by the other.
    """

    struct: str
    field: str
    kind: ChangeKind
    before: str
    after: str
    breaking: bool

    @property
    def owner(self) -> str:
        """The type that it is about."""
        return self.struct

    @property
    def words(self) -> str:
        """Say it in one line."""
        name = f"{self.struct}.{self.field}" if self.field else self.struct
        return f"{name}: {self.kind.value}: {self.before} -> {self.after}"


def compare_layouts(before: StructLayout, after: StructLayout) -> tuple[LayoutChange, ...]:
    """Compare field by field. The whole struct's changes come first, then the fields' in the order of `before`."""
    return (*_whole_changes(before, after), *_field_changes(before, after))


def paddings(layout: StructLayout) -> tuple[Padding, ...]:
    """Return the holes, the one at the end too. Fields may overlap: members of a union do."""
    return tuple(_holes(layout))


def is_breaking(changes: tuple[LayoutChange, ...]) -> bool:
    """True when one of them is."""
    return any(change.breaking for change in changes)


def place_words(field: Field) -> str:
    """Say where a field lies: `offset 8`, with bits `offset 61 bit 3`."""
    return f"offset {field.offset}" + ("" if field.bit_offset is None else f" bit {field.bit_offset}")


def size_words(field: Field) -> str:
    """Say how large a field is."""
    return counted(field.size, "byte") if field.bit_size is None else counted(field.bit_size, "bit")


def type_family(text: str) -> str:
    """Return `pointer`, `float`, `integer` or `other`: what bytes of one size may mean. Aliases are not resolved."""
    if text.endswith(("*", "&")):
        return "pointer"
    words = [word for word in text.split() if word not in ("const", "volatile", "struct", "union")]
    if " ".join(words) in _FLOATS:
        return "float"
    first = words[0] if words else ""
    is_integer = first in _INTEGERS or first.startswith("enum") or first.endswith(_INTEGERS_BY_SUFFIX)
    return "integer" if is_integer and "[" not in text else "other"


def _whole_changes(before: StructLayout, after: StructLayout) -> Iterator[LayoutChange]:
    name = after.name
    if before.size != after.size:
        yield _change(name, "", ChangeKind.SIZE, counted(before.size, "byte"), counted(after.size, "byte"))
    if before.alignment and after.alignment and before.alignment != after.alignment:
        # Whoever has it as a member, in an array or on the stack puts it elsewhere.
        yield _change(name, "", ChangeKind.ALIGNMENT, str(before.alignment), str(after.alignment))
    if before.packed != after.packed:
        yield _change(name, "", ChangeKind.PACKED, _packing(before), _packing(after))
    old_names, new_names = _by_name(before), _by_name(after)
    order_before = [name for name in old_names if name in new_names]
    order_after = [name for name in new_names if name in old_names]
    if order_before != order_after:
        old, new = next((one, other) for one, other in zip(order_before, order_after, strict=True) if one != other)
        yield _change(name, "", ChangeKind.REORDERED, f"{old[0]} stands here", f"{new[0]} stands here")


def _packing(layout: StructLayout) -> str:
    return "packed" if layout.packed else "not packed"


def _field_changes(before: StructLayout, after: StructLayout) -> Iterator[LayoutChange]:
    old_fields, new_fields = _by_name(before), _by_name(after)
    added = [field for name, field in new_fields.items() if name not in old_fields]
    for name, old in old_fields.items():
        new = new_fields.get(name)
        if new is None:
            new = next((field for field in added if _same_bytes(old, field)), None)
            if new is None:
                yield _change(after.name, old.name, ChangeKind.REMOVED, _spot(old), "not there")
                continue
            added.remove(new)
            yield _change(after.name, old.name, ChangeKind.RENAMED, old.name, new.name, breaking=False)
        yield from _member_changes(after.name, old, new)
    kept = [field for name, field in new_fields.items() if old_fields.get(name) == field]
    for new in added:
        # In a union a new member changes nothing for the others. In former padding, old code leaves it unset.
        breaking = not any(field.offset <= new.offset and new.end <= field.end for field in kept)
        yield _change(after.name, new.name, ChangeKind.ADDED, "not there", _spot(new), breaking=breaking)


def _member_changes(struct: str, old: Field, new: Field) -> Iterator[LayoutChange]:
    if (old.offset, old.bit_offset) != (new.offset, new.bit_offset):
        yield _change(struct, new.name, ChangeKind.MOVED, place_words(old), place_words(new))
    if (old.size, old.bit_size) != (new.size, new.bit_size):
        yield _change(struct, new.name, ChangeKind.RESIZED, size_words(old), size_words(new))
    if old.type != new.type:
        # A class that is called otherwise, or an integer of another name, may be the same bytes; its own layout says.
        breaking = type_family(old.type) != type_family(new.type)
        yield _change(struct, new.name, ChangeKind.RETYPED, old.type, new.type, breaking=breaking)


def _change(
    struct: str, field: str, kind: ChangeKind, before: str, after: str, *, breaking: bool = True
) -> LayoutChange:
    return LayoutChange(struct=struct, field=field, kind=kind, before=before, after=after, breaking=breaking)


def _by_name(layout: StructLayout) -> dict[tuple[str, int], Field]:
    """Return the fields by name; base classes may have fields of one name, told apart by which of them it is."""
    fields: dict[tuple[str, int], Field] = {}
    for field in layout.fields:
        which = sum(name == field.name for name, _ in fields)
        fields[field.name, which] = field
    return fields


def _same_bytes(old: Field, new: Field) -> bool:
    return (old.offset, old.size, old.bit_offset, old.bit_size, old.type) == (
        new.offset,
        new.size,
        new.bit_offset,
        new.bit_size,
        new.type,
    )


def _spot(field: Field) -> str:
    return f"{size_words(field)} at {place_words(field)}"


def _holes(layout: StructLayout) -> Iterator[Padding]:
    end = 0
    for field in sorted(layout.fields, key=lambda one: one.offset):
        if field.offset > end:
            yield Padding(offset=end, size=field.offset - end)
        end = max(end, _last_byte(field))
    if layout.size > end and layout.fields:
        yield Padding(offset=end, size=layout.size - end)


def _last_byte(field: Field) -> int:
    """Return the end of the bytes that a field uses; a bit-field need not use all of its unit."""
    if field.bit_offset is None or field.bit_size is None:
        return field.end
    return field.offset + (field.bit_offset + field.bit_size + 7) // 8
