"""Judge layout, vtables and argument classes: what a wheel was compiled with against what it meets.

A wheel was compiled against the headers of the torch that it pins. What is stored of the types of both torches is
compared. Which of them a file's code touches cannot be seen without debug information: those that torch inlines into
every C++ extension are taken for touched, others where a symbol that the file needs names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchkit.abi.layout_columns import ColumnResult, argument_column, layout_column, vtable_column
from patchkit.abi.torch_build import TorchBuild
from patchkit.abi.verdicts import Cell, Column, Verdict
from patchkit.record import dataclass

_COMPARE = {Column.LAYOUT: layout_column, Column.VTABLE: vtable_column}
_NOUNS = {Column.LAYOUT: "struct", Column.VTABLE: "vtable", Column.ARGUMENTS: "entry point"}
COLUMNS = tuple(_NOUNS)
# Type -> what the words of a symbol have in them that deals with it.
_NAMED = {
    "DLManagedTensor": "DLM",
    "DLTensor": "DLM",
    "at::Generator": "Generator",
    "at::PhiloxCudaState": "philox",
    "c10::Allocator": "Allocator",
    "c10::Error": "c10::Error",
    "c10::ExtraMeta": "ExtraMeta",
    "c10::FunctionSchema": "FunctionSchema",
    "c10::GeneratorImpl": "Generator",
    "c10::SourceLocation": "SourceLocation",
    "c10::Stream": "Stream",
    "c10::SymNodeImpl": "SymNode",
    "c10::SymbolicShapeMeta": "SymbolicShapeMeta",
    "std::string": "string",
}
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeComparison:
    """Two torches: the one that a wheel was built with, the one that it meets, and what of their types differs.

    `built` is None where it is not known, `results` empty where nothing has to be or can be compared.
    """

    built: TorchBuild | None
    against: TorchBuild
    results: Mapping[Column, ColumnResult]


def compare_builds(built: TorchBuild | None, against: TorchBuild) -> TypeComparison:
    """Compare the layouts and vtables of all types that both have, once for all files of a wheel."""
    results = {}
    if built is not None and built.wheel.version != against.wheel.version and built.layouts and against.layouts:
        results = {column: compare(built.layouts, against.layouts) for column, compare in _COMPARE.items()}
    return TypeComparison(built=built, against=against, results=results)


def judge_types(needed: Sequence[str], words: Sequence[str], comparison: TypeComparison) -> Mapping[Column, Cell]:
    """Answer the three questions about a file: `needed` are the torch symbols that it needs, `words` what they mean."""
    if not any(name.startswith("_Z") for name in needed):
        said = "needs only torch's C functions" if needed else "needs nothing of torch"
        return {column: Cell(column=column, verdict=Verdict.NONE, words=said) for column in COLUMNS}
    return {column: _judge(column, words, comparison) for column in COLUMNS}


def _judge(column: Column, words: Sequence[str], comparison: TypeComparison) -> Cell:
    built, against = comparison.built, comparison.against
    if built is None:
        return _not_known(column, "which torch it was built with is not known: it pins none, and no stored one fits")
    if built.wheel.version == against.wheel.version:
        return Cell(column=column, verdict=Verdict.OK, words=f"{against.title} is what it was built with")
    for torch in (built, against):
        if not torch.layouts:
            return _not_known(column, f"no {column.value} facts are stored about {torch.title}")
    between = f"between {built.title} and {against.title}"
    if column is Column.ARGUMENTS:
        return _of_arguments(argument_column(built.layouts, against.layouts, words), between)
    return _of_types(column, comparison.results[column], "\n".join(words), between)


def _of_types(column: Column, result: ColumnResult, text: str, between: str) -> Cell:
    touched = [name for name in result.compared if _NAMED.get(name, "") in text]
    broken = _broken(result)
    aside = len(broken.keys() - set(touched))
    others = f"; {aside} more differ that none of its symbols names" if aside else ""
    found = {name: changes for name, changes in broken.items() if name in touched}
    return _cell(column, len(touched), found, f"{between}{others}")


def _of_arguments(result: ColumnResult, between: str) -> Cell:
    if not result.compared:
        return _not_known(Column.ARGUMENTS, "its functions have parameters of types that are not stored")
    others = f"; {len(result.unknown)} more have types that are not stored" if result.unknown else ""
    return _cell(Column.ARGUMENTS, len(result.compared), _broken(result), f"{between}{others}")


def _broken(result: ColumnResult) -> dict[str, list[str]]:
    """Return type -> what of it breaks."""
    broken: dict[str, list[str]] = {}
    for change in result.changes:
        if change.breaking:
            broken.setdefault(change.owner, []).append(change.words)
    return broken


def _cell(column: Column, compared: int, broken: Mapping[str, Sequence[str]], where: str) -> Cell:
    noun = _NOUNS[column]
    if not broken:
        return Cell(column=column, verdict=Verdict.OK, words=f"{compared} {noun}s are compatible {where}")
    words = f"{len(broken)} of {compared} {noun}s differ {where}"
    details = tuple(_detail(found) for found in broken.values())
    return Cell(column=column, verdict=Verdict.BROKEN, words=words, details=details)


def _not_known(column: Column, words: str) -> Cell:
    return Cell(column=column, verdict=Verdict.UNKNOWN, words=words)


def _detail(found: Sequence[str]) -> str:
    more = len(found) - _SHOWN
    return "; ".join(found[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
