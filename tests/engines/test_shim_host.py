"""The host library against PyTorch, in the environment of an engine."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.engines.recipe import HERE, VLLM_063, python_of
from tests.engines.shimmed import host_library

pytestmark = pytest.mark.engines


def test_the_host_library_agrees_with_pytorch() -> None:
    script = [python_of(VLLM_063), HERE / "inside" / "host_attention.py", host_library()]
    said = subprocess.run(script, capture_output=True, text=True, check=True, timeout=300)
    differences = json.loads(said.stdout)
    assert len(differences) == 4
    assert max(differences) < 1e-6
