"""Judge layout, vtables and argument classes: what a wheel was compiled with against what it meets.

A wheel was compiled against the headers of the torch that it pins. What is stored of the types of both torches is
compared: those that torch inlines into every C++ extension, and others where a symbol that the file needs names them. A
difference breaks where the file's symbols prove that its code touches what changed (`inlined`); elsewhere it may, and
the file is at risk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchkit.abi.inlined import ONLY_SYMBOLIC, WHOLE, touched_members
from patchkit.abi.layout import LayoutChange
from patchkit.abi.layout_columns import ColumnResult, argument_column, layout_column, vtable_column
from patchkit.abi.torch_build import TorchBuild
from patchkit.abi.verdicts import Cell, Column, Verdict
from patchkit.counting import counted, counted_of
from patchkit.record import dataclass

_COMPARE = {Column.LAYOUT: layout_column, Column.VTABLE: vtable_column}
_NOUNS = {Column.LAYOUT: "struct", Column.VTABLE: "vtable"}
_USES = {Column.LAYOUT: "touches what changed", Column.VTABLE: "calls through the slots that changed"}
COLUMNS = (*_NOUNS, Column.ARGUMENTS)
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


def judge_types(
    needed: Sequence[str], words: Sequence[str], comparison: TypeComparison, *, exports: Sequence[str] = ()
) -> Mapping[Column, Cell]:
    """Answer the three questions about a file: `needed` are the torch symbols that it needs, `words` what they mean.

    `exports` are the symbols that it defines.
    """
    if not any(name.startswith("_Z") for name in needed):
        said = "needs only torch's C functions" if needed else "needs nothing of torch"
        return {column: Cell(column=column, verdict=Verdict.NONE, words=said) for column in COLUMNS}
    members = touched_members(needed, exports)
    return {column: _judge(column, words, comparison, members) for column in COLUMNS}


def _judge(
    column: Column, words: Sequence[str], comparison: TypeComparison, members: Mapping[str, Mapping[str, str]]
) -> Cell:
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
    text = "\n".join(words)
    compared = [name for name in comparison.results[column].compared if _NAMED.get(name, "") in text]
    return _of_types(column, comparison.results[column], compared, members, between)


def _of_types(
    column: Column,
    result: ColumnResult,
    compared: Sequence[str],
    members: Mapping[str, Mapping[str, str]],
    between: str,
) -> Cell:
    """Judge the types that a file may touch: certain is what its symbols prove, the rest that differs is a risk."""
    differ = _broken(result)
    found = {name: changes for name, changes in differ.items() if name in compared}
    noun = _NOUNS[column]
    if not found:
        are = counted(len(compared), f"{noun} is", f"{noun}s are")
        words = f"{are} compatible {between}{_aside(differ, compared)}"
        return Cell(column=column, verdict=Verdict.OK, words=words)
    certain = {name: code for name in found if (code := _touching(name, result, members.get(name, {})))}
    details = [f"{_detail(found[name])}\nits own code touches that: {code}" for name, code in certain.items()]
    details += [f"{_detail(changes)}\n{_doubt(column, name)}" for name, changes in found.items() if name not in certain]
    differing = counted_of(len(found), len(compared), noun, "differs", "differ")
    words = f"{differing} {between}{_aside(differ, compared)}"
    verdict = Verdict.BROKEN if certain else Verdict.RISK
    return Cell(column=column, verdict=verdict, words=words, details=tuple(details))


def _touching(name: str, result: ColumnResult, members: Mapping[str, str]) -> str:
    """Return the code of the file that touches what changed in a struct, "" where no symbol tells of any."""
    changed = [one for one in result.changes if isinstance(one, LayoutChange) and one.owner == name and one.breaking]
    codes = [members[WHOLE]] if changed and WHOLE in members else []
    codes += [members[one.field] for one in changed if one.field in members]
    return ", ".join(dict.fromkeys(codes))


def _doubt(column: Column, name: str) -> str:
    if name in ONLY_SYMBOLIC:
        return "only tensors with symbolic sizes lead there, as in torch.compile's tracing"
    return f"no symbol of the file tells whether its code {_USES[column]}"


def _aside(differ: Mapping[str, object], compared: Sequence[str]) -> str:
    more = len(differ.keys() - set(compared))
    return f"; {counted(more, 'more differs', 'more differ')} that none of its symbols names" if more else ""


def _of_arguments(result: ColumnResult, between: str) -> Cell:
    if not result.compared:
        return _not_known(Column.ARGUMENTS, "its functions have parameters of types that are not stored")
    more = counted(len(result.unknown), "more has", "more have")
    others = f"; {more} types that are not stored" if result.unknown else ""
    broken, where = _broken(result), f"{between}{others}"
    if not broken:
        words = f"{counted(len(result.compared), 'entry point is', 'entry points are')} compatible {where}"
        return Cell(column=Column.ARGUMENTS, verdict=Verdict.OK, words=words)
    differing = counted_of(len(broken), len(result.compared), "entry point", "differs", "differ")
    words = f"{differing} {where}"
    return Cell(
        column=Column.ARGUMENTS, verdict=Verdict.BROKEN, words=words, details=tuple(map(_detail, broken.values()))
    )


def _broken(result: ColumnResult) -> dict[str, list[str]]:
    """Return type -> what of it breaks."""
    broken: dict[str, list[str]] = {}
    for change in result.changes:
        if change.breaking:
            broken.setdefault(change.owner, []).append(change.words)
    return broken


def _not_known(column: Column, words: str) -> Cell:
    return Cell(column=column, verdict=Verdict.UNKNOWN, words=words)


def _detail(found: Sequence[str]) -> str:
    more = len(found) - _SHOWN
    return "; ".join(found[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
