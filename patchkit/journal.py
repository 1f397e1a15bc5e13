"""What a transaction is about to do, step by step, in a file: a later process can finish it or take it back."""

from __future__ import annotations

import enum
from typing import Any

from patchkit.errors import UnsafePathError
from patchkit.pattern import compile_lazily
from patchkit.receipt import SCHEMA, parse_path, parse_state, read_checked, render_lines, render_state
from patchkit.record import dataclass
from patchkit.state import GENERATED, StateDirectory, pristine_name
from patchkit.tree import FileState

_NUMBERED = compile_lazily(r"(stage|backup)/[0-9]{1,9}")


class Act(enum.Enum):
    """What a step does to its path. The steps of a journal stand in this order."""

    REMOVE = "remove"  # a file or link of the tree
    DROP = "drop"  # a .pyc: a cache, whose loss would not be one
    UNMAKE = "unmake"  # a directory that becomes empty
    MAKE = "make"  # a directory
    PLACE = "place"  # the staged file, over what is there


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `path` is relative to the root of the tree, `stage` and `backup` to the state directory ("" for none).

    `mode` and `owner` (user and group) are those of a directory to make, now or on the way back.
    """

    act: Act
    path: str
    before: FileState | None = None
    after: FileState | None = None
    stage: str = ""
    backup: str = ""
    mode: int = 0
    owner: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Journal:
    """The steps in the order in which they are done; the last one places or removes the receipt."""

    engine: str
    steps: tuple[Step, ...]


def render_journal(journal: Journal) -> bytes:
    """Return the journal's file."""
    return render_lines(
        {"schema": SCHEMA, "engine": journal.engine}, {"steps": [_step_fields(step) for step in journal.steps]}
    )


def read_journal(state: StateDirectory) -> tuple[Journal, bool] | None:
    """Return the pending journal and whether it is being taken back; None when there is none."""
    for path, back in ((state.journal_back, True), (state.journal, False)):
        try:
            journal = read_checked(path, "journal", lambda fields: _parse_journal(fields, state))
        except FileNotFoundError:
            continue
        return journal, back
    return None


def _step_fields(step: Step) -> tuple[Any, ...]:
    before, after = render_state(step.before), render_state(step.after)
    return (step.act.value, step.path, before, after, step.stage, step.backup, step.mode, *step.owner)


def _parse_journal(fields: dict[str, Any], state: StateDirectory) -> Journal:
    if fields["engine"] != state.engine:
        raise ValueError(f"it is the journal of {fields['engine']!r}")
    return Journal(engine=state.engine, steps=tuple(_parse_step(step, state) for step in fields["steps"]))


def _parse_step(fields: Any, state: StateDirectory) -> Step:
    act, path, before, after, stage, backup, mode, user, group = fields
    if path not in {f"{state.relative}/{name}" for name in ("receipt.json", *GENERATED)}:
        parse_path(path)
    for kept in (stage, backup):
        if kept and not _NUMBERED.fullmatch(kept) and kept != f"pristine/{pristine_name(path)}":
            raise UnsafePathError(f"{kept!r} is not where patchkit keeps a file")
    if any(type(number) is not int or number < 0 for number in (mode, user, group)) or mode > 0o7777:  # noqa: PLR2004
        raise ValueError("modes and owners are numbers")
    return Step(Act(act), path, parse_state(before), parse_state(after), stage, backup, mode, (user, group))
