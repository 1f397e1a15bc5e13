"""From a tree, its layers and a configuration to a plan: a verdict for every hunk and patch, and the edits.

Pure: the tree is read through a mapping, nothing is written, neither clock nor environment is asked: same input, same
plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath

from patchkit.applied import applied_layers, explained, kept_decisions, left_out_again, renamed, without_release
from patchkit.decision import Decision
from patchkit.diff.model import Verdict
from patchkit.dist import rewrite_record
from patchkit.errors import UnsafePathError
from patchkit.generated import Generated, put_generated
from patchkit.guarding import Guards, Selected, guard_stack, selected_warnings, told
from patchkit.receipt import AppliedLayer, Receipt, TouchedFile
from patchkit.record import dataclass, replace
from patchkit.stack import Rendering, WantedLayer, render_stack
from patchkit.target import TargetTree
from patchkit.tree import Entries, FileState, Kind, TreeEntry, path_of

SyntaxCheck = Callable[[Mapping[PurePosixPath, tuple[bytes, bytes]]], Mapping[PurePosixPath, str]]
"""Takes (before, after) by path, returns a message for what parsed before and does not any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """A tree as it is: `entries` reads it, `receipt` says what was applied, `pristine` reads it as it was before."""

    tree: TargetTree
    entries: Entries
    receipt: Receipt | None
    pristine: Entries


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEdit:
    """What is to be done to one path. `content` is the new bytes (or link target), None for a deletion."""

    path: PurePosixPath
    before: FileState | None
    after: FileState | None
    content: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that will happen, decided before anything is written.

    `layers` is the stack as it will be; `decisions` are in the order of the patches; `edits` are sorted by path and
    take the tree as it is to the tree as it will be. `files` are all files that the stack changes, `pristine` the bytes
    of those that it changes for the first time, `directories` those that patchkit made and `removals` those that it no
    longer needs. `record_sha256` is the digest of the distribution's RECORD afterwards, "" without one. `problems` are
    refusals that belong to no patch (a syntax error, a stale lock). `warnings` are for people and for the JSON.
    `sha256` identifies the plan. `generated` is the configuration that goes into the tree, None for none,
    `guards` are as in Receipt.
    """

    tree: TargetTree
    layers: tuple[AppliedLayer, ...]
    configuration: tuple[tuple[str, str], ...]
    decisions: tuple[Decision, ...]
    edits: tuple[FileEdit, ...]
    files: tuple[TouchedFile, ...]
    pristine: tuple[tuple[PurePosixPath, bytes], ...]
    patches: tuple[tuple[str, bytes], ...]
    directories: tuple[PurePosixPath, ...]
    removals: tuple[PurePosixPath, ...]
    record_sha256: str
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    sha256: str
    generated: Generated | None = None
    guards: tuple[tuple[str, str], ...] = ()

    @property
    def refused(self) -> bool:
        """Tell whether the plan must not be carried out."""
        return bool(self.problems) or any(decision.refused for decision in self.decisions)


def make_plan(
    situation: Situation,
    layers: tuple[WantedLayer, ...],
    *,
    kept: tuple[AppliedLayer, ...] = (),
    configuration: tuple[tuple[str, str], ...] = (),
    check_syntax: SyntaxCheck | None = None,
    check_all_syntax: bool = False,
    warnings: tuple[str, ...] = (),
    generated: Generated | None = None,
) -> Plan:
    """Decide everything about bringing the tree to this stack of layers.

    `kept` are layers of the receipt that stay as they are below all others: then the new ones go on the tree as it is.
    Without them the whole stack is rendered from pristine.
    """
    receipt = situation.receipt
    touched_below = frozenset(str(file.path) for file in receipt.files) if kept and receipt else frozenset()
    start = situation.entries if kept else situation.pristine
    rendering = render_stack(start, layers, pristine=situation.pristine, touched=touched_below)
    finished = _finish(situation, rendering, layers, start, generated)
    layers = told(layers, finished.selected)
    rendered = tuple(left_out_again(rendering.decisions, layers))
    touched = _touched(situation, finished.files)
    decisions = without_release(rendered, kept, layers, situation.pristine)
    plan = Plan(
        tree=situation.tree,
        layers=(*kept, *applied_layers(layers, rendered, lowest=not kept)),
        configuration=configuration,
        decisions=(*kept_decisions(kept), *explained(decisions, layers, receipt)),
        edits=tuple(_edits(situation, finished.files)),
        files=touched,
        pristine=tuple(_new_pristine(situation, touched)),
        patches=tuple((wanted.sha256, wanted.raw) for layer in layers for wanted in layer.patches),
        directories=_directories(situation, touched),
        removals=_removals(situation, touched),
        record_sha256=finished.record.state.sha256 if finished.record else "",
        problems=(
            *finished.problems,
            *_syntax_problems(situation, rendering, finished.files, check_syntax, check_all_syntax),
        ),
        warnings=(*warnings, *renamed(layers, receipt), *selected_warnings(finished.selected)),
        sha256="",
        generated=generated,
        guards=finished.guards,
    )
    return replace(plan, sha256=_digest(plan))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finished:
    """Every touched path as it will be, with what the configuration adds, and with the distribution's RECORD."""

    files: dict[PurePosixPath, TreeEntry | None]
    record: TreeEntry | None
    problems: tuple[str, ...]
    guards: tuple[tuple[str, str], ...]
    selected: tuple[Selected, ...]


