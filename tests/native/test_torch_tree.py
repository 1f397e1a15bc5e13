"""The torch beside an engine: what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import TargetError
from patchkit.native.torch_tree import find_torch
from patchkit.target import find_targets
from tests.blackbox.wheels import engine, wheel_tree, write_tree


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        ("torch==2.4.0", "install torch 2.4.0, which the engine pins, there"),
        ("torch>=2.4", "install the torch that the engine pins there"),
    ],
)
def test_torch_to_install_is_named_with_its_version(required: str, expected: str, tmp_path: Path) -> None:
    root = write_tree(tmp_path, wheel_tree("vllm", "0.6.3", engine()))
    metadata = root / "vllm-0.6.3.dist-info/METADATA"
    head, gap, body = metadata.read_text().partition("\n\n")
    metadata.write_text(f"{head.rstrip()}\nRequires-Dist: {required}\n{gap}{body}")
    (tree,) = find_targets(root=root)
    with pytest.raises(TargetError, match="no torch beside") as missing:
        find_torch(tree)
    assert missing.value.hint.startswith(expected)
