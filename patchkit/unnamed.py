"""The series that a tree has and that are not named now: what its configuration holds of their symbols."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from patchkit.config.configuration import Value
from patchkit.config.dotconfig import parse_dotconfig
from patchkit.generated import Definitions, generated_again
from patchkit.receipt import Receipt, read_stored
from patchkit.record import dataclass
from patchkit.state import StateDirectory

_LARGEST = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Unnamed:
    """Symbols of series that are not named. `values` stand as they are in the tree; `written` are those of them that
    its .config has a line for, `requests` those that were asked for, `needs` as in the receipt, `homes` the layer that
    has each, in words.
    """

    values: tuple[Value, ...]
    written: frozenset[str]
    requests: Mapping[str, str]
    needs: tuple[tuple[str, str], ...]
    definitions: Mapping[str, Definitions]
    homes: Mapping[str, str]


NONE = Unnamed(values=(), written=frozenset(), requests={}, needs=(), definitions={}, homes={})


def read_unnamed(state: StateDirectory, receipt: Receipt, own: Collection[str], named: Collection[str]) -> Unnamed:
    """Return what a patched tree has besides the symbols and the layers that are named."""
    again = generated_again(receipt)
    if again is None:
        return NONE
    values = tuple(value for value in again.configuration.values if value.symbol not in own)
    names = {value.symbol for value in values}
    requests = {symbol: text for symbol, text in receipt.configuration if symbol in names}
    there = _written_in(state)
    has_line = there if there is not None else requests.keys()
    written = frozenset(one.symbol for one in values if one.text not in ("", "n") or one.symbol in has_line)
    layers = {layer.name for layer in receipt.layers}
    definitions = {name: one for name, one in read_definitions(state).items() if name not in named and name in layers}
    return Unnamed(
        values=values,
        written=written,
        requests=requests,
        needs=again.needs,
        definitions=definitions,
        homes={**dict.fromkeys(sorted(names), "another series"), **dict(_homes(receipt, definitions, names, named))},
    )


def _homes(
    receipt: Receipt, definitions: Mapping[str, Definitions], names: set[str], named: Collection[str]
) -> Iterator[tuple[str, str]]:
    for layer in receipt.layers:
        known = definitions.get(layer.name)
        own = {*(known.symbols if known is not None else ()), *(patch.config for patch in layer.patches)}
        if layer.name not in named:
            yield from ((symbol, f"layer {layer.number} {layer.name}") for symbol in sorted(own & names))


def _written_in(state: StateDirectory) -> frozenset[str] | None:
    """Return the symbols of the tree's .config; None when somebody took it away or broke it: it is written anew."""
    try:
        text = read_stored(state.directory / ".config", _LARGEST).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return None
    settings = parse_dotconfig(text, ".config")
    return None if settings.faults else frozenset(one.symbol for one in settings.assignments)


def read_definitions(state: StateDirectory) -> Mapping[str, Definitions]:
    """Return what the Kconfig files were that a tree was patched with, by layer; nothing where it cannot be read."""
    try:
        layers = json.loads(read_stored(state.directory / "manifest.json", _LARGEST))["layers"]
        return {str(name): _definitions(fields) for name, fields in layers.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _definitions(fields: Any) -> Definitions:
    return Definitions(
        kconfigs=tuple(sorted(map(str, fields["kconfig"]))), symbols=tuple(sorted(map(str, fields["symbols"])))
    )
