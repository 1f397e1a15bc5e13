"""Layouts compared field by field: what differs is named, and whether it breaks."""

from __future__ import annotations

from typing import Any

import pytest

from patchkit.abi.layout import (
    ChangeKind,
    Field,
    Padding,
    StructLayout,
    compare_layouts,
    is_breaking,
    paddings,
    type_family,
)
from patchkit.record import replace


def _field(name: str, offset: int, size: int = 4, kind: str = "int", bits: tuple[int, int] | None = None) -> Field:
    bit_offset, bit_size = bits or (None, None)
    return Field(name=name, type=kind, offset=offset, size=size, bit_offset=bit_offset, bit_size=bit_size)


PLAIN = StructLayout(
    name="s",
    size=24,
    alignment=8,
    packed=False,
    fields=(_field("a", 0), _field("b", 8, 8, "void*"), _field("c", 16), _field("d", 20, 2, "short")),
)


def _with(place: int, **changes: Any) -> StructLayout:
    fields = list(PLAIN.fields)
    fields[place] = replace(fields[place], **changes)
    return replace(PLAIN, fields=tuple(fields))


def _said(after: StructLayout, before: StructLayout = PLAIN) -> list[tuple[str, ChangeKind, bool]]:
    return [(change.field, change.kind, change.breaking) for change in compare_layouts(before, after)]


def test_a_layout_compared_with_itself_has_no_change() -> None:
    assert compare_layouts(PLAIN, PLAIN) == ()


@pytest.mark.parametrize(
    ("after", "said"),
    [
        pytest.param(replace(PLAIN, size=32), [("", ChangeKind.SIZE, True)], id="size"),
        pytest.param(replace(PLAIN, alignment=16), [("", ChangeKind.ALIGNMENT, True)], id="alignment"),
        pytest.param(replace(PLAIN, packed=True), [("", ChangeKind.PACKED, True)], id="packed"),
        pytest.param(_with(2, offset=4), [("c", ChangeKind.MOVED, True)], id="moved at one size"),
        pytest.param(_with(2, size=1), [("c", ChangeKind.RESIZED, True)], id="resized"),
        pytest.param(_with(2, type="float"), [("c", ChangeKind.RETYPED, True)], id="integer becomes float"),
        pytest.param(_with(2, type="int32_t"), [("c", ChangeKind.RETYPED, False)], id="another integer"),
        pytest.param(_with(1, type="char*"), [("b", ChangeKind.RETYPED, False)], id="another pointer"),
        pytest.param(_with(1, type="long"), [("b", ChangeKind.RETYPED, True)], id="pointer becomes integer"),
        pytest.param(_with(2, name="e"), [("c", ChangeKind.RENAMED, False)], id="renamed"),
        pytest.param(_with(2, name="e", offset=4), [("c", ChangeKind.REMOVED, True), ("e", ChangeKind.ADDED, True)],
                     id="another field elsewhere"),
        pytest.param(replace(PLAIN, fields=PLAIN.fields[:3]), [("d", ChangeKind.REMOVED, True)], id="removed"),
        pytest.param(replace(PLAIN, fields=(*PLAIN.fields, _field("e", 4))), [("e", ChangeKind.ADDED, True)],
                     id="added in padding: old code leaves it unset"),
        pytest.param(replace(PLAIN, fields=(*PLAIN.fields, _field("e", 8, 8))), [("e", ChangeKind.ADDED, False)],
                     id="added to a union"),
    ],
)  # fmt: skip
def test_one_difference_is_named(after: StructLayout, said: list[tuple[str, ChangeKind, bool]]) -> None:
    assert _said(after) == said


def test_members_that_changed_places_are_told_though_the_size_is_one() -> None:
    first, second = _field("x", 0), _field("y", 4)
    before = StructLayout(name="s", size=8, alignment=4, packed=False, fields=(first, second))
    after = replace(before, fields=(replace(second, offset=0), replace(first, offset=4)))
    changes = compare_layouts(before, after)
    assert before.size == after.size
    assert [(change.field, change.kind) for change in changes] == [
        ("", ChangeKind.REORDERED),
        ("x", ChangeKind.MOVED),
        ("y", ChangeKind.MOVED),
    ]
    assert is_breaking(changes)


def test_a_bit_that_moved_is_told() -> None:
    before = replace(PLAIN, fields=(_field("flag", 0, 1, "bool", (3, 1)),))
    after = replace(PLAIN, fields=(_field("flag", 0, 1, "bool", (4, 1)),))
    (change,) = compare_layouts(before, after)
    assert change.words == "s.flag: moved: offset 0 bit 3 -> offset 0 bit 4"


def test_base_classes_may_have_members_of_one_name() -> None:
    fields = (_field("head", 8), _field("head", 0))
    twice = replace(PLAIN, fields=fields)
    assert compare_layouts(twice, twice) == ()
    assert _said(replace(PLAIN, fields=(_field("head", 8), _field("head", 4))), twice) == [
        ("head", ChangeKind.MOVED, True)
    ]


def test_a_field_that_takes_the_place_of_one_that_moved_is_no_union() -> None:
    before = replace(PLAIN, fields=(_field("warned", 61, 1),))
    after = replace(PLAIN, fields=(_field("thrown", 61, 1), _field("warned", 62, 1)))
    assert _said(after, before) == [("warned", ChangeKind.MOVED, True), ("thrown", ChangeKind.ADDED, True)]


def test_a_rename_does_not_break() -> None:
    assert not is_breaking(compare_layouts(PLAIN, _with(0, name="first")))


def test_holes_are_found_between_and_behind() -> None:
    assert paddings(PLAIN) == (Padding(offset=4, size=4), Padding(offset=22, size=2))


def test_members_of_a_union_leave_no_hole() -> None:
    fields = (_field("i", 0, 8), _field("c", 0, 1), _field("next", 8, 8))
    assert paddings(replace(PLAIN, size=16, fields=fields)) == ()


def test_bits_that_are_not_used_are_a_hole_from_the_next_byte_on() -> None:
    fields = (_field("flag", 0, 4, "int", (0, 3)), _field("next", 4))
    assert paddings(replace(PLAIN, size=8, fields=fields)) == (Padding(offset=1, size=3),)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("int", "integer"),
        ("unsigned long", "integer"),
        ("uint32_t", "integer"),
        ("enum mode", "integer"),
        ("long double", "float"),
        ("double const", "float"),
        ("char *", "pointer"),
        ("int[4]", "other"),
        ("at::Tensor", "other"),
        ("", "other"),
    ],
)
def test_what_the_bytes_of_a_type_mean(text: str, family: str) -> None:
    assert type_family(text) == family
