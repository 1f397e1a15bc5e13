"""Layouts as text for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from patchkit.abi.layout import LayoutChange, StructLayout, compare_layouts, is_breaking, paddings
from patchkit.abi.layout_draw import lines, title
from patchkit.abi.layout_facts import Evidence, layout_document
from patchkit.cli.reading import require_file
from patchkit.counting import counted
from patchkit.errors import UsageError
from patchkit.output import Output
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

SCHEMA = 1
_LIBRARY = compile_lazily(r"\.so(?:\.[0-9]+)*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A layout and where it is from. `typed`: the source tells the types of fields."""

    origin: str
    layout: StructLayout
    evidence: Evidence
    typed: bool = True

    def counterpart(self, others: Sequence[Shown]) -> Shown | None:
        """Return the struct of that name among others, or the only one that there is."""
        named = next((one for one in others if one.layout.name == self.layout.name), None)
        return others[0] if named is None and len(others) == 1 else named

    def changes(self, others: Sequence[Shown]) -> tuple[LayoutChange, ...]:
        """Return what differs from the counterpart among others; nothing where there is none."""
        other = self.counterpart(others)
        if other is None or other is self:
            return ()
        if self.typed and other.typed:
            return compare_layouts(other.layout, self.layout)
        from patchkit.abi.layout_agree import as_a_table_tells, disagreements

        before, after = (as_a_table_tells(one.layout) for one in (other, self))
        return tuple(one.change for one in disagreements(other.origin, (before,), self.origin, (after,)))

    def breaks(self, others: Sequence[Shown]) -> bool:
        """True when a difference breaks."""
        return is_breaking(self.changes(others))


def shown_of(source: str, name: str) -> tuple[Shown, ...]:
    """Return the layouts of a stored release, or of a library where a path to one (`.so`) is given."""
    return (
        shown_of_library(require_file(Path(source)), name)
        if _LIBRARY.search(source)
        else shown_of_release(source, name)
    )


def shown_of_release(release: str, name: str) -> tuple[Shown, ...]:
    """Return the stored layouts of a release, all of them without a name."""
    from patchkit.abi.layout_lookup import find_release, find_types
    from patchkit.abi.snapshot import stored_facts

    title, records = find_release(stored_facts().types, release)
    found = find_types(title, records, name) if name else tuple(records.values())
    shown = tuple(
        Shown(origin=title, layout=record.layout, evidence=record.evidence)
        for record in found
        if record.layout is not None
    )
    if not shown:
        raise UsageError(f"{title}: {name} has no fields", why="it is a number, an enumeration or a pointer")
    return shown


def require_all_told(library: Sequence[Shown], header: Sequence[Shown]) -> None:
    """Refuse when a library says nothing of a struct that a header has: nothing would be compared."""
    from patchkit.abi.layout_agree import require_told

    told, wanted = ([one.layout for one in source] for source in (library, header))
    require_told(library[0].origin, told, header[0].origin, wanted)


def shown_of_header(header: Path, compiler: str, includes: Sequence[Path], name: str) -> tuple[Shown, ...]:
    """Return the layouts of a C header, as its compiler says."""
    from patchkit.abi.layout_cffi import header_layouts

    evidence = Evidence(source=str(header), command=f"{compiler} through cffi", proof="the header as it is here")
    return _named(header.name, header_layouts(header, compiler, includes), evidence, name, typed=True)


def shown_of_library(library: Path, name: str) -> tuple[Shown, ...]:
    """Return what a library says of itself; it is loaded."""
    from patchkit.abi.layout_load import SYMBOL
    from patchkit.abi.layout_table import library_layouts

    evidence = Evidence(source=str(library), command="dlopen", proof=f"its own {SYMBOL}")
    return _named(library.name, library_layouts(library), evidence, name, typed=False)


def _named(
    origin: str, layouts: Sequence[StructLayout], evidence: Evidence, name: str, *, typed: bool
) -> tuple[Shown, ...]:
    kept = [layout for layout in layouts if name in ("", layout.name)]
    if not kept:
        known = ", ".join(layout.name for layout in layouts) or "none"
        raise UsageError(f"{origin}: no struct {name}", why=f"its structs are {known}")
    return tuple(Shown(origin=origin, layout=layout, evidence=evidence, typed=typed) for layout in kept)


def list_types(shown: Sequence[Shown], output: Output) -> None:
    """Write a line for each struct."""
    output.line(f"{shown[0].origin}: {counted(len(shown), 'struct')}", style="head")
    for one in shown:
        output.line(f"  {counted(one.layout.size, 'byte ', 'bytes'):>11}  {one.layout.name}")


def show_layouts(sources: Sequence[Sequence[Shown]], output: Output) -> None:
    """Draw the structs of the first source, then what differs in the second."""
    for one in sources[0] if len(sources) == 1 else ():
        _draw(one, output)
    for one in sources[-1] if len(sources) > 1 else ():
        output.line(f"{one.layout.name}: {sources[0][0].origin} -> {one.origin}", style="head")
        changes = one.changes(sources[0])
        for change in changes:
            output.line(f"  {change.words}", style="bad" if change.breaking else "doubt")
        if one.counterpart(sources[0]) is None:
            output.line(f"  not in {sources[0][0].origin}", style="doubt")
        elif not changes:
            size, fields = counted(one.layout.size, "byte"), counted(len(one.layout.fields), "field")
            output.line(f"  the same: {size}, {fields}", style="good")


def _draw(shown: Shown, output: Output) -> None:
    output.line(title(shown.layout), style="head")
    for text, is_padding in lines(shown.layout):
        output.line(text, style="dim" if is_padding else "")
    for label, words in _evidence_rows(shown.evidence):
        output.line(f"  {label}: {words}", style="dim")


def _evidence_rows(evidence: Evidence) -> Iterator[tuple[str, str]]:
    yield "source", evidence.source
    yield "read by", evidence.command
    yield "proves", evidence.proof


def layouts_document(sources: Sequence[Sequence[Shown]]) -> dict[str, object]:
    """Return the layouts for JSON, and with two sources the differences."""
    changes = [change for one in sources[-1] for change in one.changes(sources[0])] if len(sources) > 1 else []
    return {
        "schema": SCHEMA,
        "structs": [_document(one) for source in sources for one in source],
        "changes": [
            {
                "struct": change.struct,
                "field": change.field,
                "kind": change.kind.value,
                "before": change.before,
                "after": change.after,
                "breaking": change.breaking,
            }
            for change in changes
        ],
    }


def _document(shown: Shown) -> dict[str, object]:
    layout = shown.layout
    stored = layout_document(layout)
    return {
        "name": layout.name,
        "origin": shown.origin,
        "size": layout.size,
        "alignment": layout.alignment,
        "packed": layout.packed,
        "fields": [
            dict(zip(("name", "type", "offset", "size", "bit_offset", "bit_size"), row, strict=False))
            for row in stored["fields"]
        ],
        "padding": [{"offset": hole.offset, "size": hole.size} for hole in paddings(layout)],
        "evidence": {label.replace(" ", "_"): words for label, words in _evidence_rows(shown.evidence)},
    }
