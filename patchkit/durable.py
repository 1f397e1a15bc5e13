"""Many files made durable at once: a file system commits together what several threads ask for at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

THREADS = 4
_FEW = 8


def start_writing(descriptors: Sequence[int]) -> None:
    """Let the system begin to write open files out: syncing them is then waiting, in one commit instead of many.

    Linux starts the writing of what it is advised to forget. What goes wrong with it the sync of the file tells.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for descriptor in descriptors:
        with suppress(OSError):  # only a hint
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_all(descriptors: Sequence[int]) -> None:
    """Sync open files and directories; raises the first error after all were tried."""
    waiting = iter(descriptors)
    errors: list[OSError] = []
    if len(descriptors) <= _FEW or THREADS <= 1:
        _sync_next(waiting, errors)
    else:
        _sync_in_threads(waiting, errors)
    if errors:
        raise errors[0]


def _sync_in_threads(waiting: Iterator[int], errors: list[OSError]) -> None:
    import threading

    workers = [threading.Thread(target=_sync_next, args=(waiting, errors)) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _sync_next(waiting: Iterator[int], errors: list[OSError]) -> None:
    for descriptor in waiting:  # one iterator for all threads: each takes the next
        try:
            os.fsync(descriptor)
        except OSError as error:
            errors.append(error)