def _finish(
    situation: Situation,
    rendering: Rendering,
    layers: tuple[WantedLayer, ...],
    start: Entries,
    generated: Generated | None,
) -> _Finished:
    final = _final_entries(situation, rendering, start)
    guarded = guard_stack(
        layers,
        rendering,
        pristine=situation.pristine,
        standing=Guards(receipt=situation.receipt, entries=situation.entries),
        generated=generated,
        tree=situation.tree,
    )
    final.update(guarded.files)
    problems = (*rendering.problems, *guarded.problems)
    if generated is not None:
        problems += tuple(
            put_generated(final, generated, situation.tree, partial(_get, situation.pristine), guarded.files)
        )
    kept_guards = situation.receipt.guards if situation.receipt and start is situation.entries else ()
    record_path, record = _record(situation, final)
    if record_path is not None:
        final[record_path] = record
    guards = (*kept_guards, *guarded.guards)
    return _Finished(files=_in_order(final), record=record, problems=problems, guards=guards, selected=guarded.selected)


def _final_entries(situation: Situation, rendering: Rendering, start: Entries) -> dict[PurePosixPath, TreeEntry | None]:
    """Return every touched path as it will be: what the layers make of it, or what they start from."""
    final: dict[PurePosixPath, TreeEntry | None] = {}
    if situation.receipt is not None:
        for file in situation.receipt.files:
            final[file.path] = _get(start, file.path)
    final.update((path_of(path), entry) for path, entry in rendering.files)
    return final


def _in_order(final: Mapping[PurePosixPath, TreeEntry | None]) -> dict[PurePosixPath, TreeEntry | None]:
    return dict(sorted(final.items(), key=lambda item: item[0].parts))  # paths compare so too, but slowly


def _get(entries: Entries, path: PurePosixPath) -> TreeEntry | None:
    """Return what stands at a path; beyond a symlink (that the plan takes away) nothing does."""
    try:
        entry = entries.get(path)
    except UnsafePathError:
        return None
    return None if entry is None or entry.kind is Kind.DIRECTORY else entry


def _record(
    situation: Situation, final: Mapping[PurePosixPath, TreeEntry | None]
) -> tuple[PurePosixPath | None, TreeEntry | None]:
    """Return the distribution's RECORD with the rows of what the stack changes made anew."""
    if not situation.tree.distribution:
        return None, None
    path = PurePosixPath(situation.tree.distribution, "RECORD")
    entry = situation.pristine.get(path)
    if entry is None or entry.kind is not Kind.FILE:
        return None, None
    changes = {
        name: None if changed is None else changed.content
        for name, changed in final.items()
        if name != path and changed != _get(situation.pristine, name)
    }
    content = rewrite_record(entry.content, changes) if changes else entry.content
    return path, TreeEntry(kind=Kind.FILE, mode=entry.mode, content=content)


