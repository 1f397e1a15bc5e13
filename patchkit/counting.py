"""How counts are written: `1 file`, `2 files`, `1 of 3 files differs`."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return `1 file`, `2 files`; `many` is what follows another number than 1, where that is not `one` with an s."""
    return f"{number} {one}" if number == 1 else f"{number} {many or f'{one}s'}"


def counted_of(number: int, whole: int, noun: str, does: str = "", do: str = "") -> str:
    """Return `1 of 3 files differs`, `2 of 3 files differ`: `does` and `do` are what one and what several do."""
    verb = does if number == 1 else do
    return f"{number} of {counted(whole, noun)}{verb and f' {verb}'}"
