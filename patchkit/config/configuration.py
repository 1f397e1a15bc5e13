"""A resolved configuration: every symbol with its value, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from patchkit.config.dotconfig import Assignment, ValueKind
from patchkit.errors import SeriesError
from patchkit.record import dataclass

HEAD = "# patchkit: `patchkit apply --config` reads this, `patchkit config menu` edits it\n"
"""The first line of a whole .config."""
_LONGEST_LINE = 10  # digits of the number of a line
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
class Fault:
    """Something wrong with a configuration or a Kconfig. `place` is `file:line` or an option; `why` may have lines."""

    place: str
    what: str
    why: str


def by_place(fault: Fault) -> tuple[str, int]:
    """Return what faults are sorted by: file, then line."""
    file, _, line = fault.place.rpartition(":")
    return (file, int(line)) if line.isdecimal() and len(line) < _LONGEST_LINE else (fault.place, 0)


def fault_lines(faults: Iterable[Fault]) -> Iterator[str]:
    """Yield faults as lines, why behind what."""
    for fault in faults:
        yield f"{fault.place}: {fault.what}"
        yield from (f"  {line}" for line in fault.why.split("\n") if line)


class KconfigError(SeriesError):
    """Kconfig files that cannot be read: `faults` are all that was found; without `is_all` there may be more."""

    def __init__(self, faults: Iterable[Fault], *, hint: str = "", is_all: bool = True) -> None:
        found = sorted(faults, key=by_place)
        self.faults = tuple(found)
        if len(found) == 1:
            what, why = f"{found[0].place}: {found[0].what}", found[0].why
        else:
            what, why = f"{len(found)} things are wrong with the Kconfig", "\n".join(fault_lines(found))
        more = "" if is_all else "\nnothing was read behind the last of them: there may be more"
        super().__init__(what, why=f"{why}{more}".strip("\n"), hint=hint)


UNDEFINED = "is not defined in any Kconfig"
"""The end of a fault about a symbol that an expression names and nobody defines."""


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
