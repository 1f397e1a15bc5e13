"""Whether the files of a distribution are those that its RECORD lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.audit import Audit, audit_package
from patchkit.target import find_targets
from patchkit.tree import open_entries
from tests.blackbox.wheels import engine, wheel_tree, write_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "site", wheel_tree("vllm", "0.6.3", engine()))


def audit(root: Path) -> Audit | None:
    [tree] = find_targets(root=root)
    return audit_package(tree, open_entries(root))


def edited(root: Path) -> list[str]:
    found = audit(root)
    assert found is not None
    return [str(path) for path in found.edited]


def test_installed_files_are_as_recorded(root: Path) -> None:
    found = audit(root)
    assert found is not None
    assert (found.listed, found.compared, found.edited) == (7, 4, ())


def test_edited_and_missing_files_are_named_in_order(root: Path) -> None:
    (root / "vllm/layers/attention.py").write_text("x = 1\n")
    (root / "vllm/engine.py").unlink()
    assert edited(root) == ["vllm/engine.py", "vllm/layers/attention.py"]


def test_file_swapped_for_a_link_or_a_directory_is_not_as_installed(root: Path) -> None:
    content = (root / "vllm/engine.py").read_bytes()
    (root / "copy.py").write_bytes(content)
    (root / "vllm/engine.py").unlink()
    (root / "vllm/engine.py").symlink_to("../copy.py")
    (root / "vllm/__init__.py").rename(root / "vllm/init.py")
    (root / "vllm/__init__.py").mkdir()
    assert edited(root) == ["vllm/__init__.py", "vllm/engine.py"]


def test_directory_swapped_for_a_link_is_not_followed(root: Path) -> None:
    (root / "vllm/layers").rename(root / "layers")
    (root / "vllm/layers").symlink_to("../layers")
    assert edited(root) == ["vllm/layers/__init__.py", "vllm/layers/attention.py"]


def test_row_that_leads_out_of_the_tree_is_not_followed(root: Path) -> None:
    record = root / "vllm-0.6.3.dist-info/RECORD"
    record.write_bytes(record.read_bytes() + b"vllm/../../secret,sha256=AAAA,1\n")
    assert edited(root) == ["vllm/../../secret"]


def test_files_that_nobody_compares_are_listed_only(root: Path) -> None:
    record = root / "vllm-0.6.3.dist-info/RECORD"
    record.write_bytes(record.read_bytes() + b"vllm/_C.so,sha256=AAAA,99999999\nvllm/x.pyc,,\n")
    found = audit(root)
    assert found is not None
    assert (found.listed, found.compared, found.edited) == (9, 4, ())


def test_tree_without_a_record_has_no_audit(root: Path) -> None:
    (root / "vllm-0.6.3.dist-info/RECORD").unlink()
    assert audit(root) is None
