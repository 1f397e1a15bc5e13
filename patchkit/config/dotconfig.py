""".config files and CONFIG_X=y settings: the assignments they make, each with the place it was made.

The language is what the kernel's `conf` writes: `CONFIG_X=y`, `CONFIG_S="text"`, `CONFIG_N=12`, `CONFIG_H=0x1f` and
`# CONFIG_X is not set`. What a symbol means and may depend on is Kconfig's matter, not this module's.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping

from patchkit.config.fault import Fault
from patchkit.errors import UsageError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass


class ValueKind(enum.Enum):
    """How a value is written; UNQUOTED as none that a .config file may hold: no symbol takes it."""

    BOOL = "bool"
    STRING = "string"
    INT = "int"
    HEX = "hex"
    UNQUOTED = "unquoted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """A symbol (without CONFIG_) and its value: `y` or `n` for BOOL, the unescaped text for STRING.

    `origin` is where it was made: `file:line`, or the name of the option.
    """

    symbol: str
    value: str
    kind: ValueKind
    origin: str


_ASSIGNED = compile_lazily(r"CONFIG_([A-Za-z0-9_]+)=(.*)")
_NOT_SET = compile_lazily(r"# CONFIG_([A-Za-z0-9_]+) is not set")
_ALMOST = compile_lazily(r"#\s*CONFIG_[A-Za-z0-9_]+\s+is\s+not\s+set\W*", re.IGNORECASE)
_QUOTED = compile_lazily(r'"((?:[^"\\]|\\.)*)"')
_INT = compile_lazily(r"-?[0-9]+")
_HEX = compile_lazily(r"0[xX][0-9a-fA-F]+")
_LONGEST_VALUE = 1 << 16  # characters; a name of a file has at most 4096
LONGEST_NUMBER = 64
"""Characters; those of 2**200 would fit."""
_SHOWN = 120
_MOST_FAULTS = 20
_SHORTER = "let the value name a file that holds the text"
EXPECTED_LINE = (
    'expected a line as in `CONFIG_X=y`, `# CONFIG_X is not set`, `CONFIG_S="text"`, `CONFIG_N=12`, `CONFIG_H=0x1f`'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a .config file says, in the order of its lines: `faults` are the lines that set nothing."""

    assignments: tuple[Assignment, ...]
    faults: tuple[Fault, ...]


def parse_dotconfig(text: str, source: str) -> Settings:
    """Read a .config file; `source` names it."""
    assignments: list[Assignment] = []
    faults: list[Fault] = []
    for number, raw_line in enumerate(text.split("\n"), 1):
        line = raw_line.rstrip(" \t\r")
        if line and (not line.startswith("#") or _NOT_SET.fullmatch(line) or _ALMOST.fullmatch(line)):
            one = _read(line, f"{source}:{number}")
            if isinstance(one, Assignment):
                assignments.append(one)
            elif len(faults) < _MOST_FAULTS:
                faults.append(one)
            else:
                why = f"{_MOST_FAULTS} lines before it set nothing: is this a .config file?"
                faults.append(Fault(place=one.place, what="nothing is read from here on", why=why))
                break
    return Settings(assignments=tuple(assignments), faults=tuple(faults))


def _read(line: str, origin: str) -> Assignment | Fault:
    raw = line[:_SHOWN].encode("utf-8", "surrogateescape")
    shown = f"  {origin.rpartition(':')[2]} | {repr(raw)[2:-1]}"
    if not_set := _NOT_SET.fullmatch(line):
        return Assignment(symbol=not_set[1], value="n", kind=ValueKind.BOOL, origin=origin)
    match = _ASSIGNED.fullmatch(line)
    if match is None:
        return Fault(place=origin, what="not a setting", why=f"{shown}\n{EXPECTED_LINE}")
    symbol, written = match.groups()
    value, kind = _typed(written) or (written, ValueKind.UNQUOTED)
    if too_long := _too_long(value, kind):
        what = f"CONFIG_{symbol}: the value is too long"
        return Fault(place=origin, what=what, why=f"{shown}\n{too_long}: {_SHORTER}")
    return Assignment(symbol=symbol, value=value, kind=kind, origin=origin)


def parse_setting(text: str, origin: str = "--set") -> Assignment:
    """Read one `CONFIG_X=value` from a command line, where the shell has taken the quotes of a string."""
    match = _ASSIGNED.fullmatch(text)
    if match is None:
        meant = f"CONFIG_{text.removeprefix('CONFIG_')}" + ("" if "=" in text else "=y")
        hint = f"did you mean {meant}?" if meant != text and _ASSIGNED.fullmatch(meant) else ""
        why = "expected CONFIG_NAME=VALUE, as in CONFIG_X=y"
        raise UsageError(f"{origin} {text[:_SHOWN]!r}: not a setting", why=why, hint=hint[:_SHOWN])
    symbol, written = match.groups()
    value, kind = _typed(written) or (written, ValueKind.STRING)
    if too_long := _too_long(value, kind):
        raise UsageError(f"{origin} CONFIG_{symbol}: the value is too long", why=too_long, hint=_SHORTER)
    return Assignment(symbol=symbol, value=value, kind=kind, origin=origin)


def kind_of(value: str) -> ValueKind:
    """Return how a bare value is to be read: y and n, numbers, else a string."""
    typed = _typed(value)
    return ValueKind.STRING if typed is None else typed[1]


def merge(*layers: Iterable[Assignment]) -> dict[str, Assignment]:
    """Merge layers from left to right: the last assignment of a symbol stands, wherever it was made."""
    merged = {assignment.symbol: assignment for layer in layers for assignment in layer}
    return dict(sorted(merged.items()))


def is_enabled(symbol: str, configuration: Mapping[str, Assignment]) -> bool:
    """Tell whether a patch gated by this symbol is switched on: no gate at all (""), or its value is y."""
    if not symbol:
        return True
    found = configuration.get(symbol)
    return found is not None and found.kind is ValueKind.BOOL and found.value == "y"


def _too_long(value: str, kind: ValueKind) -> str:
    """Say why no symbol can have a value, "" when it can."""
    most = LONGEST_NUMBER if kind in (ValueKind.INT, ValueKind.HEX) else _LONGEST_VALUE
    return f"expected at most {most:,} characters, found {len(value):,}" if len(value) > most else ""


def _typed(written: str) -> tuple[str, ValueKind] | None:
    """Read a value by the way it is written; None when it is no .config value."""
    if written in ("y", "n"):
        return written, ValueKind.BOOL
    if quoted := _QUOTED.fullmatch(written):
        return re.sub(r"\\(.)", r"\1", quoted.group(1)), ValueKind.STRING
    if _INT.fullmatch(written):
        return written, ValueKind.INT
    if _HEX.fullmatch(written):
        return written, ValueKind.HEX
    return None
