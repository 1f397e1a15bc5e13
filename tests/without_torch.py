"""Test modules that need torch: skipped with a reason where it is missing, an error in `make test`, which installs
it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest


class _Skipped(pytest.Module):
    def collect(self) -> NoReturn:
        pytest.skip("torch is not installed", allow_module_level=True)


def module_for(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Return the module to collect in place of one that would fail to import; None where torch is there."""
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)  # small tensors, and test workers beside each other
        return None
    if os.environ.get("PATCHKIT_WHOLE"):
        raise pytest.UsageError("torch is missing: run make again, its environment is not whole")
    module: pytest.Module = _Skipped.from_parent(parent, path=path)
    return module
