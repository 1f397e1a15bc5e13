"""Where patches/ and native/ lie: beside the package in a checkout, inside the package where it is installed.

And where the user's own series lie, as their pyproject.toml says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from patchkit.errors import RefusedError, SeriesError

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
    """Return the directories of `[tool.patchkit] patches` in the pyproject.toml of the working directory."""
    source = cwd / "pyproject.toml"
    raw = source.read_bytes() if source.is_file() else b""
    if b"patchkit" not in raw:
        return ()
    names = _patches_table(raw, source)
    missing = [name for name in names if not (cwd / name).is_dir()]
    if missing:
        raise SeriesError(f"{source}: no directory {missing[0]!r}", why="named in [tool.patchkit] patches")
    return tuple(cwd / name for name in names)


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
        why=f"  looked for {installed}\n  and for {beside} in a checkout",
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
