"""Whether all who know a plain C struct agree on it: cffi, the compiler's offsetof, DWARF, and the loaded library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.abi.declarations import read_declarations, struct_names
from patchkit.abi.layout import Field, LayoutChange, StructLayout, compare_layouts
from patchkit.abi.layout_cffi import header_layouts, stated_layouts
from patchkit.abi.layout_table import library_layouts
from patchkit.abi.probe import C, Probe, run_probe
from patchkit.errors import RefusedError
from patchkit.record import dataclass, replace

CFFI = "cffi"
COMPILER = "offsetof"
DWARF = "DWARF"
LIBRARY = "library"


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """Two sources that say otherwise; `change.before` is what the first one says."""

    first: str
    second: str
    change: LayoutChange

    @property
    def words(self) -> str:
        """Say it in one line."""
        change = self.change
        name = f"{change.struct}.{change.field}" if change.field else change.struct
        return f"{name}: {change.kind.value}: {self.first} says {change.before}, {self.second} {change.after}"


def header_disagreements(header: Path, compiler: str, includes: Sequence[Path] = ()) -> tuple[Disagreement, ...]:
    """Compare, for every struct of a header, what cffi, the compiler and its DWARF say."""
    declarations = read_declarations(header, compiler, includes)
    stated = stated_layouts(declarations)
    compiled = header_layouts(header, compiler, includes, declarations=declarations)
    debugged = dwarf_layouts(header, compiler, includes, names=struct_names(declarations))
    return (
        *disagreements(CFFI, stated, COMPILER, compiled),
        *disagreements(COMPILER, compiled, DWARF, debugged),
    )


def library_disagreements(
    library: Path, header: Path, compiler: str, includes: Sequence[Path] = ()
) -> tuple[Disagreement, ...]:
    """Compare a library's own table with a header: what the library was built from may be another one.

    Structs that the table does not name are a RefusedError: nothing is known of them.
    """
    told = library_layouts(library)
    compiled = header_layouts(header, compiler, includes)
    require_told(library.name, told, header.name, compiled)
    return disagreements(LIBRARY, told, COMPILER, tuple(map(as_a_table_tells, compiled)))


def require_told(library: str, told: Sequence[StructLayout], header: str, wanted: Sequence[StructLayout]) -> None:
    """Refuse when a library's table leaves out structs of a header. Both are named for the message."""
    missing = {layout.name for layout in wanted} - {layout.name for layout in told}
    if missing:
        raise RefusedError(
            f"{library} does not tell of {', '.join(sorted(missing))}",
            why=f"  they are in {header}, and its table has {', '.join(layout.name for layout in told) or 'none'}",
            hint="build it anew, or name a struct that both have",
        )


def dwarf_layouts(
    header: Path, compiler: str, includes: Sequence[Path] = (), *, names: Sequence[str]
) -> tuple[StructLayout, ...]:
    """Return what the compiler's debug information says of the structs of a C header."""
    probe = Probe(
        preamble=(f'#include "{header.resolve()}"',),
        types=tuple((name, f"struct {name}") for name in names),
        includes=tuple(includes),
        language=C,
        standard="gnu11",
    )
    return tuple(one.layout for one in run_probe(probe, compiler) if one.layout is not None)


def disagreements(
    first: str, one: Sequence[StructLayout], second: str, other: Sequence[StructLayout]
) -> tuple[Disagreement, ...]:
    """Compare the structs that both sources name. Types are left out: each source spells them in its way."""
    others = {layout.name: layout for layout in other}
    return tuple(
        Disagreement(first=first, second=second, change=change)
        for layout in one
        if layout.name in others
        for change in compare_layouts(_without_types(layout), _without_types(others[layout.name]))
    )


def _without_types(layout: StructLayout) -> StructLayout:
    return replace(layout, fields=tuple(replace(field, type="") for field in layout.fields))


def as_a_table_tells(layout: StructLayout) -> StructLayout:
    """Leave out what offsetof cannot name: bit-fields, flexible arrays."""

    def is_told(field: Field) -> bool:
        return field.bit_size is None and bool(field.size)

    return replace(layout, fields=tuple(filter(is_told, layout.fields)))
