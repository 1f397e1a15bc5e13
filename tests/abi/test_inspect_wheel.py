"""Wheels made to hurt, or spoilt on the way: an error that says so, and no verdict on half of one."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.abi.inspect_wheel import inspect_tree, snapshot_of_wheel
from patchkit.abi.snapshot import read_snapshot
from patchkit.errors import ObjectFormatError, TargetError
from tests.abi.binaries import calling, compile_shared, needs_compiler, unpacked_wheel, zipped

pytestmark = needs_compiler
_LIBRARY = "sgl_kernel/_C.abi3.so"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = compile_shared(tmp_path / "made", "made.so", calling())
    return unpacked_wheel(tmp_path / "kernel", {_LIBRARY: made.read_bytes()})


def told(text: str) -> None:
    """Take what would be progress."""


def _with_a_dot(root: Path, file: Path) -> None:
    with zipfile.ZipFile(zipped(root, file), "a") as archive:
        archive.writestr(zipfile.ZipInfo("."), b"x")


def _leading_out(root: Path, file: Path) -> None:
    with zipfile.ZipFile(zipped(root, file), "a") as archive:
        for name in ("../../evil.so", "/evil.so", "a\\..\\..\\evil.so"):
            archive.writestr(zipfile.ZipInfo(name), b"x")


@pytest.mark.parametrize("make", [_with_a_dot, _leading_out])
def test_names_that_are_no_places_in_a_wheel_are_left_out(
    make: Callable[[Path, Path], None], root: Path, tmp_path: Path
) -> None:
    make(root, tmp_path / "a.whl")
    [one] = snapshot_of_wheel(tmp_path / "a.whl", tell=told).wheel.objects
    assert (one.path, one.fault) == (_LIBRARY, "")


def test_damaged_lzma_is_an_error(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for path in sorted(root.rglob("*.*")):
            if path.is_file():
                archive.write(path, path.relative_to(root).as_posix())
        packed = archive.getinfo(_LIBRARY)
    content = bytearray(file.read_bytes())
    begins = packed.header_offset + 30 + len(_LIBRARY) + 9  # behind the local header and lzma's own
    for place in range(begins, begins + 8):
        content[place] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(TargetError, match="not a wheel that can be read"):
        snapshot_of_wheel(file, tell=told)


def test_a_wheel_larger_than_the_disk_is_not_begun(root: Path, tmp_path: Path) -> None:
    file = zipped(root, tmp_path / "a.whl")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("sgl_kernel/bomb.so", b"")
        archive.getinfo("sgl_kernel/bomb.so").file_size = 1 << 50  # what the directory of the archive promises
    with pytest.raises(TargetError, match="too large to unpack"):
        snapshot_of_wheel(file, tell=told)


def test_a_pipe_is_no_wheel_and_no_snapshot(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TargetError, match="not a file"):
        snapshot_of_wheel(tmp_path / "pipe", tell=told)
    with pytest.raises(ObjectFormatError, match="not a snapshot"):
        read_snapshot(tmp_path / "pipe")


@pytest.mark.parametrize("name", [_LIBRARY, f"sgl_kernel/{'a' * 300}.so", "sgl_kernel/__init__.py/a.so"])
def test_a_library_that_is_listed_and_not_there_is_a_fault(name: str, root: Path) -> None:
    (root / _LIBRARY).unlink()
    record = root / "sgl_kernel-9.9.9.dist-info" / "RECORD"
    record.write_text(f"{name},,\n")
    [one] = inspect_tree(root, record.parent.name).objects
    assert one.path == name
    assert one.fault
