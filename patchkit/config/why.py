"""Why a symbol is what it is: the terms that block it, with their values now; who selects it; what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import kconfiglib as library

from patchkit.config.configuration import KEPT, Usage
from patchkit.config.dotconfig import Assignment
from patchkit.config.kconfig import Menu
from patchkit.config.kconfig_faults import BASES, cut_words, number_of
from patchkit.config.kconfig_parser import ENGINES, GIVEN
from patchkit.record import dataclass

PLACEHOLDER = "VALUE"
"""What stands in a setting for a value that only the user knows."""
_DEEPEST = 8
_WORDS = {library.INT: "a whole number", library.HEX: "a number such as 0x1f"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A reason why a symbol is not what was asked for. `term` says it; `inner` says why the term is as it is.

    `values` are the symbols of the term with what they are: `VLLM_VERSION=0.6.3`. `is_dependency`: a `depends on`.
    """

    term: str
    values: tuple[str, ...]
    is_dependency: bool
    inner: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """All that is known about a symbol. `requested` is (value, origin) or None; `advice` are settings to type: those
    that give it what is asked for, or, where nothing is or it has that from before, those that switch it.

    `within_reach`: settings can give it the value; else it is for another release or engine. `to_fill` says what to
    write for the PLACEHOLDER in `advice`, "" where there is none.
    """

    symbol: str
    value: str
    place: str
    prompt: str
    help: str
    requested: tuple[str, str] | None
    blocks: tuple[Block, ...]
    forced: tuple[str, ...]
    gates: tuple[str, ...]
    advice: tuple[str, ...]
    within_reach: bool
    to_fill: str


def explain(menu: Menu, name: str, requests: Mapping[str, Assignment], usage: Usage) -> Explanation | None:
    """Explain a symbol as the menu has it now; None when there is no such symbol."""
    symbol = menu.kconf.syms.get(name)
    if symbol is None or not symbol.nodes:
        return None
    request = requests.get(name)
    wanted = request.value if request is not None else "y" if is_bool(symbol) else _default_of(symbol)
    is_there = symbol.str_value == wanted or (request is None and symbol.visibility and not is_bool(symbol))
    is_none = request is not None and not _takes(symbol, request.value)
    is_given = request is not None and request.origin != KEPT and not is_none
    goal = _other_value(symbol) if is_none or (is_there and not is_given) else wanted
    within_reach = goal == "n" or _is_within_reach(symbol.direct_dep, menu.given, ())
    node = symbol.nodes[0]
    return Explanation(
        symbol=name,
        value=str(symbol.str_value) if symbol.orig_type not in _WORDS else cut_words(symbol.str_value),
        place=place_of(symbol),
        prompt=prompt_of(symbol),
        help=node.help or "",
        requested=None if request is None else (request.value, request.origin),
        blocks=() if is_there else blocks_of(symbol, wanted),
        forced=selectors(symbol),
        gates=usage.gates.get(name, ()),
        advice=tuple(dict.fromkeys(_advice(symbol, goal, ()))) if within_reach else (),
        within_reach=within_reach,
        to_fill=_expected(symbol, menu) if goal == PLACEHOLDER and not is_given else "",
    )


def _takes(symbol: Any, value: str) -> bool:
    """Tell whether a symbol could ever be what it was asked to be: a value that is none of it was not set."""
    bounds = next(((low, high) for low, high, when in symbol.ranges if library.expr_value(when)), None)
    if symbol.user_value is None or bounds is None:
        return symbol.user_value is not None
    low, number, high = (
        number_of(text, BASES[symbol.orig_type]) for text in (bounds[0].str_value, value, bounds[1].str_value)
    )
    return low is None or high is None or number is None or low <= number <= high


def _default_of(symbol: Any) -> str:
    """Return what a number or a string would be with its dependencies met; the placeholder where nothing says so."""
    own = library.split_expr(symbol.direct_dep, library.AND)
    for value, condition in symbol.defaults:  # kconfiglib has added the dependencies to each condition
        terms = (term for term in library.split_expr(condition, library.AND) if term not in own)
        if all(map(library.expr_value, terms)):
            return str(value.str_value) or PLACEHOLDER
    return PLACEHOLDER


