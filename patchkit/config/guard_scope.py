"""What a guard inside a function may change without being asked: names that become local, generators, declarations.

A name that is bound anywhere in a function is local in all of it. So a branch that is switched off still makes names
local (and the function a generator), and the other branch, which reads a global of that name, fails.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Declared = set[tuple[str, str]]

# Decorators that read the function's source text, where a global of Python means nothing or another thing.
_SOURCE_READERS = frozenset(
    {"autotune", "heuristics", "vectorize", "guvectorize", "kernel", "prim_func", "script", "script_method"}
)
_READER_MODULES = frozenset(
    {"cute", "gluon", "numba", "nki", "pl", "T", "taichi", "ti", "tilelang", "tl", "triton", "wp"}
)


class _Scope:
    """The names that a statement of a function binds and declares, without those of functions and classes in it."""

    __slots__ = ("bound", "declared", "yields")

    def __init__(self, statement: ast.stmt, bound: set[str] | _Counted | None = None) -> None:
        self.bound: set[str] | _Counted = set() if bound is None else bound
        self.declared: Declared = set()
        self.yields = 0
        pending: list[object] = [statement]
        while pending:  # several times as fast as ast.NodeVisitor
            node = pending.pop()
            if isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    self.bound.add(node.id)
            elif isinstance(node, list):
                pending += node
            elif type(node) in _NOTED:
                pending += self._noted(node)
            elif isinstance(node, ast.AST):
                pending += vars(node).values()

    def _noted(self, node: object) -> Iterable[object]:
        """Take note of what a node means for its scope; return what belongs to this scope in it."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.bound.add(node.name)
                return _head(node)
            case ast.Lambda():
                return (node.args.defaults, node.args.kw_defaults)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                # Its own targets stay in it, what `:=` binds does not.
                self.bound.update(inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
                return ()
            case ast.Import() | ast.ImportFrom():
                self.bound.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self.bound.add(name)
            case ast.MatchMapping(rest=str(name)):
                self.bound.add(name)
            case ast.Global() | ast.Nonlocal():
                self.declared |= {(type(node).__name__.lower(), name) for name in node.names}
            case ast.Yield() | ast.YieldFrom():
                self.yields += 1
        return vars(node).values()


class _Counted(Counter[str]):
    """How often each name is bound, filled as the set of a scope is."""

    def add(self, name: str) -> None:
        self[name] += 1


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NOTED = frozenset(
    {
        *(*FUNCTIONS, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS, ast.Import, ast.ImportFrom),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.Global, ast.Nonlocal),
        *(ast.Yield, ast.YieldFrom),
    }
)


def _head(node: Definition) -> Iterable[object]:
    """Return what is evaluated where a function or a class is defined."""
    if isinstance(node, ast.ClassDef):
        return (node.decorator_list, node.bases, [keyword.value for keyword in node.keywords])
    return (node.decorator_list, node.args.defaults, node.args.kw_defaults)


