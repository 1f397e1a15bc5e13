"""What a guarded Python file comes to under a setting, without patchkit's own check: by tree, by scope, by running."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

GUARD = "CONFIG_"
FILE = "<made>"


class Fold(ast.NodeTransformer):
    """Puts the values of CONFIG_ names into a tree, and takes away what they decide."""

    def __init__(self, values: Mapping[str, bool]) -> None:
        self._values = {GUARD + symbol: value for symbol, value in values.items()}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._values:
            return ast.Constant(value=self._values[node.id])
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if _known(node.test) is None:
            return node
        return node.body if _known(node.test) else node.orelse

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if _known(node.test) is None:
            return node
        return node.body if _known(node.test) else node.orelse

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        known = _known(node.operand)
        return ast.Constant(value=not known) if isinstance(node.op, ast.Not) and known is not None else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        decisive = isinstance(node.op, ast.Or)
        rest = list(node.values)
        while len(rest) > 1 and _known(rest[0]) is (not decisive):
            del rest[0]
        if _known(rest[0]) is decisive or len(rest) == 1:
            return rest[0]
        return ast.BoolOp(op=node.op, values=rest)


def _known(node: ast.expr) -> bool | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def folded(source: bytes, values: Mapping[str, bool], module: str) -> ast.Module:
    """Return the tree that is left of a guarded file, without the import of the constants."""
    tree = Fold(values).visit(_parsed(source))
    imports = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == module]
    tree.body = [one for one in tree.body if one not in imports[:1]]
    return _normal(tree)


def plain(source: bytes) -> ast.Module:
    """Return the tree of a plain file as `folded` writes trees: for comparison it has no constants that decide."""
    return _normal(Fold({}).visit(_parsed(source)))


def _parsed(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _normal(tree: ast.Module) -> ast.Module:
    """Take away docstrings, and how imports from one module are divided into statements."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, list(_joined_imports(body)))
        body = getattr(node, "body", None)
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and body and isinstance(body[0], ast.Expr) and _is_text(body[0].value):
            del body[0]
    return tree


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _joined_imports(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    held: ast.ImportFrom | None = None
    for one in body:
        if isinstance(one, ast.ImportFrom) and held and (one.module, one.level) == (held.module, held.level):
            held = ast.ImportFrom(module=one.module, level=one.level, names=[*held.names, *one.names])
            held.names.sort(key=lambda alias: (alias.name, alias.asname or ""))
            continue
        if held is not None:
            yield held
        held = None
        if isinstance(one, ast.ImportFrom):
            held = ast.ImportFrom(
                module=one.module,
                level=one.level,
                names=sorted(one.names, key=lambda alias: (alias.name, alias.asname or "")),
            )
        else:
            yield one
    if held is not None:
        yield held


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of a tree in the order of its text."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _codes(source: bytes) -> dict[tuple[str, int], types.CodeType]:
    """Return the code of each function, by name and the line of its first decorator or its `def`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pending = [compile(source, "<one>", "exec", dont_inherit=True)]
    found = {}
    while pending:
        code = pending.pop()
        found[code.co_name, code.co_firstlineno] = code
        pending += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return found


def _key(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, int]:
    return function.name, min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _uses(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return the names that a function finds in itself, and those that it finds outside of it."""
    own, outer = {*code.co_varnames, *code.co_cellvars}, {*code.co_freevars}
    for one in dis.get_instructions(code):
        if one.opname.endswith(("_GLOBAL", "_NAME")) and one.opname != "IMPORT_NAME":
            outer.add(str(one.argval))
    return own, outer


def wrong_scopes(guarded: bytes, tree: ast.Module, wanted: bytes, wanted_tree: ast.Module) -> list[str]:
    """Return what names mean in functions of a guarded file and do not in those of the plain one, by compiled code.

    A name that nothing outside of a function binds is an error there whether it is local or not.
    """
    made, plain_codes = _codes(guarded), _codes(wanted)
    bound = set(dir(builtins)).union(*map(_bound_in, plain_codes.values()))
    found = []
    for one, other in zip(functions(tree), functions(wanted_tree), strict=True):
        code, expected = made.get(_key(one)), plain_codes.get(_key(other))
        if code is None or expected is None:
            continue  # behind a `return`, where the compiler leaves it out
        kinds = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
        if (code.co_flags ^ expected.co_flags) & kinds:
            found.append(f"{one.name}: another kind of function")
        mixed = _comprehended(one) | _comprehended(other)
        own, outer, wanted_own, wanted_outer = (names - mixed for two in (code, expected) for names in _uses(two))
        outside = {*expected.co_freevars, *bound}
        found += [f"{one.name}: {name} is local" for name in sorted(own & (wanted_outer - wanted_own) & outside)]
        found += [f"{one.name}: {name} is not local" for name in sorted(wanted_own & outer - own)]
    return found


def _comprehended(function: ast.AST) -> set[str]:
    """Return the names that comprehensions bind: from 3.12 on they stand among those of their function's code."""
    targets = (node.target for node in ast.walk(function) if isinstance(node, ast.comprehension))
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _bound_in(code: types.CodeType) -> set[str]:
    stores = ("STORE_NAME", "STORE_GLOBAL") if code.co_name == "<module>" else ("STORE_GLOBAL",)
    return {str(one.argval) for one in dis.get_instructions(code) if one.opname in stores}


TOO_LONG = "too long"
"""What is logged of code that runs for too long: what comes behind it says nothing."""


class TooLongError(BaseException):
    """A random function runs for too long."""


def told(source: bytes, values: Mapping[str, bool], module: str, calls: int = 3) -> list[str]:
    """Run a file and each function that it has, and return all that it logs, returns and raises, in order."""
    logged: list[str] = []
    parts = module.split(".")
    names = {".".join(parts[: count + 1]): types.ModuleType(parts[count]) for count in range(len(parts))}
    for symbol, value in values.items():
        setattr(names[module], GUARD + symbol, value)
    space = _space(logged)
    kept = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, FILE, "exec", dont_inherit=True)
            _attempt(lambda: exec(code, space), logged)  # noqa: S102 -- code that tests made
            made = {
                name: one for name, one in space.items() if inspect.isfunction(one) and one.__code__.co_filename == FILE
            }
            for name in sorted(made):
                for given in range(calls):
                    _attempt(partial(_called, made[name], given), logged)
    finally:
        for name, before in kept.items():
            if before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before
    return logged


