"""The program that an engine runs in: whether the loader will preload anything into it at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from patchkit.abi.elf_file import open_elf
from patchkit.errors import ObjectFormatError

_PT_INTERP = 3


def program_faults(program: Path) -> tuple[str, ...]:
    """Return why LD_PRELOAD does not work in a program, () when it does."""
    real = Path(os.path.realpath(program))
    try:
        about = real.stat()
        with open_elf(real) as elf:
            loader = next((one for one in elf.segments if one.kind == _PT_INTERP), None)
            name = elf.read(loader.offset, min(loader.size, 4096), "loader") if loader is not None else b""
    except (OSError, ObjectFormatError) as error:
        return (f"{real} cannot be read: {error}",)
    faults = []
    if loader is None:
        faults.append(f"{real} is linked statically: no loader reads LD_PRELOAD")
    elif b"musl" in name:
        faults.append(f"{real} runs on musl: stage 1 is for glibc")
    if about.st_mode & (stat.S_ISUID | stat.S_ISGID):
        faults.append(f"{real} is set-user-ID or set-group-ID: the loader ignores LD_PRELOAD there")
    return tuple(faults)
