"""Guards of toggles in one function, where those of one make names local that those of another take from outside.

No toggle shows it by itself, and folding does not either. The toggle that binds the names has to be decided around
the whole function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from patchkit.config.guard_align import DEFINITIONS
from patchkit.config.guard_edit import GuardEdit
from patchkit.config.guard_scope import FUNCTIONS, Definition, Scopes, found_outside
from patchkit.config.guard_source import first_line, last_line

_Path = tuple[tuple[str, int], ...]
"""The names of a definition and of those around it, each with its number among those of that name."""


def scope_clashes(
    body: Sequence[ast.stmt],
    edits: Sequence[GuardEdit],
    read: Callable[[], Mapping[str, Sequence[ast.stmt]]],
    scopes: Scopes,
    outside: frozenset[str],
) -> list[tuple[str, range]]:
    """Return the symbols that are to be decided around definitions, and their 0-based lines; of nested ones the outer.

    `edits` are the guards of each symbol in the body of a module; `read` returns the bodies that each symbol makes of
    it, with those it needs, and all of them under "". `outside` are the names that the whole module has.
    """
    shared = list(_shared(body, edits, ()))
    bodies = read() if shared else {}
    found: list[tuple[str, range]] = []
    for path, definition, symbols in shared:
        others = {symbol: _find(bodies[symbol], path) for symbol in (*symbols, "") if symbol in bodies}
        known = {symbol: one for symbol, one in others.items() if one is not None}
        names = scopes.clashing(definition, list(known.values())) if known else set[str]()
        lost = scopes.lost(definition, {symbol: one for symbol, one in known.items() if symbol})
        around = [one for end in range(1, len(path)) for one in _variants_at(path[:end], body, bodies)]
        within = outside.union(*map(scopes.bound, around))
        lines = range(first_line(definition) - 1, last_line(definition))
        used = scopes.used(definition).union(*map(scopes.used, known.values()))
        clashing = set(_losing(lost, found_outside(used, within)))
        names = found_outside(names, within)
        if names:
            here = scopes.bound(definition)
            binding = [
                symbol for symbol, one in known.items() if symbol and not names.isdisjoint(scopes.bound(one) - here)
            ]
            clashing.update(binding or symbols)
        inside = {symbol for symbol, part in found if part.start <= lines.start and lines.stop <= part.stop}
        found += [(symbol, lines) for symbol in sorted(clashing - inside)]
    return found


def _losing(lost: Mapping[str, set[str]], outside: set[str]) -> Iterator[str]:
    """Yield the symbols that take away together what a name, or a generator, is known by in a function."""
    for name, symbols in lost.items():
        if name == "yield" or name in outside:
            yield from sorted(symbols)


def _shared(
    body: Sequence[ast.stmt], edits: Sequence[GuardEdit], path: _Path, *, inside: bool = False
) -> Iterator[tuple[_Path, Definition, list[str]]]:
    """Yield the functions (and the classes in them) in which guards of several symbols stand, outer ones first."""
    for name, definition in _numbered(body):
        start, end = first_line(definition) - 1, last_line(definition)
        within = [edit for edit in edits if start <= edit.start and edit.end <= end]
        symbols = list(dict.fromkeys(symbol for edit in within for symbol in edit.symbols if symbol))
        if len(symbols) > 1:
            scoped = inside or isinstance(definition, FUNCTIONS)
            if scoped:
                yield (*path, name), definition, symbols
            yield from _shared(definition.body, within, (*path, name), inside=scoped)


def _numbered(body: Sequence[ast.stmt]) -> Iterator[tuple[tuple[str, int], Definition]]:
    met: dict[str, int] = {}
    for definition in _definitions(body):
        met[definition.name] = met.get(definition.name, 0) + 1
        yield (definition.name, met[definition.name]), definition


def _definitions(body: Sequence[ast.AST]) -> Iterator[Definition]:
    """Yield the definitions in a statement list, those in other statements too, but not those in definitions."""
    for statement in body:
        if isinstance(statement, DEFINITIONS):
            yield statement
        else:
            for name in ("body", "handlers", "orelse", "finalbody", "cases"):
                yield from _definitions(getattr(statement, name, ()))


def _variants_at(
    path: _Path, body: Sequence[ast.stmt], bodies: Mapping[str, Sequence[ast.stmt]]
) -> Iterator[Definition]:
    found = (_find(one, path) for one in (body, *bodies.values()))
    yield from (one for one in found if isinstance(one, FUNCTIONS))


def _find(body: Sequence[ast.stmt], path: _Path) -> Definition | None:
    """Return the definition at a path, None where that variant has none."""
    name, *rest = path
    for other, definition in _numbered(body):
        if other == name:
            return _find(definition.body, tuple(rest)) if rest else definition
    return None
