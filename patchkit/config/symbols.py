"""Requests set on a Kconfig, and what every symbol comes to: nothing that was asked for gets lost in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import kconfiglib as library

from patchkit.config.configuration import (
    COMMAND_LINE,
    KEPT,
    Configuration,
    Resolution,
    Usage,
    Value,
    duplicates,
    written,
)
from patchkit.config.dotconfig import EXPECTED_LINE, Assignment, ValueKind
from patchkit.config.fault import Fault, by_place
from patchkit.config.kconfig import Menu
from patchkit.config.kconfig_faults import BASES, cut_words, empty_range, number_of
from patchkit.config.kconfig_parser import GIVEN
from patchkit.config.selects import unmet_selects
from patchkit.config.why import blocks_of, first_block, is_bool, place_of, selectors, words_of
from patchkit.pattern import compile_lazily
from patchkit.record import replace

NOWHERE: Mapping[str, str] = MappingProxyType({})
KINDS = {
    library.BOOL: ValueKind.BOOL,
    library.INT: ValueKind.INT,
    library.HEX: ValueKind.HEX,
    library.STRING: ValueKind.STRING,
}
_DIGITS = compile_lazily(r"-?[0-9a-fA-FxX]+")
_EXPECTED = {
    library.BOOL: "y or n",
    library.INT: "a whole number",
    library.HEX: "a number such as 0x1f",
    library.STRING: 'a text in double quotes, as in CONFIG_S="text"',
}


def resolve(
    menu: Menu,
    assignments: Sequence[Assignment],
    usage: Usage,
    *,
    unread: Sequence[Fault] = (),
    elsewhere: Mapping[str, str] = NOWHERE,
) -> Resolution:
    """Set what is asked for, in order (the last of a symbol counts), and compare it with what becomes of it.

    All faults are found at once, those of the Kconfig among them. What was set before yields to what is set now: the
    value of a toggle that is switched off waits for it to come back. The menu keeps the values that were set.
    `unread` are lines of the same files that could not be read; `elsewhere` names the layers of symbols that series
    define which are not named.
    """
    standing = {symbol.name: symbol.str_value for symbol in menu.kconf.unique_defined_syms}
    asked = {one.symbol: one for one in assignments}
    faults = [*menu.faults, *unread, *duplicates(assignments), *_no_values(assignments, asked)]
    warnings = []
    requests: dict[str, Assignment] = {}
    set_faults = {one.symbol: _set(menu, one, elsewhere) for one in asked.values()}
    for one in asked.values():
        fault = set_faults[one.symbol]
        if fault is None and one.value != standing[one.symbol]:
            fault = _without_effect(menu, one, usage)
        if fault is not None and one.origin == KEPT:
            warnings.append(f"CONFIG_{one.symbol}={one.value}, set before, is left out: {fault.what}")
            if one.symbol in menu.kconf.syms:
                menu.kconf.syms[one.symbol].unset_value()
            continue
        requests[one.symbol] = one
        faults += [fault] if fault is not None else []
    faults += _not_become(menu, requests)
    warnings += _given_way(menu, requests)
    faults += unmet_selects(menu, requests)
    faults += (*_odd_numbers(menu), *_empty_ranges(menu))
    return Resolution(
        configuration=read_configuration(menu, requests),
        requests=dict(sorted(requests.items())),
        faults=tuple(sorted(map(_cut, faults), key=by_place)),
        warnings=tuple(warnings),
    )


def _cut(fault: Fault) -> Fault:
    return replace(fault, what=cut_words(fault.what), why=cut_words(fault.why))


def read_configuration(menu: Menu, requests: Mapping[str, Assignment]) -> Configuration:
    """Return what every symbol is now."""
    symbols = sorted(symbols_of(menu), key=lambda symbol: str(symbol.name))
    return Configuration(
        values=tuple(
            Value(symbol=symbol.name, kind=KINDS[symbol.orig_type], text=_normal(symbol)) for symbol in symbols
        ),
        origins=tuple(_origin(symbol, requests) for symbol in symbols),
    )


def _normal(symbol: Any) -> str:
    """Return a value as every reader takes it: C reads 010 as 8, and 1f not at all. A number that is none is ""."""
    text = str(symbol.str_value)
    if symbol.orig_type not in BASES:
        return text
    number = _number(symbol, text)
    if number is None:
        return ""
    return str(number) if symbol.orig_type == library.INT else text if text[:2] in ("0x", "0X") else hex(number)


def _odd_numbers(menu: Menu) -> Iterator[Fault]:
    """Numbers of a Kconfig that kconfiglib takes because Python does: no .config file and no compiler reads them."""
    for symbol in symbols_of(menu):
        text = str(symbol.str_value)
        if symbol.orig_type in BASES and _number(symbol, text) is not None and not _DIGITS.fullmatch(text):
            why = f"write {_EXPECTED[symbol.orig_type]}, in ASCII digits and nothing else"
            yield Fault(place=place_of(symbol), what=f"{symbol.name} is {text!r}", why=why, symbol=symbol.name)


def _empty_ranges(menu: Menu) -> Iterator[Fault]:
    """Yield ranges that end before they begin by the values of symbols; of numbers the Kconfig's faults tell."""
    for symbol in symbols_of(menu):
        bounds = next(((low, high) for low, high, when in symbol.ranges if library.expr_value(when)), None)
        if bounds is None or not any(one.nodes for one in bounds):
            continue
        low, high = (_number(symbol, one.str_value) for one in bounds)
        if low is not None and high is not None and low > high:
            shown = (f"{one.name}, which is {one.str_value}" if one.nodes else one.str_value for one in bounds)
            yield empty_range(place_of(symbol), symbol.name, *shown)


