"""Three columns of the matrix: layout, vtable, argument classes. Two torches compared by what is stored of them.

`engine_facts` are the records of the torch that an engine was built with, `torch_facts` those of the torch that it is
to run with; `stored_records()["torch==2.8.0"]` gives them. Types that only one of the two has are `unknown`: a type
that is gone cannot be told here from one that was never asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from patchkit.abi.arguments import Machine, Way
from patchkit.abi.layout import LayoutChange, compare_layouts
from patchkit.abi.layout_facts import Records
from patchkit.abi.signature import canonical, parameters, plain_travel
from patchkit.abi.vtable import SlotChange, compare_vtables
from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TravelChange:
    """An argument that travels otherwise. `place` counts the parameters of the entry point from 0, -1 without one."""

    entry_point: str
    place: int
    type: str
    machine: Machine
    before: tuple[Way, ...]
    after: tuple[Way, ...]

    @property
    def breaking(self) -> bool:
        """Caller and callee look in different places: always."""
        return True

    @property
    def owner(self) -> str:
        """The type that it is about."""
        return self.type

    @property
    def words(self) -> str:
        """Say it in one line."""
        where = f"{self.entry_point}: parameter {self.place + 1}, " if self.entry_point else ""
        return f"{where}{self.type} on {self.machine.value}: {_ways(self.before)} -> {_ways(self.after)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnResult:
    """What a column says. `compared` are the types (or entry points) that both sides know, `unknown` the others."""

    compared: tuple[str, ...]
    unknown: tuple[str, ...]
    changes: tuple[LayoutChange | SlotChange | TravelChange, ...]

    @property
    def breaking(self) -> bool:
        """True when a change breaks."""
        return any(change.breaking for change in self.changes)


def layout_column(engine_facts: Records, torch_facts: Records) -> ColumnResult:
    """Compare the layouts of all types that both have, field by field."""
    before = {name: one.layout for name, one in engine_facts.items() if one.layout is not None}
    after = {name: one.layout for name, one in torch_facts.items() if one.layout is not None}
    both = sorted(before.keys() & after.keys())
    changes = tuple(change for name in both for change in compare_layouts(before[name], after[name]))
    return ColumnResult(compared=tuple(both), unknown=_one_sided(before, after), changes=changes)


def vtable_column(engine_facts: Records, torch_facts: Records) -> ColumnResult:
    """Compare the vtables of all classes that both have, slot by slot."""
    before = {name: one.vtable for name, one in engine_facts.items() if one.vtable is not None}
    after = {name: one.vtable for name, one in torch_facts.items() if one.vtable is not None}
    both = sorted(before.keys() & after.keys())
    changes = tuple(change for name in both for change in compare_vtables(before[name], after[name]))
    return ColumnResult(compared=tuple(both), unknown=_one_sided(before, after), changes=changes)


def argument_column(
    engine_facts: Records, torch_facts: Records, entry_points: Iterable[str] | None = None
) -> ColumnResult:
    """Compare how arguments travel.

    `entry_points` are functions in words, as c++filt writes them (`at::empty(c10::ArrayRef<long>, ...)`): those that
    the engine imports. An entry point with a parameter of a type that one side does not know is `unknown`. Without
    entry points all stored types are compared.
    """
    before, after = _travels(engine_facts), _travels(torch_facts)
    if entry_points is None:
        both = sorted(before.keys() & after.keys())
        changes = tuple(change for name in both for change in _changes("", -1, name, before[name], after[name]))
        return ColumnResult(compared=tuple(both), unknown=_one_sided(before, after), changes=changes)
    compared: list[str] = []
    unknown: list[str] = []
    found: list[TravelChange] = []
    for entry_point in entry_points:
        changes_here = _entry_changes(entry_point, before, after)
        (unknown if changes_here is None else compared).append(entry_point)
        found += changes_here or []
    return ColumnResult(compared=tuple(compared), unknown=tuple(unknown), changes=tuple(found))


def argument_ways(entry_point: str, facts: Records) -> tuple[tuple[str, Mapping[Machine, tuple[Way, ...]] | None], ...]:
    """Return for each parameter of a function in words its type, and how it travels: None where that is not known."""
    travels = _travels(facts)
    return tuple((name, _travel(name, travels)) for name in parameters(entry_point))


_Travels = Mapping[str, Mapping[Machine, tuple[Way, ...]]]


def _travels(records: Records) -> _Travels:
    return {canonical(name): record.travels for name, record in records.items() if record.travels}


def _travel(name: str, travels: _Travels) -> Mapping[Machine, tuple[Way, ...]] | None:
    return plain_travel(name) or travels.get(canonical(name))


def _entry_changes(entry_point: str, before: _Travels, after: _Travels) -> list[TravelChange] | None:
    changes: list[TravelChange] = []
    for place, name in enumerate(parameters(entry_point)):
        old, new = _travel(name, before), _travel(name, after)
        if old is None or new is None:
            return None
        changes += _changes(entry_point, place, name, old, new)
    return changes


def _changes(
    entry_point: str,
    place: int,
    name: str,
    old: Mapping[Machine, tuple[Way, ...]],
    new: Mapping[Machine, tuple[Way, ...]],
) -> Iterator[TravelChange]:
    for machine in Machine:
        before, after = old.get(machine), new.get(machine)
        if before is not None and after is not None and before != after:
            yield TravelChange(
                entry_point=entry_point, place=place, type=name, machine=machine, before=before, after=after
            )


def _one_sided(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(sorted(before.keys() ^ after.keys()))


def _ways(ways: tuple[Way, ...]) -> str:
    return " + ".join(way.value for way in ways) or "nothing"
