"""Whether a guarded Python file is what it claims: with every toggle folded, its syntax tree must be the plain one.

Nothing here knows how a guard was made. An `if` whose condition is known gives way to the branch it takes, a choice
`A if CONFIG_X else B` to the side it takes, `CONFIG_X and REST` to REST or to nothing. What remains is compared with
the file that plain patching makes. No branch that goes may have made a name local that a function takes from outside.
Docstrings do not count, nor does the one import of the constants; names that neighbouring statements import from one
module may stand in one statement or in several.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from patchkit.config.guard_align import DEFINITIONS, import_run, names_imported
from patchkit.config.guard_scope import FUNCTIONS, Function, Scopes
from patchkit.config.guard_source import Source, UnguardableError, first_line, parse_source, read_lines, vary
from patchkit.diff.compare import Block
from patchkit.record import dataclass

Plain = Callable[[frozenset[str]], "list[bytes] | None"]
"""What plain patching makes of a file with these symbols on, in lines; None when they cannot be on without others."""

Values = Mapping[str, bool]


TOO_DEEP = "it is nested too deeply"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """A setting under which the guarded file is another one: which symbols are on, and where it differs.

    `line` is a 1-based line of the guarded file, 0 when it is the whole file; `reason` is a phrase for people.
    """

    switched_on: tuple[str, ...]
    line: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a check came to: how many settings were compared, and those that came out wrong.

    `broken`: no setting could be, since the file does not compile, or is nested too deeply to be compared.
    """

    compared: int
    mismatches: tuple[Mismatch, ...]
    broken: bool = False


def settings(
    symbols: Sequence[str], *, halves: int, seed: int, needs: Mapping[str, frozenset[str]] | None = None
) -> tuple[frozenset[str], ...]:
    """Return the settings to check: all off, all on, each alone, random halves; all there are of a few symbols.

    None of them is there twice. A symbol comes with those that it `needs`.
    """
    import hashlib

    chosen = [frozenset[str](), frozenset(symbols), *(frozenset((symbol,)) for symbol in symbols)]
    if 1 << len(symbols) <= len(chosen) + halves:
        chosen += [frozenset(one) for size in range(2, len(symbols)) for one in combinations(symbols, size)]
        halves = 0
    for number in range(halves):
        # Reproducible on every Python, which `random` promises for few of its functions.
        draws = {symbol: hashlib.sha256(f"{seed} {number} {symbol}".encode()).digest()[0] for symbol in symbols}
        chosen.append(frozenset(symbol for symbol, draw in draws.items() if draw & 1))
    closed = (one.union(*((needs or {}).get(symbol, frozenset()) for symbol in one)) & set(symbols) for one in chosen)
    return tuple(dict.fromkeys(closed))


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What to compare: settings of these symbols (see `settings`). The constants are imported from `module`."""

    symbols: tuple[str, ...]
    module: str
    needs: Mapping[str, frozenset[str]]
    halves: int = 4
    seed: int = 0


def check_guarded(base: bytes, guarded: bytes, plain: Plain, check: Check) -> Verdict:
    """Compare a guarded file with plain patching, under every setting that plain patching knows. It must compile."""
    try:
        pristine = parse_source(read_lines(base))
    except UnguardableError as error:
        return Verdict(compared=0, mismatches=(Mismatch(switched_on=(), line=error.line, reason=error.reason),))
    return check_source(pristine, guarded, plain, check)


def check_source(
    pristine: Source,
    guarded: bytes,
    plain: Plain,
    check: Check,
    hint: Sequence[Block] = (),
    scopes: Scopes | None = None,
) -> Verdict:
    """Do what check_guarded does, for a parsed base that `scopes` may know; `hint` says where the file differs."""
    chosen_ones = settings(check.symbols, halves=check.halves, seed=check.seed, needs=check.needs)
    wanted = [(chosen, plain(chosen)) for chosen in chosen_ones]
    known = [(chosen, lines) for chosen, lines in wanted if lines is not None]
    try:
        made = vary(pristine, read_lines(guarded), hint)
        compile(_changed(made), "<guarded>", "exec", dont_inherit=True)
        comparison = _Comparison(scopes or Scopes())
        found = [_mismatch(pristine, made, chosen, lines, check, comparison) for chosen, lines in known]
    except SyntaxError as error:
        broken = Mismatch(switched_on=(), line=error.lineno or 0, reason=f"does not compile: {error.msg}")
        return Verdict(compared=0, mismatches=(broken,), broken=True)
    except RecursionError:
        broken = Mismatch(switched_on=(), line=0, reason=TOO_DEEP)
        return Verdict(compared=0, mismatches=(broken,), broken=True)
    except (ValueError, UnguardableError) as error:
        broken = Mismatch(switched_on=(), line=0, reason=f"does not compile: {error}")
        return Verdict(compared=0, mismatches=(broken,), broken=True)
    return Verdict(compared=len(known), mismatches=tuple(one for one in found if one is not None))


def _changed(made: Source) -> ast.Module:
    """Return what a variant does not share with its base, as a module that compiles if the variant does."""
    future = [isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in made.body]
    first = len(future) - future[::-1].index(True) if any(future) else 0
    body = made.body[:first] + [one for one in made.body[first:] if _is_made(one, made)]
    return ast.Module(body=[_without_foreign(one, made) for one in body], type_ignores=[])


def _is_made(statement: ast.stmt, made: Source) -> bool:
    return id(statement) not in made.foreign or id(statement) in made.partial


def _without_foreign(statement: ast.stmt, made: Source) -> ast.stmt:
    """Leave out the members of a class that are the base's: each compiles without the others."""
    if id(statement) not in made.partial or not isinstance(statement, ast.ClassDef):
        return statement
    reduced = copy.copy(statement)
    reduced.body = [_without_foreign(one, made) for one in statement.body if _is_made(one, made)]
    return reduced


