"""Many files made durable at once: a file system commits together what several threads ask for at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

THREADS = 4
_FEW = 3


def sync_all(descriptors: Sequence[int]) -> None:
    """Sync open files and directories; raises the first error after all were tried."""
    if len(descriptors) <= _FEW or THREADS <= 1:
        for descriptor in descriptors:
            os.fsync(descriptor)
        return
    import threading

    waiting = iter(descriptors)
    errors: list[OSError] = []
    workers = [
        threading.Thread(target=_sync_next, args=(waiting, errors)) for _ in range(min(THREADS, len(descriptors)))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def _sync_next(waiting: Iterator[int], errors: list[OSError]) -> None:
    for descriptor in waiting:  # one iterator for all threads: each takes the next
        try:
            os.fsync(descriptor)
        except OSError as error:
            errors.append(error)
