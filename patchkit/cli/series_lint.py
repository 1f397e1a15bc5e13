"""`patchkit series lint`: what is wrong with a series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from patchkit.archive import Artifact
from patchkit.catalogue import Shelved, is_for, named_series, shelf, take_down
from patchkit.cli.ground import ground_options, open_grounds
from patchkit.cli.options import Choice, json_option
from patchkit.errors import ExitStatus, PatchkitError, UsageError
from patchkit.lint import Finding, Severity, lint_on, lint_series, unreadable
from patchkit.output import Output
from patchkit.resources import patches_directory, user_directories
from patchkit.toggle_lint import lint_combinations, lint_stacked, lint_toggles


@click.command("lint", short_help="What is wrong with a series.")
@click.argument("names", nargs=-1, metavar="[SERIES|DIR]...")
@ground_options
@json_option
def command(*, names: tuple[str, ...], choice: Choice, artifact: tuple[Path, ...], output: Output) -> int:
    """Check series as they are written, and on every release that is named: a wheel, an installation, a checkout.

    On a release: every patch applies, files parse, the bytes are the lock's, and taking the patches out one by one
    gives the release's bytes again. A series that stands on the shipped one is checked on top of it. All findings are
    shown; an error among them makes the exit status 1. Without arguments all shipped series are checked, and those of
    [tool.patchkit] in pyproject.toml.

    \b
    Examples:
      patchkit series lint
      patchkit series lint ./patches --target vllm==0.6.3
      patchkit series lint vllm/0.6.3 --artifact vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl --json
    """
    found = [one for name in names for one in named_series(name)]
    if not names:
        found = [one for place in (patches_directory(), *user_directories(Path.cwd())) for one in shelf(place)]
    with open_grounds(choice, artifact, output) as grounds:
        checked = _check(found, grounds, output)
    findings = [finding for _, _, own in checked for finding in own]
    if output.machine:
        output.document({"schema": 1, "series": [_document(*row) for row in checked]})
    else:
        _show(checked, output)
    errors = any(finding.severity is Severity.ERROR for finding in findings)
    return ExitStatus.REFUSED if errors else ExitStatus.DONE


_Checked = tuple[Shelved, list[str], list[Finding]]


def _check(found: Sequence[Shelved], grounds: Sequence[Artifact], output: Output) -> list[_Checked]:
    """Return each series with the releases that it was checked on; a release that none is for is a mistake."""
    rows: list[_Checked] = []
    used: set[int] = set()
    broken = False
    for shelved in found:
        output.progress(f"checking {shelved.name}")
        try:
            series = take_down(shelved)
        except PatchkitError as error:
            rows.append((shelved, [], [unreadable(error)]))
            broken = True
            continue
        on = [place for place, ground in enumerate(grounds) if is_for(series, ground.tree)]
        findings = [*lint_series(series, [grounds[place].tree for place in on]), *lint_toggles(series)]
        for place in on:
            findings += lint_on(series, grounds[place])
            findings += lint_stacked(series, grounds[place])
            findings += lint_combinations(series, grounds[place])
        used.update(on)
        rows.append((shelved, [_name(grounds[place]) for place in on], findings))
    unused = [_name(ground) for place, ground in enumerate(grounds) if place not in used]
    if unused and not broken:
        names = ", ".join(one.name for one in found)
        raise UsageError(f"no series is for {', '.join(unused)}", why=f"checked were: {names}")
    return rows


def _name(ground: Artifact) -> str:
    return ground.file if ground.file.endswith(".whl") else str(ground.tree.root)


def _show(checked: Sequence[_Checked], output: Output) -> None:
    for shelved, on, findings in checked:
        places = f", on {', '.join(on)}" if on else ", by itself"
        shipped = not shelved.engine or shelved.directory.is_relative_to(patches_directory())
        output.line(f"{shelved.name}{'' if shipped else f' in {shelved.directory}'}{places}", style="head")
        for finding in findings:
            style = "bad" if finding.severity is Severity.ERROR else "doubt"
            first, *others = finding.what.split("\n")
            output.line(f"  {finding.place}: {finding.severity.value}: {first}", style=style)
            for line in others:
                output.line(f"      {line}", style=style)
        if not findings:
            output.line("  nothing to mend", style="good")


def _document(shelved: Shelved, on: list[str], findings: list[Finding]) -> dict[str, object]:
    return {
        "engine": shelved.engine,
        "version": shelved.version,
        "directory": str(shelved.directory),
        "checked_on": on,
        "findings": [
            {"severity": finding.severity.value, "place": finding.place, "what": finding.what} for finding in findings
        ],
    }