def _space(logged: list[str]) -> dict[str, Any]:
    class Scope:
        def __init__(self, value: object) -> None:
            self._value = value

        def __enter__(self) -> object:
            logged.append("enter")
            return self._value

        def __exit__(self, *_: object) -> None:
            logged.append("exit")

    def log(*values: object) -> int:
        logged.append(_shown(values))
        return len(values)

    def keep(one: object) -> object:
        logged.append("kept")
        return one

    return {"__name__": "made", "log": log, "scope": Scope, "keep": keep}


def _called(function: Any, given: int) -> object:
    parameters = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    result = function(*(given + place for place in range(len(positional))))
    if inspect.isgenerator(result):
        return [next(result, "end") for _ in range(5)]
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        except StopIteration as end:
            return ("awaited", end.value)
        finally:
            result.close()
    return result


def _attempt(act: Any, logged: list[str]) -> None:
    left = [3000]

    def trace(_frame: types.FrameType, _event: str, _argument: object) -> Any:
        left[0] -= 1
        if left[0] < 0:
            logged.append(TOO_LONG)
            raise TooLongError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = act()
        sys.settrace(before)
        logged.append(f"returned {_shown(result)}")
    except NameError:  # one that is local in the guarded file, and bound nowhere outside, has another message
        sys.settrace(before)
        logged.append("raised NameError")
    except BaseException as error:  # noqa: BLE001 -- whatever random code raises is what is compared
        sys.settrace(before)
        logged.append(f"raised {type(error).__name__}: {_shown(error.args)}")
    finally:
        sys.settrace(before)


def _shown(value: object) -> str:
    import re

    return re.sub(r" at 0x[0-9a-f]+|, line \d+", "", repr(value))[:200]
