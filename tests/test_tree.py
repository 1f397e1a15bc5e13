from __future__ import annotations

import gc
import hashlib
import os
import socket
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from patchkit import tree
from patchkit.errors import RefusedError, TargetError, UnsafePathError
from patchkit.tree import Entries, Kind, TreeEntry, open_entries, sha256_of

P = PurePosixPath


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "pkg" / "sub").mkdir(parents=True)
    (root / "pkg" / "a.py").write_bytes(b"a\r\n\xff")
    (root / "pkg" / "a.py").chmod(0o640)
    (root / "pkg" / "sub" / "run.sh").write_bytes(b"#!")
    (root / "pkg" / "sub" / "run.sh").chmod(0o755)
    return root


def open_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def outside(root: Path) -> Path:
    secret = root.parent / "outside"
    secret.mkdir()
    (secret / "secret.py").write_bytes(b"secret")
    return secret


def test_file_is_read_with_its_bytes_and_its_permissions(root: Path) -> None:
    entries = open_entries(root)
    assert entries[P("pkg/a.py")] == TreeEntry(kind=Kind.FILE, mode=0o640, content=b"a\r\n\xff")
    assert entries[P("pkg/sub/run.sh")].mode == 0o755


def test_contents_are_read_anew_each_time(root: Path) -> None:
    entries = open_entries(root)
    assert entries[P("pkg/a.py")].content == b"a\r\n\xff"
    (root / "pkg" / "a.py").write_bytes(b"b")
    assert entries[P("pkg/a.py")].content == b"b"


def test_empty_and_large_files_are_read_whole(root: Path) -> None:
    (root / "empty").touch()
    (root / "large").write_bytes(b"0123456789" * 500_000)
    entries = open_entries(root)
    assert entries[P("empty")].content == b""
    assert entries[P("large")].content == b"0123456789" * 500_000


def test_directory_is_a_directory_and_so_is_the_root(root: Path) -> None:
    entries = open_entries(root)
    assert entries[P("pkg/sub")].kind is Kind.DIRECTORY
    assert entries[P()].kind is Kind.DIRECTORY


@pytest.mark.parametrize(
    "path", ["none", "pkg/none.py", "none/none/none.py", "pkg/a.py/below", "pkg/a.py/below/it", "x" * 300, "é/é"]
)
def test_absent_path_is_a_key_error_and_not_contained(root: Path, path: str) -> None:
    entries = open_entries(root)
    with pytest.raises(KeyError):
        entries[P(path)]
    assert P(path) not in entries
    assert entries.get(P(path)) is None


def test_symlink_is_its_target_and_is_not_followed(root: Path) -> None:
    secret = outside(root)
    (root / "pkg" / "link").symlink_to(secret / "secret.py")
    (root / "pkg" / "dangling").symlink_to("nowhere")
    (root / "pkg" / "dir").symlink_to(secret)
    entries = open_entries(root)
    assert entries[P("pkg/link")].kind is Kind.SYMLINK
    assert entries[P("pkg/link")].content == os.fsencode(secret / "secret.py")
    assert entries[P("pkg/dangling")].content == b"nowhere"
    assert entries[P("pkg/dir")].kind is Kind.SYMLINK


@pytest.mark.parametrize("target", ["../outside", "pkg", "nowhere"], ids=["outside", "inside", "dangling"])
def test_path_beyond_a_symlink_is_unsafe_wherever_it_leads(root: Path, target: str) -> None:
    outside(root)
    (root / "link").symlink_to(target)
    entries = open_entries(root)
    for path in ("link/secret.py", "link/a.py", "link/x/y/z"):
        with pytest.raises(UnsafePathError) as caught:
            entries[P(path)]
        assert str(root / "link") in caught.value.why
        with pytest.raises(UnsafePathError):
            _ = P(path) in entries


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside/secret.py", "pkg/../../outside/secret.py", "pkg/..", "a\0b"]
)
def test_name_that_leaves_the_tree_or_is_none_is_unsafe(root: Path, path: str) -> None:
    outside(root)
    with pytest.raises(UnsafePathError):
        open_entries(root)[P(path)]


def test_name_that_cannot_be_encoded_is_unsafe(root: Path) -> None:
    with pytest.raises(UnsafePathError):
        open_entries(root)[P("pkg/\ud800.py")]


def test_name_of_very_many_parts_is_unsafe(root: Path) -> None:
    assert P("d/" * 255 + "x.py") not in open_entries(root)
    with pytest.raises(UnsafePathError, match=r"^(d/){20}\.\.\. is not a file name"):
        open_entries(root)[P("d/" * 2000 + "x.py")]


def test_name_that_is_not_utf8_is_read(root: Path) -> None:
    name = os.fsdecode(b"\xff.py")
    (root / name).write_bytes(b"x")
    assert open_entries(root)[P(name)].content == b"x"


