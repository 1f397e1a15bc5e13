"""The journal's file: what is written is read again; a journal that leads out of the tree is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import TreeChangedError
from patchkit.journal import Act, Journal, Step, read_journal, render_journal
from patchkit.state import StateDirectory
from patchkit.tree import FileState, Kind

FILE = FileState(kind=Kind.FILE, mode=0o644, sha256="a" * 64)
JOURNAL = Journal(
    engine="vllm",
    steps=(
        Step(Act.REMOVE, "vllm/old.py", FILE, None, backup="pristine/vllm%2Fold.py"),
        Step(Act.DROP, "vllm/__pycache__/old.cpython-311.pyc", backup="backup/2"),
        Step(Act.UNMAKE, "vllm/gone", mode=0o750, owner=(0, 5)),
        Step(Act.MAKE, "vllm/new", mode=0o755, owner=(1, 1)),
        Step(Act.PLACE, "vllm/new/ü\udc80.py", None, FILE, stage="stage/3"),
        Step(Act.PLACE, ".patchkit/vllm/receipt.json", FILE, FILE, stage="stage/4", backup="backup/5"),
    ),
)


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    state = StateDirectory(root=tmp_path, engine="vllm")
    state.directory.mkdir(parents=True)
    return state


def test_journal_that_is_written_is_read_again(state: StateDirectory) -> None:
    assert read_journal(state) is None
    state.journal.write_bytes(render_journal(JOURNAL))
    assert read_journal(state) == (JOURNAL, False)


def test_name_of_the_journal_says_that_it_is_taken_back(state: StateDirectory) -> None:
    state.journal_back.write_bytes(render_journal(JOURNAL))
    assert read_journal(state) == (JOURNAL, True)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, "format"),
        (1, "../outside"),
        (1, "/etc/passwd"),
        (1, "vllm/.git/hooks/pre-commit"),
        (1, ".patchkit/vllm/lock"),
        (1, ".patchkit/sglang/receipt.json"),
        (2, "file"),
        (4, "stage/../../x"),
        (4, "/etc/shadow"),
        (5, "pristine/other.py"),
        (5, "backup/x"),
        (6, 0o100000),
        (6, "755"),
        (7, -1),
    ],
)
def test_hostile_step_is_refused(position: int, value: Any, state: StateDirectory) -> None:
    fields = json.loads(render_journal(JOURNAL))
    fields["steps"][4][position] = value
    _require_damaged(state, fields)


def test_journal_of_another_engine_is_refused(state: StateDirectory) -> None:
    _require_damaged(state, {**json.loads(render_journal(JOURNAL)), "engine": "sglang"})


def test_cut_journal_is_refused(state: StateDirectory) -> None:
    state.journal.write_bytes(render_journal(JOURNAL)[:-10])
    with pytest.raises(TreeChangedError, match=r"journal .* is damaged"):
        read_journal(state)


def _require_damaged(state: StateDirectory, fields: Any) -> None:
    state.journal.write_text(json.dumps(fields))
    with pytest.raises(TreeChangedError, match=r"journal .* is damaged"):
        read_journal(state)
