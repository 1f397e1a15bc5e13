"""What the fault tests share: a fast file system to work on, and how much of them is run."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from patchkit import durable

_Item = TypeVar("_Item")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Return a directory in memory where there is one: syncing a disk a hundred thousand times takes hours."""
    memory = Path("/dev/shm")  # noqa: S108 -- a directory of our own is made in it
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="patchkit-") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls come in one order: strace counts them per thread."""
    monkeypatch.setattr(durable, "THREADS", 1)


class Sample:
    """A fixed choice of points, the same in every run; or all of them (`most` of them where that would be days)."""

    def __init__(self, *, every: bool) -> None:
        self._every = every

    def __call__(self, items: Sequence[_Item], count: int, *, most: int | None = None) -> list[_Item]:
        count = (most or len(items)) if self._every else count
        if len(items) <= count:
            return list(items)
        chosen = random.Random(len(items)).sample(range(len(items)), count)  # noqa: S311 -- no secret
        return [items[number] for number in sorted(chosen)]


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample:
    return Sample(every=request.param == "all")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try a sample as a rule; everything (many minutes) with PATCHKIT_FAULTS=all or `-m faults`."""
    if "sample" not in metafunc.fixturenames:
        return
    every = os.environ.get("PATCHKIT_FAULTS") == "all" or metafunc.config.option.markexpr == "faults"
    choice = pytest.param("all", marks=pytest.mark.faults) if every else pytest.param("some")
    metafunc.parametrize("sample", [choice], indirect=True)
