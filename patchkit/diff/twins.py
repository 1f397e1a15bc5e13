"""Which of several definitions of one name is meant: the parts of a property, overloads, one `def` in each branch.

They have one qualified name, so that is not enough to say that two places are in the same scope. Of twins it compares
the decorators, the signature and the branches that they stand in. A mark decides when both files have it once. When
none does, the order decides, if there are as many twins in both files, in branches of the same conditions. Else nobody
can tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from patchkit.diff.scope import Definition, Marks

_MARKS: tuple[Callable[[Marks], object], ...] = (
    lambda marks: marks.decorators,
    lambda marks: marks.signature,
    lambda marks: marks.branches,
)


def compare_definitions(one: Definition, other: Definition) -> bool | None:
    """Tell whether definitions of two files are the same one, None when their twins leave it open."""
    if one.path != other.path:
        return False
    if one.parent is None or other.parent is None:
        return True
    outside = compare_definitions(one.parent, other.parent)
    if outside is False:
        return False
    twins, others = _twins(one), _twins(other)
    if len(twins) == len(others) == 1:
        return outside
    agrees = _compare_twins(
        twins.index(one), [it.marks() for it in twins], others.index(other), [it.marks() for it in others]
    )
    return agrees and outside if agrees is not None else None


def describe_difference(one: Definition, other: Definition) -> tuple[str, str]:
    """Name two definitions for people: by their qualified names, and by what tells them apart if those are equal."""
    if one.path != other.path or one.parent is None or other.parent is None:
        return one.path, other.path
    if compare_definitions(one.parent, other.parent) is False:
        return describe_difference(one.parent, other.parent)
    here, there = one.marks(), other.marks()
    if here.decorators != there.decorators:
        words = [", ".join(f"@{name}" for name in marks.decorators) or "no decorator" for marks in (here, there)]
    elif here.signature != there.signature:
        words = [here.signature, there.signature]
    elif here.branches != there.branches:
        words = [f"in {' in '.join(reversed(marks.branches)) or 'no branch'}" for marks in (here, there)]
    else:
        words = [f"number {_twins(it).index(it) + 1} of {len(_twins(it))}" for it in (one, other)]
    return f"{one.path} ({words[0]})", f"{other.path} ({words[1]})"


def describe_doubt(one: Definition, other: Definition) -> str:
    """Say why it is left open whether two definitions are the same one."""
    while one.parent and other.parent and compare_definitions(one.parent, other.parent) is None:
        one, other = one.parent, other.parent
    before, here = counted(len(_twins(one)), "time"), counted(len(_twins(other)), "time")
    return f"{one.path} is defined {before} before and {here} here"


def _twins(definition: Definition) -> list[Definition]:
    """Return the definitions of this name in the body that it stands in, itself among them."""
    if definition.parent is None or definition.node is None:
        return [definition]
    return definition.parent.children[definition.node.name]


def _compare_twins(one: int, twins: Sequence[Marks], other: int, others: Sequence[Marks]) -> bool | None:
    """Compare two of the twins in two files, given by their ordinals."""
    agrees = _decide(twins[one], twins, other=others[other], others=others)
    if agrees is not None or len(twins) != len(others):
        return agrees
    for mark in _MARKS:
        agrees = _decide(mark(twins[one]), [*map(mark, twins)], other=mark(others[other]), others=[*map(mark, others)])
        if agrees is not None:
            return agrees
    if one == other and twins[one].branches == others[other].branches:
        return True
    return False if list(twins) == list(others) else None


def _decide(mark: object, marks: Sequence[object], *, other: object, others: Sequence[object]) -> bool | None:
    """Decide by a mark that stands once in each file, None when neither of the two compared ones is such."""
    for found in (mark, other):
        if marks.count(found) == others.count(found) == 1:
            return mark == other
    return None
