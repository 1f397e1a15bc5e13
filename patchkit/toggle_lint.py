"""What is wrong with the toggles of a series: Kconfig, gates, names that code reads, patches that need others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from patchkit.archive import Artifact
from patchkit.config.fault import UNDEFINED, Fault, KconfigError
from patchkit.config.supply import named_symbols
from patchkit.diff.model import FilePatch
from patchkit.engine import find_engine
from patchkit.errors import PatchkitError
from patchkit.lint import Finding, Severity, release_of, unreadable
from patchkit.locking import render_series
from patchkit.pattern import compile_lazily
from patchkit.record import replace
from patchkit.resources import patches_directory
from patchkit.series import PatchEntry, Series, applies, available_series, find_series, read_series, retired
from patchkit.stacking import Editing, find_edits
from patchkit.toggles import added_symbols, kconfig_files, read_toggles, usage_of
from patchkit.trailers import Toggle

if TYPE_CHECKING:
    from patchkit.config.kconfig import Menu
    from patchkit.target import TargetTree
    from patchkit.toggles import Toggles

_BINDS = compile_lazily(
    rb"\bCONFIG_([A-Za-z0-9_]+)\b(?=[^\n]*(?<![=!<>])=(?!=))|#[ \t]*define[ \t]+CONFIG_([A-Za-z0-9_]+)"
)


def lint_toggles(series: Series) -> tuple[Finding, ...]:
    """Check the toggles of a series by themselves: no release is looked at, all versions of the engine are."""
    if not any(entry.trailers.config or b"CONFIG_" in entry.raw for entry in series.entries) and not kconfig_files(
        series, series.engine
    ):
        return ()
    tree = release_of(series, series.version)
    below = _shipped_for(series, tree) if series.on_shipped else None
    try:
        toggles = _read(series, tree, below)
    except KconfigError as error:
        return tuple(_told(error.faults))
    except PatchkitError as error:
        return (unreadable(error),)
    if toggles is None:
        return ()
    findings = list(_told(toggles.resolution.faults))
    # Without a release nobody knows what stands below, and defines gates, where no series is shipped for the version.
    findings += _gates(series, toggles) if below is not None or not series.on_shipped else ()
    findings += _names(series, toggles)
    findings += _unused(series, toggles)
    findings += _unordered(series, toggles)
    return tuple(findings)


def _told(faults: Sequence[Fault]) -> Iterator[Finding]:
    return (_error(fault.place, f"{fault.what}\n{fault.why}".rstrip()) for fault in faults)


def _shipped_for(series: Series, tree: TargetTree) -> Series | None:
    shipped = find_series(patches_directory(), tree)
    return None if shipped is None or shipped.directory == series.directory else shipped


def _read(series: Series, tree: TargetTree, below: Series | None) -> Toggles | None:
    """Read the toggles of a series with those of the one `below`, or of the shipped one that has a symbol it names."""
    if below is not None:
        return read_toggles(tree, [("", series), ("shipped", below)], (), always=True)
    toggles = read_toggles(tree, [("", series)], (), always=True)
    if series.on_shipped or toggles is None or not any(one.what.endswith(UNDEFINED) for one in toggles.menu.faults):
        return toggles
    shipped = _shipped_for(series, tree)
    return toggles if shipped is None else _read(series, tree, shipped)


def lint_stacked(series: Series, artifact: Artifact) -> tuple[Finding, ...]:
    """Check that a patch which edits lines of a gated patch of the shipped series below goes where that one goes."""
    shipped = _shipped_for(series, artifact.tree) if series.on_shipped else None
    if shipped is None:
        return ()
    lower = tuple(one for one in shipped.entries if applies(one, artifact.tree) and not retired(one, artifact.tree))
    try:
        toggles = _read(series, artifact.tree, shipped)
    except PatchkitError as error:
        return (unreadable(error),)
    if toggles is None:
        return ()
    told = (
        series.version == artifact.tree.version or _shipped_for(series, release_of(series, series.version)) is not None
    )
    gates = () if told else _gates(series, toggles)
    return (*gates, *_unordered(series, toggles, lower=lower))


def lint_combinations(series: Series, artifact: Artifact) -> tuple[Finding, ...]:
    """Apply a series to a release with all toggles off, and with each alone (and what it needs): off means off."""
    gates = sorted({entry.trailers.config for entry in series.entries} - {""})
    if not gates:
        return ()
    try:
        toggles = _read(series, artifact.tree, _shipped_for(series, artifact.tree) if series.on_shipped else None)
    except PatchkitError:
        return ()  # said by lint_toggles
    findings: list[Finding] = []
    wanted = [frozenset[str]()] + [_closure(gate, gates, toggles) for gate in gates]
    for on in dict.fromkeys(wanted):
        if on != frozenset(gates):
            findings += _combination(series, artifact, on)
    return tuple(findings)


def _combination(series: Series, artifact: Artifact, on: Collection[str]) -> Iterator[Finding]:
    place = artifact.file or str(artifact.tree.root)
    words = f"with {', '.join(f'CONFIG_{gate}' for gate in sorted(on)) or 'no toggle'} on alone, on {place}"
    try:
        rendered = render_series(series, artifact, switched_on=on)
    except PatchkitError as error:
        yield _error(str(series.directory), f"{words}: {error.what}\n{error.why}".rstrip())
        return
    for decision in rendered.refused:
        yield _error(str(series.directory / decision.patch), f"{words}: {decision.outcome.value}: {decision.reason}")


def _closure(gate: str, gates: Sequence[str], toggles: Toggles | None) -> frozenset[str]:
    if toggles is None:
        return frozenset({gate})
    from patchkit.config.selects import implies

    symbols = toggles.menu.kconf.syms
    return frozenset(other for other in gates if other == gate or implies(symbols[gate], symbols[other]))


def _gates(series: Series, toggles: Toggles) -> Iterator[Finding]:
    """Where there is a Kconfig, it defines every gate, as a bool."""
    if not kconfig_files(series, series.engine):
        return
    from patchkit.config.dotconfig import ValueKind
    from patchkit.config.kconfig_parser import GIVEN

    kinds = {value.symbol: value.kind for value in toggles.resolution.configuration.values}
    for entry in series.entries:
        gate, place = entry.trailers.config, str(series.directory / entry.name)
        if not gate:
            continue
        if gate not in kinds or toggles.menu.kconf.syms[gate].nodes[0].filename == GIVEN:
            yield _error(place, f"`Config: {gate}`: the Kconfig does not define {gate}")
        elif kinds[gate] is not ValueKind.BOOL:
            yield _error(place, f"`Config: {gate}`: a gate is a bool, {gate} is a {kinds[gate].value}")


def _names(series: Series, toggles: Toggles) -> Iterator[Finding]:
    """Every CONFIG_ name that an added line reads is a symbol, or has another meaning in its file."""
    known = toggles.resolution.configuration.symbols
    for entry in series.entries:
        for file in entry.patch.files if b"CONFIG_" in entry.raw else ():
            foreign = _meant_otherwise(file)
            for hunk in file.hunks:
                for number, line in enumerate(hunk.lines, hunk.line_number + 1):
                    named = named_symbols(line) if line[:1] == b"+" else frozenset()
                    for name in sorted(named - known - foreign):
                        what = f"CONFIG_{name} is read, and no Kconfig defines it"
                        yield _error(f"{series.directory / entry.name}:{number}", what)


def _meant_otherwise(file: FilePatch) -> frozenset[str]:
    """Return names that the file had before, binds itself or imports from elsewhere."""
    names: set[str] = set()
    for hunk in file.hunks:
        for line in hunk.lines:
            if line[:1] in (b" ", b"-") or (b"import " in line and b"_patchkit" not in line):
                names |= named_symbols(line)
            else:
                names |= {(match[1] or match[2]).decode() for match in _BINDS.finditer(line)}
    return frozenset(names)


def _unused(series: Series, toggles: Toggles) -> Iterator[Finding]:
    """Every symbol does something in some release: it gates a patch, is read, or decides about others."""
    from patchkit.config.symbols import symbols_in_use, symbols_of
    from patchkit.config.why import place_of

    usage = toggles.usage
    read, gates = set(usage.read), dict(usage.gates)
    for other in _all_versions(series):
        one = usage_of([other], replace(release_of(other, other.version)))
        read |= one.read | {name for entry in other.entries for name in added_symbols(entry)}
        gates.update({entry.trailers.config: (entry.name,) for entry in other.entries if entry.trailers.config})
    used = symbols_in_use(toggles.menu, replace(usage, gates=gates, read=frozenset(read)))
    own = len(kconfig_files(series, series.engine))  # those of the shipped series come behind
    for symbol in symbols_of(toggles.menu):
        is_own = toggles.menu.kconf.homes.get(symbol.nodes[0].filename, 0) < own
        if symbol.name not in used and is_own:
            yield _warning(place_of(symbol), f"{symbol.name} gates no patch, and nothing reads it")


def _all_versions(series: Series) -> Iterator[Series]:
    engine = find_engine(series.engine)
    if engine is None or series.directory.parent.name != engine.name:
        return
    for version, directory in available_series(series.directory.parent.parent, engine.name):
        try:
            yield read_series(directory, engine=engine.name, version=version)
        except PatchkitError:
            continue  # its own lint says so


def _unordered(series: Series, toggles: Toggles, *, lower: Sequence[PatchEntry] = ()) -> Iterator[Finding]:
    """A patch that edits lines of a gated one goes where that goes; with `lower`, where one of those goes."""
    entries = (*lower, *series.entries)
    for edit in find_edits([(entry.patch, entry.strip) for entry in entries]):
        if lower and not edit.other < len(lower) <= edit.patch:
            continue
        own, other = entries[edit.patch], entries[edit.other]
        if not other.trailers.config or _goes_along(own, other, toggles.menu, series):
            continue
        guards = Toggle.GUARD is own.trailers.toggle is other.trailers.toggle
        if edit.context is None or lower or not guards:  # beside lines of each other guards stand apart
            what = f"{edit.words} {other.name} in {edit.path}, which CONFIG_{other.trailers.config} switches off"
            yield _error(f"{series.directory / own.name}:{edit.line_number}", f"{what}: {_mend(edit, own, other)}")


def _mend(edit: Editing, own: PatchEntry, other: PatchEntry) -> str:
    gate, needed = own.trailers.config, other.trailers.config
    if not gate:
        return f"gate it: `Config: {needed}`"
    guards = edit.context is not None and other.trailers.toggle is not Toggle.GUARD
    return f"let {gate} depend on {needed}{' (or let guards switch both)' if guards else ''}"


def _goes_along(own: PatchEntry, other: PatchEntry, menu: Menu, series: Series) -> bool:
    gate, needed = own.trailers.config, other.trailers.config
    if gate == needed:
        return True
    if not kconfig_files(series, series.engine) and other in series.entries:
        return bool(gate) and other.name in own.trailers.requires
    from patchkit.config.selects import implies

    symbols: dict[str, Any] = menu.kconf.syms
    return bool(gate) and implies(symbols[gate], symbols[needed])


def _error(place: str, what: str) -> Finding:
    return Finding(severity=Severity.ERROR, place=place, what=what)


def _warning(place: str, what: str) -> Finding:
    return Finding(severity=Severity.WARNING, place=place, what=what)
