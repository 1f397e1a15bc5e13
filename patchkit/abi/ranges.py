"""Sets of releases in words: `2.4.0 to 2.6.0, 2.8.0`."""

from __future__ import annotations

from collections.abc import Sequence


def release_range(releases: Sequence[str], known: Sequence[str]) -> str:
    """Say which of the known releases, in their order, these are; neighbours make a range.

    A build with a local version (`2.13.0+cpu`) neither makes nor breaks a range: it is named where its release is not.
    """
    chosen = set(releases)
    parts: list[list[str]] = [[]]
    for one in known:
        if "+" in one:
            continue
        if one not in chosen:
            parts.append([])
        else:
            parts[-1].append(one)
    said = [part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts if part]
    local = [one for one in releases if "+" in one and one.partition("+")[0] not in chosen]
    return ", ".join((*said, *local))
