"""One workshop for all native tests of a worker: programs and shims are compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(directory=tmp_path_factory.mktemp("workshop"))


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    path = tmp_path / "segments"
    path.mkdir()
    return path
