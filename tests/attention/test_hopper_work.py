"""What a block of the Hopper prefill works on, native/attention/work.cuh: g++ compiles it, plain loops hold it.

Every query is handed out once; its rows get the keys that they see and no others, each once; what is multiplied was
copied; no table is read behind a sequence's last page. tests/native/programs/work.cpp walks random batches.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

_BATCHES = 100  # of each shape and number of packed heads
_SHAPE = re.compile(r"^using Shape\d+ = Shape<(\d+, \d+, \d+)>;$", re.MULTILINE)


@pytest.mark.parametrize("paged", [False, True], ids=["packed", "pages"])
def test_every_row_meets_the_keys_that_it_sees(checkout: Path, tmp_path: Path, *, paged: bool) -> None:
    native = checkout / "native" / "attention"
    shapes = _SHAPE.findall((native / "prefill.cu").read_text())
    assert len(shapes) == 2, "one for each head dim"
    program = tmp_path / "work"
    command = (
        *("g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"),
        *("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"),
        *(f"-DSHAPES={' '.join(f'SHAPE({shape})' for shape in shapes)}", f"-DPAGED={int(paged)}"),
        *("-I", str(native), "-o", str(program), str(checkout / "tests/native/programs/work.cpp")),
    )
    subprocess.run(command, check=True)
    run = subprocess.run([str(program), "1", str(_BATCHES)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    met = {name: int(count) for name, count in (line.split() for line in run.stdout.splitlines())}
    rare = {name: count for name, count in met.items() if count < _BATCHES}
    assert len(met) == 9, met
    assert not rare, f"hardly ever met, so not tested: {rare}"
