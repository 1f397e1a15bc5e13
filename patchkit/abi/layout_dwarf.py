"""Layouts and vtables out of the DWARF of a probe: an object file that patchkit.abi.probe made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchkit.abi.arguments import PassedType, Scalar
from patchkit.abi.dwarf import (
    CLASS_TAGS,
    Die,
    members,
    number,
    parameter_types,
    qualified_name,
    referred,
    resolved,
    scalars,
    size_of,
    text,
    type_name,
)
from patchkit.abi.layout import Field, StructLayout
from patchkit.abi.vtable import Slot, Vtable
from patchkit.errors import RefusedError
from patchkit.record import dataclass

VARIABLE = "patchkit_probe_"
FACTS = "patchkit_facts_"
_LARGEST_ALIGNMENT = 16  # of a scalar: long double, __int128
_LARGEST_ARGUMENT = 64  # bytes; four quad floats in AAPCS64. What is larger travels in memory whatever is in it


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedType:
    """What a probe tells of one type. `layout` is None for a scalar, `vtable` for a class without virtual functions."""

    passed: PassedType
    layout: StructLayout | None
    vtable: Vtable | None


def read_probe(path: Path, names: tuple[str, ...]) -> tuple[ProbedType, ...]:
    """Read the types of a probe, in the order in which it names them; `names` is what they are to be called."""
    from elftools.common.exceptions import DWARFError, ELFError, ELFParseError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            facts = _stated(elf, len(names))
            dies = _probed(elf, len(names))
            return tuple(_probed_type(die, name, stated) for die, name, stated in zip(dies, names, facts, strict=True))
    except (ELFError, ELFParseError, DWARFError, KeyError, IndexError, ValueError, TypeError) as error:
        raise RefusedError(
            f"cannot read the debug information of {path.name}", why=f"  {type(error).__name__}: {error}"
        ) from error


def _stated(elf: Any, count: int) -> list[tuple[int, ...]]:
    """Return what the compiler wrote into the probe: sizeof, alignof, 1 for what travels as an address."""
    table = elf.get_section_by_name(".symtab")
    found = []
    for place in range(count):
        symbol = table.get_symbol_by_name(f"{FACTS}{place}")[0]
        section = elf.get_section(symbol["st_shndx"])
        start = symbol["st_value"] - section["sh_addr"]
        stored = section.data()[start : start + 24]
        found.append(tuple(int.from_bytes(stored[at : at + 8], "little") for at in (0, 8, 16)))
    return found


def _probed(elf: Any, count: int) -> list[Die]:
    """Return the types that the probe's variables point to. The linker has applied the relocations: here it is slow."""
    found: dict[str, Die] = {}
    for unit in elf.get_dwarf_info(relocate_dwarf_sections=False).iter_CUs():
        for die in unit.get_top_DIE().iter_children():
            if die.tag == "DW_TAG_variable" and text(die).startswith(VARIABLE):
                found[text(die)] = referred(resolved(referred(die)))
    return [found[f"{VARIABLE}{place}"] for place in range(count)]


def _probed_type(die: Die, name: str, stated: tuple[int, ...]) -> ProbedType:
    size, alignment, by_reference = stated
    inner = resolved(die)
    if size_of(inner) != size:
        raise RefusedError(
            f"{name}: the compiler says {size} bytes, its debug information {size_of(inner)}",
            hint="compile the probe with -femit-class-debug-always",
        )
    found = scalars(inner) if size <= _LARGEST_ARGUMENT else ()
    leaves = tuple(Scalar(offset=at, size=length, kind=kind) for at, length, kind in found)
    passed = PassedType(name=name, size=size, alignment=alignment, by_reference=bool(by_reference), scalars=leaves)
    if inner is None or inner.tag not in CLASS_TAGS:
        return ProbedType(passed=passed, layout=None, vtable=None)
    return ProbedType(
        passed=passed,
        layout=layout_of(inner, name=name, size=size, alignment=alignment),
        vtable=vtable_of(inner, name=name),
    )


def layout_of(die: Die, *, name: str, size: int, alignment: int) -> StructLayout:
    """Return the layout of a class; members of its base classes stand among its own."""
    is_packed = _is_misplaced(die) or alignment < max(map(_needed, _member_types(die)), default=1)
    return StructLayout(name=name, size=size, alignment=alignment, packed=is_packed, fields=tuple(_fields(die, 0, "")))


def _fields(die: Die, start: int, prefix: str) -> Iterator[Field]:
    for member in members(die):
        inner = resolved(referred(member))
        at = start + (number(member, "DW_AT_data_member_location") or 0)
        if inner is not None and inner.tag in CLASS_TAGS and _is_open(member, inner, die):
            below = f"{text(inner).split('<')[0]}::" if member.tag == "DW_TAG_inheritance" else prefix
            yield from _fields(inner, at, below)
        else:
            yield _field(member, at, start, prefix)


