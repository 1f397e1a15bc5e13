"""What is tested here is written in torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.without_torch import module_for


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return module_for(module_path, parent)


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run() -> None:
    import torch

    torch.manual_seed(0)
