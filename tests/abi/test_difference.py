"""What differs between two releases, and what of it breaks."""

from __future__ import annotations

from patchkit.abi.difference import ChangeKind, Difference, compare_torches, compare_types, compare_wheels
from patchkit.abi.explain import known_names
from patchkit.abi.facts import ObjectFacts, VersionNeed, WheelFacts
from patchkit.abi.snapshot import stored_facts


def _wheel(*objects: ObjectFacts) -> WheelFacts:
    return WheelFacts(
        distribution="x",
        version="1",
        file="",
        sha256="",
        tags=(),
        requires_python="",
        requires=(),
        extras=(),
        objects=objects,
    )


def _object(**fields: tuple[object, ...]) -> ObjectFacts:
    return ObjectFacts(path="a.so", **fields)  # type: ignore[arg-type]


def _changes(before: ObjectFacts, after: ObjectFacts) -> dict[tuple[str, str], bool]:
    difference = compare_wheels(_wheel(before), _wheel(after))
    return {(change.kind.value, change.words): change.breaking for change in difference.changes}


def test_release_compared_with_itself_has_no_difference() -> None:
    for wheel in stored_facts().wheels:
        assert compare_wheels(wheel, wheel).changes == ()


def test_export_that_is_gone_breaks_and_a_new_one_does_not() -> None:
    assert _changes(_object(exports=("f", "kept")), _object(exports=("g", "kept"))) == {
        ("export", "f: gone"): True,
        ("export", "g: new"): False,
    }


def test_copies_of_the_library_of_c_plus_plus_are_no_exports() -> None:
    assert _changes(_object(exports=("_ZNSt6vectorIiSaIiEED1Ev", "_ZTIN2at6TensorE")), _object()) == {}


def test_operator_that_changes_breaks() -> None:
    before, after = _object(schemas=("f(int a) -> ()", "g() -> ()")), _object(schemas=("f(float a) -> ()", "h() -> ()"))
    changes = _changes(before, after)
    assert changes == {
        ("operator", "f: was f(int a) -> ()\nis f(float a) -> ()"): True,
        ("operator", "g: gone; it was g() -> ()"): True,
    }


def test_surroundings_are_compared() -> None:
    before = _object(
        needed=("libcudart.so.12",),
        versions=(VersionNeed(library="libc.so.6", version="GLIBC_2.9"),),
        architectures=("sm_70",),
    )
    after = _object(
        needed=("libcudart.so.13",),
        versions=(VersionNeed(library="libc.so.6", version="GLIBC_2.28"),),
        architectures=("sm_90",),
    )
    assert _changes(before, after) == {
        ("needed library", "needs libcudart.so.13 now"): True,
        ("needed library", "does not need libcudart.so.12 any more"): False,
        ("version floor", "GLIBC_2.9 -> GLIBC_2.28"): True,
        ("GPU architecture", "no code for sm_70 any more"): True,
        ("GPU architecture", "code for sm_90"): False,
    }


def test_file_that_is_gone_breaks() -> None:
    difference = compare_wheels(
        _wheel(ObjectFacts(path="a.so"), ObjectFacts(path="b.so")), _wheel(ObjectFacts(path="b.so"))
    )
    assert [(change.kind, change.place, change.breaking) for change in difference.changes] == [
        (ChangeKind.FILE, "a.so", True)
    ]


def _torches(before: str, after: str) -> Difference:
    facts = stored_facts()
    wheels = facts.find("torch", before), facts.find("torch", after)
    assert wheels[0] is not None
    assert wheels[1] is not None
    return compare_torches(wheels[0], wheels[1], facts, known_names(facts))


def test_torches_are_compared_symbol_by_symbol() -> None:
    difference = _torches("2.8.0", "2.11.0")
    gone = {change.name for change in difference.changes if change.breaking and change.kind is ChangeKind.EXPORT}
    assert gone >= {"_ZNK3c106SymInt6sym_neERKS0_", "_ZN3c1013MessageLoggerC1EPKcii"}
    assert any("libcudart.so.13" in change.words for change in difference.changes)
    assert "exported symbols are gone" in difference.notes[0]
    assert difference.breaking
    assert not _torches("2.8.0", "2.8.0").breaking


def test_types_are_compared_field_by_field_and_slot_by_slot() -> None:
    facts = stored_facts()
    found = list(compare_types(facts.layouts("torch==2.12.1"), facts.layouts("torch==2.13.0")))
    assert {change.kind for change in found} == {ChangeKind.LAYOUT}
    said = {(change.place, change.words, change.breaking) for change in found}
    assert ("c10::TensorImpl", "size: 184 bytes -> 176 bytes", True) in said
    assert ("c10::TensorImpl", "numel_: moved: offset 160 -> offset 152", True) in said
