"""The version of patchkit, which pyproject.toml reads from here, and how versions of PEP 440 are read everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version

VERSION = "0.1.0"


def read_version(text: str) -> Version | None:
    """Read a version; None for what is none. One with a number of thousands of digits is none: Python makes no int."""
    from packaging.version import Version

    try:
        return Version(text)
    except ValueError:  # InvalidVersion is one, and what int() says of too many digits is another
        return None


def read_public(text: str) -> Version | None:
    """Read a version without its local part (`+cpu`); None for what is none."""
    version = read_version(text)
    return read_version(version.public) if version is not None else None


def same_public(one: str, other: str) -> bool:
    """Tell whether two versions are the same but for their local parts; False where one is none."""
    public = read_public(one)
    return public is not None and public == read_public(other)


def set_has(specifier: str, version: str) -> bool | None:
    """Tell whether a set (`>=0.6,<0.7`) has a version, pre-releases too; None where one of the two is none."""
    from packaging.specifiers import SpecifierSet

    known = read_version(version)
    try:
        return SpecifierSet(specifier).contains(known, prereleases=True) if known is not None else None
    except ValueError:  # numbers in a set are read when it is compared
        return None