class Scopes:
    """What definitions bind and use. Every statement is looked at once: variants of a definition share most of theirs.

    Statements are kept, so that nothing else gets their ids.
    """

    def __init__(self) -> None:
        self._scopes: dict[int, tuple[ast.stmt, _Scope]] = {}
        self._used: dict[int, tuple[ast.stmt, frozenset[str]]] = {}

    def bound(self, definition: Definition) -> set[str]:
        """Return the names that are local in a definition."""
        bound, declared = set[str](), set[str]()
        if not isinstance(definition, ast.ClassDef):
            arguments = definition.args
            named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
            bound.update(one.arg for one in named if one is not None)
        for scope in map(self._scope, definition.body):
            bound.update(scope.bound)
            declared.update(name for _, name in scope.declared)
        return bound - declared

    def used(self, definition: Definition) -> set[str]:
        """Return every name that the body takes from its own scope or from outside, functions in it included."""
        return set[str]().union(*map(self._names, definition.body))

    def outside(self, body: Iterable[ast.stmt]) -> frozenset[str]:
        """Return the names that functions of a module find outside of them; with "*" in it, it may be any."""
        return frozenset(dir(builtins)).union(*(self._scope(statement).bound for statement in body))

    def hazard(self, old: Definition, new: Definition) -> str:
        """Return why no guard may stand inside of two definitions with one header, "" when one may.

        Functions, and classes inside of functions: in those too a name that is bound hides the function's.
        """
        if self._own(old, new) == self._own(new, old):
            return ""
        if self.yields(old) != self.yields(new):
            return "only one variant is a generator"
        if self._declared(old) != self._declared(new):
            return "its global or nonlocal declarations differ"
        before, after = self.bound(old), self.bound(new)
        added, dropped = after - before, before - after
        shadowed = (added and added & self.used(old)) | (dropped and dropped & self.used(new))
        return f"local in one variant, an outer name in the other: {', '.join(sorted(shadowed))}" if shadowed else ""

    def turned_local(self, made: Definition, expected: Definition, outside: frozenset[str]) -> bool:
        """Tell whether a branch of one that the other does not have makes a name local that it finds outside."""
        if self._own(made, expected)[0] <= self._own(expected, made)[0]:
            return False
        bound = found_outside(self.bound(made) - self.bound(expected), outside)
        return bool(bound) and not bound.isdisjoint(self.used(expected))

    def clashing(self, base: Definition, variants: Sequence[Definition]) -> set[str]:
        """Return the names that are local in one variant of a definition and taken from outside in another.

        Where the guards of several toggles stand in one body, a branch that one of them switches off makes names local
        that another one's takes from outside. The last variant has all of them; `hazard` compares each with the base.
        """
        bound = set[str]().union(*(self._own(one, base)[0] for one in variants))
        found = set[str]()
        for one in variants:
            shared = set(map(id, base.body))
            used = set[str]().union(*(self._names(own) for own in one.body if id(own) not in shared))
            if not bound.isdisjoint(used):
                found |= (bound & used) - self.bound(one)
        whole = variants[-1]
        dropped = self._own(base, whole)[0] - self._own(whole, base)[0]
        return found | ((dropped - self.bound(whole)) & self.used(whole) if dropped else set[str]())

    def lost(self, base: Definition, variants: Mapping[str, Definition]) -> dict[str, set[str]]:
        """Return what the toggles of several variants may take away together, so that no place of the base is left.

        Names that it binds, with the symbols that unbind them; "yield" for what makes it a generator. One toggle that
        does it alone is found by `hazard`.
        """
        before = _counted(base)
        taken = {symbol: before - _counted(one) for symbol, one in variants.items()}
        found: dict[str, set[str]] = {}
        for name, count in before.items():
            symbols = {symbol for symbol, less in taken.items() if less[name]}
            if len(symbols) > 1 and sum(taken[symbol][name] for symbol in symbols) >= count:
                found[name] = symbols
        return found

    def _own(self, definition: Definition, other: Definition) -> tuple[set[str], Declared, bool]:
        """Return what the statements bind and declare that are not the other's too."""
        shared = set(map(id, other.body))
        own = [self._scope(statement) for statement in definition.body if id(statement) not in shared]
        bound = set[str]().union(*(scope.bound for scope in own))
        declared = set[tuple[str, str]]().union(*(scope.declared for scope in own))
        return bound, declared, any(scope.yields for scope in own)

    def yields(self, definition: Definition) -> bool:
        """Tell whether a definition is a generator, if it is a function."""
        return any(self._scope(statement).yields for statement in definition.body)

    def _declared(self, definition: Definition) -> Declared:
        return set[tuple[str, str]]().union(*(self._scope(statement).declared for statement in definition.body))

    def _scope(self, statement: ast.stmt) -> _Scope:
        if id(statement) not in self._scopes:
            self._scopes[id(statement)] = statement, _Scope(statement)
        return self._scopes[id(statement)][1]

    def _names(self, statement: ast.stmt) -> frozenset[str]:
        if id(statement) not in self._used:
            self._used[id(statement)] = statement, frozenset(_free([statement]))
        return self._used[id(statement)][1]


def _counted(definition: Definition) -> Counter[str]:
    """Return how often the body of a definition binds each name in its own scope, and yields."""
    bound = _Counted()
    yields = sum(_Scope(statement, bound).yields for statement in definition.body)
    return bound + Counter({"yield": yields})


def found_outside(names: set[str], outside: frozenset[str]) -> set[str]:
    """Return those of some names that are found outside; any other is an error whether it is local or not."""
    return names if "*" in outside else names & outside


def _free(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that occur, without those that a function or comprehension in it has for itself alone."""
    used: set[str] = set()
    pending: list[object] = [*nodes]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, list):
            pending += node
        elif isinstance(node, _COMPREHENSIONS):
            targets = _free(generator.target for generator in node.generators)
            used |= (_free(ast.iter_child_nodes(node)) - targets) | _free([node.generators[0].iter])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            used.update(node.names)
        elif isinstance(node, ast.AST):
            pending += vars(node).values()
    return used


def reads_source(definition: Definition) -> str:
    """Return the decorator that compiles a definition from its source text, as @triton.jit does, "" for none."""
    for decorator in definition.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        names = ast.unparse(called).split(".")
        if (
            names[-1].endswith("jit")
            or names[-1] in _SOURCE_READERS
            or (len(names) > 1 and names[0] in _READER_MODULES)
        ):
            return "@" + ".".join(names)
    return ""


def declares(statements: Iterable[ast.stmt]) -> str:
    """Return the declaration that may not be repeated in a second branch (`global`, `nonlocal`), "" for none."""
    for statement in statements:
        pending: list[ast.AST] = [statement]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Global | ast.Nonlocal):
                return f"{type(node).__name__.lower()} {', '.join(node.names)}"
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                pending += ast.iter_child_nodes(node)
    return ""
