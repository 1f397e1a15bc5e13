"""Triton's kernels without a GPU: interpreted against the reference, and compiled for Hopper."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from patchkit.runtime.attention.registry import FAMILIES

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.skipif("triton" not in {needs for _, needs in FAMILIES}, reason="there is no Triton kernel"),
]

# Few and short: a program of the interpreter runs thousands of times slower than on a GPU. `attention check` runs all.
CASES = (
    *("odd lengths", "paged decode, three kv heads", "empty rows", "a NaN that some rows see", "learned anchors"),
    *("large scores", "both-sided, anchors on both sides of the window", "anchors beyond a tile"),
    *("rows and upstream gradients with NaN", "paged chunks, no anchors"),
)


def attention(checkout: Path, *arguments: str, interpret: bool) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1" if interpret else "0"}
    command = [sys.executable, "-W", "ignore", "-m", "patchkit", "attention", *arguments, "--json"]
    run = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    document: dict[str, Any] = json.loads(run.stdout)
    assert "error" not in document, document
    return document


@pytest.mark.parametrize("text", CASES)
def test_interpreted_kernels_are_right(checkout: Path, text: str) -> None:
    document = attention(checkout, "check", "--device", "cpu", "--case", text, "--dtype", "float16", interpret=True)
    triton = [row for row in document["results"] if row["kernel"].startswith("triton")]
    assert [row for row in triton if row["faults"]] == []
    assert [row for row in triton if not row["refusal"]], "some kernel took the case"


def test_every_kernel_compiles_for_hopper(checkout: Path) -> None:
    kernels = attention(checkout, "check", "--compile", interpret=False)["kernels"]
    assert kernels
    assert [(row["kernel"], row["fault"]) for row in kernels if row["fault"]] == []
    assert all(row["code"] > 0 for row in kernels)
