"""The lock says which artifact a tree is, and refuses to be anything but a lock."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.errors import SeriesError
from patchkit.lock import (
    Lock,
    LockedArtifact,
    LockedBelow,
    LockedFile,
    lock_command,
    match_lock,
    parse_lock,
    read_lock,
    render_lock,
    stale_patches,
)
from patchkit.record import replace
from tests.making import target

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)

LOCK = Lock(
    artifacts=(
        LockedArtifact(
            file="vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl",
            sha256=D,
            version="0.6.3",
            files=(
                LockedFile(path="vllm/new.py", pristine=None, patched=A),
                LockedFile(path="vllm/old.py", pristine=B, patched=None),
                LockedFile(path="vllm/version.py", pristine=A, patched=C),
            ),
        ),
    ),
    patches=(("0001-version.patch", B), ("sub/0002-scale.patch", C)),
)

WRITTEN = f"""\
{{
  "artifacts": [
    {{
      "file": "vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl",
      "files": {{
        "vllm/new.py": {{
          "patched": "{A}",
          "pristine": null
        }},
        "vllm/old.py": {{
          "patched": null,
          "pristine": "{B}"
        }},
        "vllm/version.py": {{
          "patched": "{C}",
          "pristine": "{A}"
        }}
      }},
      "sha256": "{D}",
      "version": "0.6.3"
    }}
  ],
  "patches": {{
    "0001-version.patch": "{B}",
    "sub/0002-scale.patch": "{C}"
  }},
  "schema": 1
}}
""".encode()
"""The oldest form of the file that was ever written: it must be read for ever."""


def test_oldest_lock_ever_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "series.lock").write_bytes(WRITTEN)

    assert read_lock(tmp_path / "series.lock") == LOCK


def test_lock_is_written_sorted_with_one_newline_at_the_end() -> None:
    assert render_lock(LOCK) == WRITTEN


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["schema", "patches", "artifacts", "files", "file", "a.patch"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None, database=None)
@given(patches=_JSON, artifacts=_JSON)
def test_any_document_is_a_lock_or_an_error(patches: object, artifacts: object) -> None:
    raw = json.dumps({"schema": 1, "patches": patches, "artifacts": artifacts}).encode()

    with contextlib.suppress(SeriesError):
        assert isinstance(parse_lock(raw, source="l"), Lock)


_SHA = st.text("0123456789abcdef", min_size=64, max_size=64)
_NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\x7f."), min_size=1, max_size=8)
_FILES = st.dictionaries(_NAME, st.tuples(st.none() | _SHA, st.none() | _SHA), max_size=4)


@settings(max_examples=50, deadline=None, database=None)
@given(
    patches=st.dictionaries(_NAME, _SHA, max_size=4),
    sections=st.dictionaries(st.tuples(_NAME, _NAME), _FILES, max_size=3),
)
def test_written_lock_reads_back(
    patches: dict[str, str], sections: dict[tuple[str, str], dict[str, tuple[str | None, str | None]]]
) -> None:
    artifacts = tuple(
        LockedArtifact(
            file=file,
            sha256=A,
            version=version,
            files=tuple(LockedFile(path=p, pristine=s[0], patched=s[1]) for p, s in sorted(files.items())),
        )
        for (version, file), files in sorted(sections.items())
    )
    lock = Lock(artifacts=artifacts, patches=tuple(sorted(patches.items())))

    assert parse_lock(render_lock(lock), source="l") == lock


def _document() -> dict[str, object]:
    document = json.loads(WRITTEN)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "unknown schema\nthis patchkit reads schema 1, the file says 2"),
        ({"schema": None}, "unknown schema"),
        ({"extra": 1}, "the lock is malformed\nexpected the keys artifacts, patches, schema"),
        ({"patches": []}, "patches is malformed\nexpected an object"),
        ({"patches": {"a.patch": "00"}}, "a.patch is malformed\nexpected a sha256"),
        ({"patches": {"a.patch": 7}}, "a.patch is malformed"),
        ({"patches": {"../a.patch": A}}, "a path is malformed"),
        ({"artifacts": {}}, "artifacts is malformed\nexpected a list"),
        ({"artifacts": [3]}, r"artifacts\[0\] is malformed"),
        ({"artifacts": [{"file": "f", "sha256": A, "version": "1"}]}, "expected the keys file, files, sha256, version"),
        (
            {"artifacts": [{"file": "../f", "sha256": A, "version": "1", "files": {}}]},
            r"artifacts\[0\].file is malformed",
        ),
        ({"artifacts": [{"file": "f", "sha256": A, "version": "\x1b[2J", "files": {}}]}, r"version is malformed"),
    ],
)
def test_document_that_is_no_lock_is_refused(change: dict[str, object], message: str) -> None:
    raw = json.dumps(_document() | change).encode()

    with pytest.raises(SeriesError, match=message):
        parse_lock(raw, source="series.lock")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/", "", "a\nb", "a/\x00", "a\ud800"], ids=ascii
)
def test_path_that_could_leave_the_tree_is_refused(path: str) -> None:
    section = {"file": "f", "sha256": A, "version": "1", "files": {path: {"pristine": A, "patched": A}}}

    with pytest.raises(SeriesError, match="a path is malformed"):
        parse_lock(json.dumps(_document() | {"artifacts": [section]}).encode(), source="l")


def test_path_that_a_patch_may_have_is_one_that_a_lock_may_have() -> None:
    odd = replace(LOCK.artifacts[0].files[0], path="vllm/a\tb\x7f.py")
    lock = replace(LOCK, artifacts=(replace(LOCK.artifacts[0], files=(odd,)),))
    assert parse_lock(render_lock(lock), source="l") == lock


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1, "schema": 1}', b"[]", b"1" * 5000],
    ids=["empty", "cut", "not text", "deep", "key twice", "list", "long number"],
)
def test_bytes_that_are_no_lock_are_refused(raw: bytes) -> None:
    with pytest.raises(SeriesError):
        parse_lock(raw, source="l")


def test_missing_lock_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(SeriesError, match=r"series\.lock: cannot be read"):
        read_lock(tmp_path / "series.lock")


TREE: dict[str, str | None] = {"vllm/new.py": None, "vllm/old.py": B, "vllm/version.py": A}


@pytest.mark.parametrize("version", ["0.6.3", "0.6.3+cpu", "0.6.3.0", "v0.6.3"])
def test_tree_with_the_same_hashes_is_the_locked_artifact(version: str) -> None:
    match = match_lock(LOCK, version=version, pristine=TREE.get)

    assert match.artifact is LOCK.artifacts[0]
    assert match.mismatched == ()


@pytest.mark.parametrize("version", ["0.6.4", "0.6.3.post1", "0.6.3rc1", "dev", ""])
def test_tree_of_another_version_has_no_section(version: str) -> None:
    match = match_lock(LOCK, version=version, pristine=TREE.get)

    assert match.artifact is None
    assert match.mismatched == ()
    assert match.reason.endswith("locked are: 0.6.3")


def test_differing_files_of_the_closest_section_are_named() -> None:
    far = LockedArtifact(
        file="far.whl",
        sha256=A,
        version="0.6.3",
        files=(
            LockedFile(path="vllm/old.py", pristine=A, patched=A),
            LockedFile(path="vllm/version.py", pristine=D, patched=A),
        ),
    )
    lock = Lock(artifacts=(far, *LOCK.artifacts), patches=())

    match = match_lock(lock, version="0.6.3", pristine=(TREE | {"vllm/new.py": C}).get)

    assert match.artifact is None
    assert match.mismatched == ("vllm/new.py",)
    assert match.reason == "1 of 3 files differs from vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl"


def test_every_file_is_hashed_once() -> None:
    asked: list[str] = []
    lock = Lock(artifacts=LOCK.artifacts * 3, patches=())

    def pristine(path: str) -> None:
        asked.append(path)

    match_lock(lock, version="0.6.3", pristine=pristine)

    assert sorted(asked) == ["vllm/new.py", "vllm/old.py", "vllm/version.py"]


def test_changed_new_and_vanished_patches_are_stale() -> None:
    assert stale_patches(LOCK, LOCK.patches) == ()
    now = [("0001-version.patch", A), ("0003-new.patch", A)]

    assert stale_patches(LOCK, now) == ("0001-version.patch", "0003-new.patch", "sub/0002-scale.patch")


def test_command_names_the_releases_at_hand_or_asks_for_a_wheel() -> None:
    tree = replace(target("vllm", "0.6.3"), root=Path("/opt/a b"))
    wheel = replace(tree, root=Path("vllm-0.6.3-py3-none-any.whl"))
    start = "patchkit series lock --patches own"
    assert lock_command(Path("own")) == f"{start} --artifact WHEEL"
    assert (
        lock_command(Path("own"), (wheel, tree)) == f"{start} --artifact {wheel.root} --target vllm --root '/opt/a b'"
    )


def test_what_stands_below_is_written_and_read_again() -> None:
    below = LockedBelow(
        series="vllm/0.6.3", patches=(("0001-a.patch", A),), files=(("vllm/new.py", D), ("vllm/old.py", None))
    )
    lock = replace(LOCK, artifacts=(replace(LOCK.artifacts[0], below=below),))

    assert parse_lock(render_lock(lock), source="series.lock") == lock
    assert lock.artifacts[0].ground == {"vllm/new.py": D, "vllm/old.py": None, "vllm/version.py": A}
    assert LOCK.artifacts[0].ground == {"vllm/new.py": None, "vllm/old.py": B, "vllm/version.py": A}
