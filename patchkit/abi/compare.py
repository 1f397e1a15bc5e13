"""Judge a shared object against a torch and a system, column by column. Pure: opens no file, reads no environment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from patchkit.abi.driver_api import introduced_in
from patchkit.abi.facts import Import, ObjectFacts
from patchkit.abi.mangling import StringAbi, has_c10_optional, is_stable, is_torch_symbol, string_abi
from patchkit.abi.ranges import release_range
from patchkit.abi.schemas import operator_name
from patchkit.abi.symbol_table import SymbolTable
from patchkit.abi.system import System, package_of, split_version, version_key
from patchkit.abi.torch_build import TorchBuild, cuda_major
from patchkit.abi.verdicts import Cell, Column, MissingSymbol, Verdict
from patchkit.counting import counted, counted_of

_FLAG = {StringAbi.OLD: "_GLIBCXX_USE_CXX11_ABI=0 (old std::string)", StringAbi.NEW: "the new std::string"}


def torch_imports(facts: ObjectFacts, siblings: Collection[str] = ()) -> tuple[str, ...]:
    """Return the torch symbols that a file cannot do without: strong, unversioned, not of its own wheel."""
    return tuple(one.name for one in facts.imports if _is_needed(one) and one.name not in siblings)


def missing_symbols(facts: ObjectFacts, torch: TorchBuild, siblings: Collection[str] = ()) -> tuple[str, ...]:
    """Return those that a torch does not export, sorted."""
    return tuple(sorted(name for name in torch_imports(facts, siblings) if not torch.exports(name)))


def judge_symbols(
    facts: ObjectFacts, torch: TorchBuild, missing: tuple[MissingSymbol, ...], siblings: Collection[str]
) -> Cell:
    """Say how many are missing; each with the releases that have it."""
    asked = torch_imports(facts, siblings)
    if not asked:
        return Cell(column=Column.SYMBOLS, verdict=Verdict.NONE, words="needs nothing of torch")
    if not missing:
        stable = sum(map(is_stable, asked))
        kept = f", {stable} of the stable interface" if stable else ""
        known = counted(len(asked), "torch symbol is", "torch symbols are")
        words = f"{'all ' if len(asked) > 1 else ''}{known} in {torch.title}{kept}"
        return Cell(column=Column.SYMBOLS, verdict=Verdict.OK, words=words)
    details = tuple(f"{one.words}\n{one.where}" for one in missing)
    lacks = counted_of(len(missing), len(asked), "torch symbol", "is missing", "are missing")
    words = f"{lacks} in {torch.title}"
    return Cell(column=Column.SYMBOLS, verdict=Verdict.BROKEN, words=words, details=details)


def describe_missing(names: Iterable[str], table: SymbolTable, words: Mapping[str, str]) -> tuple[MissingSymbol, ...]:
    """Say of each name what it is and which stored releases have it."""
    found = []
    for name in names:
        releases = table.releases_of(name)
        where = f"in torch {release_range(releases, table.releases)}" if releases else "in none of the stored torches"
        found.append(MissingSymbol(name=name, words=words.get(name, name), releases=releases, where=where))
    return tuple(found)


def judge_system(facts: ObjectFacts, system: System, torch: TorchBuild) -> Cell:
    """Compare version needs with what the system has, and the CUDA that it was linked with with torch's."""
    faults, unknown, floors = [], [], []
    for family, version in sorted(version_floors(facts).items()):
        have = system.versions.get(family)
        if family not in ("GLIBC", "GLIBCXX", "CXXABI"):
            continue
        floors.append(f"{family}_{version}")
        if have is None:
            unknown.append(f"needs {family}_{version}; what {package_of(family)} of {system.title} has is not known")
        elif version_key(have) < version_key(version):
            faults.append(
                f"needs {family}_{version}, and {package_of(family)} of {system.title} ends at {family}_{have}"
            )
    faults += _cuda_faults(facts, torch)
    driver = driver_floor(facts)
    if driver:
        floors.append(f"driver for CUDA {driver[0]} ({driver[1]})")
    if faults:
        return Cell(column=Column.SYSTEM, verdict=Verdict.BROKEN, words=faults[0], details=tuple(faults[1:]))
    shown = "needs " + ", ".join(floors) if floors else "needs no particular version"
    if unknown:
        return Cell(column=Column.SYSTEM, verdict=Verdict.UNKNOWN, words=unknown[0], details=(*unknown[1:], shown))
    return Cell(column=Column.SYSTEM, verdict=Verdict.OK, words=shown)


