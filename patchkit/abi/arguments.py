"""How an argument travels: in which registers, on the stack, or as an address, on x86-64 and on AArch64.

The rules are those of the System V ABI for AMD64 (section 3.2.3), of the Procedure Call Standard for the Arm 64-bit
architecture (AAPCS64, section 6.8.2), and of the Itanium C++ ABI (section 3.1.2.3): a class that has a destructor, a
copy or a move constructor of its own travels as the address of a temporary.
"""

from __future__ import annotations

import enum

from patchkit.record import dataclass

_EIGHTBYTE = 8
_TWO_EIGHTBYTES = 16
_MOST_ELEMENTS = 4  # of a homogeneous floating-point aggregate


class Machine(str, enum.Enum):
    """A calling convention."""

    AMD64 = "amd64"
    AARCH64 = "aarch64"


class Way(str, enum.Enum):
    """How (a part of) an argument travels."""

    INTEGER = "integer register"
    VECTOR = "vector register"
    ADDRESS = "address of a temporary in an integer register"
    STACK = "copy on the stack"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scalar:
    """A number, pointer or enumeration in a type: `kind` is `integer` or `float`; offset and size in bytes."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PassedType:
    """What decides how a type travels.

    `by_reference`: it is not trivial for the purposes of calls. `scalars` may be empty above 64 bytes.
    """

    name: str
    size: int
    alignment: int
    by_reference: bool
    scalars: tuple[Scalar, ...]


def travel(passed: PassedType, machine: Machine) -> tuple[Way, ...]:
    """Return the ways of an argument's parts, in order; nothing for an empty class that takes no place.

    What is said holds while registers are left: a class that does not fit into them as a whole goes onto the stack.
    """
    if passed.by_reference:
        return (Way.ADDRESS,)
    return _amd64(passed) if machine is Machine.AMD64 else _aarch64(passed)


def _amd64(passed: PassedType) -> tuple[Way, ...]:
    if passed.size > _TWO_EIGHTBYTES or any(_is_for_memory(scalar) for scalar in passed.scalars):
        return (Way.STACK,)
    ways = []
    for start in range(0, passed.size, _EIGHTBYTE):
        kinds = {scalar.kind for scalar in passed.scalars if scalar.offset // _EIGHTBYTE == start // _EIGHTBYTE}
        wide = any(scalar.size > _EIGHTBYTE and scalar.kind == "integer" for scalar in passed.scalars)  # __int128
        if wide or "integer" in kinds:
            ways.append(Way.INTEGER)
        elif kinds:
            ways.append(Way.VECTOR)
    return tuple(ways)


def _is_for_memory(scalar: Scalar) -> bool:
    """True for what a packed struct misplaces, and for long double: the class X87 travels in memory."""
    return scalar.offset % scalar.size != 0 or (scalar.kind == "float" and scalar.size > _EIGHTBYTE)


def _aarch64(passed: PassedType) -> tuple[Way, ...]:
    elements = _homogeneous(passed)
    if elements:
        return (Way.VECTOR,) * elements
    if passed.size > _TWO_EIGHTBYTES:
        return (Way.ADDRESS,)
    return (Way.INTEGER,) * ((passed.size + _EIGHTBYTE - 1) // _EIGHTBYTE)


def _homogeneous(passed: PassedType) -> int:
    """Return the number of elements of a homogeneous floating-point aggregate, 0 for what is none."""
    places = {(scalar.offset, scalar.size) for scalar in passed.scalars}
    sizes = {size for _, size in places}
    is_filled = len(sizes) == 1 and len(places) * next(iter(sizes), 0) == passed.size
    is_floating = all(scalar.kind == "float" for scalar in passed.scalars)
    return len(places) if is_floating and is_filled and len(places) <= _MOST_ELEMENTS else 0
