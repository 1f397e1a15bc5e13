"""Making files durable: a hint never fails, an error of one file is told after all were tried."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchkit.durable import start_writing, sync_all


def test_hint_that_the_system_refuses_is_no_error() -> None:
    reading, writing = os.pipe()
    try:
        start_writing([reading, writing])
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("count", [2, 40], ids=["one by one", "in threads"])
def test_error_is_told_after_all_were_tried(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = [os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT, 0o600) for number in range(count)]
    reading, writing = os.pipe()  # cannot be synced
    tried: list[int] = []
    really = os.fsync

    def sync(descriptor: int) -> None:
        tried.append(descriptor)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    try:
        start_writing(descriptors)
        sync_all(descriptors)
        assert sorted(tried) == sorted(descriptors)
        tried.clear()
        with pytest.raises(OSError, match="Invalid argument"):
            sync_all([writing, *descriptors])
        assert sorted(tried) == sorted([writing, *descriptors])
    finally:
        for descriptor in (*descriptors, reading, writing):
            os.close(descriptor)
