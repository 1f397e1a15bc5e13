"""What a guard inside a function may change without being asked: names that become local, generators, declarations.

A name that is bound anywhere in a function is local in all of it. So a branch that is switched off still makes names
local (and the function a generator), and the other branch, which reads a global of that name, fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

Function = ast.FunctionDef | ast.AsyncFunctionDef
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
    """The names that statements of one function bind and declare, without those of functions and classes in it."""

    def __init__(self, statements: Iterable[ast.stmt], bound: Iterable[str] = ()) -> None:
        self.bound = set(bound)
        self.declared: Declared = set()
        self.yields = False
        pending: list[object] = [*statements]
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
        self.bound -= {name for _, name in self.declared}

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
                self.bound |= {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
                return ()
            case ast.Import() | ast.ImportFrom():
                self.bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self.bound.add(name)
            case ast.MatchMapping(rest=str(name)):
                self.bound.add(name)
            case ast.Global() | ast.Nonlocal():
                self.declared |= {(type(node).__name__.lower(), name) for name in node.names}
            case ast.Yield() | ast.YieldFrom():
                self.yields = True
        return vars(node).values()


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NOTED = frozenset(
    {
        *(*FUNCTIONS, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS, ast.Import, ast.ImportFrom),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.Global, ast.Nonlocal),
        *(ast.Yield, ast.YieldFrom),
    }
)


def _scope_of(function: Function) -> _Scope:
    arguments = function.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return _Scope(function.body, (one.arg for one in named if one is not None))


def _rest_of(function: Function, other: Function) -> tuple[set[str], Declared, bool]:
    """Return what the statements bind and declare that are not the other's too."""
    shared = set(map(id, other.body))
    scope = _Scope(one for one in function.body if id(one) not in shared)
    return scope.bound, scope.declared, scope.yields


def _head(node: Function | ast.ClassDef) -> Iterable[object]:
    """Return what is evaluated where a function or a class is defined."""
    if isinstance(node, ast.ClassDef):
        return (node.decorator_list, node.bases, [keyword.value for keyword in node.keywords])
    return (node.decorator_list, node.args.defaults, node.args.kw_defaults)


def scope_hazard(old: Function, new: Function) -> str:
    """Return why no guard may stand inside of two functions with one header, "" when one may."""
    if _rest_of(old, new) == _rest_of(new, old):
        return ""
    before, after = _scope_of(old), _scope_of(new)
    if before.yields != after.yields:
        return "only one variant is a generator"
    if before.declared != after.declared:
        return "its global or nonlocal declarations differ"
    added, dropped = after.bound - before.bound, before.bound - after.bound
    shadowed = (added and added & _used(old)) | (dropped and dropped & _used(new))
    return f"local in one variant, an outer name in the other: {', '.join(sorted(shadowed))}" if shadowed else ""


def _used(function: Function) -> set[str]:
    """Return every name that the body takes from its own scope or from outside, functions in it included."""
    return _free(function.body)


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


def reads_source(definition: Function | ast.ClassDef) -> str:
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
