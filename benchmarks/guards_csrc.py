"""Guards in C++ and CUDA: `python -m benchmarks.guards_csrc OLD NEW [NEWER ...]`, unpacked sdists of vllm.

Every file below csrc/ that two consecutive trees have both, and that differs, is taken as a patch under one toggle.
Both variants must come back exactly: from unifdef byte for byte, and from the preprocessor token for token (g++ -E,
without includes, which are not there, and __LINE__). What unifdef cannot read (raw strings, 1'000) is counted.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from patchkit.config.guard_edit import Level
from patchkit.config.guard_files import guard_c
from patchkit.config.guard_settle import GuardStep, Terms

C_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hip"})

TERMS = Terms(module="", needs={}, values={})
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include\b[^\n]*", re.MULTILINE)


def main() -> int:
    """Judge consecutive pairs of the trees that the command line names."""
    trees = [Path(one) for one in sys.argv[1:]]
    total: Counter[str] = Counter()
    for old, new in pairwise(trees):
        total += judge(old, new)
    print(", ".join(f"{name} {count}" for name, count in total.items()))
    return int(bool(total["wrong"]))


def judge(old: Path, new: Path) -> Counter[str]:
    """Judge every file that both trees have and that differs."""
    found: Counter[str] = Counter()
    for path in sorted(old.rglob("*")):
        other = new / path.relative_to(old)
        if path.suffix in C_SUFFIXES and path.is_file() and other.is_file():
            before, after = path.read_bytes(), other.read_bytes()
            if before != after:
                found += _judge_file(path.relative_to(old), before, after)
    return found


def _judge_file(path: Path, before: bytes, after: bytes) -> Counter[str]:
    guarded = guard_c(before, [GuardStep(symbol="X", content=after)], TERMS)
    found = Counter({"files": 1, "regions": len(guarded.regions)})
    found["widened"] = sum(region.level > Level.STATEMENT for region in guarded.regions)
    if guarded.content is None:
        print(f"{path}: {guarded.refusals[0].reason}")
        found["wrong"] += 1
        return found
    content = guarded.content
    for options, plain in ((["-DCONFIG_X=1"], after), (["-UCONFIG_X"], before)):
        reread = subprocess.run(["unifdef", *options], input=content, capture_output=True, check=False)
        if reread.returncode > 1:
            found["not read by unifdef"] += 1
        elif reread.stdout != _ended(plain):
            print(f"{path}: unifdef {options[0]} gives another file")
            found["wrong"] += 1
        if _preprocessed(content, options) != _preprocessed(plain, options):
            print(f"{path}: g++ -E {options[0]} gives another file")
            found["wrong"] += 1
    return found


def _ended(content: bytes) -> bytes:
    return content if content.endswith(b"\n") else content + b"\n"


def _preprocessed(content: bytes, options: list[str]) -> tuple[int, list[bytes]]:
    command = ["g++", "-E", "-P", "-w", "-x", "c++", "-std=c++17", *options, "-"]
    source = _INCLUDE.sub(b"", content).replace(b"__LINE__", b"LINE_")
    made = subprocess.run(command, input=source, capture_output=True, check=False)
    return made.returncode, made.stdout.split()  # -P breaks lines by the number of lines above


if __name__ == "__main__":
    sys.exit(main())
