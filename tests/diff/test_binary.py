"""Binary patches against git's own."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from patchkit.diff.binary import apply_binary
from patchkit.diff.model import BinaryHunk, BinaryKind, BinaryPatch
from patchkit.diff.parse import parse_patch
from patchkit.errors import PatchFormatError, RefusedError


def delta_of(*parts: bytes) -> BinaryPatch:
    return BinaryPatch(forward=BinaryHunk(kind=BinaryKind.DELTA, payload=b"".join(parts)), reverse=None)


def git_diff(root: Path, old: bytes, new: bytes) -> bytes:
    for side, content in (("a", old), ("b", new)):
        (root / side).mkdir()
        (root / side / "f").write_bytes(content)
    command = ["git", "diff", "--no-index", "--no-prefix", "--binary", "a", "b"]
    return subprocess.run(command, cwd=root, check=False, capture_output=True).stdout


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 51, 52, 53, 900, 70_000, 200_000])
def test_git_binary_patches_apply_in_both_directions(tmp_path: Path, size: int) -> None:
    chance = random.Random(size)  # noqa: S311 - the same content every time
    old = b"\0" + chance.randbytes(size)
    new = old[: size // 2] + b"\0changed" + old[size // 3 :] + chance.randbytes(7)
    patch = parse_patch(git_diff(tmp_path, old, new), source="x")
    binary = patch.files[0].binary
    assert binary is not None
    assert apply_binary(binary, old) == new
    assert apply_binary(BinaryPatch(forward=binary.reverse, reverse=None), new) == old


def test_all_instructions_of_a_delta_are_followed() -> None:
    content = bytes(range(256)) * 300
    copy_all_defaults = b"\x80"  # offset 0, length 0x10000
    copy = b"\x91\x05\x03"  # offset 5, length 3
    sizes = b"\x80\xd8\x04" + b"\x85\x80\x04"
    assert (
        apply_binary(delta_of(sizes, copy_all_defaults, copy, b"\x02hi"), content)
        == content[:0x10000] + content[5:8] + b"hi"
    )


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        (b"\x03\x01\x01x", "made for 3 bytes, the file has 2"),
        (b"\x02\x01\x91\x05\x01", "reaches outside"),
        (b"\x02\x01\x00", "reaches outside"),
        (b"\x02\x05\x05ab", "reaches outside"),
        (b"\x02\x01\x02ab", "reaches outside"),
        (b"\x02\x05\x01a", "makes 1 byte instead of 5"),
        (b"\x02\x01\x91\x05", "ends too early"),
        (b"\x02", "ends too early"),
        (b"", "ends too early"),
        (b"\xff" * 11 + b"\x01", "out of range"),
        (b"\x02\xff\xff\xff\xff\x7f", "is the most"),
    ],
)
def test_a_delta_that_does_not_fit_is_refused(delta: bytes, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        apply_binary(delta_of(delta), b"ab")


def test_a_notice_without_data_cannot_be_applied() -> None:
    with pytest.raises(RefusedError, match="does not hold its content"):
        apply_binary(BinaryPatch(forward=None, reverse=None), b"")


def test_the_sizes_of_a_whole_patch_are_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = git_diff(tmp_path, b"\0", b"\0" * 60_000)
    monkeypatch.setattr("patchkit.diff.parse.MAX_BINARY", 100_000)
    assert len(parse_patch(raw, source="x").files) == 1
    with pytest.raises(PatchFormatError, match="too long"):
        parse_patch(raw + raw, source="x")


def test_data_that_inflates_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    raw = (
        git_diff(tmp_path, b"\0", b"\0" * 60_000)
        .replace(b"literal 60000", b"literal 59999")
        .replace(b"delta ", b"delta 1")
    )
    with pytest.raises(PatchFormatError, match="does not inflate to"):
        parse_patch(raw, source="x")
