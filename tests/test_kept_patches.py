"""Applied patches are kept alone or in a pack, read from either, and go when nothing names them."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from patchkit.errors import TreeChangedError
from patchkit.kept_patches import KeptPatches, files_to_keep, is_needed

RAW = (b"--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n", b"--- c\n+++ d\n@@ -1 +1 @@\n-c\n+d\n", b"no line end")


def _by_digest(raw: Iterable[bytes]) -> dict[str, bytes]:
    return {hashlib.sha256(one).hexdigest(): one for one in raw}


PATCHES = _by_digest(RAW)
# The first pack that was ever written, by its bytes: this and every later patchkit reads it.
OLDEST = (
    b'{"schema": 1, "patches": [["ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", 1], '
    b'["3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d", 1]]}\nab'
)


def _keep(directory: Path, patches: dict[str, bytes]) -> list[str]:
    names = []
    for name, content in files_to_keep(patches):
        (directory / name).write_bytes(content)
        names.append(name)
    return names


def test_one_patch_is_a_file_of_its_own_and_several_are_one_pack(tmp_path: Path) -> None:
    [(sha256, raw), *_] = PATCHES.items()
    assert _keep(tmp_path, {sha256: raw}) == [sha256]
    [pack] = _keep(tmp_path, PATCHES)
    assert pack.endswith(".pack")
    assert list(files_to_keep({})) == []


def test_patches_are_read_from_packs_and_from_files(tmp_path: Path) -> None:
    alone = _by_digest([b"alone"])
    _keep(tmp_path, PATCHES)
    _keep(tmp_path, alone)
    kept = KeptPatches(tmp_path)
    assert {sha256: kept.read(sha256) for sha256 in {**PATCHES, **alone}} == {**PATCHES, **alone}


def test_the_oldest_pack_is_still_read_and_written_alike(tmp_path: Path) -> None:
    patches = _by_digest([b"a", b"b"])
    (tmp_path / "any.pack").write_bytes(OLDEST)
    kept = KeptPatches(tmp_path)
    assert {sha256: kept.read(sha256) for sha256 in patches} == patches
    assert [content for _, content in files_to_keep(patches)] == [OLDEST]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"-a", b"-A", "sha256"),
        (b"no line end", b"no line", "sha256"),
        (b'"schema": 1', b'"schema": 2', "schema of a pack is 2"),
        (b'"patches"', b'"patch"', "without an index"),
        (b"{", b"\xff", ""),
        (b"{", b"[" * 200_000, "without an index"),
        (b"30]", b"Infinity]", "without an index"),
    ],
    ids=["changed", "cut", "later schema", "no index", "no JSON", "deep", "infinite"],
)
def test_a_damaged_pack_is_named_when_it_is_needed(tmp_path: Path, old: bytes, new: bytes, why: str) -> None:
    [pack] = _keep(tmp_path, PATCHES)
    content = (tmp_path / pack).read_bytes()
    assert old in content
    (tmp_path / pack).write_bytes(content.replace(old, new, 1))
    kept = KeptPatches(tmp_path)
    with pytest.raises(TreeChangedError, match="stored patch is damaged") as raised:
        [kept.read(sha256) for sha256 in PATCHES]
    assert why in raised.value.why


def test_a_patch_that_is_nowhere_is_named(tmp_path: Path) -> None:
    _keep(tmp_path, PATCHES)
    with pytest.raises(TreeChangedError, match="stored patch is damaged"):
        KeptPatches(tmp_path).read("0" * 64)


def test_a_pack_is_needed_while_one_of_its_patches_is(tmp_path: Path) -> None:
    [pack] = _keep(tmp_path, PATCHES)
    [first, *_] = PATCHES
    (tmp_path / "damaged.pack").write_bytes(b"nothing\n")
    (tmp_path / "link.pack").symlink_to(pack)
    (tmp_path / "folder.pack").mkdir()
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        needed = {
            name: is_needed(directory, name, {first}) for name in sorted(path.name for path in tmp_path.iterdir())
        }
        assert needed == {pack: True, "damaged.pack": True, "folder.pack": False, "link.pack": False}
        assert not is_needed(directory, pack, {"0" * 64})
        assert not is_needed(directory, "damaged.pack", set())
        assert is_needed(directory, first, {first})
        assert not is_needed(directory, first, set())
    finally:
        os.close(directory)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM])
def test_a_pack_that_cannot_be_opened_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Root may open anything, so the system's answer is given in its place."""
    [pack] = _keep(tmp_path, PATCHES)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("patchkit.kept_patches.os.open", refuse)
    assert is_needed(-1, pack, set(PATCHES))


def test_a_stray_pack_hinders_nobody_and_is_named_when_a_patch_is_missing(tmp_path: Path) -> None:
    [pack] = _keep(tmp_path, PATCHES)
    (tmp_path / "zz.pack").write_bytes(b"[" * 200_000)
    kept = KeptPatches(tmp_path)
    assert [kept.read(sha256) for sha256 in PATCHES] == list(RAW)
    (tmp_path / pack).unlink()
    with pytest.raises(TreeChangedError, match="stored patch is damaged") as raised:
        KeptPatches(tmp_path).read(next(iter(PATCHES)))
    assert "zz.pack cannot be read" in raised.value.why
