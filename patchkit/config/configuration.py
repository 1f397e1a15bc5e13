"""A resolved configuration: every symbol with its value, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from patchkit.config.dotconfig import Assignment, ValueKind
from patchkit.config.fault import Fault
from patchkit.record import dataclass

HEAD = "# patchkit: `patchkit apply --config` reads this, `patchkit config menu` edits it\n"
"""The first line of a whole .config."""
COMMAND_LINE = "--set"
KEPT = "set before"
"""The origin of a setting that was given to an earlier apply, and stands in the receipt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A symbol (without CONFIG_) and what it is: `y` or `n` for BOOL, decimal or 0x digits, the text of a STRING.

    `text` is "" for a number or a string whose dependencies are not met and for one without a value.
    """

    symbol: str
    kind: ValueKind
    text: str


def setting_line(value: Value) -> str:
    """Return a value as a line of a .config."""
    if value.kind is ValueKind.BOOL and value.text == "n":
        return f"# CONFIG_{value.symbol} is not set"
    if value.kind is ValueKind.STRING:
        escaped = value.text.replace("\\", "\\\\").replace('"', '\\"')
        return f'CONFIG_{value.symbol}="{escaped}"'
    return f"CONFIG_{value.symbol}={value.text}"


def written(one: Assignment) -> str:
    """Return a setting as it was written: only a file has quotes around a text."""
    if one.kind is ValueKind.STRING and one.origin not in (KEPT, COMMAND_LINE):
        return setting_line(Value(symbol=one.symbol, kind=one.kind, text=one.value))
    return f"CONFIG_{one.symbol}={one.value}"


def duplicates(assignments: Sequence[Assignment]) -> Iterator[Fault]:
    """Yield the lines that set a symbol which a line of the same file has set."""
    first: dict[tuple[str, str], Assignment] = {}
    for one in assignments:
        file, _, line = one.origin.rpartition(":")
        if not file or not line.isdecimal():
            continue
        known = first.setdefault((file, one.symbol), one)
        if known is not one:
            why = f"{known.origin} says {written(known)}; drop one of the two lines"
            yield Fault(place=one.origin, what=f"CONFIG_{one.symbol} is set a second time in this file", why=why)


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """What all symbols came to. `values` are sorted by symbol; `origins` names for each, in the same order, where its
    value comes from: `prod.config:3`, `--set`, `set before`, `default`, `selected by X`, `depends on X`.
    """

    values: tuple[Value, ...]
    origins: tuple[str, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, without CONFIG_."""
        return frozenset(value.symbol for value in self.values)

    def assignments(self) -> Mapping[str, Assignment]:
        """Return the values as assignments: what a .config that holds all of them would say."""
        return {
            value.symbol: Assignment(symbol=value.symbol, value=value.text, kind=value.kind, origin=origin)
            for value, origin in zip(self.values, self.origins, strict=True)
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What symbols are for in one series: `gates` are the patches that each switches, `read` the symbols whose
    CONFIG_ name stands in an added line, `rebuild` those that change sources which have to be compiled. `guarded` are
    the patches whose gate is a guard: they are in the files whatever its value.
    """

    gates: Mapping[str, tuple[str, ...]]
    read: frozenset[str]
    rebuild: frozenset[str]
    guarded: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """What requests came to: the configuration, and everything that did not become what was asked for.

    `requests` are those that count, one a symbol. `warnings` tell of settings kept from before that mean nothing now.
    """

    configuration: Configuration
    requests: Mapping[str, Assignment]
    faults: tuple[Fault, ...]
    warnings: tuple[str, ...]