def _other_value(symbol: Any) -> str:
    """Return what a symbol that is as it was meant can be switched to."""
    if not is_bool(symbol):
        return PLACEHOLDER
    return "n" if symbol.str_value == "y" else "y"


def _expected(symbol: Any, menu: Menu) -> str:
    if symbol.name in menu.decimals:
        return menu.decimals[symbol.name].words
    ranges = (f", {block.term}" for block in _ranges(symbol))
    return f"{_WORDS.get(symbol.orig_type, 'a text')}{next(ranges, '')}"


def is_bool(symbol: Any) -> bool:
    """Tell whether a symbol is y or n."""
    return bool(symbol.orig_type == library.BOOL)


def blocks_of(symbol: Any, wanted: str, seen: tuple[Any, ...] = ()) -> tuple[Block, ...]:
    """Return why a symbol does not become `wanted`; `seen` are the symbols above it, which are not gone into again."""
    if is_bool(symbol) and wanted == "n":
        return tuple(_held_up(symbol))
    unmet = tuple(_unmet(symbol.direct_dep, "depends on ", (*seen, symbol), is_dependency=True))
    if unmet:
        return unmet
    if not any(node.prompt for node in symbol.nodes):
        return (_plain(f"it has no prompt: others decide about it ({place_of(symbol)})"),)
    if not symbol.visibility and symbol.choice:
        return (_plain("its choice is not offered"),)
    if not symbol.visibility:
        prompts = (node.prompt[1] for node in symbol.nodes if node.prompt)
        return tuple(
            block for shown in prompts for block in _unmet(shown, "is offered only if ", seen, is_dependency=False)
        )
    if symbol.choice and symbol.choice.selection is not symbol:
        chosen = symbol.choice.selection.name if symbol.choice.selection is not None else "none"
        return (_plain(f"its choice has room for one: {chosen} is chosen"),)
    return tuple(_ranges(symbol))


def first_block(symbol: Any) -> str:
    """Return the first term of a symbol's dependencies that is not met, in words; "" when all are."""
    terms = (term for term in library.split_expr(symbol.direct_dep, library.AND) if not library.expr_value(term))
    return next((f"depends on {library.expr_str(term)}, which is n" for term in terms), "")


def words_of(block: Block, depth: int = 0) -> Iterator[str]:
    """Yield a block as lines, inner ones indented."""
    values = f" ({', '.join(block.values)})" if block.values else ""
    yield f"{'  ' * depth}{block.term}{values}"
    for inner in block.inner:
        yield from words_of(inner, depth + 1)


def selectors(symbol: Any) -> tuple[str, ...]:
    """Return the symbols that select this one now."""
    terms = library.split_expr(symbol.rev_dep, library.OR)
    return tuple(str(library.split_expr(term, library.AND)[0].name) for term in terms if library.expr_value(term))


def prompt_of(symbol: Any) -> str:
    """Return the words under which a symbol is offered, "" where it is not."""
    prompts = [node.prompt[0] for node in symbol.nodes if node.prompt and node.filename != GIVEN]
    return str(prompts[0]) if prompts else ""


def place_of(symbol: Any) -> str:
    """Return the `file:line` where a symbol is defined."""
    node = symbol.nodes[0]
    if node.filename != GIVEN:
        return f"{node.filename}:{node.linenr}"
    return "given by patchkit" if symbol.name.removesuffix("_VERSION") in ENGINES else "a patch's Config trailer"


def _plain(text: str) -> Block:
    return Block(term=text, values=(), is_dependency=False, inner=())


def _unmet(expression: Any, words: str, seen: tuple[Any, ...], *, is_dependency: bool) -> Iterator[Block]:
    """Yield the terms that are n; a symbol in them that is n itself is gone into, each once."""
    gone_into = set(seen)
    for term in library.split_expr(expression, library.AND):
        if library.expr_value(term):
            continue
        named = _symbols_in(term)
        deeper: list[Any] = []
        if len(seen) < _DEEPEST and not _is_negated(term):
            deeper = [one for one in named if one not in gone_into and is_bool(one) and not library.expr_value(one)]
        gone_into.update(deeper)
        inner = [block for one in deeper for block in blocks_of(one, "y", tuple(gone_into))]
        yield Block(
            term=f"{words}{library.expr_str(term)}, which is n",
            values=tuple(f"{one.name}={value_of(one)}" for one in named),
            is_dependency=is_dependency,
            inner=tuple(block for block in inner if block.is_dependency),
        )


