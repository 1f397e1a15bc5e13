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


class _Scope(ast.NodeVisitor):
    """The names that one function binds and declares, without those of functions and classes in it."""

    def __init__(self, function: Function) -> None:
        self.bound: set[str] = set()
        self.declared: Declared = set()
        self.yields = False
        arguments = function.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self.bound.add(argument.arg)
        self.bound |= {one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None}
        for statement in function.body:
            self.visit(statement)
        self.bound -= {name for _, name in self.declared}

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_head(node, (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_head(node, (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_head(node, (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)))

    def _visit_head(self, node: Function | ast.ClassDef, evaluated_here: Iterable[ast.expr]) -> None:
        self.bound.add(node.name)
        for expression in evaluated_here:
            self.visit(expression)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)

    def _visit_comprehension(self, node: ast.AST) -> None:
        for inner in ast.walk(node):  # its own targets stay in it, what `:=` binds does not
            if isinstance(inner, ast.NamedExpr):
                self.bound.add(inner.target.id)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}

    visit_Import = visit_ImportFrom = _visit_import  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._bind(node.name, node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._bind(node.name, node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._bind(node.name, node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._bind(node.rest, node)

    def _bind(self, name: str | None, node: ast.AST) -> None:
        if name:
            self.bound.add(name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.declared |= {("global", name) for name in node.names}

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.declared |= {("nonlocal", name) for name in node.names}

    def visit_Yield(self, node: ast.Yield) -> None:
        self.yields = True
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.yields = True
        self.generic_visit(node)


def scope_hazard(old: Function, new: Function) -> str:
    """Return why no guard may stand inside of this function, "" when one may."""
    before, after = _Scope(old), _Scope(new)
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
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            used.update(node.names)
        if isinstance(node, _COMPREHENSIONS):
            targets = _free(generator.target for generator in node.generators)
            used |= (_free(ast.iter_child_nodes(node)) - targets) | _free([node.generators[0].iter])
        else:
            pending += ast.iter_child_nodes(node)
    return used


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


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
