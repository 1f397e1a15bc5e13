"""Whose the files are that root makes in somebody else's tree."""

from __future__ import annotations

import os
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def give_to_owner(root: Path, name: str) -> None:
    """Let a directory of ours below the root belong to whom the root belongs, where root made it.

    Its owner shall be able to go on without us. Links are not followed; what is not there needs no owner.
    """
    owner = root.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    try:
        home = os.open(root / name, _DIRECTORY)
    except OSError:
        return
    try:
        for _, names, files, descriptor in os.fwalk(".", dir_fd=home):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
            for below in (*names, *files):
                os.chown(below, owner.st_uid, owner.st_gid, dir_fd=descriptor, follow_symlinks=False)
    finally:
        os.close(home)
