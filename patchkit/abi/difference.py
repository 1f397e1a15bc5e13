"""What differs between two releases of one distribution, and what of it breaks a binary built with the first."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from patchkit.abi.compare import schema_changes, version_floors
from patchkit.abi.demangle import demangle
from patchkit.abi.facts import ObjectFacts, WheelFacts
from patchkit.abi.layout_columns import argument_column, layout_column, vtable_column
from patchkit.abi.layout_facts import Records
from patchkit.abi.snapshot import TORCH, Facts
from patchkit.abi.system import version_key
from patchkit.counting import counted, counted_of
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

# Templates of the C++ library, type information and guards: every object has copies of its own.
_COPIED = compile_lazily(r"_Z(?:N?K?St|T[ISV]|GV|NK?9__gnu_cxx)")


class ChangeKind(enum.Enum):
    """What kind of thing changed, in the order in which it is shown."""

    FILE = "file"
    OPERATOR = "operator"
    LAYOUT = "layout"
    LIBRARY = "needed library"
    FLOOR = "version floor"
    ARCHITECTURE = "GPU architecture"
    EXPORT = "export"
    IMPORT = "import"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One difference. `place` is the shared object or struct; `breaking` tells whether it breaks what used the first.

    `name` is the symbol where it is one, `words` say what changed.
    """

    kind: ChangeKind
    place: str
    name: str
    words: str
    breaking: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """All differences between two releases. `notes` say what cannot be told."""

    before: str
    after: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def breaking(self) -> bool:
        """Tell whether one of them breaks."""
        return any(change.breaking for change in self.changes)


def compare_wheels(before: WheelFacts, after: WheelFacts) -> Difference:
    """Compare shared object by shared object: exports, operators, needed libraries, floors, architectures."""
    old = {one.path: one for one in before.objects}
    new = {one.path: one for one in after.objects}
    changes: list[Change] = []
    for key, one in old.items():
        if key in new:
            changes += _object_changes(one, new[key])
        else:
            changes.append(_change(ChangeKind.FILE, one.path, "gone", breaking=True))
    changes += [_change(ChangeKind.FILE, one.path, "new", breaking=False) for key, one in new.items() if key not in old]
    return Difference(before=before.title, after=after.title, changes=_in_words(changes), notes=())


def compare_torches(before: WheelFacts, after: WheelFacts, facts: Facts, known: tuple[str, ...]) -> Difference:
    """Compare two stored torches: exports whose names are `known`, numbers of all, floors, layouts of structs."""
    table = facts.symbols
    one, other = table.hashes_of(before.version), table.hashes_of(after.version)
    changes = []
    for name in known:
        if table.has(name, before.version) and not table.has(name, after.version):
            place = ", ".join(table.libraries_of(name))
            changes.append(_change(ChangeKind.EXPORT, place, "gone", name=name, breaking=True))
        elif table.has(name, after.version) and not table.has(name, before.version):
            place = ", ".join(table.libraries_of(name))
            changes.append(_change(ChangeKind.EXPORT, place, "new", name=name, breaking=False))
    old = {facts_.name: facts_ for facts_ in before.objects}
    for library in after.objects:
        if library.name in old:
            changes += _surroundings(old[library.name], library)
    layouts = facts.layouts(before.title), facts.layouts(after.title)
    changes += compare_types(*layouts)
    gone = counted_of(len(one - other), len(one), "exported symbol", "is gone", "are gone")
    new = counted(len(other - one), "is new", "are new")
    notes = [f"{gone}, {new}; names are known of those that stored engines need"]
    if not all(layouts):
        lacking = " and ".join(wheel.title for wheel, have in zip((before, after), layouts, strict=True) if not have)
        notes.append(f"layouts: not known, none are stored about {lacking}")
    return Difference(before=before.title, after=after.title, changes=_in_words(changes), notes=tuple(notes))


def compare_types(before: Records, after: Records) -> Iterator[Change]:
    """Yield what differs in the types that both have: layouts field by field, vtables slot by slot, arguments."""
    for column in (layout_column, vtable_column, argument_column):
        for change in column(before, after).changes:
            words = change.words.removeprefix(change.owner).lstrip(".: ")
            yield _change(ChangeKind.LAYOUT, change.owner, words, breaking=change.breaking)


def _object_changes(before: ObjectFacts, after: ObjectFacts) -> Iterator[Change]:
    path = after.path
    gone, new = (
        {name for name in one.exports if not _COPIED.match(name)} - set(other.exports)
        for one, other in ((before, after), (after, before))
    )
    yield from (_change(ChangeKind.EXPORT, path, "gone", name=name, breaking=True) for name in sorted(gone))
    yield from (_change(ChangeKind.EXPORT, path, "new", name=name, breaking=False) for name in sorted(new))
    wanted = {one.name for one in before.imports}, {one.name for one in after.imports}
    for name in sorted(wanted[1] - wanted[0]):
        yield _change(ChangeKind.IMPORT, path, "needed now", name=name, breaking=False)
    for name in sorted(wanted[0] - wanted[1]):
        yield _change(ChangeKind.IMPORT, path, "not needed any more", name=name, breaking=False)
    for words in schema_changes(before.schemas, after.schemas):
        yield _change(ChangeKind.OPERATOR, path, words, breaking=True)
    yield from _surroundings(before, after)


def _surroundings(before: ObjectFacts, after: ObjectFacts) -> Iterator[Change]:
    path = after.path
    for name in sorted(set(after.needed) - set(before.needed)):
        yield _change(ChangeKind.LIBRARY, path, f"needs {name} now", breaking=True)
    for name in sorted(set(before.needed) - set(after.needed)):
        yield _change(ChangeKind.LIBRARY, path, f"does not need {name} any more", breaking=False)
    old, new = version_floors(before), version_floors(after)
    for family, version in sorted(new.items()):
        if version_key(version) != version_key(old.get(family, "")):
            raised = version_key(version) > version_key(old.get(family, ""))
            words = f"{family}_{old.get(family, '(none)')} -> {family}_{version}"
            yield _change(ChangeKind.FLOOR, path, words, breaking=raised)
    gone = set(before.architectures) - set(after.architectures)
    more = set(after.architectures) - set(before.architectures)
    if gone:
        yield _change(ChangeKind.ARCHITECTURE, path, f"no code for {', '.join(sorted(gone))} any more", breaking=True)
    if more:
        yield _change(ChangeKind.ARCHITECTURE, path, f"code for {', '.join(sorted(more))}", breaking=False)


def _change(kind: ChangeKind, place: str, words: str, *, breaking: bool, name: str = "") -> Change:
    return Change(kind=kind, place=place, name=name, words=words, breaking=breaking)


def _in_words(changes: list[Change]) -> tuple[Change, ...]:
    """Put symbols into words, all in one go; what breaks comes first."""
    words = demangle(change.name for change in changes if change.name)
    told = [
        _change(
            change.kind,
            change.place,
            f"{words.get(change.name, change.name)}: {change.words}" if change.name else change.words,
            breaking=change.breaking,
            name=change.name,
        )
        for change in changes
    ]
    return tuple(sorted(told, key=lambda change: (not change.breaking, list(ChangeKind).index(change.kind))))


def is_torch(wheel: WheelFacts) -> bool:
    """Tell whether a wheel is torch, whose exports are stored as hashes."""
    return wheel.distribution == TORCH
