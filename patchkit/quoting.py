"""Words as one types them in a shell: for hints that are to be followed to the letter."""

from __future__ import annotations

import os
from pathlib import Path


def typed(*words: object) -> str:
    """Return words of a command line as one types them, on one line; of what a terminal cannot show, its bytes."""
    return " ".join(_typed_word(str(word)) for word in words)


def _typed_word(word: str) -> str:
    import shlex

    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_typed_byte, os.fsencode(word).decode('latin-1')))}'"


def _typed_byte(byte: str) -> str:
    return byte if byte.isascii() and byte.isprintable() and byte not in "'\\" else f"\\x{ord(byte):02x}"


def typed_path(path: Path, unprintable: str) -> str:
    """Return a path quoted for a shell, or a word in its place when it cannot be shown on a terminal."""
    return typed(path) if str(path).isprintable() else unprintable
