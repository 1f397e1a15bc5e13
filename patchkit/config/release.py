"""A release's version in Kconfig expressions: `VLLM_VERSION >= 0.8.0` compares as PEP 440 orders versions."""

from __future__ import annotations


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
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _order(one: str, other: str) -> int:
    from packaging.version import Version

    if not (is_version(one) and is_version(other)):
        return is_version(one) - is_version(other)
    mine, theirs = Version(str(one)), Version(str(other))
    if mine.local is None or theirs.local is None:
        mine, theirs = Version(mine.public), Version(theirs.public)
    return (mine > theirs) - (mine < theirs)
