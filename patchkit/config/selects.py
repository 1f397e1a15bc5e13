"""`select` forces a symbol on whatever it depends on; here that is an error, before it happens and when it happens.

A select is sound when the selected symbol's dependencies follow from the selecting symbol being y: from its own
dependencies, from the select's condition, and from what else it selects. Whether they follow is decided by trying all
values of the terms, each term (`A`, `VLLM_VERSION >= 0.8.0`) taken as a statement that is true or false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import kconfiglib as library

from patchkit.config.dotconfig import Assignment
from patchkit.config.fault import Fault
from patchkit.config.kconfig import Menu
from patchkit.config.why import place_of, value_of

_MOST_TERMS = 12


def unmet_selects(menu: Menu, requests: Mapping[str, Assignment]) -> Iterator[Fault]:
    """Yield a fault for every select whose target's dependencies do not follow, with the values of now."""
    for symbol in menu.kconf.unique_defined_syms:
        for target, condition in symbol.selects:
            if target.nodes and target.orig_type == library.BOOL and not _follows(symbol, condition, target):
                yield _fault(symbol, target, condition, requests)


def _fault(symbol: Any, target: Any, condition: Any, requests: Mapping[str, Assignment]) -> Fault:
    needed = library.expr_str(target.direct_dep)
    active = library.expr_value(symbol) and library.expr_value(condition)
    unmet = not library.expr_value(target.direct_dep)
    request = requests.get(symbol.name)
    lines = [f"{place_of(target)}: {target.name} depends on {needed}"]
    if active and unmet:
        items = sorted(one.name for one in library.expr_items(target.direct_dep) if getattr(one, "nodes", ()))
        now = ", ".join(f"{name}={value_of(symbol.kconfig.syms[name])}" for name in items)
        lines.append(f"it is forced on now, although {now}")
    lines.append(f"let {symbol.name} depend on {needed} too")
    place = request.origin if request is not None and active and unmet else place_of(symbol)
    where = "" if place == place_of(symbol) else f" ({place_of(symbol)})"
    what = f"{symbol.name}{where} selects {target.name}, whose dependencies do not follow"
    return Fault(place=place, what=what, why="\n".join(lines), symbol=symbol.name)


def implies(one: Any, other: Any) -> bool:
    """Tell whether a bool is y whenever another is, by what the Kconfig says."""
    return one is other or _follow(_premises(one, one.kconfig.y, None, other), other)


def _follows(symbol: Any, condition: Any, target: Any) -> bool:
    """Tell whether the target's dependencies are true whenever the symbol and the condition are."""
    return _follow(_premises(symbol, condition, target, target.direct_dep), target.direct_dep)


def _premises(symbol: Any, condition: Any, target: Any, conclusion: Any) -> list[Any]:
    """Return what is true when a symbol is y; of what `target` is selected for nothing is taken for granted."""
    premises = [symbol, symbol.direct_dep, condition]
    premises += [(library.OR, (library.NOT, when), other) for other, when in symbol.selects if other is not target]
    named: dict[Any, None] = {}
    waiting = [one for part in (conclusion, symbol.direct_dep, condition) for one in _bools(part)]
    while waiting:  # what is needed by what is needed, too
        one = waiting.pop()
        if one not in named and one is not symbol:
            named[one] = None
            waiting += _bools(one.direct_dep)
    return premises + [(library.OR, (library.NOT, one), one.direct_dep) for one in named]


def _follow(premises: list[Any], conclusion: Any) -> bool:
    terms: dict[str, None] = {}
    for expression in (*premises, conclusion):
        _collect(expression, terms)
    if len(terms) > _MOST_TERMS:  # too many to try them all: the terms themselves have to be there
        given = _given(premises)
        return all(library.expr_str(term) in given for term in library.split_expr(conclusion, library.AND))
    names = list(terms)
    for values in product((False, True), repeat=len(names)):
        true = dict(zip(names, values, strict=True))
        if all(_holds(premise, true) for premise in premises) and not _holds(conclusion, true):
            return False
    return True


def _given(premises: list[Any]) -> set[str]:
    """Return the terms that stand alone among the premises, and those that a premise `not one, or other` adds."""
    given: set[str] = set()
    before = -1
    while len(given) > before:
        before = len(given)
        for premise in premises:
            conditions, other = _implication(premise)
            if all(library.expr_str(one) in given or _is_true(one) for one in conditions):
                given.update(map(library.expr_str, library.split_expr(other, library.AND)))
    return given


def _implication(premise: Any) -> tuple[list[Any], Any]:
    """Take `not (one and another), or other` apart; any other premise holds without a condition."""
    if isinstance(premise, tuple) and premise[0] == library.OR:
        denied = premise[1]
        if isinstance(denied, tuple) and denied[0] == library.NOT:
            return library.split_expr(denied[1], library.AND), premise[2]
    return [], premise


def _is_true(expression: Any) -> bool:
    return _is_fixed(expression) and bool(library.expr_value(expression))


def _bools(expression: Any) -> list[Any]:
    return [one for one in library.expr_items(expression) if getattr(one, "orig_type", None) == library.BOOL]


def _collect(expression: Any, terms: dict[str, None]) -> None:
    if isinstance(expression, tuple) and expression[0] in (library.AND, library.OR):
        _collect(expression[1], terms)
        _collect(expression[2], terms)
    elif isinstance(expression, tuple) and expression[0] == library.NOT:
        _collect(expression[1], terms)
    elif not _is_fixed(expression):
        terms[library.expr_str(expression)] = None


def _is_fixed(expression: Any) -> bool:
    """Tell whether a term has one value in this engine: y, n, and which engine it is."""
    return not isinstance(expression, tuple) and (
        getattr(expression, "is_constant", False) or expression.name in ("VLLM", "SGLANG")
    )


def _holds(expression: Any, true: Mapping[str, bool]) -> bool:
    if isinstance(expression, tuple) and expression[0] == library.AND:
        return _holds(expression[1], true) and _holds(expression[2], true)
    if isinstance(expression, tuple) and expression[0] == library.OR:
        return _holds(expression[1], true) or _holds(expression[2], true)
    if isinstance(expression, tuple) and expression[0] == library.NOT:
        return not _holds(expression[1], true)
    return bool(library.expr_value(expression)) if _is_fixed(expression) else true[library.expr_str(expression)]
