"""Put the answers of `abi check` together, and say what to install."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from patchkit.abi.compare import (
    describe_missing,
    judge_mangling,
    judge_schemas,
    judge_symbols,
    judge_system,
    missing_symbols,
    torch_imports,
)
from patchkit.abi.demangle import demangle
from patchkit.abi.facts import ObjectFacts, WheelFacts
from patchkit.abi.judges import compare_builds, judge_types
from patchkit.abi.ranges import release_range
from patchkit.abi.requirements import pinned_torch
from patchkit.abi.snapshot import Facts
from patchkit.abi.system import System
from patchkit.abi.torch_build import TorchBuild, stored_torch
from patchkit.abi.verdicts import CheckReport, Column, Finding, ObjectReport, Verdict


def check_wheel(
    wheel: WheelFacts, torch: TorchBuild, *, system: System, facts: Facts, findings: Iterable[Finding] = ()
) -> CheckReport:
    """Judge every shared object of a wheel. Machine code of other machines than the first one's is judged alike."""
    siblings = exported_by(wheel)
    missing = {one.path: missing_symbols(one, torch, siblings) for one in wheel.objects}
    words = demangle(name for one in wheel.objects for name in torch_imports(one, siblings))
    released = facts.find(wheel.distribution, wheel.version)
    comparison = compare_builds(built_with(wheel, facts), torch)
    objects = []
    for one in wheel.objects:
        if one.fault:
            objects.append(ObjectReport(path=one.path, cells=(), fault=one.fault))
            continue
        lacks = describe_missing(missing[one.path], facts.symbols, words)
        needed = torch_imports(one, siblings)
        types = judge_types(needed, [words.get(name, name) for name in needed], comparison, exports=one.exports)
        cells = (
            judge_symbols(one, torch, lacks, siblings),
            judge_system(one, system, torch),
            judge_mangling(one, torch, siblings),
            types[Column.LAYOUT],
            types[Column.VTABLE],
            judge_schemas(one, _same(released, one), wheel.title),
            types[Column.ARGUMENTS],
        )
        objects.append(ObjectReport(path=one.path, cells=cells, missing=lacks))
    return CheckReport(
        target=wheel.title,
        against=torch.title,
        against_origin=torch.origin,
        system=system.title,
        objects=tuple(objects),
        findings=tuple(findings),
        advice=tuple(_advice(wheel, torch, objects, facts)),
    )


def exported_by(wheel: WheelFacts) -> frozenset[str]:
    """Return what the shared objects of a wheel offer each other."""
    return frozenset(name for one in wheel.objects for name in one.exports)


def fitting_torches(wheel: WheelFacts, facts: Facts) -> tuple[str, ...]:
    """Return the stored torches that have every torch symbol of every shared object of a wheel."""
    siblings = exported_by(wheel)
    names = {name for one in wheel.objects for name in torch_imports(one, siblings)}
    table = facts.symbols
    return tuple(release for release in table.releases if all(table.has(name, release) for name in names))


def built_with(wheel: WheelFacts, facts: Facts) -> TorchBuild | None:
    """Return the torch that a wheel pins, else the only stored one that has all of its symbols.

    A build of the same release with another local version (`+cpu`) has the same headers, and stands for it.
    """
    pinned = pinned_torch(wheel)
    if pinned:
        same = [one for one in facts.torches if one.partition("+")[0] == pinned.partition("+")[0]]
        known = [one for one in same if one == pinned] or same
        return stored_torch(facts, known[0]) if known else None
    fitting = fitting_torches(wheel, facts)
    return stored_torch(facts, fitting[0]) if len(fitting) == 1 else None


def _same(released: WheelFacts | None, facts: ObjectFacts) -> ObjectFacts | None:
    return next((one for one in released.objects if one.path == facts.path), None) if released is not None else None


def _advice(wheel: WheelFacts, torch: TorchBuild, objects: Iterable[ObjectReport], facts: Facts) -> Iterator[str]:
    reports = list(objects)
    if not any(report.fault or report.cell(Column.SYMBOLS).verdict is Verdict.BROKEN for report in reports):
        built = built_with(wheel, facts)
        if built is not None and any(_meets_other_types(report) for report in reports):
            yield f"pip install {built.title}  (what it was built with)"
        return
    for report in reports:
        if report.fault:
            yield f"install {wheel.title} again: {report.path} is damaged"
    fitting = fitting_torches(wheel, facts)
    pinned = pinned_torch(wheel)
    has_pinned = pinned in fitting or pinned.partition("+")[0] in fitting
    if has_pinned:
        where = release_range(fitting, facts.torches)
        yield f"pip install torch=={pinned}  (what it pins; torch {where} has every symbol)"
    elif fitting:
        yield f"pip install torch=={fitting[-1]}  (torch {release_range(fitting, facts.torches)} has every symbol)"
    else:
        yield f"no stored torch has every symbol of {wheel.title}; stored are {', '.join(facts.torches)}"
    if pinned and not has_pinned:
        yield f"{wheel.title} itself asks for torch=={pinned}"
    others = [other.version for other in _others(wheel, facts) if torch.wheel.version in fitting_torches(other, facts)]
    if others:
        yield f"or keep {torch.title} and install {wheel.distribution}=={others[-1]}, which fits it"


def _others(wheel: WheelFacts, facts: Facts) -> Iterator[WheelFacts]:
    return (one for one in facts.wheels if one.distribution == wheel.distribution and one.version != wheel.version)


def _meets_other_types(report: ObjectReport) -> bool:
    verdicts = {report.cell(column).verdict for column in (Column.LAYOUT, Column.VTABLE, Column.ARGUMENTS)}
    return not verdicts.isdisjoint({Verdict.BROKEN, Verdict.RISK})
