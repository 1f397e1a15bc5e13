"""Records as text for people and as JSON for machines: trees, plans, stacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from patchkit.counting import counted
from patchkit.decision import Decision, FileDecision, Outcome
from patchkit.diff.model import Placement, Verdict
from patchkit.engine import distribution_of
from patchkit.generated import module_path
from patchkit.left_out import left_out_as
from patchkit.output import Output, one_line
from patchkit.plan import FileEdit, Plan
from patchkit.receipt import AppliedLayer, Receipt
from patchkit.session import Condition
from patchkit.target import Layout, TargetTree

if TYPE_CHECKING:
    from patchkit.workflow import Result

SCHEMA = 1
_STYLE = {
    Outcome.APPLIES: "good",
    Outcome.ALREADY_APPLIED: "good",
    Outcome.UPSTREAMED: "doubt",
    Outcome.NOTHING_HERE: "doubt",
    Outcome.DISABLED: "dim",
    Outcome.GUARDED_OFF: "dim",
    Outcome.RETIRED: "dim",
    Outcome.REFUSED: "bad",
    Outcome.PARTLY_APPLIED: "bad",
}
_UNFIT = (Verdict.CONFLICT, Verdict.MOVED, Verdict.FILE_GONE)


def tree_words(tree: TargetTree) -> str:
    """Name a tree in one line, and the distribution where it is not called as the engine is."""
    if tree.engine == "tree":
        return f"tree in {tree.root}"
    found = distribution_of(tree.distribution)
    kind = tree.layout.value if found in ("", tree.engine) else f"{found}, {tree.layout.value}"
    return f"{tree.engine} {tree.version or '(unknown version)'} ({kind}) in {tree.root}"


def tree_document(tree: TargetTree) -> dict[str, object]:
    """Return a tree for JSON."""
    return {
        "engine": tree.engine,
        "version": tree.version,
        "root": str(tree.root),
        "package": str(tree.package),
        "layout": tree.layout.value,
        "distribution": tree.distribution,
        "python": None if tree.python is None else str(tree.python),
        "python_version": tree.python_version,
        "evidence": list(tree.evidence),
    }


def edit_words(plan: Plan) -> str:
    """Say how many files a plan changes; RECORD, which follows the others, is not counted with them."""
    if not plan.edits:
        return "no file, only the state in .patchkit"
    record = [edit for edit in plan.edits if plan.tree.distribution and str(edit.path.parent) == plan.tree.distribution]
    files = counted(len(plan.edits) - len(record), "file")
    made = len(_generated_paths(plan) & {edit.path for edit in plan.edits})
    files += f" ({made} of the configuration)" if made else ""
    return f"{files} and RECORD" if record else files


def _generated_paths(plan: Plan) -> set[PurePosixPath]:
    """Return the files that no patch brings: the constants, and the package that holds them."""
    module = module_path(plan.tree)
    patched = {file.path for decision in plan.decisions for file in decision.files}
    return {module, module.parent / "__init__.py"} - patched


def show_plan(plan: Plan, output: Output, *, verbose: bool = False) -> None:
    """Write a plan: a line a patch, and for what is refused or not obvious a line a file and a hunk."""
    output.line(tree_words(plan.tree), style="head")
    layer = None
    for decision in plan.decisions:
        if (decision.number, decision.layer) != layer:
            layer = (decision.number, decision.layer)
            output.line(f"layer {decision.number}: {decision.layer}")
        _show_decision(decision, output, verbose=verbose)
    for problem in plan.problems:
        output.line(f"refused: {problem}", style="bad")
    for warning in plan.warnings:
        output.note(f"warning: {warning}", style="doubt")


def placements_of(plan: Plan) -> list[Placement]:
    """Return the places of all hunks of a plan, in order."""
    return [one for decision in plan.decisions for file in decision.files for one in file.placements]


def next_step(plan: Plan) -> str:
    """Return what to do with hunks that do not fit, "" where their reasons or the plan's warnings say what helps."""
    placements = placements_of(plan)
    unfit = [one for one in placements if one.verdict in _UNFIT and "--base" not in one.reason]
    if not unfit or plan.warnings or not plan.refused:
        return ""
    of_files = [one for one in placements if one.hunk.old_count]  # not those that make a file
    if plan.tree.layout is Layout.PLAIN and all(one.verdict is Verdict.FILE_GONE for one in of_files):
        return "--root DIR names the directory that the diff's names begin in; --strip N leaves out N parts of them"
    return "port what does not fit to this release, as docs/upgrades.md says, or take the one it is for"


def _show_decision(decision: Decision, output: Output, *, verbose: bool) -> None:
    counts = _counts(decision)
    reason = f": {decision.reason}" if decision.reason else ""
    beside = ", ".join(part for part in (decision.mapping if decision.files else "", counts) if part)
    output.line(
        f"  {decision.patch}  {decision.outcome.value}{reason}{f'  ({beside})' if beside else ''}",
        style=_STYLE[decision.outcome],
    )
    for file in decision.files:
        _show_file(file, output, everything=verbose or decision.refused)


def _counts(decision: Decision) -> str:
    placements = [placement for file in decision.files for placement in file.placements]
    if not decision.files:
        return ""
    shifted = sum(placement.verdict is Verdict.OFFSET for placement in placements)
    words = f"{counted(len(decision.files), 'file')}, {counted(len(placements), 'hunk')}"
    return f"{words}, {shifted} with an offset" if shifted else words


