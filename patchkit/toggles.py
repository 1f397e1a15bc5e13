"""The toggles of the series that are meant for a tree: their Kconfig files, what is asked of them, what comes of it.

kconfiglib is loaded only for a guard, or where a Kconfig is beside a series with a gate, a setting, or code that reads
a CONFIG_ name. Any other series without Kconfig has gates that are y or n, and nothing of this.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from patchkit.config.configuration import KEPT, Configuration, Resolution, Usage, Value
from patchkit.config.dotconfig import Assignment, kind_of
from patchkit.config.fault import Fault, refuse
from patchkit.config.supply import named_symbols
from patchkit.confined import read_below
from patchkit.errors import RefusedError, SeriesError
from patchkit.generated import Definitions, Generated, generated_again, state_files
from patchkit.receipt import Receipt
from patchkit.record import dataclass
from patchkit.resources import patches_directory
from patchkit.series import PatchEntry, Series, applies, retired
from patchkit.state import StateDirectory
from patchkit.strip import is_native
from patchkit.target import TargetTree
from patchkit.trailers import Toggle
from patchkit.unnamed import NONE, Unnamed, read_unnamed
from patchkit.wanted import Terms

if TYPE_CHECKING:
    from patchkit.config.kconfig import Menu
    from patchkit.config.kconfig_parser import KconfigSource

KCONFIG = "Kconfig"
_LARGEST = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Toggles:
    """Kconfig files with a configuration set on them. `kconfigs` are their names and sha256, `definitions` those of
    each layer that is named, `unnamed` what the tree has besides.
    """

    menu: Menu
    usage: Usage
    resolution: Resolution
    kconfigs: tuple[tuple[str, str], ...]
    definitions: Mapping[str, Definitions]
    unnamed: Unnamed


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """A configuration without faults: what to generate, and the requests that the receipt shall keep."""

    generated: Generated
    requests: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


def read_toggles(
    tree: TargetTree,
    named: Sequence[tuple[str, Series]],
    assignments: Sequence[Assignment],
    *,
    unread: Sequence[Fault] = (),
    always: bool = False,
    others: Receipt | None = None,
) -> Toggles | None:
    """Read the Kconfig files of these series and resolve the assignments; None where nothing asks for it.

    `named` are series with the names of their layers. `unread` are lines of files of settings that are told with the
    other faults. `always`: also for series without a gate, a setting or a Kconfig. `others`: the receipt of a tree that
    has other series too; the symbols of those stand as they are.
    """
    series = [one for _, one in named]
    places = list(dict.fromkeys(place for one in series for place in kconfig_files(one, tree.engine)))
    asked = (places and (assignments or unread or any(map(_has_toggles, series)))) or any(map(_has_guards, series))
    if not always and not asked:
        return None
    from patchkit.config.kconfig import load_kconfig
    from patchkit.config.symbols import resolve, symbols_of

    usage = usage_of(series, tree)
    again = generated_again(others) if others is not None else None
    standing = again.configuration.values if again is not None else ()
    digests: dict[Path, dict[str, str]] = {place: {} for place in places}
    sources = [_source(place, digests[place]) for place in places]
    menu = load_kconfig(sources, engine=tree.engine, version=tree.version, gates=usage.gates.keys(), standing=standing)
    definitions = {name: _definitions(one, menu, tree.engine, digests) for name, one in named}
    unnamed = NONE
    if others is not None:
        state, own = StateDirectory(root=tree.root, engine=tree.engine), {one.name for one in symbols_of(menu)}
        unnamed = read_unnamed(state, others, own, definitions.keys())
    own_assignments = [one for one in assignments if one.origin != KEPT or one.symbol not in unnamed.homes]
    try:
        resolution = resolve(menu, own_assignments, usage, unread=unread, elsewhere=unnamed.homes)
    except RecursionError as error:
        raise SeriesError(f"{places[0]}: nested too deeply", why="a chain of hundreds of dependencies") from error
    return Toggles(
        menu=menu,
        usage=usage,
        resolution=resolution,
        kconfigs=tuple(sorted({pair for files in digests.values() for pair in files.items()})),
        definitions=definitions,
        unnamed=unnamed,
    )


def _definitions(series: Series, menu: Menu, engine: str, digests: Mapping[Path, Mapping[str, str]]) -> Definitions:
    """Return what a series defines: by its Kconfig files, and the gates that only its patches name."""
    from patchkit.config.symbols import symbols_of

    files = {name: sha256 for place in kconfig_files(series, engine) for name, sha256 in digests[place].items()}
    gates = {entry.trailers.config for entry in series.entries}
    own = (one.name for one in symbols_of(menu) if one.name in gates or one.nodes[0].filename in files)
    return Definitions(kconfigs=tuple(sorted(files.values())), symbols=tuple(sorted(own)))


def kconfig_files(series: Series, engine: str) -> tuple[Path, ...]:
    """Return the Kconfig files of a series: beside its versions (`DIR/<engine>/`), above them, or in its directory."""
    directory = series.directory
    beside = (directory.parent, directory.parent.parent) if directory.parent.name == engine else (directory,)
    # What is there and no file (a link to nothing, a directory) is refused when it is read: it must not count as none.
    return tuple(place / KCONFIG for place in beside if os.path.lexists(place / KCONFIG))


def usage_of(series: Iterable[Series], tree: TargetTree) -> Usage:
    """Return what symbols are for in series, for one release."""
    gates: dict[str, list[str]] = {}
    read: set[str] = set()
    rebuild: set[str] = set()
    guarded: set[str] = set()
    for one in series:
        for entry in one.entries:
            if retired(entry, tree) or not applies(entry, tree):
                continue
            if entry.trailers.config:
                gates.setdefault(entry.trailers.config, []).append(entry.name)
                rebuild |= {entry.trailers.config} if needs_build(entry) else set()
                guarded |= {entry.name} if entry.trailers.toggle is Toggle.GUARD else set()
            read |= added_symbols(entry)
    return Usage(
        gates={symbol: tuple(names) for symbol, names in sorted(gates.items())},
        read=frozenset(read),
        rebuild=frozenset(rebuild),
        guarded=frozenset(guarded),
    )


def needs_build(entry: PatchEntry) -> bool:
    """Tell whether a patch changes sources that are compiled."""
    names = (name for file in entry.patch.files for name in (file.old_name, file.new_name) if name)
    return any(map(is_native, names))


def added_symbols(entry: PatchEntry) -> frozenset[str]:
    """Return the symbols whose CONFIG_ name stands in an added line of a patch."""
    if b"CONFIG_" not in entry.raw:
        return frozenset()
    added = (line for file in entry.patch.files for hunk in file.hunks for line in hunk.lines if line[:1] == b"+")
    return frozenset(symbol for line in added for symbol in named_symbols(line))


def require(toggles: Toggles) -> None:
    """Refuse a configuration that is not what was asked for, every fault with its place."""
    faults = toggles.resolution.faults
    symbol = next((fault.symbol for fault in faults if fault.symbol), "")
    more = f"why CONFIG_{symbol}` says more" if symbol else "show` has every symbol"
    refuse(faults, hint=f"`patchkit config {more}, with the same --config, --set and --patches")


def kept_assignments(receipt: Receipt | None) -> tuple[Assignment, ...]:
    """Return what was asked for when the tree was patched."""
    kept = receipt.configuration if receipt is not None else ()
    return tuple(Assignment(symbol=symbol, value=value, kind=kind_of(value), origin=KEPT) for symbol, value in kept)


def given_assignments(terms: Terms) -> tuple[Assignment, ...]:
    """Return what is given now, in order."""
    return terms.assignments or tuple((terms.configuration or {}).values())


def settle(
    tree: TargetTree,
    receipt: Receipt | None,
    named: Sequence[tuple[str, Series]],
    terms: Terms,
    *,
    others: bool,
) -> Settled | None:
    """Resolve what is given now over what the tree was patched with. None without Kconfig; RefusedError for faults.

    `others`: the tree has series that are not asked for now: their symbols stay as they are.
    """
    kept = [one for one in kept_assignments(receipt) if one.symbol not in (terms.configuration or {})]
    left = receipt if others else None
    toggles = read_toggles(tree, named, [*kept, *given_assignments(terms)], unread=terms.unread, others=left)
    if toggles is None:
        _check_defined([one for _, one in named], receipt)
        return None
    require(toggles)
    settled = _settled(tree, toggles)
    _check_others(toggles, settled, left)
    return settled


def _check_others(toggles: Toggles, settled: Settled, others: Receipt | None) -> None:
    """Refuse values that the symbols of series that are not named cannot have beside those of the named ones."""
    values = {value.symbol: value.text for value in settled.generated.configuration.values}
    own = toggles.resolution.configuration.symbols
    wrong = [
        f"CONFIG_{gate} is y and needs CONFIG_{needed}, which would be n"
        for gate, needed in (others.needs if others is not None else ())
        if gate not in own and needed in own and values.get(gate) == "y" and values[needed] != "y"
    ]
    wrong += [
        f"CONFIG_{name} is {values[name] or 'without a value'} and would be selected"
        for name in sorted(toggles.menu.standing)
        if toggles.menu.kconf.syms[name].str_value != values[name]
    ]
    if wrong:
        raise RefusedError(
            wrong[0] if len(wrong) == 1 else f"{len(wrong)} symbols of series that are not named stand against it",
            why="it is of a series that is not named" if len(wrong) == 1 else "\n".join(wrong),
            hint="name that series too, with --patches, or without --no-shipped if it is the shipped one",
        )


def _check_defined(series: Sequence[Series], receipt: Receipt | None) -> None:
    """Refuse gates that a Kconfig defined when the tree was patched and none defines now: nothing could switch them."""
    before = {name for name, _, _ in receipt.resolved} if receipt is not None else set()
    lost = sorted(before & {entry.trailers.config for one in series for entry in one.entries})
    if lost:
        raise RefusedError(
            f"CONFIG_{lost[0]}: the Kconfig that defined it is gone",
            why=f"the tree was configured with one, which defined {', '.join(f'CONFIG_{name}' for name in lost)}",
            hint="put the Kconfig back, or name its directory with --patches too; `patchkit revert` needs none",
        )


def _settled(tree: TargetTree, toggles: Toggles) -> Settled:
    resolution, unnamed = toggles.resolution, toggles.unnamed
    requests = {**unnamed.requests, **{symbol: one.value for symbol, one in resolution.requests.items()}}
    needs = list(_needs(toggles))
    needs += [pair for pair in unnamed.needs if pair not in needs]
    configuration = _joined(resolution.configuration, unnamed.values)
    written = written_symbols_of(toggles) | unnamed.written
    state = state_files(tree, configuration, written, {**unnamed.definitions, **toggles.definitions})
    return Settled(
        generated=Generated(configuration=configuration, state=state, needs=tuple(needs)),
        requests=tuple(sorted(requests.items())),
        warnings=resolution.warnings,
    )


def written_symbols_of(toggles: Toggles) -> frozenset[str]:
    """Return the symbols of the series that are named that a whole .config has a line for."""
    from patchkit.config.written import written_symbols

    return written_symbols(toggles.menu)


def _needs(toggles: Toggles) -> Iterator[tuple[str, str]]:
    """Yield the pairs of gates of which the first is never y without the second, a gate that stands or not."""
    from patchkit.config.selects import implies

    symbols = toggles.menu.kconf.syms
    gates = [gate for gate in toggles.usage.gates if gate in symbols]
    for gate in gates:
        others = (other for other in (*gates, *sorted(toggles.menu.standing)) if other != gate)
        yield from ((gate, other) for other in others if implies(symbols[gate], symbols[other]))


def _joined(configuration: Configuration, others: Sequence[Value]) -> Configuration:
    rows = [*zip(configuration.values, configuration.origins, strict=True), *((value, KEPT) for value in others)]
    rows.sort(key=lambda row: row[0].symbol)
    return Configuration(values=tuple(value for value, _ in rows), origins=tuple(origin for _, origin in rows))


def dotconfig_of(toggles: Toggles) -> bytes:
    """Return what is named as a whole .config, in the order of the Kconfigs; what patchkit gives itself is left out."""
    from patchkit.config.written import render_dotconfig

    return render_dotconfig(toggles.menu)


def _has_toggles(series: Series) -> bool:
    return any(entry.trailers.config or b"CONFIG_" in entry.raw for entry in series.entries)


def _has_guards(series: Series) -> bool:
    """Tell whether code of a series reads a constant: it needs one even where no Kconfig says more of it."""
    return any(entry.trailers.toggle is Toggle.GUARD for entry in series.entries)


def _source(place: Path, digests: dict[str, str]) -> KconfigSource:
    from patchkit.config.kconfig_parser import KconfigSource

    shipped = patches_directory()
    name = place.relative_to(shipped) if place.is_relative_to(shipped) else place
    return KconfigSource(name=str(name), read=partial(_read, place.parent, name.parent, digests))


def _read(directory: Path, shown: Path, digests: dict[str, str], path: PurePosixPath, place: str) -> str:
    raw = read_below(directory, str(path), limit=_LARGEST, place=place)
    digests[str(shown / path)] = hashlib.sha256(raw).hexdigest()
    return raw.decode("utf-8-sig", errors="replace")
