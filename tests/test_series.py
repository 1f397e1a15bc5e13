"""A series file is quilt's, and quilt itself is asked; names in it are hostile."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.errors import PatchkitError, SeriesError
from patchkit.lock import Lock, render_lock
from patchkit.series import (
    Series,
    applies,
    available_series,
    find_series,
    missing_requirements,
    parse_series,
    read_series,
    retired,
)
from patchkit.target import Layout, TargetTree


def _patch(*trailers: str, path: str = "vllm/x.py", old: str = "old", new: str = "new") -> str:
    header = "\n".join(["From: Ada <ada@example.org>", f"Subject: [PATCH] make it {new}", "", *trailers])
    git = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
    return f"{header}\n---\n\n{git}@@ -1 +1 @@\n-{old}\n+{new}\n-- \n2.39.5\n"


def _write_series(directory: Path, listing: str, **patches: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "series").write_text(listing)
    for name, text in patches.items():
        (directory / f"{name}.patch").write_text(text)
    return directory


def _read(directory: Path) -> Series:
    return read_series(directory, engine="vllm", version=directory.name)


def _tree(version: str, engine: str = "vllm") -> TargetTree:
    return TargetTree(
        engine=engine,
        version=version,
        root=Path("/nowhere"),
        package=PurePosixPath(engine),
        layout=Layout.PIP,
        distribution="",
        python=None,
        python_version="",
        evidence=(),
    )


def test_series_is_read_in_its_order_with_strip_levels_and_comments(tmp_path: Path) -> None:
    listing = "# ours\n\nb.patch\n  a.patch -p0 # why\nc.patch -p 2\t# x\r\nd.patch#1 #\n"
    series_dir = _write_series(tmp_path, listing, a=_patch(), b=_patch("Config: X"), c=_patch())
    (series_dir / "d.patch#1").write_text(_patch())

    series = _read(series_dir)

    assert [(entry.name, entry.strip) for entry in series.entries] == [
        ("b.patch", 1),
        ("a.patch", 0),
        ("c.patch", 2),
        ("d.patch#1", 1),
    ]
    assert series.entries[0].trailers.config == "X"
    assert series.entries[0].raw == (series_dir / "b.patch").read_bytes()
    assert series.entries[0].patch.sha256 == hashlib.sha256(series.entries[0].raw).hexdigest()
    assert series.lock is None


def test_empty_series_has_no_patches(tmp_path: Path) -> None:
    assert _read(_write_series(tmp_path, "# nothing yet\n")).entries == ()


def test_lock_beside_the_series_is_read(tmp_path: Path) -> None:
    lock = Lock(artifacts=(), patches=(("a.patch", "0" * 64),))
    _write_series(tmp_path, "a.patch\n", a=_patch())
    (tmp_path / "series.lock").write_bytes(render_lock(lock))

    assert _read(tmp_path).lock == lock


def test_patch_in_a_sub_directory_and_a_compressed_one_are_read(tmp_path: Path) -> None:
    _write_series(tmp_path, "sub/a.patch\nb.patch.gz\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.patch").write_text(_patch())
    (tmp_path / "b.patch.gz").write_bytes(gzip.compress(_patch("Config: Z").encode()))

    first, second = _read(tmp_path).entries

    assert first.name == "sub/a.patch"
    assert second.trailers.config == "Z"
    assert second.raw == _patch("Config: Z").encode()
    assert second.patch.sha256 == hashlib.sha256(second.raw).hexdigest()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("../out.patch", "is not a path below the series"),
        ("sub/../../out.patch", "is not a path below the series"),
        ("/etc/passwd", "is not a path below the series"),
        (".", "is not a path below the series"),
        ("a\x1b[2J.patch", "is not a path below the series"),
        ("a.patch -R", "-R: a series has no reversed patches"),
        ("a.patch -p1 -R", "-R: a series has no reversed patches"),
        ("a.patch -pab", "unknown option '-pab'"),
        ("a.patch -p", "unknown option '-p'"),
        ("a.patch -p1 -p1", "unknown option '-p1'"),
        ("a.patch --fuzz=3", "unknown option '--fuzz=3'"),
        ("a.patch -p-1", "unknown option '-p-1'"),
        ("missing.patch", "missing.patch cannot be read"),
        ("./first.patch", "first.patch is in the series twice"),
        (".//first.patch -p0", "first.patch is in the series twice"),
        ("directory", "directory is not a file"),
        ("pipe", "pipe is not a file"),
        ("link.patch", "link.patch leaves the series through a symlink"),
        ("linked/out.patch", "linked/out.patch leaves the series through a symlink"),
        ("loop.patch", "loop.patch cannot be read"),
    ],
)
def test_line_is_refused_with_its_place(line: str, message: str, tmp_path: Path) -> None:
    directory = _write_series(tmp_path / "s", f"first.patch\n{line}\n", first=_patch(), a=_patch())
    (tmp_path / "out.patch").write_text(_patch())
    (directory / "link.patch").symlink_to("../out.patch")
    (directory / "linked").symlink_to(tmp_path)
    (directory / "loop.patch").symlink_to("loop.patch")
    (directory / "directory").mkdir()
    os.mkfifo(directory / "pipe")

    with pytest.raises(SeriesError) as caught:
        _read(directory)

    assert caught.value.what.startswith(f"{directory}/series:2: ")
    assert message in caught.value.what


def test_link_that_stays_inside_is_followed(tmp_path: Path) -> None:
    """A Kubernetes ConfigMap is mounted as links to `..data/`."""
    mounted = tmp_path / "..2026"
    _write_series(mounted, "a.patch\n", a=_patch())
    (tmp_path / "..data").symlink_to("..2026")
    for name in ("series", "a.patch"):
        (tmp_path / name).symlink_to(f"..data/{name}")

    assert [entry.name for entry in _read(tmp_path).entries] == ["a.patch"]


def test_series_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    _write_series(tmp_path / "other", "a.patch\n", a=_patch())
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "series").symlink_to("../other/series")

    with pytest.raises(SeriesError, match="leaves the series through a symlink"):
        _read(tmp_path / "s")


def test_all_faults_of_a_series_are_shown(tmp_path: Path) -> None:
    _write_series(tmp_path, "../x\nmissing.patch\na.patch\nb.patch -R\n", a=_patch("Toggle: maybe"))
    (tmp_path / "series.lock").write_text("{}")

    with pytest.raises(SeriesError) as caught:
        _read(tmp_path)

    text = str(caught.value)
    for part in ("series:1: '../x'", "series:2: missing.patch", "a.patch:4: Toggle", "series:4: -R", "unknown schema"):
        assert part in text


def test_only_fault_keeps_its_own_kind(tmp_path: Path) -> None:
    _write_series(tmp_path, "a.patch\n", a=_patch().replace("@@ -1 +1 @@", "@@ -1,9 +1 @@"))

    with pytest.raises(PatchkitError, match=r"a\.patch:\d+: "):
        _read(tmp_path)


def test_header_without_a_change_is_a_patch_without_files(tmp_path: Path) -> None:
    header = _patch("Config: X").partition("diff --git")[0]
    _write_series(tmp_path, "a.patch\n", a=header)

    entry = _read(tmp_path).entries[0]

    assert entry.patch.files == ()
    assert entry.patch.preamble == entry.raw == header.encode()
    assert entry.trailers.config == "X"


def test_patch_that_is_compressed_twice_is_refused(tmp_path: Path) -> None:
    _write_series(tmp_path, "a.patch\n")
    (tmp_path / "a.patch").write_bytes(gzip.compress(gzip.compress(_patch().encode())))

    with pytest.raises(SeriesError, match="compressed twice"):
        _read(tmp_path)


@pytest.mark.parametrize("text", ["", "prose\n", "Subject: x\n\nbody\n", "Subject: x\n---\n f | 2 +-\n"])
def test_text_without_a_diff_is_no_patch(text: str, tmp_path: Path) -> None:
    _write_series(tmp_path, "a.patch\n", a=text)

    with pytest.raises(PatchkitError, match=r"a\.patch"):
        _read(tmp_path)


def test_missing_series_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SeriesError, match="series cannot be read"):
        _read(tmp_path)


def test_faults_do_not_hide_the_good_lines() -> None:
    faults: list[PatchkitError] = []

    lines = parse_series(b"a.patch\n../b\n\xff.patch\n", source="series", faults=faults)

    assert [line.name for line in lines] == ["a.patch", "\udcff.patch"]
    assert len(faults) == 1


@settings(max_examples=200, deadline=None, database=None)
@given(text=st.binary(max_size=60) | st.text("ab/. -pR#0\n\t\x1b", max_size=40).map(str.encode))
def test_any_series_file_names_only_patches_below_it(text: bytes) -> None:
    faults: list[PatchkitError] = []

    lines = parse_series(text, source="s", faults=faults)

    for line in lines:
        joined = os.path.normpath(f"/s/{line.name}")
        assert joined.startswith("/s/")
        assert line.name == str(PurePosixPath(line.name))
    assert len({line.name for line in lines}) == len(lines)
    assert all(fault.what.isprintable() for fault in faults)


def _labels(patches_dir: Path, engine: str = "vllm") -> list[str]:
    return [label for label, _ in available_series(patches_dir, engine)]


def test_available_series_are_ordered_by_version(tmp_path: Path) -> None:
    for version in ("0.10.0", "0.6.3", "0.9.1", "0.9.1rc1", "nightly"):
        _write_series(tmp_path / "vllm" / version, "")
    (tmp_path / "vllm" / "0.7.0").mkdir()
    (tmp_path / "vllm" / "Kconfig").write_text("")

    assert _labels(tmp_path) == ["nightly", "0.6.3", "0.9.1rc1", "0.9.1", "0.10.0"]
    assert _labels(tmp_path, "sglang") == []
    assert _labels(tmp_path / "missing") == []


def _found(patches_dir: Path, tree: TargetTree) -> str | None:
    series = find_series(patches_dir, tree)
    return series.version if series else None


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("0.6.3", "0.6.3"),
        ("0.6.3+cpu", "0.6.3"),
        ("0.6.3.0", "0.6.3"),
        ("0.6.4", "0.6.4"),
        ("0.6.4.post1", "0.6.4"),
        ("0.6.5", None),
        ("0.5.0", None),
        ("dev", None),
        ("", None),
    ],
)
def test_series_is_chosen_by_name_then_by_applies_to(version: str, found: str | None, tmp_path: Path) -> None:
    _write_series(tmp_path / "vllm" / "0.6.3", "a.patch\n", a=_patch("Applies-To: vllm>=0.6.3,<0.6.5"))
    _write_series(tmp_path / "vllm" / "0.6.4", "a.patch\n", a=_patch("Applies-To: vllm>=0.6.4,<0.6.5"))
    _write_series(tmp_path / "vllm" / "0.6.2", "a.patch\nb.patch\n", a=_patch("Applies-To: vllm"), b=_patch())
    _write_series(tmp_path / "vllm" / "0.9.0", "")

    assert _found(tmp_path, _tree(version)) == found


def test_directory_that_is_a_series_is_for_every_engine_it_does_not_exclude(tmp_path: Path) -> None:
    mine = _write_series(tmp_path / "mine", "a.patch\n", a=_patch("Applies-To: vllm>=0.6"))

    assert _found(mine, _tree("0.6.3")) == "mine"
    assert _found(mine, _tree("0.1")) == "mine"
    assert _found(mine, _tree("0.6.3", engine="sglang")) is None
    assert _found(_write_series(tmp_path / "any", "a.patch\n", a=_patch()), _tree("1", engine="sglang")) == "any"


def test_trailers_say_where_a_patch_applies_and_when_it_retires(tmp_path: Path) -> None:
    _write_series(
        tmp_path,
        "a.patch\nb.patch\n",
        a=_patch("Applies-To: vllm>=0.6.3,<0.6.5", "Retires-When: vllm>=0.7"),
        b=_patch(),
    )
    limited, free = _read(tmp_path).entries

    assert applies(limited, _tree("0.6.3+cu118"))
    assert not applies(limited, _tree("0.6.5"))
    assert not applies(limited, _tree("0.6.4", engine="sglang"))
    assert not applies(limited, _tree("unknown"))
    assert applies(free, _tree("unknown", engine="sglang"))
    assert retired(limited, _tree("0.7.0rc1")) is False
    assert retired(limited, _tree("0.8"))
    assert not retired(limited, _tree("0.8", engine="sglang"))
    assert not retired(free, _tree("99"))


def test_unmet_requirements_name_both_patches(tmp_path: Path) -> None:
    _write_series(
        tmp_path,
        "a.patch\nb.patch\nc.patch\n",
        a=_patch("Requires: c.patch"),
        b=_patch("Requires: a.patch, gone.patch, b.patch"),
        c=_patch("Requires: a.patch"),
    )
    entries = _read(tmp_path).entries

    errors = [str(error).splitlines()[:2] for error in missing_requirements(entries, {"a.patch", "b.patch", "c.patch"})]

    assert errors == [
        ["a.patch: requires c.patch", "c.patch comes later in the series"],
        ["b.patch: requires gone.patch", "gone.patch is not in the series"],
        ["b.patch: requires b.patch", "b.patch comes later in the series"],
    ]
    disabled = missing_requirements(entries, {"c.patch"})
    assert [error.why for error in disabled] == ["a.patch is not enabled"]
    assert missing_requirements(entries, set()) == ()


@pytest.fixture
def quilt() -> str:
    found = shutil.which("quilt")
    if found is None:
        pytest.skip("quilt is not installed: apt-get install quilt")
    return found


def _quilt(quilt: str, tree: Path, *command: str) -> str:
    environment = {"PATH": os.environ["PATH"], "QUILT_PATCHES": str(tree.parent / "patches"), "HOME": str(tree)}
    found = subprocess.run(
        (quilt, "--quiltrc", "-", *command), cwd=tree, env=environment, capture_output=True, check=True
    )
    return found.stdout.decode()


LISTING = "# a comment\n\n0001-a.patch\n0002-b.patch -p0 # why\nsub/0003-c.patch\n0004-d.patch -p2\n"


def test_real_quilt_reads_and_pushes_the_same_series(quilt: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "x.py").write_text("0\n")
    patches = _write_series(tmp_path / "patches", LISTING)
    (patches / "sub").mkdir()
    texts = [_patch("Config: X", old=str(number), new=str(number + 1)) for number in range(4)]
    texts[1] = texts[1].replace("a/vllm", "vllm").replace("b/vllm", "vllm")
    texts[3] = texts[3].replace("a/vllm", "a/z/vllm").replace("b/vllm", "b/z/vllm")
    series_names = [line.split()[0] for line in LISTING.splitlines() if line and not line.startswith("#")]
    for name, text in zip(series_names, texts, strict=True):
        (patches / name).write_text(text)

    assert _quilt(quilt, tree, "series").splitlines() == [entry.name for entry in _read(patches).entries]
    _quilt(quilt, tree, "push", "-a")
    assert (tree / "vllm" / "x.py").read_text() == "4\n"
    _quilt(quilt, tree, "pop", "-a")
    assert (tree / "vllm" / "x.py").read_text() == "0\n"


def test_entries_are_values(tmp_path: Path) -> None:
    series = _read(_write_series(tmp_path, "a.patch\n", a=_patch()))

    assert replace(series) == _read(tmp_path)
