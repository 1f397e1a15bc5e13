"""Layouts of plain C structs through cffi: what it works out itself, and what the C compiler says in API mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patchkit.abi.declarations import Declaration, read_declarations, struct_names
from patchkit.abi.layout import Field, StructLayout
from patchkit.errors import RefusedError
from patchkit.process import require_success, run_child

_PATIENCE_SECONDS = 120.0


def stated_layouts(declarations: Sequence[Declaration]) -> tuple[StructLayout, ...]:
    """Return the layouts that cffi works out from the text alone, as Python code that uses the text would."""
    ffi = _parsed(declarations, partial=False)
    return _layouts(ffi, declarations)


def header_layouts(
    header: Path, compiler: str, includes: Sequence[Path] = (), *, declarations: Sequence[Declaration] | None = None
) -> tuple[StructLayout, ...]:
    """Return what the compiler says of a header: sizeof, alignof and offsetof through a module of cffi's API mode.

    `declarations` are those of the header, or of another one that is to be checked against it: a field that the header
    lacks, or whose type has another size, is a RefusedError that names it.
    """
    import tempfile

    found = read_declarations(header, compiler, includes) if declarations is None else tuple(declarations)
    ffi = _parsed(found, partial=True)
    with tempfile.TemporaryDirectory(prefix="patchkit-layout-") as directory:
        module = _built(ffi, header, compiler, includes, Path(directory))
        return _layouts(module.ffi, found)


def _parsed(declarations: Sequence[Declaration], *, partial: bool) -> Any:
    import cffi

    ffi = cffi.FFI()
    try:
        for one in declarations:
            ffi.cdef(one.partial if partial else one.text, packed=one.packed and (one.has_bits or not partial))
    except (cffi.CDefError, cffi.FFIError, NotImplementedError, ValueError, TypeError) as error:
        raise RefusedError("cffi cannot read a declaration", why=f"  {one.text[:80]}\n  {error}") from error
    return ffi


def _built(ffi: Any, header: Path, compiler: str, includes: Sequence[Path], directory: Path) -> Any:
    """Compile cffi's module and import it. It is our code and the header's types: no library is loaded with it."""
    import sysconfig
    from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    from cffi.recompiler import make_c_source  # FFI.emit_c_code prints

    name = "_patchkit_layout"
    source, built = directory / f"{name}.c", directory / f"{name}{EXTENSION_SUFFIXES[0]}"
    make_c_source(ffi, name, f"#include {_quoted(header.resolve())}", str(source))
    python = sysconfig.get_path("include")
    line = [compiler, "-shared", "-fPIC", "-w", "-std=gnu11", f"-I{python}", *(f"-I{path}" for path in includes)]
    completed = run_child([*line, str(source), "-o", str(built)], timeout=_PATIENCE_SECONDS)
    require_success(completed, hint=f"the declarations do not fit {header.name}, or Python's own headers are missing")
    loader = ExtensionFileLoader(name, str(built))
    spec = spec_from_file_location(name, built, loader=loader)
    if spec is None:
        raise RefusedError(f"cannot import {built.name}")
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise RefusedError(f"cannot import what was made of {header.name}", why=f"  {error}") from error
    return module


def _quoted(path: Path) -> str:
    text = str(path)
    if '"' in text or "\n" in text or "\\" in text:
        raise RefusedError("the header's path cannot stand in an #include", why=f"  {text!r}", hint="move it elsewhere")
    return f'"{text}"'


def _layouts(ffi: Any, declarations: Sequence[Declaration]) -> tuple[StructLayout, ...]:
    packed = {name for one in declarations if one.packed for name in one.structs}
    return tuple(_layout(ffi, name, is_packed=name in packed) for name in struct_names(declarations))


def _layout(ffi: Any, name: str, *, is_packed: bool) -> StructLayout:
    try:
        kind = ffi.typeof(f"struct {name}")
        if kind.fields is None:
            raise RefusedError(f"struct {name} is only declared", hint="it has no layout")
        fields = tuple(_field(ffi, label, field) for label, field in kind.fields)
        size, alignment = ffi.sizeof(kind), ffi.alignof(kind)
    except (ffi.error, ValueError) as error:
        raise RefusedError(f"struct {name}: the declaration and the header differ", why=f"  {error}") from error
    return StructLayout(name=name, size=size, alignment=alignment, packed=is_packed, fields=fields)


def _field(ffi: Any, name: str, field: Any) -> Field:
    is_bits = field.bitsize >= 0
    is_open = field.type.kind == "array" and field.type.length is None
    return Field(
        name=name,
        type=field.type.cname,
        offset=field.offset,
        size=0 if is_open else ffi.sizeof(field.type),
        bit_offset=field.bitshift if is_bits else None,
        bit_size=field.bitsize if is_bits else None,
    )
