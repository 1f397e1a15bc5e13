"""What is wrong with a configuration or a Kconfig: each fault has its place, and all are told together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from patchkit.errors import RefusedError, SeriesError
from patchkit.record import dataclass

_LONGEST_LINE = 10  # digits of the number of a line


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something wrong with a configuration or a Kconfig. `place` is `file:line` or an option; `why` may have lines.

    `symbol` is the one that `config why` says more about, "" for none.
    """

    place: str
    what: str
    why: str
    symbol: str = ""


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
    """Kconfig files that cannot be read: `faults` are what was found, `unread` says where reading ended too early."""

    def __init__(self, faults: Iterable[Fault], *, hint: str = "", unread: str = "") -> None:
        found = sorted(faults, key=by_place)
        self.faults = tuple(found)
        what, why = _together(found, "the Kconfig")
        super().__init__(what, why=f"{why}\n{unread}".strip("\n"), hint=hint)


class ProseError(KconfigError):
    """So many lines are prose that the file is no Kconfig: nothing behind them is looked at."""


UNDEFINED = "is not defined in any Kconfig"
"""The end of a fault about a symbol that an expression names and nobody defines."""


def refuse(faults: Sequence[Fault], *, hint: str = "") -> None:
    """Raise RefusedError for a configuration with faults; nothing where there is none."""
    if faults:
        what, why = _together(faults, "the configuration")
        raise RefusedError(what, why=why, hint=hint)


def _together(faults: Sequence[Fault], noun: str) -> tuple[str, str]:
    """Return the first line and the others of an error that tells all faults."""
    if len(faults) == 1:
        return f"{faults[0].place}: {faults[0].what}", faults[0].why
    return f"{len(faults)} things are wrong with {noun}", "\n".join(fault_lines(faults))
