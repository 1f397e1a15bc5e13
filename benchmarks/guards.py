"""Guards on real patches, each hunk under its own toggle: `python -m benchmarks.guards [--no-mutants] [SERIES ...]`.

The patches lie in ../shared/real-patches, the releases come through pip. Without a name: slime-v0.5.9 (sglang 0.5.9).
`all` takes every patch of the manifest that says that it applies. For each: how many hunks got a guard at which level,
how much longer the files become, how many settings were compared with plain patching, how many inverted guards were
found, and CPU time. Exit status 1 when a setting came out wrong, an inverted guard was not found, or slime's patch took
more than 6 s of CPU. Without ../shared nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import re
import symtable
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchkit.config.guard_files import GuardedFile, guard_python
from patchkit.config.guard_fold import Check, check_source, settings
from patchkit.config.guard_settle import GuardStep, Terms
from patchkit.config.guard_source import parse_source, read_lines
from patchkit.diff.apply import apply_placements
from patchkit.diff.compare import compare_lines
from patchkit.diff.image import split_lines
from patchkit.diff.locate import Evidence, accepted, place_hunks
from patchkit.diff.model import FilePatch, Placement, Verdict
from patchkit.diff.parse import parse_patch
from patchkit.record import replace

PATCHES = Path(__file__).resolve().parent.parent.parent / "shared" / "real-patches"
MODULE = "engine._patchkit.autoconf"
SLIME = "slime-v0.5.9"
MOST_SECONDS = 6.0


@dataclass
class Report:
    """What came of a patch: `levels` counts hunks, `plain` and `guarded` are lines more than the base has.

    `whole` counts files that can be guarded with all their hunks under one toggle.
    """

    hunks: int = 0
    files: int = 0
    verified: int = 0
    compared: int = 0
    plain: int = 0
    guarded: int = 0
    mutants: int = 0
    survivors: int = 0
    whole: int = 0
    cpu: float = 0.0
    levels: Counter[str] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """How many lines the guarded files have more, for each line that plain patching adds."""
        return self.guarded / self.plain if self.plain else 0.0

    def share(self, *names: str) -> float:
        """Return the share of hunks with these levels, in percent."""
        return 100 * sum(self.levels[name] for name in names) / self.hunks if self.hunks else 0.0


def judge(patch: bytes, tree: Path, *, strip: int, mutants: bool = True) -> Report:
    """Guard every Python file that a patch changes in a tree, each hunk under its own toggle."""
    report = Report()
    for file in parse_patch(patch, source="patch").files:
        path = _path(file, tree, strip)
        if path is None:
            continue
        base = path.read_bytes()
        started = time.process_time()
        evidence = Evidence(base=base, proven=True, python=True, strict=False, crlf=False)
        placed = [one for one in place_hunks(file, split_lines(base), evidence) if accepted(one, strict=False)]
        placed = [one for one in placed if one.verdict is not Verdict.PRESENT]
        if placed:
            guarded, names = _guard(file, base, placed, report)
            report.cpu += time.process_time() - started
            _guard_whole(file, base, placed, report)
            _count(report, path.relative_to(tree), base, guarded, names)
            if mutants and guarded.content is not None:
                _try_mutants(report, base, guarded.content, file, placed, names)
    return report


def _path(file: FilePatch, tree: Path, strip: int) -> Path | None:
    if file.old_name is None or file.new_name is None or not file.new_name.endswith(".py"):
        return None
    path = tree / Path(*Path(file.new_name).parts[strip:])
    return path if path.is_file() else None


def _guard(file: FilePatch, base: bytes, placed: list[Placement], report: Report) -> tuple[GuardedFile, list[str]]:
    """Guard a file; a hunk that does not stand alone shares the toggle of the one before it."""
    names = [f"HUNK_{number}" for number in range(len(placed))]
    terms = Terms(module=MODULE, needs={}, values={})
    while True:
        steps = [
            GuardStep(symbol=name, content=_plain(file, base, placed[: number + 1]))
            for number, name in enumerate(names)
        ]
        guarded = guard_python(base, steps, terms)
        alone = [one.symbols[0] for one in guarded.refusals if len(one.symbols) == 1 and one.symbols[0] != names[0]]
        if guarded.content is not None or not alone:
            return guarded, names
        place = names.index(alone[0])
        report.levels["refused"] += 1
        names = [names[place - 1] if name == alone[0] else name for name in names]


def _guard_whole(file: FilePatch, base: bytes, placed: list[Placement], report: Report) -> None:
    """Guard a file as people will: the patch is the toggle."""
    step = GuardStep(symbol="WHOLE", content=_plain(file, base, placed))
    guarded = guard_python(base, [step], Terms(module=MODULE, needs={}, values={}))
    report.whole += guarded.content is not None
    report.refusals += [f"{file.new_name}:{one.line}: all hunks: {one.reason}" for one in guarded.refusals]


def _plain(file: FilePatch, base: bytes, placed: list[Placement]) -> bytes:
    one = replace(file, hunks=tuple(placement.hunk for placement in placed))
    return apply_placements(one, split_lines(base), placed)


def _count(report: Report, path: Path, base: bytes, guarded: GuardedFile, names: list[str]) -> None:
    report.files += 1
    report.hunks += len(names)
    if guarded.content is None:
        report.levels["refused"] += len(set(names))
        report.refusals += [f"{path}:{one.line}: {one.reason}" for one in guarded.refusals]
        return
    report.verified += 1
    report.compared += guarded.compared
    found = dict(guarded.levels)
    for name in dict.fromkeys(names):
        report.levels[found[name].name.lower() if name in found else "nothing"] += 1
    report.guarded += guarded.content.count(b"\n") - base.count(b"\n")


def _try_mutants(
    report: Report, base: bytes, content: bytes, file: FilePatch, placed: list[Placement], names: list[str]
) -> None:
    """Invert each guard, and see whether plain patching by apply_placements, which knows no replay, tells."""

    def content_of(chosen: frozenset[str]) -> bytes:
        return _plain(file, base, [one for one, name in zip(placed, names, strict=True) if name in chosen])

    def plain(chosen: frozenset[str]) -> list[bytes]:
        return read_lines(content_of(chosen))

    symbols = tuple(dict.fromkeys(names))
    report.plain += content_of(frozenset(symbols)).count(b"\n") - base.count(b"\n")
    check = Check(symbols=symbols, module=MODULE, needs={}, halves=0)
    pristine = parse_source(read_lines(base))
    blocks = compare_lines(pristine.lines, read_lines(content))
    truth = check_source(pristine, content, plain, check, blocks)
    if truth.mismatches or truth.compared != len(settings(symbols, halves=0, seed=0)):
        report.refusals += [f"{one.switched_on}:{one.line}: {one.reason}" for one in truth.mismatches]
        report.verified -= 1
    for chosen in (frozenset[str](), frozenset(symbols)):
        report.refusals += [f"{file.new_name}: {one}" for one in changed_scopes(content, content_of(chosen))]
    for mutant in inverted(content):
        report.mutants += 1
        report.survivors += not check_source(pristine, mutant, plain, check, blocks).mismatches


def changed_scopes(guarded: bytes, plain: bytes) -> Iterator[str]:
    """Yield the functions in which a name is local in one file and not in the other, by the compiler's own tables.

    Folding cannot see that: a guard that is off still binds names.
    """
    tables, expected = _tables(guarded), _tables(plain)
    for path, variants in expected.items():
        for names in variants:
            if not any(names.items() <= candidate.items() for candidate in tables.get(path, ())):
                yield f"names of {'.'.join(path)} are of another scope"


def _tables(content: bytes) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Return the names of every function and what they are, by its path; a path may have several variants."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    pending: list[tuple[tuple[str, ...], symtable.SymbolTable]] = [
        ((), symtable.symtable(content.decode(), "<guarded>", "exec"))
    ]
    while pending:
        path, table = pending.pop()
        pending += [((*path, child.get_name()), child) for child in table.get_children()]
        if table.get_type() == "function":
            found.setdefault(path, []).append({one.get_name(): _kind(one) for one in table.get_symbols()})
    return found


def _kind(symbol: symtable.Symbol) -> str:
    return "free" if symbol.is_free() else "local" if symbol.is_local() else "global"


def inverted(content: bytes) -> Iterator[bytes]:
    """Yield the content with one guard turned round, for each guard."""
    for match in re.finditer(rb"(not )?\bCONFIG_HUNK_\d+\b(?=:| and \(| else \()", content):
        name = match.group().removeprefix(b"not ")
        turned = name if match.group(1) else b"(not " + name + b")"
        yield content[: match.start()] + turned + content[match.end() :]


def main() -> int:
    """Judge the series that the command line names."""
    parser = argparse.ArgumentParser(prog="benchmarks.guards", description=__doc__)
    parser.add_argument("series", nargs="*", default=[SLIME])
    parser.add_argument("--no-mutants", action="store_true", help="leave out the inverted guards")
    options = parser.parse_args()
    if not PATCHES.is_dir():
        print(f"not measured: {PATCHES} is not there")
        return 0
    rows = [row for row in json.loads((PATCHES / "manifest.json").read_bytes()) if row["expect"] == "applies"]
    good = True
    for row in rows:
        if row["series"] in options.series or "all" in options.series:
            report = judge_row(row, mutants=not options.no_mutants)
            print(f"{row['file']}: {line_of(report)}", *report.refusals, sep="\n  ", flush=True)
            good = good and not report.survivors and report.verified == report.whole == report.files
            good = good and (row["series"] != SLIME or report.cpu <= MOST_SECONDS)
    return 0 if good else 1


def judge_row(row: Mapping[str, Any], *, mutants: bool) -> Report:
    """Judge a patch of the manifest on its release."""
    from tests.blackbox.released import released_tree

    tree = released_tree(row["engine"], row["target"])
    return judge((PATCHES / row["file"]).read_bytes(), tree, strip=row["strip"], mutants=mutants)


def line_of(report: Report) -> str:
    """Return a report as a line."""
    levels = ", ".join(f"{name} {count}" for name, count in report.levels.most_common())
    return (
        f"{report.hunks} hunks in {report.files} files ({levels}), {report.whole} files verified under one toggle,"
        f" {report.verified} under {report.compared} settings, {report.growth:.2f} lines for a plain one,"
        f" {report.survivors} of {report.mutants} inverted guards not found, {report.cpu:.1f} s of CPU"
    )


if __name__ == "__main__":
    sys.exit(main())
