"""Words as one types them in a shell: for hints that are to be followed to the letter."""

from __future__ import annotations

from pathlib import Path


def typed(*words: object) -> str:
    """Return words of a command line as one types them."""
    import shlex

    return shlex.join(map(str, words))


def typed_path(path: Path, unprintable: str) -> str:
    """Return a path quoted for a shell, or a word in its place when it cannot be shown on a terminal."""
    return typed(path) if str(path).isprintable() else unprintable
