"""Vtables: which virtual function stands in which slot. A call through one knows only the number of the slot."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """A place in a vtable, counted from 0, and the function there: `name(parameter types) const`."""

    place: int
    function: str

    @property
    def name(self) -> str:
        """The function without its parameters."""
        return self.function.split("(", 1)[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Vtable:
    """The primary vtable of a class: its first base's slots, then its own."""

    name: str
    slots: tuple[Slot, ...]


class SlotChangeKind(str, enum.Enum):
    """What differs between two vtables of one class."""

    MOVED = "moved"
    ADDED = "added"
    REMOVED = "removed"
    SIGNATURE = "signature"


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotChange:
    """One difference. `breaking`: a call compiled against one of the two reaches another function, or none."""

    vtable: str
    function: str
    kind: SlotChangeKind
    before: str
    after: str
    breaking: bool

    @property
    def owner(self) -> str:
        """The type that it is about."""
        return self.vtable

    @property
    def words(self) -> str:
        """Say it in one line."""
        return f"{self.vtable}::{self.function}: {self.kind.value}: {self.before} -> {self.after}"


def compare_vtables(before: Vtable, after: Vtable) -> tuple[SlotChange, ...]:
    """Compare slot by slot: what was there first, in its order, then what is new."""
    return (*_kept_and_gone(before, after), *_new(before, after))


def _kept_and_gone(before: Vtable, after: Vtable) -> Iterator[SlotChange]:
    places = {slot.function: slot.place for slot in after.slots}
    for slot in before.slots:
        place = places.get(slot.function)
        if place is None:
            other = _renewed(slot, before, after)
            if other is None:
                yield _change(after, slot, SlotChangeKind.REMOVED, _spot(slot), "not there")
            else:
                yield _change(after, slot, SlotChangeKind.SIGNATURE, slot.function, other.function)
        elif place != slot.place:
            yield _change(after, slot, SlotChangeKind.MOVED, _spot(slot), f"slot {place}")


def _renewed(slot: Slot, before: Vtable, after: Vtable) -> Slot | None:
    """Return the function of the same name that stands in the same slot with other parameters."""
    old = {one.function for one in before.slots}
    return next(
        (one for one in after.slots if (one.place, one.name) == (slot.place, slot.name) and one.function not in old),
        None,
    )


def _new(before: Vtable, after: Vtable) -> Iterator[SlotChange]:
    old = {slot.function for slot in before.slots}
    renewed = {_renewed(slot, before, after) for slot in before.slots}
    last = max((slot.place for slot in before.slots), default=-1)
    for slot in after.slots:
        if slot.function not in old and slot not in renewed:
            # Behind the last slot it moves nothing: old code never calls it, but a class derived by old code lacks it.
            yield _change(after, slot, SlotChangeKind.ADDED, "not there", _spot(slot), breaking=slot.place <= last)


def _spot(slot: Slot) -> str:
    return f"slot {slot.place}"


def _change(
    table: Vtable, slot: Slot, kind: SlotChangeKind, before: str, after: str, *, breaking: bool = True
) -> SlotChange:
    return SlotChange(
        vtable=table.name, function=slot.function, kind=kind, before=before, after=after, breaking=breaking
    )
