"""Deterministic trees and patches to measure on: the same seed gives the same bytes.

usage: python -m benchmarks.generate series|large|real-like DIRECTORY

`series` is 200 patches with 2,000 hunks over 600 of a tree's 3,000 files, `large` one diff of 20 MB with 48,000 hunks,
`real-like` one diff of the size of a real one (167 hunks over 49 files of a 2,000-file tree). DIRECTORY receives
`tree/` (an unpacked wheel of a made-up vllm 0.1.0, for which nothing is shipped) and `patches/vllm/0.1.0/` (series and
patches).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ENGINE = "vllm"
VERSION = "0.1.0"
CONTEXT = 3
SPACING = 2 * CONTEXT + 3
"""Lines between two edits of a file, so that each becomes a hunk of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How large a tree and its patches are. Every patch has `touches` files with `hunks` hunks each."""

    files: int
    lines: int
    touched: int
    patches: int
    touches: int
    hunks: int
    extra: int = 0
    width: int = 1


SHAPES = {
    "series": Shape(files=3000, lines=160, touched=600, patches=200, touches=5, hunks=2),
    "large": Shape(files=400, lines=1600, touched=394, patches=1, touches=394, hunks=121, extra=326, width=2),
    "real-like": Shape(files=2000, lines=300, touched=49, patches=1, touches=49, hunks=3, extra=20),
}
"""`extra` patched files get one hunk more; `width` is how many lines an edit replaces and adds."""


def main() -> None:
    """Write the tree and the patches of the shape that the command line names."""
    name, directory = sys.argv[1], Path(sys.argv[2])
    write(SHAPES[name], directory, seed=name)


def write(shape: Shape, directory: Path, *, seed: str) -> None:
    """Write a tree, and the series that was cut against it, below a directory."""
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    files = dict(_tree(shape, chance))
    _write_tree(files, directory / "tree")
    series = directory / "patches" / ENGINE / VERSION
    series.mkdir(parents=True)
    names = []
    for number, touched in enumerate(_touched(shape, sorted(files), chance), start=1):
        name = f"{number:04d}-change-{number:03d}.patch"
        parts = [f"Subject: [PATCH] Change {number}\n\nGenerated.\n---\n"]
        for index, path in enumerate(touched):
            old = files[path]
            files[path], diff = _edit(path, old, shape.hunks + (index < shape.extra), shape.width, number, chance)
            parts.append(diff)
        (series / name).write_text("".join(parts))
        names.append(name)
    (series / "series").write_text("".join(f"{name}\n" for name in names))


def _tree(shape: Shape, chance: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Yield files of functions, about as long-winded as an engine's."""
    for number in range(shape.files):
        lines = [f'"""Module {number}."""\n', "import os\n", "\n"]
        while len(lines) < shape.lines + chance.randrange(shape.lines // 4):
            unit = len(lines)
            lines.append(f"def step_{number}_{unit}(batch, cache=None):\n")
            lines += [f"    value_{unit}_{k} = batch[{k}] + {chance.randrange(10_000)}\n" for k in range(9)]
            lines += [f"    return value_{unit}_8\n", "\n"]
        yield f"{ENGINE}/part_{number % 40:02d}/module_{number:04d}.py", lines


def _touched(shape: Shape, paths: Sequence[str], chance: random.Random) -> Iterator[list[str]]:
    """Yield the files of each patch; together they are `touched` files, some of them touched several times."""
    pool = chance.sample(paths, shape.touched)
    queue = list(pool)
    for _ in range(shape.patches):
        batch: list[str] = []
        while len(batch) < shape.touches:
            path = queue.pop() if queue else chance.choice(pool)
            if path not in batch:
                batch.append(path)
        yield sorted(batch)


def _edit(
    path: str, old: list[str], hunks: int, width: int, number: int, chance: random.Random
) -> tuple[list[str], str]:
    """Change a file in so many places; return its new lines and the diff."""
    places = sorted(chance.sample(_slots(old, width), hunks))
    new: list[str] = []
    text = [f"diff --git a/{path} b/{path}\n", f"--- a/{path}\n", f"+++ b/{path}\n"]
    done = 0
    for place in places:
        added = [
            f"    CHANGE_{number}_{place + k} = {chance.randrange(10_000)}  # set to another\n"
            for k in range(width + 1)
        ]
        removed = old[place : place + width]
        before, after = old[place - CONTEXT : place], old[place + width : place + width + CONTEXT]
        new += old[done:place]
        start, count = place - CONTEXT + 1, 2 * CONTEXT
        new_start = len(new) - CONTEXT + 1
        text.append(f"@@ -{start},{count + width} +{new_start},{count + len(added)} @@{_heading(old, start - 1)}\n")
        text += [f" {line}" for line in before]
        text += [f"-{line}" for line in removed] + [f"+{line}" for line in added]
        text += [f" {line}" for line in after]
        new += added
        done = place + width
    return new + old[done:], "".join(text)


def _slots(lines: list[str], width: int) -> list[int]:
    """Return the places where lines of a function's body can be replaced, far enough from each other."""
    slots: list[int] = []
    for place in range(SPACING, len(lines) - SPACING):
        body = all(line.startswith("    ") and "return" not in line for line in lines[place : place + width])
        if body and (not slots or place >= slots[-1] + SPACING + width):
            slots.append(place)
    return slots


def _heading(lines: Sequence[str], above: int) -> str:
    """Return what git writes behind `@@`: the last line above that starts a function."""
    for line in reversed(lines[:above]):
        if line[0].isalpha():
            return f" {line.rstrip()}"[:81]
    return ""


def _write_tree(files: dict[str, list[str]], root: Path) -> None:
    for path, lines in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("".join(lines))
    info = root / f"{ENGINE}-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {ENGINE}\nVersion: {VERSION}\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    rows = [f"{path},," for path in sorted(files)]
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/METADATA,,", f"{info.name}/RECORD,,", ""]))


if __name__ == "__main__":
    main()
