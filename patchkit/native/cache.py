"""Where builds are kept, and whether what is there can be trusted: it is loaded into an engine."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.errors import RefusedError

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

COMPLETE = "complete"
"""The file that is written last into a build; it holds the digest of stage 1 (stage 2's is in its manifest)."""

_OTHERS_WRITE = 0o002


def cache_directory() -> Path:
    """Return where builds are kept: PATCHKIT_NATIVE, else below the user's cache; RefusedError without a home."""
    if chosen := os.environ.get("PATCHKIT_NATIVE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base).absolute() if base else Path.home() / ".cache") / "patchkit" / "native"
    except RuntimeError as error:
        raise RefusedError(
            "there is no place to keep builds in",
            why=f"  HOME is not set, and user {os.geteuid()} is not in the list of users",
            hint="PATCHKIT_NATIVE=DIR names one",
        ) from error


def make_cache(cache: Path) -> None:
    """Make the directory of all builds; RefusedError where it cannot be, or where others could put something in it."""
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        require_ours(cache)
    except OSError as error:
        raise _unusable(cache, error) from error


def scratch_below(cache: Path, key: str) -> TemporaryDirectory[str]:
    """Return a directory in which a build is made before it is given its name."""
    from tempfile import TemporaryDirectory

    try:
        return TemporaryDirectory(prefix=f"{key}.", dir=cache)
    except OSError as error:
        raise _unusable(cache, error) from error


def check_kept(directory: Path, stage1: Path, *others: Path | None) -> None:
    """Check a build that is taken from the cache; RefusedError when it is not what was built."""
    require_ours(directory)
    missing = [path.name for path in (stage1, *others) if path is not None and not path.is_file()]
    if not missing and digest_of(stage1) == (directory / COMPLETE).read_text(errors="replace").strip():
        return
    raise RefusedError(
        f"{directory} is not what was built",
        why=f"  missing: {', '.join(missing)}" if missing else f"  {stage1.name} was changed",
        hint="remove the directory: it is built again",
    )


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _unusable(cache: Path, error: OSError) -> RefusedError:
    return RefusedError(
        f"{cache} cannot be used for builds", why=f"  {error}", hint="PATCHKIT_NATIVE=DIR names another place"
    )


def require_ours(directory: Path) -> None:
    """Refuse a directory in which others could put something that is then loaded."""
    about = directory.stat()
    if about.st_uid not in (os.geteuid(), 0):
        why = f"it belongs to user {about.st_uid}, not to {os.geteuid()} or root"
    elif stat.S_IMODE(about.st_mode) & _OTHERS_WRITE:
        why = "everybody can write to it"
    else:
        return
    raise RefusedError(
        f"{directory} is not safe to load code from", why=f"  {why}", hint="PATCHKIT_NATIVE=DIR names another place"
    )
