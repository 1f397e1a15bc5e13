"""The state of an installation that is gone is put aside, and the tree is unpatched from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import RefusedError
from patchkit.history import archive_state
from patchkit.state import StateDirectory


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    state = StateDirectory(root=tmp_path, engine="vllm")
    _fill(state)
    return state


def _fill(state: StateDirectory) -> None:
    state.pristine.mkdir(parents=True)
    (state.pristine / "vllm%2Fx.py").write_text("x = 1\n")
    state.patches.mkdir()
    (state.patches / "abc").write_text("diff\n")
    state.receipt.write_text("{}")


def test_receipt_copies_and_patches_are_moved(state: StateDirectory) -> None:
    place = archive_state(state)
    assert place == state.archive / "1"
    assert (place / "receipt.json").read_text() == "{}"
    assert (place / "pristine/vllm%2Fx.py").read_text() == "x = 1\n"
    assert (place / "patches/abc").read_text() == "diff\n"
    assert sorted(path.name for path in state.directory.iterdir()) == ["archive"]


def test_archives_are_numbered_on(state: StateDirectory) -> None:
    archive_state(state)
    (state.archive / "7").mkdir()
    (state.archive / "notes").mkdir()
    (state.archive / "\N{SUPERSCRIPT NINE}").mkdir()
    _fill(state)
    assert archive_state(state).name == "8"


def test_archive_that_cannot_be_made_is_a_refusal(state: StateDirectory) -> None:
    state.archive.write_text("in the way")
    with pytest.raises(RefusedError, match="put the old state aside"):
        archive_state(state)
    assert state.receipt.exists()