def _mismatch(
    pristine: Source, made: Source, chosen: frozenset[str], lines: list[bytes], check: Check, comparison: _Comparison
) -> Mismatch | None:
    try:
        expected = vary(pristine, lines, placed=False)
        comparison.values = {f"CONFIG_{symbol}": symbol in chosen for symbol in check.symbols}
        line = comparison.differs(_without_import(made.body, check.module), expected.body)
    except UnguardableError as error:
        return Mismatch(switched_on=tuple(sorted(chosen)), line=0, reason=str(error))
    if line is None:
        return None
    return Mismatch(switched_on=tuple(sorted(chosen)), line=line, reason="differs from plain patching")


def _without_import(body: list[ast.stmt], module: str) -> list[ast.stmt]:
    """Leave out the import of the constants, once."""
    for place, statement in enumerate(body):
        if isinstance(statement, ast.ImportFrom) and statement.module == module and not statement.level:
            return body[:place] + body[place + 1 :]
    return body


class _Same:
    """Statements that were found to be the same under the values that they look at; most settings change few of them.

    It keeps what it was asked about: the identity of a statement that is gone may be another one's.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, tuple[str, ...]], tuple[ast.AST, ast.AST]] = {}
        self._names: dict[int, tuple[ast.AST, frozenset[str]]] = {}

    def ask(self, one: ast.AST, other: ast.AST, values: Values, compare: Callable[[ast.AST, ast.AST], bool]) -> bool:
        """Compare two statements, once for each setting of the names in them."""
        names = self._constants(one) | self._constants(other)
        key = (id(one), id(other), tuple(sorted(name for name in names if values.get(name))))
        if key not in self._found:
            if not compare(one, other):
                return False
            self._found[key] = one, other
        return True

    def _constants(self, statement: ast.AST) -> frozenset[str]:
        if id(statement) not in self._names:
            names: set[str] = set()
            pending: list[object] = [statement]
            while pending:  # several times as fast as ast.walk
                node = pending.pop()
                if isinstance(node, list):
                    pending += node
                elif isinstance(node, ast.Name):
                    names.add(node.id)
                elif isinstance(node, ast.AST):
                    pending += vars(node).values()
            self._names[id(statement)] = statement, frozenset(name for name in names if name.startswith("CONFIG_"))
        return self._names[id(statement)][1]


class _Comparison:
    """Comparisons of guarded code with plain code under `values`."""

    def __init__(self, scopes: Scopes) -> None:
        self.values: Values = {}
        self._known = _Same()
        self._scopes = scopes
        self._outside = frozenset[str]()
        self._asked = False
        self._line = 0

    def differs(self, made: list[ast.stmt], expected: list[ast.stmt]) -> int | None:
        """Return the line of the first difference, None for none."""
        self._outside = self._scopes.outside(made)
        return None if self._same_statements(made, expected, documented=True) else self._line

    def _same_statements(self, made: list[ast.stmt], expected: list[ast.stmt], *, documented: bool) -> bool:
        if made is expected:
            return True
        first, second = self._folded(made), self._folded(expected)
        if documented:
            first, second = _undocumented(first), _undocumented(second)
        at = by = 0
        while at < len(first) and by < len(second):
            one, other = first[at], second[by]
            if isinstance(one, ast.ImportFrom) and isinstance(other, ast.ImportFrom):
                taken, wanted = names_imported(first, at), names_imported(second, by)
                if sorted(taken) != sorted(wanted):
                    self._line = first_line(one)
                    return False
                at, by = at + import_run(first, at), by + import_run(second, by)
                continue
            if one is not other and not self._same(one, other):
                return False
            at, by = at + 1, by + 1
        if at < len(first):
            self._line = first_line(first[at])
        return at == len(first) and by == len(second)

    def _folded(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements that remain when every `if` with a known condition is taken or left."""
        result = []
        for statement in statements:
            value = self._value(statement.test) if isinstance(statement, ast.If) else None
            if value is None:
                result.append(statement)
            elif isinstance(statement, ast.If):
                result += self._folded(statement.body if value else statement.orelse)
        return result

    def _same(self, one: object, other: object) -> bool:
        if one is other:
            return True
        if type(one) in _FOLDED or type(other) in _FOLDED:
            one, other = self._simplified(one), self._simplified(other)
        if type(one) is not type(other):
            return False
        if isinstance(one, ast.expr):
            for name in one._fields:  # noqa: SIM110 -- as in guard_align.same_tree
                if not self._same(getattr(one, name, None), getattr(other, name, None)):
                    return False
            return True
        if isinstance(one, ast.AST) and isinstance(other, ast.AST):
            return self._same_node(one, other)
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self._same, one, other))
        return repr(one) == repr(other) if isinstance(one, float | complex) else one == other

    def _same_node(self, one: ast.AST, other: ast.AST) -> bool:
        """Compare what is no expression: a statement, a handler, an operator."""
        if isinstance(one, ast.stmt):
            self._line = first_line(one)
        # Definitions are made anew for every setting; what stands in a statement is compared with it.
        if isinstance(one, FUNCTIONS) and isinstance(other, FUNCTIONS):
            return self._same_function(one, other)
        if self._asked or not isinstance(one, ast.stmt) or isinstance(one, DEFINITIONS):
            return self._same_fields(one, other)
        self._asked = True
        same = self._known.ask(one, other, self.values, self._same_fields)
        self._asked = False
        return same

    def _same_function(self, one: Function, other: Function) -> bool:
        outside = self._outside
        self._outside = outside | self._scopes.bound(one)
        same = self._scopes.yields(one) is self._scopes.yields(other)
        same = same and not self._scopes.turned_local(one, other, outside) and self._same_fields(one, other)
        self._outside = outside
        return same

    def _same_fields(self, one: ast.AST, other: ast.AST) -> bool:
        return all(self._same_field(one, other, name) for name in one._fields)

    def _same_field(self, one: ast.AST, other: ast.AST, name: str) -> bool:
        first, second = getattr(one, name, None), getattr(other, name, None)
        if isinstance(first, list) and isinstance(second, list) and name in ("body", "orelse", "finalbody"):
            documented = isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            return self._same_statements(first, second, documented=documented)
        return self._same(first, second)

    def _value(self, test: ast.expr) -> bool | None:
        """Return what a condition comes to, None when that depends on more than the toggles."""
        if isinstance(test, ast.Name):
            return self.values.get(test.id)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            value = self._value(test.operand)
            return None if value is None else not value
        if not isinstance(test, ast.BoolOp):
            return None
        decisive = isinstance(test.op, ast.Or)
        for operand in test.values:
            value = self._value(operand)
            if value is None:
                return None  # it is evaluated before what follows
            if value is decisive:
                return decisive
        return not decisive

    def _simplified(self, expression: object) -> object:
        """Return what remains of an expression; known operands that come first have no effect, and go."""
        if isinstance(expression, ast.IfExp):
            value = self._value(expression.test)
            if value is not None:
                return self._simplified(expression.body if value else expression.orelse)
        if isinstance(expression, ast.BoolOp):
            neutral = isinstance(expression.op, ast.And)
            rest = list(expression.values)
            while len(rest) > 1 and self._value(rest[0]) is neutral:
                del rest[0]
            if len(rest) == 1:
                return self._simplified(rest[0])
            if len(rest) < len(expression.values):
                return ast.BoolOp(op=expression.op, values=rest)
        return expression


def _undocumented(statements: list[ast.stmt]) -> list[ast.stmt]:
    first = statements[0] if statements else None
    alone = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return statements[1:] if alone else statements


_FOLDED = frozenset({ast.BoolOp, ast.IfExp})
