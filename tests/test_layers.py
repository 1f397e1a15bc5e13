"""The rules of the house that a syntax tree shows: who imports whom, how long a module and a function may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "patchkit"

# From left to right in DESIGN.md's order: a module imports from its own row and from the rows above it. A name is a
# module or a sub-package directly below patchkit.
ROWS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("output", "process", "quoting", "counting", "resources", "version", "record", "pattern", "ownership"),
    ("tree", "durable", "overlay", "diff", "config", "syntax"),
    ("engine", "specifier", "target", "base", "environment", "held", "checkout", "fetch", "dist", "archive", "typed"),
    ("trailers", "confined", "series", "lock", "audit"),
    ("receipt",),  # plan.py imports its records
    (
        "strip",
        "stacking",
        "decision",
        "left_out",
        "moving",
        "restating",
        "decide",
        "commits",
        "wanted",
        "cut",
        "below",
        "stack",
        "travelling",
        "generated",
        "unfit",
        "guarding",
        "applied",
        "plan",
    ),
    (
        "state",
        "journal",
        "bytecode",
        "preflight",
        "staging",
        "steps",
        "prepare",
        "kept_patches",
        "store",
        "history",
        "remains",
        "nearby",
        "transaction",
    ),
    (
        "unnamed",
        "toggles",
        "asking",
        "advice",
        "compose",
        "session",
        "drift",
        "following",
        "workflow",
        "reconfigure",
        "running",
    ),
    (
        "writing",
        "imported",
        "author",
        "locking",
        "catalogue",
        "editing",
        "naming",
        "undoing",
        "lint",
        "toggle_lint",
        "port",
        "abi",
    ),
    ("native",),
    ("attention",),
    ("cli", "__main__"),
)
ROW_OF = {name: row for row, names in enumerate(ROWS) for name in names}

# runtime/ travels into engines: it imports only itself, relatively, and nobody but attention/ imports it.
RUNTIME = "runtime"

# What may be imported only there; names are those directly below patchkit.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "torch": ("runtime", "attention"),
    "triton": ("runtime", "attention"),
    "cffi": ("abi", "native"),
    "elftools": ("abi", "native"),
    "click": ("cli",),
    "kconfiglib": ("config",),
    "shlex": ("quoting", "native"),  # native splits what CC says
    "unidiff": ("diff",),  # the second reader, see docs/reading-diffs.md
}

# From the bytes of a patch to a plan nothing opens a file, reads the environment or knows the clock.
PURE = (
    *(
        "diff",
        "config",
        "overlay",
        "strip",
        "stacking",
        "decision",
        "left_out",
        "moving",
        "restating",
        "decide",
        "commits",
        "stack",
        "generated",
        "unfit",
        "guarding",
        "applied",
        "plan",
    ),
    "compose",
)
IMPURE_MODULES = frozenset({"os", "io", "shutil", "tempfile", "subprocess", "socket", "time", "random", "secrets"})
IMPURE_NAMES = frozenset({("pathlib", "Path"), ("datetime", "datetime")})

# Modules whose import costs milliseconds that `patchkit --help` does not have: they are imported where they are used.
SLOW = frozenset({"subprocess", "tempfile", "gzip", "difflib", "importlib.metadata", "unidiff", "packaging", "rich"})

LONGEST_MODULE = 349
LONGEST_FUNCTION = 50

MODULES = sorted(PACKAGE.rglob("*.py"))


def _place(path: Path) -> str:
    """Return the name directly below patchkit that a module belongs to; "" for patchkit/__init__.py."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py").replace("__init__", "")


def _dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def _imports(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield module, name ("" for a plain import) and level of every import, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", 0
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or "", alias.name, node.level


def _imported_places(tree: ast.AST) -> Iterator[str]:
    for module, name, _ in _imports(tree):
        parts = module.split(".")
        if parts[0] == "patchkit":
            yield parts[1] if len(parts) > 1 else name


_every_module = pytest.mark.parametrize("path", MODULES, ids=_dotted)


@_every_module
def test_module_has_a_place_in_the_order(path: Path) -> None:
    assert _place(path) in {"", RUNTIME, *ROW_OF}, "a new module directly below patchkit belongs into ROWS"


@_every_module
def test_imports_point_one_way(path: Path) -> None:
    place = _place(path)
    if place in ("", RUNTIME):
        assert not list(_imported_places(_syntax(path)))
        return
    for imported in _imported_places(_syntax(path)):
        if imported == RUNTIME:
            assert place == "attention"
        elif imported:
            assert ROW_OF[imported] <= ROW_OF[place], f"{place} must not import {imported}: that points upwards"


def test_imports_have_no_circle() -> None:
    known = {_dotted(path) for path in MODULES}
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        wanted = {
            f"{module}.{name}" if f"{module}.{name}" in known else module for module, name, _ in _imports(_syntax(path))
        }
        graph[_dotted(path)] = wanted & known
    assert list(TopologicalSorter(graph).static_order())


@_every_module
def test_imports_are_absolute_outside_runtime(path: Path) -> None:
    levels = {level for _, _, level in _imports(_syntax(path))}
    assert _place(path) == RUNTIME or levels <= {0}


@_every_module
def test_heavy_libraries_are_imported_only_where_they_belong(path: Path) -> None:
    for module, _, level in _imports(_syntax(path)):
        allowed = ONLY_IN.get(module.split(".")[0])
        if level == 0 and allowed is not None:
            assert _place(path) in allowed, f"{module} is imported only in {', '.join(allowed)}"


@_every_module
def test_pure_modules_know_no_file_no_environment_and_no_clock(path: Path) -> None:
    if _place(path) not in PURE:
        return
    tree = _syntax(path)
    for module, name, _ in _imports(tree):
        assert module.split(".")[0] not in IMPURE_MODULES, f"{module} in a pure module"
        assert (module, name) not in IMPURE_NAMES, f"{module}.{name} in a pure module"
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input"}


@_every_module
def test_slow_imports_stand_where_they_are_used(path: Path) -> None:
    for node in _syntax(path).body:
        for module, name, _ in _imports(node) if isinstance(node, ast.Import | ast.ImportFrom) else ():
            names = {module, module.split(".")[0], f"{module}.{name}"}
            assert not names & SLOW, f"import {module} inside the function that needs it"


@_every_module
def test_module_says_what_it_knows(path: Path) -> None:
    tree = _syntax(path)
    if path.name == "__init__.py":
        assert not tree.body or (len(tree.body) == 1 and ast.get_docstring(tree)), "__init__.py is empty"
    else:
        assert ast.get_docstring(tree), "every module starts with a docstring"


@_every_module
def test_module_fits_on_a_few_screens(path: Path) -> None:
    assert len(path.read_bytes().splitlines()) <= LONGEST_MODULE


@_every_module
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(_syntax(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_kernel(node):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"


def _is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True for what Triton compiles: shape comments carry the reader there."""
    return any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)
