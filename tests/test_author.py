"""New, imported and refreshed patches: git and quilt take them, hunks and comments stay as they were."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

import pytest

from patchkit.author import (
    Letterhead,
    import_patch,
    new_patch,
    refresh_patch,
    refreshed,
    render_header,
    split_series,
)
from patchkit.diff.model import FilePatch, Hunk, Patch
from patchkit.diff.parse import parse_patch
from patchkit.errors import PatchFormatError, RefusedError, SeriesError, UnsafePathError, UsageError
from patchkit.imported import renamed
from patchkit.series import Series, read_series
from patchkit.tree import Kind, TreeEntry

LETTERHEAD = Letterhead(
    subject="Read the version",
    author="Ada <ada@example.org>",
    date=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    trailers=(("Config", "VERSION"), ("Applies-To", "vllm>=0.6.3,<0.6.5")),
)
UNTITLED = replace(LETTERHEAD, subject="", trailers=())

BARE = b"""\
diff --git a/python/sglang/x.py b/python/sglang/x.py
--- a/python/sglang/x.py
+++ b/python/sglang/x.py
@@ -1,2 +1,2 @@ def f():
-old
+new
 diff --git a/python/sglang/x.py b/python/sglang/x.py
"""


def _parsed(path: Path) -> Patch:
    return parse_patch(path.read_bytes(), source=str(path))


def _git(*command: str, cwd: Path) -> str:
    return subprocess.run(("git", *command), cwd=cwd, check=True, capture_output=True).stdout.decode()


def _repository(path: Path, **files: str) -> Path:
    path.mkdir()
    _git("init", "--quiet", cwd=path)
    for name, text in files.items():
        (path / f"{name}.py").write_text(text)
    _git("add", "--all", cwd=path)
    _git("commit", "--quiet", "--allow-empty", "--message=start", cwd=path)
    return path


def _read(directory: Path) -> Series:
    return read_series(directory, engine="vllm", version="1")


def _without(name: str | None, components: int) -> str:
    return "/".join((name or "").split("/")[components:])


def _stripped(file: FilePatch) -> tuple[str, str]:
    """Map names as `-p2` does."""
    return _without(file.old_name, 2), _without(file.new_name, 2)


def _same(file: FilePatch) -> tuple[str, str]:
    return _without(file.old_name, 1), _without(file.new_name, 1)


def _nowhere(file: FilePatch) -> tuple[str, str]:
    return "", ""


def _hunks(raw: bytes) -> list[tuple[Hunk, ...]]:
    return [tuple(replace(hunk, line_number=0) for hunk in f.hunks) for f in parse_patch(raw, source="p").files]


def test_new_patch_is_numbered_and_appended_below_the_comments(tmp_path: Path) -> None:
    listing = b"# ours\n\n0003-c.patch -p0 # why"
    (tmp_path / "series").write_bytes(listing)
    (tmp_path / "0003-c.patch").write_bytes(BARE.replace(b"a/", b"").replace(b"b/", b""))

    written = new_patch(tmp_path, "Read the Version!", LETTERHEAD)

    assert written.name == "0004-read-the-version.patch"
    assert (tmp_path / "series").read_bytes() == listing + b"\n0004-read-the-version.patch\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0003-c.patch", "0004-read-the-version.patch", "series"]
    entry = _read(tmp_path).entries[1]
    assert entry.patch.files == ()
    assert (entry.trailers.subject, entry.trailers.config) == ("Read the version", "VERSION")


def test_first_patch_makes_the_series(tmp_path: Path) -> None:
    written = new_patch(tmp_path / "my" / "patches", "", replace(LETTERHEAD, subject="Größe: [x]"))

    assert written.name == "0001-gr-e-x.patch"
    assert [entry.name for entry in _read(tmp_path / "my" / "patches").entries] == [written.name]


def test_number_of_a_patch_that_no_line_names_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "0007-lost.patch").write_bytes(b"mine")
    (tmp_path / f"{'9' * 200}-many.patch").write_bytes(b"not a number of ours")

    assert new_patch(tmp_path, "lost", LETTERHEAD).name == "0008-lost.patch"
    assert (tmp_path / "0007-lost.patch").read_bytes() == b"mine"


@pytest.mark.parametrize("slug", ["", "../../etc/x", "-", "a" * 500, "x\n-R", "ü"])
def test_slug_cannot_be_anything_but_a_plain_name(slug: str, tmp_path: Path) -> None:
    written = new_patch(tmp_path, slug, replace(LETTERHEAD, subject="?"))

    assert written.path.parent == tmp_path
    assert len(written.name) < 70
    assert [entry.name for entry in _read(tmp_path).entries] == [written.name]


@pytest.mark.parametrize(
    "letterhead",
    [
        replace(LETTERHEAD, subject="two\nlines"),
        replace(LETTERHEAD, subject=" "),
        replace(LETTERHEAD, author="Ada"),
        replace(LETTERHEAD, author="Ada <a@example.org>\nSubject: x"),
        replace(LETTERHEAD, trailers=(("Config", "X\nToggle: guard"),)),
        replace(LETTERHEAD, trailers=(("Config me", "X"),)),
        replace(LETTERHEAD, trailers=(("Origin", ""),)),
    ],
)
def test_header_cannot_be_broken_out_of(letterhead: Letterhead, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        new_patch(tmp_path, "x", letterhead)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trailer", [("Toggle", "maybe"), ("Applies-To", "0.6"), ("Config", "A && B")])
def test_trailer_that_would_be_refused_is_not_written(trailer: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(SeriesError):
        new_patch(tmp_path, "x", replace(LETTERHEAD, trailers=(trailer,)))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("subject", ["plain", "größer " * 30, "日本語 [Core] x"], ids=ascii)
def test_git_am_takes_what_a_new_patch_says(subject: str, tmp_path: Path) -> None:
    repository = _repository(tmp_path / "r", x="old\n")
    letterhead = replace(LETTERHEAD, subject=subject.strip(), author="Zoë Müller <zoe@example.org>")
    written = new_patch(tmp_path / "s", "x", replace(letterhead, trailers=(*LETTERHEAD.trailers, ("Origin", "größer"))))
    before, after = _entries({"x.py": b"old\n"}), _entries({"x.py": b"new\n"})
    refresh_patch(_read(tmp_path / "s"), written.name, before, after)

    _git("am", "--quiet", "--keep-non-patch", str(written.path), cwd=repository)

    assert _git("log", "-1", "--format=%s|%an <%ae>|%at", cwd=repository).strip() == (
        f"{subject.strip()}|Zoë Müller <zoe@example.org>|1767323045"
    )
    assert _git("log", "-1", "--format=%(trailers:only)", cwd=repository).splitlines()[:3] == [
        "Config: VERSION",
        "Applies-To: vllm>=0.6.3,<0.6.5",
        "Origin: größer",
    ]
    assert (repository / "x.py").read_text() == "new\n"


def _entries(files: dict[str, bytes]) -> dict[PurePosixPath, TreeEntry]:
    return {
        PurePosixPath(name): TreeEntry(kind=Kind.FILE, mode=0o644, content=content) for name, content in files.items()
    }


def test_bare_diff_gets_a_header_and_names_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "0012-pr_9034.diff").write_bytes(BARE)

    written = import_patch(
        tmp_path / "s", _parsed(tmp_path / "0012-pr_9034.diff"), UNTITLED, slug="", name_paths=_stripped
    )

    assert written.name == "0001-pr-9034.patch"
    assert written.outside == ()
    raw = written.path.read_bytes()
    assert raw.startswith(render_header(replace(UNTITLED, subject="pr 9034")))
    assert (
        b"diff --git a/sglang/x.py b/sglang/x.py\n--- a/sglang/x.py\n+++ b/sglang/x.py\n@@ -1,2 +1,2 @@ def f():\n"
        in raw
    )
    assert raw.endswith(b"\n diff --git a/python/sglang/x.py b/python/sglang/x.py\n")
    assert _hunks(raw) == _hunks(BARE)


def test_format_patch_mail_keeps_its_header_byte_for_byte(tmp_path: Path) -> None:
    repository = _repository(tmp_path / "r", x="old\n")
    (repository / "x.py").write_text("new\n")
    _git(
        "commit",
        "--quiet",
        "--all",
        "--message=Zoë: fix [1/2]\n\nbody\n\nSigned-off-by: x <x@example.org>",
        cwd=repository,
    )
    mail = tmp_path / _git("format-patch", f"--output-directory={tmp_path}", "-1", cwd=repository).strip()

    written = import_patch(tmp_path / "s", _parsed(mail), UNTITLED, slug="", name_paths=_same)

    assert written.name == mail.name.lower()
    assert written.path.read_bytes() == mail.read_bytes()
    _git("reset", "--quiet", "--hard", "HEAD~1", cwd=repository)
    _git("am", "--quiet", str(written.path), cwd=repository)


def test_trailers_are_added_where_git_adds_them(tmp_path: Path) -> None:
    repository = _repository(tmp_path / "r", x="old\n")
    for number, message in enumerate(["title", "title\n\nbody", "title\n\nbody\n\nOrigin: o\nSigned-off-by: x"]):
        (repository / "x.py").write_text(f"{number}\n")
        _git("commit", "--quiet", "--all", f"--message={message}", cwd=repository)
        (tmp_path / "mail.patch").write_text(_git("format-patch", "--stdout", "-1", cwd=repository))
        wanted = _git(
            "interpret-trailers", "--trailer=Config: X", "--trailer=Toggle: guard", "../mail.patch", cwd=repository
        )

        letterhead = replace(UNTITLED, trailers=(("Config", "X"), ("Toggle", "guard")))
        written = import_patch(tmp_path / "s", _parsed(tmp_path / "mail.patch"), letterhead, slug="", name_paths=_same)

        assert written.path.read_text() == wanted


def test_trailer_that_is_there_already_is_not_given_twice(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(b"Subject: t\n\nConfig: A\n---\n\n" + BARE)

    with pytest.raises(SeriesError, match="Config is given twice"):
        import_patch(tmp_path / "s", _parsed(tmp_path / "x.patch"), LETTERHEAD, slug="", name_paths=_stripped)

    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("preamble", "subject", "origin"),
    [
        (b"Fix the thing.\n\n", "Fix the thing.", ""),
        (b"Origin: vendor\n---\n", "x", "vendor"),
        (b"Description: d\nOrigin: vendor\n", "d", "vendor"),
        (b"diff -ruN one two\n", "x", ""),
        (b"# SPDX\n", "x", ""),
    ],
)
def test_prose_and_dep3_headers_are_kept(preamble: bytes, subject: str, origin: str, tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(preamble + BARE)

    written = import_patch(tmp_path / "s", _parsed(tmp_path / "x.patch"), UNTITLED, slug="", name_paths=_stripped)

    trailers = _read(tmp_path / "s").entries[0].trailers
    assert (trailers.subject, trailers.origin) == (subject, origin)
    assert preamble + b"diff --git" in written.path.read_bytes()


def test_compressed_diff_is_imported_plain(tmp_path: Path) -> None:
    (tmp_path / "x.patch.gz").write_bytes(gzip.compress(BARE))

    written = import_patch(tmp_path / "s", _parsed(tmp_path / "x.patch.gz"), UNTITLED, slug="", name_paths=_stripped)

    assert written.name == "0001-x.patch"
    assert _hunks(written.path.read_bytes()) == _hunks(BARE)


def test_text_without_a_diff_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(b"no diff\n")

    with pytest.raises(PatchFormatError):
        import_patch(tmp_path / "s", _parsed(tmp_path / "x.patch"), UNTITLED, slug="", name_paths=_stripped)

    assert not (tmp_path / "s").exists()


def test_file_outside_of_the_tree_keeps_its_name_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(BARE)

    written = import_patch(tmp_path / "s", _parsed(tmp_path / "x.patch"), UNTITLED, slug="", name_paths=_nowhere)

    assert written.outside == ("b/python/sglang/x.py",)
    assert BARE in written.path.read_bytes()


def test_name_outside_of_the_tree_that_climbs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(BARE.replace(b"a/python", b"../..").replace(b"b/python", b"../.."))

    with pytest.raises(UnsafePathError):
        import_patch(tmp_path / "s", _parsed(tmp_path / "x.patch"), UNTITLED, slug="", name_paths=_nowhere)


CHANGES = {
    "rename and edit": ("mv x.py 'a b.py' && echo more >> 'a b.py'", ()),
    "copy": ("cp x.py y.py && echo more >> x.py", ("--find-copies-harder",)),
    "create and delete": ("rm x.py && echo new > 'n w.py'", ()),
    "mode only": ("chmod +x x.py", ()),
    "binary": ("printf '\\000\\001' > x.py", ("--binary",)),
    "quoted name": ("mv x.py 'ü\tx.py'", ()),
    "symlink": ("rm x.py && ln -s y x.py", ()),
    "no newline": ("printf 'end' >> x.py", ()),
    "no prefixes": ("echo more >> x.py", ("--no-prefix",)),
    "other prefixes": ("echo more >> x.py", ("--src-prefix=i/", "--dst-prefix=w/")),
    "deeper": ("echo more >> x.py", ("--src-prefix=a/python/", "--dst-prefix=b/python/")),
}


@pytest.mark.parametrize(("command", "options"), CHANGES.values(), ids=CHANGES.keys())
def test_imported_diff_does_what_the_original_did(command: str, options: tuple[str, ...], tmp_path: Path) -> None:
    repository = _repository(tmp_path / "r", x="".join(f"{number}\n" for number in range(20)))
    subprocess.run(["sh", "-c", command], cwd=repository, check=True)
    _git("add", "--all", cwd=repository)
    raw = subprocess.run(
        ("git", "diff", "--cached", "-M", *options), cwd=repository, check=True, capture_output=True
    ).stdout
    (tmp_path / "x.diff").write_bytes(raw)
    wanted = _git("write-tree", cwd=repository)
    _git("reset", "--quiet", "--hard", cwd=repository)

    def last_part(file: FilePatch) -> tuple[str, str]:
        return (file.old_name or "").rpartition("/")[2], (file.new_name or "").rpartition("/")[2]

    written = import_patch(tmp_path / "s", _parsed(tmp_path / "x.diff"), UNTITLED, slug="", name_paths=last_part)

    _git("apply", "--index", str(written.path), cwd=repository)
    assert _git("write-tree", cwd=repository) == wanted
    assert _hunks(written.path.read_bytes()) == _hunks(raw)


TRADITIONAL = b"""\
Index: old/f.py
===================================================================
--- old/f.py.orig\t2020-01-01 00:00:00.000000000 +0000
+++ old/f.py\t2021-01-01 00:00:00.000000000 +0000
@@ -1 +1 @@
-a
+b
--- /dev/null\t1970-01-01 00:00:00.000000000 +0000
+++ old/new.py\t2021-01-01 00:00:00.000000000 +0000
@@ -0,0 +1 @@
+c
"""


def test_traditional_names_lose_prefix_backup_and_timestamp() -> None:
    first, second = parse_patch(TRADITIONAL, source="p").files

    assert renamed(first, "vllm/f.py", "vllm/f.py").header.splitlines()[-2:] == [b"--- a/vllm/f.py", b"+++ b/vllm/f.py"]
    assert renamed(second, "", "vllm/new.py").header == b"--- /dev/null\n+++ b/vllm/new.py\n"


def test_converted_diff_stays_converted() -> None:
    patch = parse_patch(BARE.replace(b"\n", b"\r\n"), source="p")
    assert patch.crlf

    header = renamed(patch.files[0], "x.py", "x.py").header

    assert header == b"diff --git a/x.py b/x.py\r\n--- a/x.py\r\n+++ b/x.py\r\n"


def test_mail_between_two_files_is_not_touched(tmp_path: Path) -> None:
    mail = b"-- \n2.39\n\nSubject: two\n\n--- a remark\nIndex: of things\n---\n\n"
    second = BARE.replace(b"x.py", b"y.py")
    (tmp_path / "x.mbox").write_bytes(BARE + mail + second)

    written = import_patch(tmp_path / "s", _parsed(tmp_path / "x.mbox"), UNTITLED, slug="box", name_paths=_stripped)

    assert mail in written.path.read_bytes()
    assert [file.new_name for file in parse_patch(written.path.read_bytes(), source="p").files] == [
        "b/sglang/x.py",
        "b/sglang/y.py",
    ]


HEADER = b"Subject: [PATCH] x\n\nConfig: X\n---\n x.py | 2 +-\n\n"


def test_refreshed_patch_takes_the_tree_without_it_to_the_tree_as_it_is(tmp_path: Path) -> None:
    before = {"x.py": b"old\n" * 9, "gone.py": b"gone\n"}
    after = {"x.py": b"old\n" * 8 + b"new", "sub/made.py": b"made\n"}
    repository = _repository(tmp_path / "r", x="old\n" * 9, gone="gone\n")

    raw = refreshed(HEADER, _entries(before), _entries(after), footer=b"-- \n2.39.5\n\n")
    (tmp_path / "x.patch").write_bytes(raw)
    _git("apply", str(tmp_path / "x.patch"), cwd=repository)

    assert raw.startswith(HEADER + b"diff --git ")
    assert raw.endswith(b"-- \n2.39.5\n\n")
    found = {str(p.relative_to(repository)): p.read_bytes() for p in repository.rglob("*.py")}
    assert found == after


def _one_patch_series(directory: Path, *, name: str = "a.patch", listing: str = "# c\na.patch # why\n") -> Series:
    directory.mkdir(exist_ok=True)
    (directory / "series").write_text(listing)
    diff = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"
    content = HEADER + diff + b"-- \n2.39.5\n\n"
    (directory / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return _read(directory)


def test_refresh_changes_the_patch_and_nothing_else(tmp_path: Path) -> None:
    series = _one_patch_series(tmp_path)
    (tmp_path / "a.patch").chmod(0o640)
    before, after = _entries({"x.py": b"old\n"}), _entries({"x.py": b"newer\n"})

    assert refresh_patch(series, "a.patch", before, after)
    assert not refresh_patch(_read(tmp_path), "a.patch", before, after)

    entry = _read(tmp_path).entries[0]
    assert entry.patch.preamble == HEADER
    assert entry.patch.footer == b"-- \n2.39.5\n\n"
    assert b"+newer\n" in entry.raw
    assert (tmp_path / "a.patch").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "series").read_text() == "# c\na.patch # why\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.patch", "series"]


def test_compressed_patch_stays_compressed(tmp_path: Path) -> None:
    series = _one_patch_series(tmp_path, name="a.patch.gz", listing="a.patch.gz\n")

    refresh_patch(series, "a.patch.gz", _entries({"x.py": b"old\n"}), _entries({"x.py": b"newer\n"}))

    assert b"+newer\n" in gzip.decompress((tmp_path / "a.patch.gz").read_bytes())


def test_refresh_that_would_leave_nothing_is_refused(tmp_path: Path) -> None:
    series = _one_patch_series(tmp_path)
    same = _entries({"x.py": b"old\n"})

    with pytest.raises(RefusedError, match="nothing is left of it"):
        refresh_patch(series, "a.patch", same, same)

    assert _read(tmp_path) == series


def test_refresh_of_another_strip_level_is_refused(tmp_path: Path) -> None:
    series = _one_patch_series(tmp_path, listing="a.patch -p0\n")

    with pytest.raises(RefusedError, match="cannot be refreshed with -p0"):
        refresh_patch(series, "a.patch", {}, _entries({"x.py": b""}))


def test_new_patch_without_changes_stays_empty_when_refreshed(tmp_path: Path) -> None:
    name = new_patch(tmp_path, "x", LETTERHEAD).name

    assert not refresh_patch(_read(tmp_path), name, {}, {})


def test_series_is_split_at_a_patch(tmp_path: Path) -> None:
    names = [new_patch(tmp_path, slug, LETTERHEAD).name for slug in "abc"]

    below, entry, above = split_series(_read(tmp_path), names[1])

    assert ([e.name for e in below], entry.name, [e.name for e in above]) == ([names[0]], names[1], [names[2]])
    with pytest.raises(UsageError, match=r"0009-x\.patch: not in the series"):
        split_series(_read(tmp_path), "0009-x.patch")


def test_series_that_is_a_symlink_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("# mine\n")
    (tmp_path / "series").symlink_to("real")

    with pytest.raises(SeriesError, match="is a symlink"):
        new_patch(tmp_path, "x", LETTERHEAD)

    assert (tmp_path / "real").read_text() == "# mine\n"


def test_full_disk_leaves_the_old_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series = _one_patch_series(tmp_path)

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        refresh_patch(series, "a.patch", _entries({"x.py": b"old\n"}), _entries({"x.py": b"newer\n"}))

    assert _read(tmp_path) == series
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.patch", "series"]


def test_real_quilt_pushes_what_was_authored(tmp_path: Path) -> None:
    quilt = shutil.which("quilt")
    if quilt is None:
        pytest.skip("quilt is not installed: apt-get install quilt")
    (tmp_path / "tree" / "sglang").mkdir(parents=True)
    (tmp_path / "tree" / "sglang" / "x.py").write_text("old\ndiff --git a/python/sglang/x.py b/python/sglang/x.py\n")
    (tmp_path / "pr.diff").write_bytes(BARE)
    import_patch(tmp_path / "s", _parsed(tmp_path / "pr.diff"), LETTERHEAD, slug="", name_paths=_stripped)
    made = new_patch(tmp_path / "s", "made", LETTERHEAD).name
    refresh_patch(_read(tmp_path / "s"), made, {}, _entries({"sglang/made.py": b"made\n"}))

    command = (quilt, "--quiltrc", "-", "push", "-a")
    environment = os.environ | {"QUILT_PATCHES": str(tmp_path / "s")}
    subprocess.run(command, cwd=tmp_path / "tree", env=environment, check=True, capture_output=True)

    assert (tmp_path / "tree" / "sglang" / "x.py").read_text().startswith("new\n")
    assert (tmp_path / "tree" / "sglang" / "made.py").read_text() == "made\n"
