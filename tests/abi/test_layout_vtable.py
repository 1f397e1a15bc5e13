"""Vtables compared slot by slot, and read from the debug information of a real compiler."""

from __future__ import annotations

import shutil

import pytest

from patchkit.abi.layout_draw import draw
from patchkit.abi.probe import Probe, run_probe
from patchkit.abi.vtable import Slot, SlotChangeKind, Vtable, compare_vtables
from patchkit.errors import RefusedError

CLASSES = """
struct Base { virtual ~Base(); virtual int size() const; virtual void set(int); virtual void set(double); long a; };
struct Derived : Base { int size() const override; virtual char extra(const Base &, bool); char b; };
struct Inserted { virtual ~Inserted(); virtual void incref() const; virtual int size() const; long a; };
struct Late { virtual int first(); virtual ~Late(); virtual int last(); };
struct OnlyDestructor { virtual ~OnlyDestructor(); };
struct Plain { int a; };
"""
NAMES = ("Base", "Derived", "Inserted", "Late", "OnlyDestructor", "Plain")


def _table(*functions: str) -> Vtable:
    return Vtable(name="T", slots=tuple(Slot(place=place, function=one) for place, one in enumerate(functions)))


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (("a()", "b(int)", "c()"), []),
        (
            ("a()", "new()", "b(int)", "c()"),
            [("b(int)", "moved", True), ("c()", "moved", True), ("new()", "added", True)],
        ),
        (("a()", "b(int)", "c()", "new()"), [("new()", "added", False)]),
        (("a()", "c()"), [("b(int)", "removed", True), ("c()", "moved", True)]),
        (("a()", "b(long)", "c()"), [("b(int)", "signature", True)]),
        (("b(int)", "a()", "c()"), [("a()", "moved", True), ("b(int)", "moved", True)]),
    ],
)
def test_what_a_call_through_the_old_table_would_reach_is_told(
    after: tuple[str, ...], said: list[tuple[str, str, bool]]
) -> None:
    changes = compare_vtables(_table("a()", "b(int)", "c()"), _table(*after))
    assert [(one.function, one.kind.value, one.breaking) for one in changes] == said


@pytest.fixture(scope="module")
def tables() -> dict[str, Vtable | None]:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    probe = Probe(preamble=(CLASSES,), types=tuple((name, name) for name in NAMES), includes=())
    return {one.passed.name: one.vtable for one in run_probe(probe, "g++")}


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("Base", ["~()", "~() and delete", "size() const", "set(int)", "set(double)"]),
        ("Derived", ["~()", "~() and delete", "size() const", "set(int)", "set(double)", "extra(Base const&, bool)"]),
        ("Late", ["first()", "~()", "~() and delete", "last()"]),
        ("OnlyDestructor", ["~()", "~() and delete"]),
    ],
)
def test_slots_are_those_of_the_compiler(tables: dict[str, Vtable | None], name: str, functions: list[str]) -> None:
    table = tables[name]
    assert table is not None
    assert [slot.function for slot in table.slots] == functions
    assert [slot.place for slot in table.slots] == list(range(len(functions)))


def test_a_class_without_virtual_functions_has_no_table(tables: dict[str, Vtable | None]) -> None:
    assert tables["Plain"] is None


def test_a_function_that_was_put_in_between_shifts_the_others(tables: dict[str, Vtable | None]) -> None:
    base, inserted = tables["Base"], tables["Inserted"]
    assert base is not None
    assert inserted is not None
    kinds = {one.function: one.kind for one in compare_vtables(base, inserted)}
    assert kinds["size() const"] is SlotChangeKind.MOVED
    assert kinds["incref() const"] is SlotChangeKind.ADDED


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_members_of_bases_and_the_table_pointer_stand_in_the_layout() -> None:
    (probed,) = run_probe(Probe(preamble=(CLASSES,), types=(("Derived", "Derived"),), includes=()), "g++")
    assert probed.layout is not None
    assert [(row.offset, row.size, row.field) for row in draw(probed.layout)] == [
        ("0", "8", "Base::_vptr"),
        ("8", "8", "Base::a"),
        ("16", "1", "b"),
        ("17", "7", "(padding)"),
    ]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_type_that_is_not_there_is_refused_with_the_words_of_the_compiler() -> None:
    with pytest.raises(RefusedError, match="failed") as raised:
        run_probe(Probe(preamble=(CLASSES,), types=(("Missing", "Missing"),), includes=()), "g++")
    assert "Missing" in raised.value.why
