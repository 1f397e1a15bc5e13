"""What a guard costs: `python -m benchmarks.guard_cost`.

In a hot function: 100 guards in a row, against the same function without them, in nanoseconds of CPU. On a flip: CPU
time of `patchkit config set` on a copy of sglang 0.5.9 in which ten files of slime's patch are guarded (where
../shared is beside the checkout), and of `patchkit config show`, which reads the same and writes nothing. Exit status 1
when a guard costs more than 10 ns, or a folded one more than half of one.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from benchmarks.guards import PATCHES
from benchmarks.measure import machine

GUARDS = 100
CALLS = 20_000
FILES = 10
HEADER = b"Subject: [PATCH] guarded\n\nConfig: SLIME\nToggle: guard\n---\n"


def main() -> int:
    """Print both tables."""
    print(machine())
    plain = nanoseconds("pass")
    good = True
    for name, guard, limit in (
        ("folded (if False:)", "if False: x += 1", 0.5),
        ("constant, off", "if CONFIG_OFF: x += 1", 10.0),
        ("constant, on", "if CONFIG_ON: pass", 10.0),
        ("choice, off", "x if CONFIG_OFF else x", None),
        ("os.environ.get", "if os.environ.get('CONFIG_OFF'): x += 1", None),
    ):
        cost = (nanoseconds(guard) - plain) / GUARDS
        missed = limit is not None and cost > limit
        print(f"{name:20} {cost:8.1f} ns a guard{f'  over its limit of {limit} ns' if missed else ''}")
        good = good and not missed
    patch = PATCHES / "slime-v0.5.9" / "01-sglang.patch"
    if patch.is_file():
        print_flips(patch)
    return 0 if good else 1


def nanoseconds(statement: str) -> float:
    """Return the time of a call of a function that holds a statement so many times: the best of seven."""
    body = "".join(f"    {statement}\n" for _ in range(GUARDS))
    space: dict[str, object] = {"CONFIG_ON": True, "CONFIG_OFF": False, "os": os}
    exec(f"def hot(x):\n{body}    return x\n", space)  # noqa: S102 -- the statements above
    hot = space["hot"]
    assert callable(hot)  # noqa: S101 -- for the type checker
    timed: Callable[[], object] = lambda: hot(1)  # noqa: E731
    return min(timeit.repeat(timed, timer=time.process_time, number=CALLS, repeat=7)) / CALLS * 1e9


def print_flips(patch: Path) -> None:
    """Apply ten files of a real patch in guard mode, and flip the toggle."""
    from tests.blackbox.released import released_tree

    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as scratch:
        root = Path(shutil.copytree(released_tree("sglang", "0.5.9"), Path(scratch, "site"), symlinks=True))
        series = Path(scratch, "own", "sglang", "0.5.9")
        series.mkdir(parents=True)
        parts = patch.read_bytes().split(b"diff --git ")
        (series / "0001-slime.patch").write_bytes(
            HEADER + b"".join(b"diff --git " + one for one in parts[1 : FILES + 1])
        )
        (series / "series").write_text("0001-slime.patch -p2\n")
        (series.parent / "Kconfig").write_text('config SLIME\n\tbool "slime"\n')
        where = ["--root", str(root), "--target", "sglang", "--patches", str(series.parent.parent), "--no-shipped"]
        print(f"apply, {FILES} files made and verified {_cpu('apply', '--unlocked', *where):8.0f} ms of CPU")
        for command in (("config", "show"), ("config", "set", "CONFIG_SLIME=y"), ("config", "set", "CONFIG_SLIME=n")):
            print(f"{' '.join(command):40} {_cpu(*command, *where):8.0f} ms of CPU")


def _cpu(*arguments: str) -> float:
    """Return the CPU time of a command, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "patchkit", *arguments], check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    sys.exit(main())
