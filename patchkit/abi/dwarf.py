"""Types as DWARF tells them: their names, their sizes, their members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchkit.errors import RefusedError

CLASS_TAGS = ("DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type")
_REFERENCES = {"DW_TAG_pointer_type": "*", "DW_TAG_reference_type": "&", "DW_TAG_rvalue_reference_type": "&&"}
_QUALIFIERS = {"DW_TAG_const_type": "const", "DW_TAG_volatile_type": "volatile", "DW_TAG_restrict_type": "__restrict"}
_TRANSPARENT = ("DW_TAG_typedef", *_QUALIFIERS)
_COMPLEX = 3  # DW_ATE_complex_float
_FLOATING = 4  # DW_ATE_float
_DEEPEST = 64
_POINTER_BYTES = 8

Die = Any
"""elftools.dwarf.die.DIE, which has no types."""


def text(die: Die, attribute: str = "DW_AT_name") -> str:
    """Return a string attribute, "" where there is none."""
    found = die.attributes.get(attribute)
    return "" if found is None else str(found.value.decode("utf-8", "backslashreplace"))


def number(die: Die, attribute: str) -> int | None:
    """Return a constant attribute, None where there is none or where it is an expression."""
    found = die.attributes.get(attribute)
    if found is None:
        return None
    return _constant(found.value)


def _constant(expression: object) -> int | None:
    """Return a number, also that of DW_OP_constu N: gcc writes the place in a vtable so."""
    if isinstance(expression, int):
        return expression
    constu = 0x10
    values: list[int] = list(expression) if isinstance(expression, list | bytes) else []
    if len(values) < 2 or values[0] != constu:  # noqa: PLR2004 -- the operation and at least one byte
        return None
    return sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(values[1:]))


def referred(die: Die) -> Die | None:
    """Return the type that a DIE refers to, None for void."""
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def resolved(die: Die | None) -> Die | None:
    """Look through typedefs, const and volatile."""
    for _ in range(_DEEPEST):
        if die is None or die.tag not in _TRANSPARENT:
            return die
        die = referred(die)
    raise RefusedError("the debug information is not well formed", why="a type is defined by itself")


def type_name(die: Die | None, depth: int = 0) -> str:
    """Write a type as C++ does, without typedefs: what two headers call alike may differ."""
    if die is None:
        return "void"
    if depth > _DEEPEST:
        raise RefusedError("the debug information is not well formed", why="a type is defined by itself")
    inner = depth + 1
    if die.tag == "DW_TAG_typedef":
        return type_name(referred(die), inner)
    if die.tag in _REFERENCES:
        return type_name(referred(die), inner) + _REFERENCES[die.tag]
    if die.tag in _QUALIFIERS:
        return f"{type_name(referred(die), inner)} {_QUALIFIERS[die.tag]}"
    if die.tag == "DW_TAG_array_type":
        return type_name(referred(die), inner) + "".join(f"[{count}]" for count in _counts(die))
    if die.tag == "DW_TAG_subroutine_type":
        parameters = ", ".join(parameter_types(die))
        return f"{type_name(referred(die), inner)} ({parameters})"
    if die.tag == "DW_TAG_ptr_to_member_type":
        return f"{type_name(referred(die), inner)} member*"
    return qualified_name(die)


def parameter_types(function: Die) -> list[str]:
    """Return the types of a function's parameters, without `this`."""
    return [
        type_name(referred(child))
        for child in function.iter_children()
        if child.tag == "DW_TAG_formal_parameter" and "DW_AT_artificial" not in child.attributes
    ]


def qualified_name(die: Die) -> str:
    """Return a name with the namespaces and classes around it."""
    names = [text(die) or "(anonymous)"]
    around = die.get_parent()
    while around is not None and around.tag not in ("DW_TAG_compile_unit", "DW_TAG_subprogram"):
        names.append(text(around) or "(anonymous)")
        around = around.get_parent()
    return "::".join(reversed(names))


def size_of(die: Die | None) -> int:
    """Return the size of a type in bytes; 0 for a flexible array and for what is only declared."""
    die = resolved(die)
    if die is None:
        return 0
    stated = number(die, "DW_AT_byte_size")
    if stated is not None:
        return stated
    if die.tag in _REFERENCES:
        return _POINTER_BYTES
    if die.tag == "DW_TAG_ptr_to_member_type":
        function = resolved(referred(die))
        return 2 * _POINTER_BYTES if function is not None and function.tag == "DW_TAG_subroutine_type" else 8
    if die.tag == "DW_TAG_array_type":
        size = size_of(referred(die))
        for count in _counts(die):
            size *= count
        return size
    return 0


def scalars(die: Die | None, offset: int = 0, depth: int = 0) -> Iterator[tuple[int, int, str]]:
    """Yield (offset, size, `integer` or `float`) of everything in a type that is no struct and no array."""
    die = resolved(die)
    if die is None or depth > _DEEPEST:
        return
    if die.tag in CLASS_TAGS:
        for member in members(die):
            yield from scalars(referred(member), offset + _start(member), depth + 1)
    elif die.tag == "DW_TAG_array_type":
        element = referred(die)
        count = size_of(die) // (size_of(element) or 1)
        for place in range(count):
            yield from scalars(element, offset + place * size_of(element), depth + 1)
    else:
        encoding = number(die, "DW_AT_encoding") if die.tag == "DW_TAG_base_type" else None
        if encoding == _COMPLEX:
            half = size_of(die) // 2
            yield from ((offset, half, "float"), (offset + half, half, "float"))
        else:
            yield offset, size_of(die), "float" if encoding == _FLOATING else "integer"


def _start(member: Die) -> int:
    """Return where a member's type would lie: for a bit-field the unit that holds its first bit."""
    bit = number(member, "DW_AT_data_bit_offset")
    if bit is None:
        return number(member, "DW_AT_data_member_location") or 0
    size = size_of(referred(member)) or 1
    return bit // (8 * size) * size


def members(die: Die) -> Iterator[Die]:
    """Yield the base classes and the members of a class that take part in its layout, in the order of declaration."""
    for child in die.iter_children():
        if child.tag in ("DW_TAG_inheritance", "DW_TAG_member") and "DW_AT_external" not in child.attributes:
            yield child


def _counts(array: Die) -> list[int]:
    counts = []
    for child in array.iter_children():
        if child.tag != "DW_TAG_subrange_type":
            continue
        upper = number(child, "DW_AT_upper_bound")
        count = number(child, "DW_AT_count")
        counts.append(count if count is not None else 0 if upper is None else upper + 1)
    return counts or [0]