def value_of(symbol: Any) -> str:
    """Return a symbol's value, `unknown` for none."""
    return str(symbol.str_value) or "unknown"


def _is_negated(term: Any) -> bool:
    return isinstance(term, tuple) and term[0] == library.NOT


def _symbols_in(expression: Any) -> list[Any]:
    found = {one for one in library.expr_items(expression) if isinstance(one, library.Symbol)}
    return sorted((one for one in found if one.nodes and not one.is_constant), key=lambda one: str(one.name))


def _held_up(symbol: Any) -> Iterator[Block]:
    for term in library.split_expr(symbol.rev_dep, library.OR):
        if library.expr_value(term):
            selecting = library.split_expr(term, library.AND)[0]
            yield _plain(f"selected by {selecting.name}, {place_of(selecting)}")
    if symbol.choice and symbol.choice.selection is symbol:
        yield _plain("its choice needs one, and this is what it takes: choose another")
    elif not any(node.prompt for node in symbol.nodes):
        yield _plain(f"it has no prompt: its default decides ({place_of(symbol)})")


def _ranges(symbol: Any) -> Iterator[Block]:
    for low, high, condition in symbol.ranges:
        if library.expr_value(condition):
            yield _plain(f"range is {low.str_value} to {high.str_value}")
            return


def _advice(symbol: Any, wanted: str, above: tuple[Any, ...]) -> Iterator[str]:
    """Yield the settings that together give the symbol its value, as far as settings can."""
    if symbol in above or len(above) > _DEEPEST:
        return
    if is_bool(symbol) and wanted == "n":
        for term in library.split_expr(symbol.rev_dep, library.OR):
            if library.expr_value(term):
                yield from _advice(library.split_expr(term, library.AND)[0], "n", (*above, symbol))
    else:
        for term in library.split_expr(symbol.direct_dep, library.AND):
            if not library.expr_value(term):
                yield from _advice_for_term(term, (*above, symbol))
    if is_bool(symbol) and wanted == "n" and symbol.choice:
        others = (one for one in symbol.choice.syms if one is not symbol and one.visibility)
        yield from (f"CONFIG_{one.name}=y" for one in islice(others, 1))
    elif any(node.prompt for node in symbol.nodes):
        yield f"CONFIG_{symbol.name}={wanted}"


def _is_within_reach(term: Any, given: frozenset[str], above: tuple[Any, ...]) -> bool:
    """Tell whether settings can make a term true: what patchkit gives about the engine stays as it is."""
    if library.expr_value(term):
        return True
    if isinstance(term, tuple) and term[0] in (library.AND, library.OR):
        parts = (_is_within_reach(part, given, above) for part in library.split_expr(term, term[0]))
        return all(parts) if term[0] == library.AND else any(parts)
    if any(one.name in given for one in _symbols_in(term)):
        return False
    if isinstance(term, tuple) or term in above or len(above) > _DEEPEST or not getattr(term, "nodes", ()):
        return True
    return _is_within_reach(term.direct_dep, given, (*above, term))


def _advice_for_term(term: Any, above: tuple[Any, ...]) -> Iterator[str]:
    if _is_negated(term) and isinstance(term[1], library.Symbol):
        yield from _advice(term[1], "n", above)
    elif isinstance(term, library.Symbol) and is_bool(term):
        yield from _advice(term, "y", above)
    elif isinstance(term, tuple) and term[0] == library.OR:
        yield from _advice_for_term(library.split_expr(term, library.OR)[0], above)
    elif isinstance(term, tuple) and term[0] == library.AND:
        for part in library.split_expr(term, library.AND):
            yield from _advice_for_term(part, above)