def _is_open(member: Die, inner: Die, around: Die) -> bool:
    """True when the members of a member are shown in its place: a base class, what has no name, std's own layers."""
    if member.tag == "DW_TAG_inheritance" or not text(member):
        return True
    is_layer = text(member).startswith("_M_") and inner.tag != "DW_TAG_union_type"
    return is_layer and qualified_name(around).startswith("std::") and qualified_name(inner).startswith("std::")


def _field(member: Die, at: int, start: int, prefix: str) -> Field:
    die = referred(member)
    size, bits = size_of(die), number(member, "DW_AT_bit_size")
    # gcc calls it _vptr.Class and gives it a type of its own
    name = "_vptr" if text(member).startswith("_vptr") else text(member)
    shown = "vtable*" if name == "_vptr" else type_name(die)
    if bits is None:
        return Field(name=prefix + name, type=shown, offset=at, size=size)
    first = 8 * start + (number(member, "DW_AT_data_bit_offset") or 0)
    unit = first // (8 * size) * size  # where the declared type would lie
    return Field(name=prefix + name, type=shown, offset=unit, size=size, bit_offset=first - 8 * unit, bit_size=bits)


def _member_types(die: Die) -> Iterator[Die]:
    """Yield the types of the members; bit-fields lie where they like."""
    for member in members(die):
        if "DW_AT_bit_size" not in member.attributes:
            yield referred(member)


def _needed(die: Die | None) -> int:
    """Return the alignment that a type asks for by what is in it: 1 for a packed struct."""
    inner = resolved(die)
    if inner is not None and inner.tag == "DW_TAG_array_type":
        return _needed(referred(inner))
    if inner is None or inner.tag not in CLASS_TAGS:
        return max(1, min(size_of(inner), _LARGEST_ALIGNMENT))
    return 1 if _is_misplaced(inner) else max(map(_needed, _member_types(inner)), default=1)


def _is_misplaced(die: Die) -> bool:
    """True when a member lies where its own alignment forbids it, or would in the second element of an array."""
    needs = [
        (number(member, "DW_AT_data_member_location") or 0, _needed(referred(member)))
        for member in members(die)
        if "DW_AT_bit_size" not in member.attributes
    ]
    return any(at % need or size_of(die) % need for at, need in needs)


def vtable_of(die: Die, *, name: str) -> Vtable | None:
    """Return the slots of a class's primary vtable; None for a class without virtual functions."""
    slots: dict[int, str] = {}
    has_destructor = _collect_slots(die, slots)
    if has_destructor:
        _place_destructor(slots, name)
    if not slots:
        return None
    return Vtable(name=name, slots=tuple(Slot(place=place, function=slots[place]) for place in sorted(slots)))


def _collect_slots(die: Die, slots: dict[int, str]) -> bool:
    """Fill in the slots of the base at offset 0, then those of the class: an override takes the base's place.

    Return whether a destructor is virtual.
    """
    has_destructor = False
    for member in members(die):
        at = number(member, "DW_AT_data_member_location")
        inner = resolved(referred(member))
        if member.tag == "DW_TAG_inheritance" and at == 0 and inner is not None:
            has_destructor |= _collect_slots(inner, slots)
    for child in die.iter_children():
        if child.tag != "DW_TAG_subprogram" or "DW_AT_virtuality" not in child.attributes:
            continue
        place = number(child, "DW_AT_vtable_elem_location")
        if place is not None:
            slots[place] = _signature(child)
        elif text(child).startswith("~"):
            has_destructor = True
    return has_destructor


def _place_destructor(slots: dict[int, str], name: str) -> None:
    """Put the two destructors where the others leave room: gcc gives no place for them."""
    free = [place for place in range(max(slots, default=-1) + 1) if place not in slots] or [len(slots), len(slots) + 1]
    if len(free) != 2 or free[1] != free[0] + 1:  # noqa: PLR2004 -- the complete and the deleting one
        raise RefusedError(f"{name}: the slots of its vtable are not all told", why=f"  nothing is said of {free}")
    slots[free[0]], slots[free[1]] = "~()", "~() and delete"


def _signature(function: Die) -> str:
    return f"{text(function)}({', '.join(parameter_types(function))}){' const' if _is_const(function) else ''}"


def _is_const(function: Die) -> bool:
    """True when what `this` points to is const."""
    if "DW_AT_object_pointer" not in function.attributes:
        return False
    this = resolved(referred(function.get_DIE_from_attribute("DW_AT_object_pointer")))
    pointed = None if this is None else referred(this)
    return pointed is not None and pointed.tag == "DW_TAG_const_type"
