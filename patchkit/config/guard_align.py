"""Which statements of two lists are the same, which are two versions of one, and which stand in one list only."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from patchkit.config.guard_scope import FUNCTIONS

DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
_CONDITIONAL = (ast.If, ast.While, ast.For, ast.AsyncFor)


class Run(NamedTuple):
    """Neighbours in one list that stand for neighbours in the other; akin: two versions of one statement."""

    old: range
    new: range
    akin: bool


def same_tree(one: object, other: object) -> bool:
    """Tell whether two syntax trees are equal, wherever they stand in their files."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.AST):
        for name in one._fields:  # noqa: SIM110 -- faster, and this is where the time goes
            if not same_tree(getattr(one, name, None), getattr(other, name, None)):
                return False
        return True
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_tree, one, other))
    return repr(one) == repr(other) if isinstance(one, float | complex) else one == other


def only_more_names(one: ast.stmt, other: ast.stmt) -> list[ast.alias]:
    """Return the names that `from X import` takes in the other version besides those of this one; [] else."""
    if not (isinstance(one, ast.ImportFrom) and isinstance(other, ast.ImportFrom)):
        return []
    kept = {(alias.name, alias.asname) for alias in one.names}
    known = {(alias.name, alias.asname) for alias in other.names}
    bound = {alias.asname or alias.name for alias in other.names}
    same_module = (one.module, one.level) == (other.module, other.level) and one.module != "__future__"
    if not same_module or not kept < known or len(bound) < len(other.names) or "*" in bound:
        return []
    return [alias for alias in other.names if (alias.name, alias.asname) not in kept]


def is_docstring(statements: Sequence[ast.stmt]) -> bool:
    """Tell whether a list begins with a string that stands alone."""
    first = statements[0] if statements else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def same_header(one: ast.stmt, other: ast.stmt) -> bool:
    """Tell whether two compound statements differ in their bodies only."""
    if type(one) is not type(other) or (not hasattr(one, "body") and not isinstance(one, ast.Match)):
        return False
    if isinstance(one, ast.Match) and isinstance(other, ast.Match):
        heads = zip_longest(one.cases, other.cases)
        return same_tree(one.subject, other.subject) and all(
            a is not None and b is not None and same_tree([a.pattern, a.guard], [b.pattern, b.guard]) for a, b in heads
        )
    bodies = ("body", "orelse", "finalbody", "handlers")
    if not all(same_tree(getattr(one, name), getattr(other, name)) for name in one._fields if name not in bodies):
        return False
    handlers = zip_longest(getattr(one, "handlers", ()), getattr(other, "handlers", ()))
    return all(a and b and same_tree([a.type, a.name], [b.type, b.name]) for a, b in handlers)


def unmatched_runs(old: list[ast.stmt], new: list[ast.stmt], *, documented: bool) -> Iterator[Run]:
    """Yield what differs between two statement lists, in order; docstrings do not count where they are `documented`."""
    first, second = (int(documented and is_docstring(one)) for one in (old, new))
    end, stop = len(old), len(new)
    while first < end and second < stop and same_tree(old[first], new[second]):
        first, second = first + 1, second + 1
    # The pair at which the first loop ended is known to differ: it is not compared from below as well.
    while first < end and second < stop and (end, stop) != (first + 1, second + 1):
        if not same_tree(old[end - 1], new[stop - 1]):
            break
        end, stop = end - 1, stop - 1
    if first == end and second == stop:
        return
    if end - first == 1 == stop - second:
        yield from _runs_of(old, new, range(first, end), range(second, stop))
        return
    keys = _Keys()
    before, after = ([keys.of(one) for one in part] for part in (old[first:end], new[second:stop]))
    for gap in _gaps(before, after):
        yield from _runs_of(old, new, _shifted(gap[0], first), _shifted(gap[1], second))


class _Keys:
    """A key for every statement, equal for equal ones; large ones are compared, which is cheaper than writing them."""

    def __init__(self) -> None:
        self._met: dict[type[ast.stmt], list[ast.stmt]] = {}

    def of(self, statement: ast.stmt) -> str:
        kind = type(statement)
        if "body" not in statement._fields:
            return ast.dump(statement)
        met = self._met.setdefault(kind, [])
        place = next((place for place, one in enumerate(met) if same_tree(one, statement)), len(met))
        if place == len(met):
            met.append(statement)
        return f"{kind.__name__} {place}"