def _show_file(file: FileDecision, output: Output, *, everything: bool) -> None:
    if file.note:
        output.line(f"    {one_line(file.name)}: {file.note}", style="doubt")
        return
    numbered = enumerate(file.placements, 1)
    odd = [(number, one) for number, one in numbered if everything or one.verdict is not Verdict.EXACT]
    shown = file.refusal.removeprefix(f"{file.path}: ") or ("there already" if file.present and everything else "")
    if shown or odd:
        output.line(f"    {file.path}{f': {shown}' if shown else ''}", style="bad" if file.refusal else "")
    for number, placement in odd:
        first, *others = _hunk_words(number, placement).split("\n")
        output.line(f"      {first}")
        for line in others:
            output.line(f"        {line}")


def _hunk_words(number: int, placement: Placement) -> str:
    hunk = placement.hunk
    verdict = f"offset {placement.offset:+d}" if placement.verdict is Verdict.OFFSET else placement.verdict.value
    reason = f": {placement.reason}" if placement.reason else ""
    return f"hunk {number} (line {hunk.old_start}, patch line {hunk.line_number}): {verdict}{reason}"


def result_document(result: Result, *, status: int, then: str = "") -> dict[str, object]:
    """Return what an act came to for JSON: its plan, with the warnings of the writing behind those of the plan."""
    return {
        **plan_document(result.plan, status=status, then=then),
        "warnings": [*result.plan.warnings, *result.warnings],
        "changed": result.changed,
    }


def plan_document(plan: Plan, *, status: int, then: str = "") -> dict[str, object]:
    """Return a plan for JSON: digests instead of contents. `then` is what to do next."""
    return {
        "schema": SCHEMA,
        "status": status,
        "tree": tree_document(plan.tree),
        "sha256": plan.sha256,
        "refused": plan.refused,
        "problems": list(plan.problems),
        "warnings": list(plan.warnings),
        "next": then,
        "configuration": dict(plan.configuration),
        "patches": [_decision_document(decision) for decision in plan.decisions],
        "edits": [_edit_document(edit) for edit in plan.edits],
    }


def _decision_document(decision: Decision) -> dict[str, object]:
    return {
        "layer": decision.number,
        "layer_name": decision.layer,
        "patch": decision.patch,
        "outcome": decision.outcome.value,
        "reason": decision.reason,
        "mapping": decision.mapping,
        "files": [
            {
                "name": file.name,
                "path": None if file.path is None else str(file.path),
                "change": file.change.value,
                "refusal": file.refusal,
                "note": file.note,
                "present": file.present,
                "hunks": [_placement_document(placement) for placement in file.placements],
            }
            for file in decision.files
        ],
    }


def _placement_document(placement: Placement) -> dict[str, object]:
    return {
        "patch_line": placement.hunk.line_number,
        "stated_line": placement.hunk.old_start,
        "verdict": placement.verdict.value,
        "line": placement.line,
        "offset": placement.offset,
        "proof": placement.proof.value,
        "scope_before": placement.scope_before,
        "scope_after": placement.scope_after,
        "reason": placement.reason,
    }


def _edit_document(edit: FileEdit) -> dict[str, object]:
    return {
        "path": str(edit.path),
        "before": None if edit.before is None else edit.before.sha256,
        "after": None if edit.after is None else edit.after.sha256,
    }


def layer_lines(layers: tuple[AppliedLayer, ...]) -> Iterator[tuple[str, str]]:
    """Yield (line, style) for every layer of a stack and its patches."""
    for layer in layers:
        proof = ", locked" if layer.locked else ""
        yield f"layer {layer.number}: {layer.name} ({layer.origin.value}{proof}), applied {layer.applied_at}", ""
        for patch in layer.patches:
            gate = f" [CONFIG_{patch.config}]" if patch.config else ""
            guarded = left_out_as(patch.config, patch.reason) is Outcome.GUARDED_OFF
            state = "" if patch.enabled else f"  {'off' if guarded else 'left out'}: {patch.reason}"
            yield f"  {patch.name}{gate}{state}", "" if patch.enabled else "dim"


def status_document(tree: TargetTree, condition: Condition, receipt: Receipt | None) -> dict[str, object]:
    """Return what `status` says for JSON."""
    return {
        "schema": SCHEMA,
        "tree": tree_document(tree),
        "standing": condition.standing.value,
        "reason": condition.reason,
        "changed": [str(path) for path in condition.files],
        "gone": sorted(str(path) for path in condition.gone),
        "layers": [] if receipt is None else [_layer_document(layer) for layer in receipt.layers],
        "configuration": {} if receipt is None else dict(receipt.configuration),
        "values": {} if receipt is None else {name: text for name, _, text in receipt.resolved},
        "files": [] if receipt is None else [_touched_document(receipt, place) for place in range(len(receipt.files))],
    }


def _layer_document(layer: AppliedLayer) -> Mapping[str, object]:
    return {
        "number": layer.number,
        "origin": layer.origin.value,
        "name": layer.name,
        "locked": layer.locked,
        "applied_at": layer.applied_at,
        "patches": [
            {
                "name": patch.name,
                "sha256": patch.sha256,
                "reverse": patch.reverse,
                "config": patch.config,
                "enabled": patch.enabled,
                "reason": patch.reason,
            }
            for patch in layer.patches
        ],
    }


def _touched_document(receipt: Receipt, place: int) -> Mapping[str, object]:
    file = receipt.files[place]
    return {
        "path": str(file.path),
        "pristine": None if file.pristine is None else file.pristine.sha256,
        "current": None if file.current is None else file.current.sha256,
    }
