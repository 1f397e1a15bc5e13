"""What a case of our own is: a tree, a patch, and the tree that comes of it or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

File = bytes | tuple[str, object]
"""A file's content, or ("link", target), ("exec", content), ("mode", (mode, content)), ("dir", None)."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`after` holds only the files that change (None: gone) and is None for a refusal. `why` is the trap.

    `before` is a plain tree unless `wheel` names an engine and version: then it is an unpacked wheel of it and patchkit
    is told `--target`. `says` must stand in what the command prints. `base`: give the tree as --base too.
    """

    name: str
    why: str
    before: Mapping[str, File]
    patch: bytes
    after: Mapping[str, File | None] | None
    options: tuple[str, ...] = ()
    wheel: tuple[str, str] | None = None
    status: int = 0
    says: tuple[str, ...] = ()
    base: bool = False
    suffix: str = "diff"

    def __post_init__(self) -> None:
        """A refusal has a status of its own."""
        assert (self.after is None) == (self.status != 0), self.name


def lines(*texts: str) -> bytes:
    """Join lines; an empty context line is written as one blank, so that no editor takes it away."""
    return "".join(f"{text}\n" for text in texts).encode()


def write(root: Path, files: Mapping[str, File | None]) -> Path:
    """Write files; None removes one."""
    root.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if file is None or path.is_symlink():
            path.unlink()
        if isinstance(file, bytes):
            path.write_bytes(file)
        elif file is not None:
            _write_odd(path, *file)
    return root


def _write_odd(path: Path, kind: str, value: object) -> None:
    if kind == "link":
        path.symlink_to(str(value))
    elif kind == "dir":
        path.mkdir()
    elif kind == "exec":
        assert isinstance(value, bytes)
        path.write_bytes(value)
        path.chmod(0o755)
    else:
        assert isinstance(value, tuple)
        path.write_bytes(value[1])
        path.chmod(value[0])
