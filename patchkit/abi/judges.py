"""Judge layout, vtables and argument classes: what a wheel was compiled with against what it meets.

A wheel was compiled against the headers of the torch that it pins. What is stored of the types of both torches is
compared; whether the wheel's code touches a type that differs cannot be seen in a library without debug information.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from patchkit.abi.layout_columns import ColumnResult, argument_column, layout_column, vtable_column
from patchkit.abi.torch_build import TorchBuild
from patchkit.abi.verdicts import Cell, Column, Verdict

_COLUMNS = {Column.LAYOUT: (layout_column, "struct"), Column.VTABLE: (vtable_column, "vtable")}
_SHOWN = 3


def judge_structs(*, built: TorchBuild | None, against: TorchBuild) -> Mapping[Column, Cell]:
    """Compare layouts and vtables of all types that both torches have: the same for every file that needs torch."""
    cells = {}
    for column, (compare, noun) in _COLUMNS.items():
        refused = _beforehand(column, built, against)
        if refused is not None or built is None:
            cells[column] = refused or _not_known(column, "")
        else:
            cells[column] = _cell(column, noun, compare(built.layouts, against.layouts), built, against)
    return cells


def judge_arguments(entry_points: Iterable[str], *, built: TorchBuild | None, against: TorchBuild) -> Cell:
    """Compare how arguments travel to the functions that a file imports: `entry_points`, their names in words."""
    column = Column.ARGUMENTS
    refused = _beforehand(column, built, against)
    if refused is not None or built is None:
        return refused or _not_known(column, "")
    result = argument_column(built.layouts, against.layouts, entry_points)
    if not result.compared:
        return _not_known(column, "its functions have parameters of types that are not stored")
    return _cell(column, "entry point", result, built, against)


def no_need(column: Column) -> Cell:
    """Return the cell of a file that needs nothing of torch."""
    return Cell(column=column, verdict=Verdict.NONE, words="needs nothing of torch")


def _beforehand(column: Column, built: TorchBuild | None, against: TorchBuild) -> Cell | None:
    """Return the answer that needs no comparison, None when there is none."""
    if built is None:
        return _not_known(column, "which torch it was built with is not known: it pins none, and no stored one fits")
    if built.wheel.version == against.wheel.version:
        return Cell(column=column, verdict=Verdict.OK, words=f"{against.title} is what it was built with")
    for torch in (built, against):
        if not torch.layouts:
            return _not_known(column, f"no {column.value} facts are stored about {torch.title}")
    return None


def _not_known(column: Column, words: str) -> Cell:
    return Cell(column=column, verdict=Verdict.UNKNOWN, words=words)


def _cell(column: Column, noun: str, result: ColumnResult, built: TorchBuild, against: TorchBuild) -> Cell:
    between = f"between {built.title} and {against.title}"
    aside = f", {len(result.unknown)} have types that are not stored" if result.unknown else ""
    broken: dict[str, list[str]] = {}
    for change in result.changes:
        if change.breaking:
            broken.setdefault(change.owner, []).append(change.words)
    if not broken:
        words = f"{len(result.compared)} {noun}s are compatible {between}{aside}"
        return Cell(column=column, verdict=Verdict.OK, words=words)
    words = f"{len(broken)} of {len(result.compared)} {noun}s differ {between}{aside}"
    details = tuple(_detail(found) for found in broken.values())
    return Cell(column=column, verdict=Verdict.BROKEN, words=words, details=details)


def _detail(found: Sequence[str]) -> str:
    more = len(found) - _SHOWN
    return "; ".join(found[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
