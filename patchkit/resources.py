"""Where patches/ and native/ lie: beside the package in a checkout, inside the package where it is installed."""

from __future__ import annotations

from pathlib import Path

from patchkit.errors import RefusedError

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
