"""The answers of `abi check`: seven columns for each shared object, findings about the whole wheel, one verdict."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from patchkit.record import dataclass


class Verdict(enum.Enum):
    """How a question ends. `RISK`: something differs, and whether the file touches it cannot be told.

    `NONE`: there is nothing of that kind in the file.
    """

    OK = "ok"
    RISK = "at risk"
    BROKEN = "broken"
    UNKNOWN = "not known"
    NONE = "nothing to check"


class Column(enum.Enum):
    """The questions, in the order in which they are shown."""

    SYMBOLS = "symbols"
    SYSTEM = "system versions"
    MANGLING = "mangling"
    LAYOUT = "layout"
    VTABLE = "vtable"
    SCHEMAS = "op schemas"
    ARGUMENTS = "argument classes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The answer to one question about one file. `words` say it in a line, `details` one by one."""

    column: Column
    verdict: Verdict
    words: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingSymbol:
    """A symbol that a torch does not export, and the stored releases that do; `where` says those in words."""

    name: str
    words: str
    releases: tuple[str, ...]
    where: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectReport:
    """All answers about one shared object. `fault` says why it cannot be read; then there are no cells."""

    path: str
    cells: tuple[Cell, ...]
    missing: tuple[MissingSymbol, ...] = ()
    fault: str = ""

    def cell(self, column: Column) -> Cell:
        """Return the answer of a column."""
        return next(cell for cell in self.cells if cell.column is column)

    @property
    def verdict(self) -> Verdict:
        """Broken when one answer is, else at risk when one is; ok when all that is known is."""
        return Verdict.BROKEN if self.fault else _gravest(cell.verdict for cell in self.cells)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something about the wheel as a whole or its surroundings; `broken`: it does not work like this."""

    kind: str
    words: str
    broken: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """What `abi check` found. `advice` is what to install, line by line."""

    target: str
    against: str
    against_origin: str
    system: str
    objects: tuple[ObjectReport, ...]
    findings: tuple[Finding, ...]
    advice: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """One word for all of it."""
        return (
            Verdict.BROKEN
            if any(one.broken for one in self.findings)
            else _gravest(one.verdict for one in self.objects)
        )

    @property
    def unknown(self) -> tuple[str, ...]:
        """The columns of which nothing is known for one object or another."""
        cells = [cell for one in self.objects for cell in one.cells if cell.verdict is Verdict.UNKNOWN]
        return tuple(column.value for column in Column if any(cell.column is column for cell in cells))


def _gravest(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    return next((one for one in (Verdict.BROKEN, Verdict.RISK) if one in found), Verdict.OK)