def _number(symbol: Any, text: str) -> int | None:
    return number_of(text, BASES[symbol.orig_type])


def symbols_of(menu: Menu) -> tuple[Any, ...]:
    """Return the symbols that a Kconfig defines with a type, in its order; and gates that only patches name."""
    return tuple(
        symbol
        for symbol in menu.kconf.unique_defined_syms
        if symbol.orig_type in KINDS and symbol.name not in menu.given
    )


def symbols_in_use(menu: Menu, usage: Usage) -> frozenset[str]:
    """Return the symbols that do something: they gate a patch, are read, decide about others, or are their choice."""
    used = {*usage.gates, *usage.read}
    for node in menu.kconf.node_iter():
        own = node.item if isinstance(node.item, library.Symbol) else None
        used.update(one.name for one in node.referenced if one is not own and one.name)
        if own is not None and own.selects:
            used.add(own.name)
    for choice in menu.kconf.unique_choices:
        names = {member.name for member in choice.syms}
        used |= names if names & used else set()
    return frozenset(used)


def _no_values(assignments: Sequence[Assignment], asked: Mapping[str, Assignment]) -> Iterator[Fault]:
    """Lines that no symbol could take, although a later one counts; of those that count the symbol says more."""
    for one in assignments:
        if one.kind is ValueKind.UNQUOTED and asked[one.symbol] is not one:
            what = f"CONFIG_{one.symbol}={one.value}: no value is written so"
            yield Fault(place=one.origin, what=what, why=f"{asked[one.symbol].origin} counts; {EXPECTED_LINE}")


def not_named(home: str) -> str:
    """Say where a symbol is, and how to get at it."""
    return f"{home} has it: name that series too, with --patches, or without --no-shipped if it is the shipped one"


def _set(menu: Menu, one: Assignment, elsewhere: Mapping[str, str]) -> Fault | None:
    """Give the symbol the value; a fault when there is no such symbol, or the value is not of its type."""
    symbol = menu.kconf.syms.get(one.symbol)
    what = written(one)
    if one.symbol in elsewhere or one.symbol in menu.standing:
        why = not_named(elsewhere.get(one.symbol, "another series"))
        return Fault(place=one.origin, what=f"{what}: it is of a series that is not named", why=why)
    if symbol is None or not symbol.nodes or symbol.orig_type not in KINDS:
        return Fault(place=one.origin, what=f"{what}: there is no such symbol", why=near_names(menu, one.symbol))
    if one.symbol in menu.given:
        return Fault(place=one.origin, what=f"{what}: it is given by the engine's release", why="leave it out")
    fits, decimal = _fits(symbol.orig_type, one), menu.decimals.get(one.symbol)
    if not fits or (decimal is not None and not decimal.takes(one.value)) or not symbol.set_value(one.value):
        expected = decimal.words if fits and decimal is not None else _EXPECTED[symbol.orig_type]
        why = f"{place_of(symbol)}: expected {expected}"
        return Fault(place=one.origin, what=f"{what}: not a value of this symbol", why=why, symbol=one.symbol)
    if symbol.choice and one.value == "y":
        symbol.choice.set_value(2)
    return None


