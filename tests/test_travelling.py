"""The runtime parts that a patch needs come with it, as files of its layer, and go with it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

import patchkit.wanted
from patchkit.cli.main import run
from patchkit.errors import SeriesError
from patchkit.target import find_targets
from patchkit.travelling import runtime_patch

PATCH = """Subject: [PATCH] Say hello

Needs-Runtime: {parts}
---
--- a/vllm/engine.py
+++ b/vllm/engine.py
@@ -1,2 +1,3 @@
 one = 1
+from vllm._patchkit import batching
 two = 2
"""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "runtime"
    (place / "attention").mkdir(parents=True)
    (place / "batching.py").write_text("LIMIT = 8\n")
    (place / "attention" / "__init__.py").write_text("")
    (place / "attention" / "reference.py").write_text("WINDOW = 512\n")
    monkeypatch.setattr(patchkit.wanted, "runtime_directory", lambda: place)
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "site"
    (place / "vllm").mkdir(parents=True)
    (place / "vllm" / "engine.py").write_text("one = 1\ntwo = 2\n")
    info = place / "vllm-0.6.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.6.3\n")
    (info / "RECORD").write_text("vllm/engine.py,,\nvllm-0.6.3.dist-info/RECORD,,\n")
    return place


def _series(tmp_path: Path, parts: str) -> Path:
    directory = tmp_path / "ours"
    directory.mkdir()
    (directory / "0001-hello.patch").write_text(PATCH.format(parts=parts))
    (directory / "series").write_text("0001-hello.patch\n")
    return directory


def _contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_parts_travel_into_the_package_and_leave_with_the_layer(runtime: Path, root: Path, tmp_path: Path) -> None:
    before = _contents(root)
    directory = _series(tmp_path, "batching, attention")
    options = ["--root", str(root), "--patches", str(directory), "--no-shipped", "--unlocked"]
    assert run(["apply", *options]) == 0
    place = root / "vllm" / "_patchkit"
    assert (place / "batching.py").read_text() == "LIMIT = 8\n"
    assert (place / "attention" / "reference.py").read_text() == "WINDOW = 512\n"
    assert (place / "__init__.py").read_text() == ""
    record = (root / "vllm-0.6.3.dist-info" / "RECORD").read_text()
    assert "vllm/_patchkit/attention/reference.py,sha256=" in record
    assert run(["apply", *options]) == 0
    shutil.rmtree(runtime)  # what is in the tree does not need the tool's own files any more
    assert run(["status", "--root", str(root)]) == 0
    assert run(["revert", "--root", str(root)]) == 0
    assert _contents(root) == before
    assert not place.exists()


def test_an_unknown_part_is_named(runtime: Path, root: Path) -> None:
    (tree,) = find_targets(root=root)
    with pytest.raises(SeriesError, match="tracing: no such part") as refused:
        runtime_patch({"tracing"}, runtime, tree)
    assert "attention, batching" in refused.value.why
    with pytest.raises(SeriesError):
        runtime_patch({"../batching"}, runtime, tree)
