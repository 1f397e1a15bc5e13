"""Which way in reaches an entry point of a release, and why not the others: read from the library, never run.

The rules were measured (docs/native.md): a definition that is preloaded goes before the library's own wherever a
relocation names the symbol. A registered operator is called through an address that was copied when the library was
loaded, so whoever changes the table afterwards comes too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.abi.elf_symbols import Use
from patchkit.native.library import Exported, Library
from patchkit.native.program import program_faults
from patchkit.native.symbols import HOOKS, EntryPoint
from patchkit.native.target_libraries import TargetLibraries
from patchkit.record import dataclass
from patchkit.specifier import accepts

_IN_TABLES = Use.ADDRESS | Use.TABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """A method: whether it reaches the entry point, and why (not)."""

    method: str
    reaches: bool
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """An entry point in a library: `chosen` is the method to take, "" when none reaches it."""

    row: EntryPoint
    library: str
    identity: str
    chosen: str
    ways: tuple[Way, ...]


def diagnose(
    rows: Sequence[EntryPoint],
    found: TargetLibraries,
    *,
    version: str,
    program: Path | None,
    kernels: tuple[bool, str] = (False, "no torch is known"),
) -> tuple[Diagnosis, ...]:
    """Judge every entry point in every library that defines it.

    `kernels`: whether torch hands out a kernel that is registered, and what says so.
    """
    faults = program_faults(program) if program is not None else ()
    results = []
    for row in rows:
        libraries = found.defining(row.symbol)
        results += [_diagnosis(row, library, version=version, faults=faults, kernels=kernels) for library in libraries]
    return tuple(results)


def missing(rows: Sequence[EntryPoint], found: TargetLibraries) -> tuple[EntryPoint, ...]:
    """Return the rows that no library of the tree defines: another C++ ABI, another build, or hidden there."""
    return tuple(row for row in rows if not found.defining(row.symbol))


def _diagnosis(
    row: EntryPoint, library: Library, *, version: str, faults: Sequence[str], kernels: tuple[bool, str]
) -> Diagnosis:
    export = next(one for one in library.exports if one.symbol == row.symbol)
    ways = (
        _preload(export, library, faults),
        _opened_first(export, library),
        _plugin(export, library, row, version),
        _dispatcher(row, kernels),
        _audit(export),
        _table(export, row),
    )
    chosen = next((way.method for way in ways if way.reaches), "")
    return Diagnosis(row=row, library=str(library.path), identity=library.identity, chosen=chosen, ways=ways)


def _goes_before(export: Exported, library: Library) -> tuple[bool, str]:
    """Tell whether a definition in the global scope goes before the library's own."""
    if export.protected:
        return False, "the symbol is protected: the library calls its own"
    if library.symbolic:
        return False, "linked with -Bsymbolic: the library looks into itself first"
    if export.kind not in ("function", "ifunc"):
        return False, f"it is not a function but of kind {export.kind}"
    if not export.uses & (_IN_TABLES | Use.CALL):
        return False, "no relocation names it: the library reaches it directly"
    return True, f"relocations name it: {_uses_words(export.uses)}"


def _preload(export: Exported, library: Library, faults: Sequence[str]) -> Way:
    reaches, why = _goes_before(export, library)
    if faults:
        return Way(method="LD_PRELOAD", reaches=False, why="; ".join(faults))
    version = f"; its version {export.version} does not matter to an unversioned definition" if export.version else ""
    resolver = "; its address comes from a resolver, which the loader calls" if export.kind == "ifunc" else ""
    return Way(method="LD_PRELOAD", reaches=reaches, why=f"{why}{version if reaches else ''}{resolver}")


def _opened_first(export: Exported, library: Library) -> Way:
    reaches, why = _goes_before(export, library)
    how = f"{why}; a .pth file opens stage 1 with RTLD_GLOBAL before the library is loaded" if reaches else why
    return Way(method="RTLD_GLOBAL from a .pth file", reaches=reaches, why=how)


def _plugin(export: Exported, library: Library, row: EntryPoint, version: str) -> Way:
    """Tell whether an engine's plugins run before the library is loaded."""
    method = "the engine's plugin"
    if row.engine != "vllm":
        return Way(method=method, reaches=False, why=f"{row.engine} has none")
    reaches, why = _goes_before(export, library)
    if not accepts(">=0.32", version):
        return Way(method=method, reaches=False, why=f"vllm {version} loads its libraries before its plugins")
    return Way(method=method, reaches=reaches, why=f"{why}; --way plugin: vllm.general_plugins run first everywhere")


def _dispatcher(row: EntryPoint, kernels: tuple[bool, str]) -> Way:
    method = "torch dispatcher"
    operator = HOOKS[row.hook].operator if row.hook in HOOKS else ""
    if not operator:
        return Way(method=method, reaches=False, why="no torch operator is known for it")
    if row.engine != "vllm":
        return Way(
            method=method, reaches=False, why=f"{row.engine} loads no plugin that could register {operator} anew"
        )
    hands_out, why = kernels
    if not hands_out:
        return Way(method=method, reaches=False, why=f"{why}: what is registered anew could not call the kernel")
    return Way(method=method, reaches=True, why=f"--way dispatcher registers {operator} anew, in Python; {why}")


def _audit(export: Exported) -> Way:
    if Use.CALL in export.uses:
        return Way(
            method="LD_AUDIT", reaches=False, why="it would see calls through the PLT, at 260 ns each: not built"
        )
    return Way(method="LD_AUDIT", reaches=False, why="it sees only calls through the PLT, and there are none")


def _table(export: Exported, row: EntryPoint) -> Way:
    method = "rewriting the table"
    if row.hook in HOOKS and HOOKS[row.hook].operator:
        return Way(method=method, reaches=False, why="torch copied the address when the library was loaded: too late")
    if Use.CALL in export.uses:
        return Way(
            method=method, reaches=False, why="it would reach calls through the PLT; LD_PRELOAD does too: not built"
        )
    return Way(method=method, reaches=False, why="nothing is called through it")


def _uses_words(uses: Use) -> str:
    names = {Use.CALL: "called through the PLT", Use.ADDRESS: "its address is taken", Use.TABLE: "it stands in a table"}
    return ", ".join(words for use, words in names.items() if use in uses)
