"""A release's version in Kconfig expressions: `VLLM_VERSION >= 0.8.0` compares as PEP 440 orders versions."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from patchkit.version import read_version

if TYPE_CHECKING:
    from packaging.version import Version


_LONGEST = 256


class Release(str):
    """A version that kconfiglib compares with `<` and `>` as if it were any text; the other side is a version too.

    Local parts (`+cpu`) count only where the other side has one. An unknown version ("") comes before all others.
    """

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        """Tell whether this version comes before the other."""
        return _order(self, other) < 0

    def __gt__(self, other: str) -> bool:
        """Tell whether this version comes after the other."""
        return _order(self, other) > 0


def is_version(text: str) -> bool:
    """Tell whether PEP 440 knows the text as a version."""
    if len(text) > _LONGEST:
        return False
    plain = str(text).split(".")  # nothing but numbers: packaging takes as long to load as to read a Kconfig
    return all(part.isascii() and part.isdigit() for part in plain) or _parsed(str(text)) is not None


def _order(one: str, other: str) -> int:
    mine, theirs = _parsed(str(one)), _parsed(str(other))
    if mine is None or theirs is None:
        return (mine is not None) - (theirs is not None)
    (whole, public), (their_whole, their_public) = mine, theirs
    if whole.local is None or their_whole.local is None:
        return (public > their_public) - (public < their_public)
    return (whole > their_whole) - (whole < their_whole)


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Version, Version] | None:
    """Return a version, and it without its local part; None for what is no version."""
    whole = read_version(text)
    public = read_version(whole.public) if whole is not None else None
    return None if whole is None or public is None else (whole, public)