def _fits(kind: int, one: Assignment) -> bool:
    """Tell whether a value is written as the type wants it; a command line has no quotes, and a receipt none either."""
    if kind == library.STRING:
        return one.kind is ValueKind.STRING or one.origin in (KEPT, COMMAND_LINE)
    if kind == library.HEX:
        return one.kind in (ValueKind.HEX, ValueKind.INT)
    return one.kind is KINDS[kind]


def _without_effect(menu: Menu, one: Assignment, usage: Usage) -> Fault | None:
    if one.symbol in symbols_in_use(menu, usage) or one.value == _left_alone(menu.kconf.syms[one.symbol], one.value):
        return None
    why = f"gates that do: {', '.join(f'CONFIG_{gate}' for gate in sorted(usage.gates)) or 'none'}"
    what = f"{written(one)} gates nothing in this series, and nothing reads it"
    return Fault(place=one.origin, what=what, why=why, symbol=one.symbol)


def _left_alone(symbol: Any, value: str) -> str:
    """Return what a symbol would be beside all other settings if nobody had set it to this value."""
    symbol.unset_value()
    alone = str(symbol.str_value)
    symbol.set_value(value)
    return alone


def near_names(menu: Menu, name: str) -> str:
    """Say which symbols are called almost so, or which there are."""
    from difflib import get_close_matches

    names = [str(symbol.name) for symbol in symbols_of(menu)]
    found = get_close_matches(name.upper(), names, 2)
    if found:
        return f"did you mean {' or '.join(f'CONFIG_{one}' for one in found)}?"
    return f"there are: {', '.join(f'CONFIG_{one}' for one in sorted(names)) or 'none'}"


def _not_become(menu: Menu, requests: Mapping[str, Assignment]) -> Iterator[Fault]:
    for one, symbol in _lost(menu, requests):
        if one.origin != KEPT:
            is_now = symbol.str_value or "without a value"
            lines = [line for block in blocks_of(symbol, one.value) for line in words_of(block)]
            what = f"{written(one)} is not what comes of it: it is {is_now}"
            yield Fault(place=one.origin, what=what, why="\n".join(lines), symbol=one.symbol)


def _given_way(menu: Menu, requests: Mapping[str, Assignment]) -> Iterator[str]:
    for one, symbol in _lost(menu, requests):
        if one.origin == KEPT and is_bool(symbol):
            lines = [line.strip() for block in blocks_of(symbol, one.value) for line in words_of(block)]
            yield f"CONFIG_{one.symbol}={one.value}, set before, gives way: {'; '.join(lines)}"


def _lost(menu: Menu, requests: Mapping[str, Assignment]) -> Iterator[tuple[Assignment, Any]]:
    """Yield the requests that are valid in themselves and not what their symbols are."""
    for one in requests.values():
        symbol = menu.kconf.syms.get(one.symbol)
        if symbol is not None and symbol.nodes and symbol.user_value is not None and not _is_as_asked(symbol, one):
            yield one, symbol


def _is_as_asked(symbol: Any, one: Assignment) -> bool:
    if symbol.orig_type in BASES and symbol.str_value:
        return _number(symbol, symbol.str_value) == _number(symbol, one.value)
    return bool(symbol.str_value == one.value)


def _origin(symbol: Any, requests: Mapping[str, Assignment]) -> str:
    request = requests.get(symbol.name)
    if request is not None and symbol.user_value is not None and _is_as_asked(symbol, request):
        return request.origin
    forced = selectors(symbol)
    if forced:
        return f"selected by {', '.join(forced)}"
    unmet = first_block(symbol)
    if unmet:
        return unmet
    return "default" if symbol.nodes[0].filename != GIVEN else "not set"
