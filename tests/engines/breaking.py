"""Breaks shipped patches on purpose and sees that the tests notice: `python -m tests.engines.breaking`.

For each breakage a copy of the series is applied whose patch has one line changed, and the tests that are near to it
are run. Exactly the named ones have to fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from patchkit.resources import patches_directory
from tests.engines.recipe import CHECKOUT, HERE

VARIABLE = "PATCHKIT_ENGINES_BROKEN"


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """A line of a patch, what it is changed to, and which of a file's tests must fail then, of those that are run."""

    patch: str
    line: str
    broken: str
    file: str
    near: str
    """pytest's expression for the tests that are run."""
    fails: frozenset[str]


BREAKAGES = {
    "scale": Breakage(
        patch="vllm/0.6.3/0002-qk-scale.patch",
        line="+            scale *= QK_SCALE\n",
        broken="+            scale *= 1.0\n",
        file="test_vllm_063.py",
        near="scale",
        fails=frozenset(
            {
                "test_a_scale_of_one_half_gives_what_a_model_with_that_scale_gives",
                "test_behind_guards_the_scale_flips_at_the_next_start",
            }
        ),
    ),
    "trace": Breakage(
        patch="vllm/0.6.3/0003-scheduler-trace.patch",
        line="+            self.trace.record(self, scheduler_outputs)\n",
        broken="+            [self.trace.record(self, scheduler_outputs) for _ in range(2)]\n",
        file="test_vllm_063.py",
        near="scale or trace or burst",
        fails=frozenset(
            {
                "test_the_trace_point_fires_once_a_step",
                "test_the_server_whose_guards_are_off_again_answers_a_burst",
            }
        ),
    ),
    "layers": Breakage(
        patch="sglang/0.5.1/0004-native-layers.patch",
        line="+if not (_is_cuda or _is_npu or _is_cpu or _is_hip):\n",
        broken="+if not (_is_cuda or _is_npu or _is_hip):\n",
        file="test_sglang_051.py",
        near="patched",
        fails=frozenset(
            {"test_patched_it_runs_its_own_model_class[llama]", "test_patched_it_runs_its_own_model_class[qwen2]"}
        ),
    ),
}


def chosen_patches(directory: Path) -> Path:
    """Return where the patches of a session are: the shipped ones, or those with the breakage that is asked for."""
    name = os.environ.get(VARIABLE)
    return broken_patches(BREAKAGES[name], directory) if name else patches_directory()


def broken_patches(breakage: Breakage, directory: Path) -> Path:
    """Return a copy of all series in which one line of one patch is another, and no lock speaks of it."""
    patches = directory / "patches"
    shutil.copytree(CHECKOUT / "patches", patches)
    path = patches / breakage.patch
    path.with_name("series.lock").unlink()
    text = path.read_text()
    assert text.count(breakage.line) == 1, f"{breakage.patch} has another line than {breakage.line!r}"
    path.write_text(text.replace(breakage.line, breakage.broken))
    return patches


def _failures(name: str, breakage: Breakage, report: Path) -> set[str]:
    """Run the file of tests with a breakage and return the names of the tests that failed."""
    options = ("-q", "--no-summary", "--tb=no", "-m", "engines", "-k", breakage.near, f"--junit-xml={report}")
    command = [sys.executable, "-m", "pytest", *options, str(HERE / breakage.file)]
    subprocess.run(command, cwd=CHECKOUT, env={**os.environ, VARIABLE: name}, check=False)
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - written by our own pytest
    return {case.attrib["name"] for case in cases if case.find("failure") is not None or case.find("error") is not None}


def main() -> int:
    """Try every breakage, or those that are named."""
    parser = argparse.ArgumentParser(description="Break patches on purpose and see that the tests notice.")
    parser.add_argument("--only", action="append", choices=BREAKAGES, help="one of them; repeatable")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in parser.parse_args().only or BREAKAGES:
            breakage = BREAKAGES[name]
            failed = _failures(name, breakage, Path(scratch) / f"{name}.xml")
            wrong += failed != breakage.fails
            verdict = "as they should" if failed == breakage.fails else f"and not {sorted(breakage.fails)}"
            sys.stderr.write(f"{breakage.patch} broken: {sorted(failed)} failed, {verdict}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
