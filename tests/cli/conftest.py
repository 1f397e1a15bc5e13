"""A made-up engine as an unpacked wheel, and the command run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.cli.main import run
from tests.blackbox.wheels import DIFF, NEW_FILE, engine, wheel_tree, write_tree
from tests.cli.said import Patchkit, Said


@pytest.fixture
def patchkit(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patchkit:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Said(status, out, err)

    return call


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "site", wheel_tree("vllm", "0.6.3", engine(), installer="pip"))


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    path = tmp_path / "one.diff"
    path.write_text(DIFF + NEW_FILE)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.diff"
    path.write_text(DIFF.replace("-RATE = 1", "-RATE = 9"))
    return path