def test_directory_swapped_for_a_symlink_does_not_lead_out(root: Path) -> None:
    secret = outside(root)
    (secret / "a.py").write_bytes(b"secret")
    entries = open_entries(root)
    assert P("pkg/a.py") in entries
    (root / "pkg").rename(root / "moved")
    (root / "pkg").symlink_to(secret)
    assert entries[P("pkg/a.py")].content == b"a\r\n\xff"
    with pytest.raises(UnsafePathError):
        open_entries(root)[P("pkg/a.py")]


def test_what_is_neither_file_nor_directory_is_not_opened(root: Path) -> None:
    os.mkfifo(root / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(root / "socket"))
    entries = open_entries(root)
    assert entries[P("fifo")].kind is Kind.OTHER  # would wait for a writer for ever if it were opened to read
    assert entries[P("socket")].kind is Kind.OTHER
    listener.close()


def test_unreadable_file_is_refused_by_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        real_open = os.open

        def deny(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if path == "a.py":
                raise PermissionError(13, "Permission denied", path)
            return real_open(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", deny)  # root reads everything
    (root / "pkg" / "a.py").chmod(0)
    with pytest.raises(RefusedError, match=r"pkg/a\.py") as caught:
        open_entries(root)[P("pkg/a.py")]
    assert "Permission denied" in caught.value.why


def test_file_over_the_cap_is_refused_unread(root: Path) -> None:
    with (root / "huge").open("wb") as stream:
        stream.truncate(tree.LARGEST_FILE + 1)
    with pytest.raises(RefusedError, match="larger than"):
        open_entries(root)[P("huge")]


def test_file_that_claims_no_size_is_capped_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "LARGEST_FILE", 10)
    with pytest.raises(RefusedError, match="larger than"):
        open_entries(Path("/proc/self"))[P("status")]


def test_iteration_finds_what_find_finds(root: Path) -> None:
    outside(root)
    (root / "link").symlink_to("../outside")
    found = subprocess.run(
        ["find", ".", "-mindepth", "1", "-printf", "%P\n"], cwd=root, check=True, capture_output=True
    )
    entries = open_entries(root)
    assert sorted(map(str, entries)) == sorted(found.stdout.decode().split())
    assert len(entries) == len(found.stdout.splitlines())
    assert all(path in entries for path in entries)


def test_iteration_gives_parents_first_and_the_same_order_each_time(root: Path) -> None:
    paths = list(open_entries(root))
    assert paths == list(open_entries(root)) == [P("pkg"), P("pkg/a.py"), P("pkg/sub"), P("pkg/sub/run.sh")]


def test_more_directories_than_are_kept_open_are_read(root: Path) -> None:
    for number in range(300):
        (root / f"d{number}" / "e").mkdir(parents=True)
        (root / f"d{number}" / "e" / "f").write_text(str(number))
    entries = open_entries(root)
    before = len(open_descriptors())
    for _ in range(2):
        assert [entries[P(f"d{number}/e/f")].content for number in range(300)] == [b"%d" % n for n in range(300)]
    assert len(open_descriptors()) - before <= 130


def test_deep_paths_are_read(root: Path) -> None:
    deep = "/".join(f"d{number}" for number in range(200))
    (root / deep).mkdir(parents=True)
    (root / deep / "f").write_bytes(b"deep")
    entries = open_entries(root)
    assert entries[P(deep) / "f"].content == b"deep"
    assert P(deep) / "f" in set(entries)


def test_descriptors_are_given_back(root: Path) -> None:
    gc.collect()
    before = open_descriptors()
    entries = open_entries(root)
    assert entries[P("pkg/sub/run.sh")].content == b"#!"
    assert open_descriptors() - before
    del entries
    gc.collect()
    assert open_descriptors() == before


@pytest.mark.parametrize("name", ["none", "pkg/a.py"])
def test_root_that_is_no_directory_is_named(root: Path, name: str) -> None:
    with pytest.raises(TargetError, match="cannot open"):
        open_entries(root / name)


def test_root_may_be_reached_through_a_symlink(root: Path) -> None:
    (root.parent / "alias").symlink_to(root)
    assert open_entries(root.parent / "alias")[P("pkg/a.py")].kind is Kind.FILE


def test_dict_serves_as_entries_too(root: Path) -> None:
    entries = open_entries(root)
    copied: Entries = {path: entries[path] for path in entries}
    assert copied == dict(entries)
    assert copied[P("pkg/a.py")].state == entries[P("pkg/a.py")].state


def test_digest_is_of_the_bytes_also_when_many_others_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_MOST_DIGESTS", 4)
    contents = [b"%d" % number for number in range(9)] * 2
    assert [sha256_of(content) for content in contents] == [hashlib.sha256(content).hexdigest() for content in contents]
    assert [sha256_of(b"%d" % number) for number in range(9)] == [sha256_of(content) for content in contents[:9]]