def _shifted(part: range, by: int) -> range:
    return range(part.start + by, part.stop + by)


def _gaps(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[range, range]]:
    """Yield the ranges between equal items."""
    import difflib

    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield range(start, end), range(new_start, new_end)


def _runs_of(old: list[ast.stmt], new: list[ast.stmt], before: range, after: range) -> Iterator[Run]:
    """Split a gap at the statements that are two versions of one."""
    done, made = before.start, after.start
    for place, other in _pairs(old, new, before, after):
        if place > done or other > made:
            yield Run(range(done, place), range(made, other), akin=False)
        yield Run(range(place, place + 1), range(other, other + 1), akin=True)
        done, made = place + 1, other + 1
    if before.stop > done or after.stop > made:
        yield Run(range(done, before.stop), range(made, after.stop), akin=False)


def _pairs(old: list[ast.stmt], new: list[ast.stmt], before: range, after: range) -> list[tuple[int, int]]:
    """Return a longest rising sequence of pairs that are akin; equal headers count more than similar ones."""
    best: dict[tuple[int, int], tuple[int, tuple[tuple[int, int], ...]]] = {}
    empty: tuple[int, tuple[tuple[int, int], ...]] = (0, ())
    if len(before) * len(after) > _MOST_PAIRS:
        return []
    for place in reversed(before):
        for other in reversed(after):
            found = max(
                best.get((place + 1, other), empty), best.get((place, other + 1), empty), key=lambda one: one[0]
            )
            worth = kinship(old[place], new[other])
            rest = best.get((place + 1, other + 1), empty)
            if worth and worth + rest[0] > found[0]:
                found = (worth + rest[0], ((place, other), *rest[1]))
            best[place, other] = found
    return list(best.get((before.start, after.start), empty)[1])


_MOST_PAIRS = 10_000


def kinship(one: ast.stmt, other: ast.stmt) -> int:
    """Return 0 for two statements that have nothing in common, more the more likely they are versions of one."""
    if isinstance(one, DEFINITIONS) and isinstance(other, DEFINITIONS):
        return 4 if type(one) is type(other) and one.name == other.name else 0
    if same_header(one, other) or only_more_names(one, other) or only_more_names(other, one):
        return 3
    if isinstance(one, ast.If) and isinstance(other, ast.If) and same_tree(other.orelse, [one]):
        return 3
    return 2 if isinstance(one, _CONDITIONAL) and type(one) is type(other) and share_a_body(one, other) else 0


def share_a_body(one: ast.stmt, other: ast.stmt) -> bool:
    """Tell whether two statements have so much of their bodies in common that one body may stand for both."""
    first, second = getattr(one, "body", []), getattr(other, "body", [])
    common = sum(1 for statement in first if any(same_tree(statement, candidate) for candidate in second))
    return 2 * common >= min(len(first), len(second)) and common > 0


def condition_of(statement: ast.stmt) -> ast.expr | None:
    """Return the expression in the header of an `if`, `while` or `for` that a choice may replace."""
    if isinstance(statement, ast.If | ast.While):
        return statement.test
    return statement.iter if isinstance(statement, ast.For | ast.AsyncFor) else None


def paired_bodies(before: ast.stmt, after: ast.stmt) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
    """Yield the statement lists of two statements with equal headers, but for `else` and `finally`."""
    if hasattr(before, "body"):
        yield before.body, after.body  # type: ignore[attr-defined]
    for name in ("handlers", "cases"):
        for one, other in zip(getattr(before, name, ()), getattr(after, name, ()), strict=True):
            yield one.body, other.body


def import_run(statements: list[ast.stmt], at: int) -> int:
    """Return how many neighbouring statements import names from the module that the first one does."""
    first = statements[at]
    count = 1
    while at + count < len(statements) and isinstance(first, ast.ImportFrom):
        following = statements[at + count]
        if not isinstance(following, ast.ImportFrom):
            break
        if (following.module, following.level) != (first.module, first.level):
            break
        count += 1
    return count


def names_imported(statements: list[ast.stmt], at: int) -> list[tuple[str, int, str, str]]:
    """Return what a run of imports binds: `from X import a, b` is `from X import a` and `from X import b`."""
    return [
        (one.module or "", one.level, alias.name, alias.asname or "")
        for one in statements[at : at + import_run(statements, at)]
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    ]
