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
ALL = os.environ.get("PATCHKIT_FAULTS") == "all"


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
    """A fixed choice of points: the same in every run, all of them (or `most`) with PATCHKIT_FAULTS=all."""

    def __call__(self, items: Sequence[_Item], count: int, *, most: int | None = None) -> list[_Item]:
        count = (most or len(items)) if ALL else count
        if len(items) <= count:
            return list(items)
        chosen = random.Random(len(items)).sample(range(len(items)), count)  # noqa: S311 -- no secret
        return [items[number] for number in sorted(chosen)]


@pytest.fixture
def sample() -> Sample:
    return Sample()
