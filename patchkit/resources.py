"""Where patches/ and native/ lie: beside the package in a checkout, inside the package where it is installed.

And where the user's own series lie, as their pyproject.toml says.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from patchkit.errors import RefusedError, SeriesError
from patchkit.quoting import typed

_PACKAGE = Path(__file__).resolve().parent
# The wheel's build puts the top-level directories there (force-include in pyproject.toml).
_INSTALLED = "_resources"


def patches_directory(package: Path = _PACKAGE) -> Path:
    """Return the directory of the shipped series, `<engine>/<version>/` below it."""
    return _resource("patches", package)


def native_directory(package: Path = _PACKAGE) -> Path:
    """Return the directory of the native sources."""
    return _resource("native", package)


def runtime_directory(package: Path = _PACKAGE) -> Path:
    """Return the package whose parts travel into patched engines."""
    return package / "runtime"


def proofs_file(package: Path = _PACKAGE) -> Path:
    """Return the records of what was run on GPUs; the file need not be there."""
    return package / "native" / "proved.json"


def user_directories(cwd: Path) -> tuple[Path, ...]:
    """Return the directories of `[tool.patchkit] patches`, as `named_directories`; SeriesError for a missing one."""
    found = named_directories(cwd)
    missing = [place for place in found if not place.is_dir()]
    if missing:
        raise SeriesError(f"{_pyproject(cwd)}: no directory {missing[0]}", why="named in [tool.patchkit] patches")
    return found


def named_directories(cwd: Path) -> tuple[Path, ...]:
    """Return what `[tool.patchkit] patches` names in the nearest pyproject.toml: here, else in a directory above.

    Names are relative to that file; whether they are there is not looked at. SeriesError when it lies above and belongs
    to another user: who may write into /tmp shall not say what is applied below it.
    """
    source = _pyproject(cwd)
    raw = source.read_bytes() if source is not None else b""
    if source is None or b"patchkit" not in raw:
        return ()
    names = _patches_table(raw, source)
    if names and source.parent != cwd and source.stat().st_uid not in (0, os.geteuid()):
        raise SeriesError(
            f"{source}: belongs to another user",
            why="it lies above this directory, and its [tool.patchkit] patches would be applied",
            hint=f"cd {typed(source.parent)} to use it all the same, or name --patches",
        )
    return tuple(source.parent / name for name in names)


def _pyproject(cwd: Path) -> Path | None:
    places = (place / "pyproject.toml" for place in (cwd, *cwd.parents))
    return next((place for place in places if place.is_file()), None)


def _resource(name: str, package: Path) -> Path:
    """Prefer the installed place: a checkout has none, and beside an installed package lies what others installed."""
    installed = package / _INSTALLED / name
    if installed.is_dir():
        return installed
    beside = package.parent / name
    if (package.parent / "pyproject.toml").is_file() and beside.is_dir():
        return beside
    raise RefusedError(
        f"patchkit is not whole: {name}/ is missing",
        why=f"  looked for {installed}\n  and for {beside} with pyproject.toml beside it, as in a checkout",
        hint="install patchkit-engines again",
    )


def _patches_table(raw: bytes, source: Path) -> list[str]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(raw.decode()).get("tool", {}).get("patchkit", {})
    except (ValueError, AttributeError) as error:
        raise SeriesError(f"{source}: not TOML", why=str(error)) from error
    names = table.get("patches", []) if isinstance(table, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise SeriesError(f"{source}: [tool.patchkit] patches is malformed", why='expected `patches = ["directory"]`')
    return names
