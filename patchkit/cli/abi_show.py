"""The reports of the abi commands, as text and as JSON."""

from __future__ import annotations

from patchkit.abi.verdicts import Cell, CheckReport, Column, ObjectReport, Verdict
from patchkit.counting import counted, counted_of
from patchkit.output import Output

_STYLE = {
    Verdict.OK: "good",
    Verdict.RISK: "doubt",
    Verdict.BROKEN: "bad",
    Verdict.UNKNOWN: "doubt",
    Verdict.NONE: "dim",
}
_WIDTH = max(len(column.value) for column in Column)
_MOST_DETAILS = 5


def check_document(report: CheckReport) -> dict[str, object]:
    """Return a check as JSON."""
    return {
        "schema": 1,
        "status": 1 if report.verdict is Verdict.BROKEN else 0,
        "verdict": report.verdict.value,
        "target": report.target,
        "against": {"torch": report.against, "origin": report.against_origin, "system": report.system},
        "objects": [_object_document(one) for one in report.objects],
        "findings": [{"kind": one.kind, "words": one.words, "broken": one.broken} for one in report.findings],
        "unknown": list(report.unknown),
        "advice": list(report.advice),
    }


def show_check(report: CheckReport, output: Output, *, verbose: bool) -> None:
    """Write a check as text: what is broken or not known; all columns with `verbose`."""
    output.line(f"{report.target} against {report.against} ({report.against_origin}) on {report.system}", style="head")
    for one in report.objects:
        _show_object(one, output, verbose=verbose)
    for finding in report.findings:
        output.line(f"{finding.kind}: {finding.words}", style="bad" if finding.broken else "doubt")
    if not report.objects:
        output.line("no shared object in it", style="dim")
    _show_verdict(report, output)


def _show_verdict(report: CheckReport, output: Output) -> None:
    broken = sum(one.verdict is Verdict.BROKEN for one in report.objects)
    grave = sum(one.broken for one in report.findings)
    if report.verdict is Verdict.BROKEN:
        unfit = counted_of(broken, len(report.objects), "shared object", "does not fit", "do not fit")
        parts = [unfit] if broken else []
        parts += [f"{counted(grave, 'finding')} about the wheel"] if grave else []
        output.line(f"verdict: broken: {', '.join(parts)}", style="bad")
    elif report.verdict is Verdict.RISK:
        risky = sum(one.verdict is Verdict.RISK for one in report.objects)
        words = f"{counted_of(risky, len(report.objects), 'shared object')} may touch what lies elsewhere"
        output.line(f"verdict: at risk: {words}{_unknown(report)}", style="doubt")
    else:
        fits = f"fits, as far as it is known{_unknown(report)}" if report.unknown else "fits"
        output.line(f"verdict: {fits}", style="good")
    for line in report.advice:
        output.next_step(line)


def _unknown(report: CheckReport) -> str:
    return f"; not known: {', '.join(report.unknown)}" if report.unknown else ""


def _show_object(report: ObjectReport, output: Output, *, verbose: bool) -> None:
    output.line(f"{report.path}: {report.verdict.value}", style=_STYLE[report.verdict])
    if report.fault:
        output.line(f"  cannot be read: {report.fault}", style="bad")
    for cell in report.cells:
        if verbose or cell.verdict in (Verdict.BROKEN, Verdict.RISK, Verdict.UNKNOWN):
            _show_cell(cell, output, verbose=verbose)


def _show_cell(cell: Cell, output: Output, *, verbose: bool) -> None:
    output.line(f"  {cell.column.value:{_WIDTH}}  {cell.verdict.value}: {cell.words}", style=_STYLE[cell.verdict])
    shown = cell.details if verbose or cell.column is Column.SYMBOLS else cell.details[:_MOST_DETAILS]
    for detail in shown:
        first, *rest = detail.split("\n")
        output.line(f"    {first}")
        for line in rest:
            output.line(f"      {line}", style="dim")
    if len(shown) < len(cell.details):
        output.line(f"    and {len(cell.details) - len(shown)} more: --verbose shows them", style="dim")


def _object_document(report: ObjectReport) -> dict[str, object]:
    return {
        "path": report.path,
        "verdict": report.verdict.value,
        "fault": report.fault,
        "columns": {
            cell.column.value: {"verdict": cell.verdict.value, "words": cell.words, "details": list(cell.details)}
            for cell in report.cells
        },
        "missing": [{"symbol": one.name, "words": one.words, "releases": list(one.releases)} for one in report.missing],
    }