def judge_mangling(facts: ObjectFacts, torch: TorchBuild, siblings: Collection[str] = ()) -> Cell:
    """Compare the std::string (and optional) of the torch symbols that it needs with those of torch."""
    names = torch_imports(facts, siblings)
    kinds = {string_abi(name) for name in names} - {StringAbi.NONE}
    have = torch.string_abi
    old_optional = [name for name in names if has_c10_optional(name) and not torch.exports(name)]
    if len(kinds) > 1:
        return Cell(
            column=Column.MANGLING, verdict=Verdict.BROKEN, words="it has both kinds of std::string in torch symbols"
        )
    if kinds and have is StringAbi.NONE:
        words = f"which std::string {torch.title} has is not known"
        return Cell(column=Column.MANGLING, verdict=Verdict.UNKNOWN, words=words)
    if kinds and kinds != {have}:
        built = next(iter(kinds))
        words = f"built with {_FLAG[built]}, and {torch.title} has {_FLAG[have]}"
        return Cell(column=Column.MANGLING, verdict=Verdict.BROKEN, words=words)
    if old_optional:
        having = counted(len(old_optional), "symbol has", "symbols have")
        words = f"{having} c10::optional, and {torch.title} has std::optional"
        return Cell(column=Column.MANGLING, verdict=Verdict.BROKEN, words=words)
    if not names:
        return Cell(column=Column.MANGLING, verdict=Verdict.NONE, words="needs nothing of torch")
    words = f"{_FLAG[have]} as in {torch.title}" if kinds else "no std::string in the torch symbols that it needs"
    return Cell(column=Column.MANGLING, verdict=Verdict.OK, words=words)


def judge_schemas(facts: ObjectFacts, released: ObjectFacts | None, title: str) -> Cell:
    """Compare the registered operators with those of the release as it was stored."""
    if not torch_imports(facts):
        return Cell(column=Column.SCHEMAS, verdict=Verdict.NONE, words="needs nothing of torch")
    if released is None or (facts.schemas and not released.schemas):
        if not facts.schemas:
            return Cell(column=Column.SCHEMAS, verdict=Verdict.NONE, words="registers no schema string")
        words = f"{counted(len(facts.schemas), 'schema')}; none are stored about {title} to compare with"
        return Cell(column=Column.SCHEMAS, verdict=Verdict.UNKNOWN, words=words)
    changes = tuple(schema_changes(released.schemas, facts.schemas))
    if changes:
        words = f"{counted(len(changes), 'operator differs', 'operators differ')} from {title} as released"
        return Cell(column=Column.SCHEMAS, verdict=Verdict.BROKEN, words=words, details=changes)
    if not facts.schemas:
        return Cell(column=Column.SCHEMAS, verdict=Verdict.NONE, words="registers no schema string")
    more = len(facts.schemas) - len(released.schemas)
    words = f"{counted(len(released.schemas), 'schema')} as in {title}" + (f", and {more} more" if more else "")
    return Cell(column=Column.SCHEMAS, verdict=Verdict.OK, words=words)


def schema_changes(before: Iterable[str], after: Iterable[str]) -> Iterator[str]:
    """Yield what differs between two sets of schemas: gone, new (which breaks nobody is left out), or changed."""
    old = {operator_name(one): one for one in before}
    new = {operator_name(one): one for one in after}
    for name in sorted(old):
        if name not in new:
            yield f"{name}: gone; it was {old[name]}"
        elif old[name] != new[name]:
            yield f"{name}: was {old[name]}\nis {new[name]}"


def version_floors(facts: ObjectFacts) -> dict[str, str]:
    """Return family -> highest version that a file asks for: `GLIBC` -> `2.32`."""
    found: dict[str, str] = {}
    for family, version in (split_version(need.version) for need in facts.versions):
        if family and version_key(version) > version_key(found.get(family, "")):
            found[family] = version
    return found


def driver_floor(facts: ObjectFacts) -> tuple[str, str] | None:
    """Return the CUDA version whose driver a file needs, and the function that needs it; None when any will do."""
    found = [(introduced_in(one.name), one.name) for one in facts.imports if one.name.startswith("cu") and not one.weak]
    return max(
        ((version, name) for version, name in found if version), default=None, key=lambda row: version_key(row[0])
    )


def _is_needed(one: Import) -> bool:
    return not one.weak and not one.version and is_torch_symbol(one.name)


def _cuda_faults(facts: ObjectFacts, torch: TorchBuild) -> list[str]:
    linked, have = cuda_major(facts.needed), torch.cuda_major
    if linked is None or linked == have or not torch.wheel.objects:
        return []
    library = next(name for name in facts.needed if cuda_major((name,)) is not None)
    if have is None:
        return [f"linked with CUDA {linked} ({library}), and {torch.title} is a build without CUDA"]
    return [f"linked with CUDA {linked} ({library}), and {torch.title} with CUDA {have}"]
