"""Judge layout, vtables and argument classes: what a wheel was compiled with against what it meets.

A wheel was compiled against the headers of the torch that it pins. The records of structs of both torches are compared:
`layouts` of a release is struct -> {"layout": ..., "vtable": ..., "arguments": ...}, each part left out where it is not
known.
"""

from __future__ import annotations

from patchkit.abi.torch_build import TorchBuild
from patchkit.abi.verdicts import Cell, Column, Verdict

_PARTS = {Column.LAYOUT: "layout", Column.VTABLE: "vtable", Column.ARGUMENTS: "arguments"}


def judge_structs(column: Column, *, needs_torch: bool, built: TorchBuild | None, against: TorchBuild) -> Cell:
    """Compare one part of the records of all structs that both torches have."""
    if not needs_torch:
        return Cell(column=column, verdict=Verdict.NONE, words="needs nothing of torch")
    if built is None:
        words = "which torch it was built with is not known: it pins none, and no stored one fits"
        return Cell(column=column, verdict=Verdict.UNKNOWN, words=words)
    if built.wheel.version == against.wheel.version:
        return Cell(column=column, verdict=Verdict.OK, words=f"{against.title} is what it was built with")
    part = _PARTS[column]
    before = {name: record[part] for name, record in built.layouts.items() if part in record}
    after = {name: record[part] for name, record in against.layouts.items() if part in record}
    for title, known in ((built.title, before), (against.title, after)):
        if not known:
            words = f"no {column.value} facts are stored about {title}"
            return Cell(column=column, verdict=Verdict.UNKNOWN, words=words)
    both = sorted(set(before) & set(after))
    changed = tuple(name for name in both if before[name] != after[name])
    if changed:
        words = f"{len(changed)} of {len(both)} structs differ between {built.title} and {against.title}"
        return Cell(column=column, verdict=Verdict.BROKEN, words=words, details=changed)
    words = f"{len(both)} structs are the same in {built.title} and {against.title}"
    return Cell(column=column, verdict=Verdict.OK, words=words)