def _state(entry: TreeEntry | None) -> FileState | None:
    return None if entry is None else entry.state


def _touched(situation: Situation, final: Mapping[PurePosixPath, TreeEntry | None]) -> tuple[TouchedFile, ...]:
    files = []
    for path, entry in final.items():
        pristine = _get(situation.pristine, path)
        if entry != pristine:
            files.append(TouchedFile(path=path, pristine=_state(pristine), current=_state(entry)))
    return tuple(files)


def _edits(situation: Situation, final: Mapping[PurePosixPath, TreeEntry | None]) -> Iterator[FileEdit]:
    for path, entry in final.items():
        standing = _get(situation.entries, path)
        if entry != standing:
            yield FileEdit(
                path=path,
                before=_state(standing),
                after=_state(entry),
                content=None if entry is None else entry.content,
            )


def _new_pristine(situation: Situation, touched: tuple[TouchedFile, ...]) -> Iterator[tuple[PurePosixPath, bytes]]:
    known = {file.path for file in situation.receipt.files} if situation.receipt is not None else set()
    for file in touched:
        if file.pristine is not None and file.path not in known:
            yield file.path, situation.pristine[file.path].content


def _directories(situation: Situation, touched: tuple[TouchedFile, ...]) -> tuple[PurePosixPath, ...]:
    """Return the directories that the stack's new files need and that were not there without patchkit."""
    ours = set(situation.receipt.directories) if situation.receipt is not None else set()
    needed: set[PurePosixPath] = set()
    for file in touched:
        if file.pristine is not None or file.current is None:
            continue
        for parent in file.path.parents:
            if parent in needed or str(parent) == ".":
                break
            if parent in ours or not _is_directory(situation.entries, parent):
                needed.add(parent)
    return tuple(sorted(needed))


def _is_directory(entries: Entries, path: PurePosixPath) -> bool:
    try:
        entry = entries.get(path)
    except UnsafePathError:
        return False
    return entry is not None and entry.kind is Kind.DIRECTORY


def _removals(situation: Situation, touched: tuple[TouchedFile, ...]) -> tuple[PurePosixPath, ...]:
    if situation.receipt is None:
        return ()
    kept = set(_directories(situation, touched))
    return tuple(sorted((path for path in situation.receipt.directories if path not in kept), reverse=True))


def _syntax_problems(
    situation: Situation,
    rendering: Rendering,
    final: Mapping[PurePosixPath, TreeEntry | None],
    check_syntax: SyntaxCheck | None,
    check_all_syntax: bool,  # noqa: FBT001 -- private, one caller
) -> Iterator[str]:
    """Check what was placed with an offset, or everything when asked: a file that parsed before must still parse."""
    if check_syntax is None:
        return
    doubtful = {
        file.path
        for decision in rendering.decisions
        for file in decision.files
        if file.path is not None and any(placement.verdict is Verdict.OFFSET for placement in file.placements)
    }
    files = {
        path: (_content(_get(situation.pristine, path)), entry.content)
        for path, entry in final.items()
        if entry is not None
        and entry.kind is Kind.FILE
        and path.suffix == ".py"
        and (check_all_syntax or (path in doubtful and str(path) not in rendering.proven))
    }
    if files:
        for path, message in sorted(check_syntax(files).items()):
            yield f"{path}: does not parse after patching: {message}"


def _content(entry: TreeEntry | None) -> bytes:
    return b"" if entry is None else entry.content


def _digest(plan: Plan) -> str:
    """Return the digest of what will be done: the stack and every edit, by hash."""
    edits = [(str(edit.path), _state_key(edit.before), _state_key(edit.after)) for edit in plan.edits]
    stack = [
        (
            layer.number,
            layer.name,
            [(patch.name, patch.sha256, patch.enabled, patch.reverse) for patch in layer.patches],
        )
        for layer in plan.layers
    ]
    text = json.dumps([plan.tree.engine, plan.tree.version, stack, plan.configuration, edits], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _state_key(state: FileState | None) -> tuple[str, int, str] | None:
    return None if state is None else (state.kind.value, state.mode, state.sha256)
