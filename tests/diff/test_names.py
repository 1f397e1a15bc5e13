"""Names as git and GNU diff write them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.diff.names import (
    decode_name,
    quote_name,
    read_name_line,
    read_whole_name,
    split_binary_names,
    split_git_names,
    unquote_name,
)

NAMES = [
    "plain",
    "with blank",
    "tab\there",
    'quo"te',
    "back\\slash",
    "日本.txt",
    "bell\a\b\v\f\r",
    "latin\udce9",
    "\x7f",
]


@given(st.binary(min_size=1).map(decode_name))
def test_quoting_and_unquoting_give_the_same_name(name: str) -> None:
    quoted = quote_name(name)
    if not quoted.startswith(b'"'):
        assert quoted == name.encode("utf-8", "surrogateescape")
        return
    assert unquote_name(quoted + b" rest") == (name.encode("utf-8", "surrogateescape"), len(quoted))


def test_names_are_quoted_as_git_does(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in NAMES:
        (tmp_path / name).touch()
    listed = subprocess.run(["git", "ls-files", "-o"], cwd=tmp_path, check=True, capture_output=True).stdout.split(
        b"\n"
    )
    assert sorted(listed[:-1]) == sorted(quote_name(name) for name in NAMES)


@pytest.mark.parametrize(
    ("text", "words"),
    [(b'"open', "not closed"), (b'"a\\', "not closed"), (b'"a\\q"', "unknown escape"), (b'"\\9"', "unknown escape")],
)
def test_a_damaged_quoted_name_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unquote_name(text)


@pytest.mark.parametrize(
    ("rest", "git", "name"),
    [
        (b"a/f.py", False, b"a/f.py"),
        (b"a/my file.py\t", True, b"a/my file.py"),
        (b"a/f.py\r", False, b"a/f.py"),
        (b"a/f.py\t2010-07-05 19:41:17.620000023 -0500", False, b"a/f.py"),
        (b"a/tab\there\t2010-07-05 19:41:17.620000023 -0500", False, b"a/tab\there"),
        (b"a/my file   2010-07-05 19:41:17 -05:00", False, b"a/my file"),
        (b"a/my file 2010-07-05 19:41:17", True, b"a/my file 2010-07-05 19:41:17"),
        (b"a/f.py\tThu Apr 07 22:13:13 2005 +0000", False, b"a/f.py"),
        (b"src/f.c\t(working copy)", False, b"src/f.c"),
        (b'"a/tab\\there"\t2010-07-05 19:41:17 -0500', False, b"a/tab\there"),
        (b"a\0b", False, b"a"),
        (b"/dev/null", True, None),
        (b"/dev/null\t1970-01-01 00:00:00.000000000 +0000", False, None),
        (b"/dev/nullify", True, b"/dev/nullify"),
    ],
)
def test_a_name_line_is_read(rest: bytes, git: bool, name: bytes | None) -> None:
    assert read_name_line(rest, git=git).name == name


@pytest.mark.parametrize(
    ("stamp", "epoch"),
    [
        (b"1970-01-01 00:00:00.000000000 +0000", True),
        (b"1970-01-01 09:00:00.000000000 +0900", True),
        (b"1969-12-31 16:00:00 -0800", True),
        (b"1969-12-31 19:30:00 -04:30", True),
        (b"1970-01-01 00:00:00.000000000 +0000\r", True),
        (b"1970-01-01 00:00:00.000000001 +0000", False),
        (b"1970-01-01 00:00:00 -0800", False),
        (b"1970-01-01 00:00:01 +0000", False),
        (b"1970-01-02 00:00:00 +0000", False),
        (b"1970-01-01", False),
    ],
)
def test_the_epoch_is_known_in_every_zone(stamp: bytes, epoch: bool) -> None:
    assert read_name_line(b"a/f\t" + stamp, git=False).epoch is epoch
    assert not read_name_line(b"a/f\t" + stamp, git=True).epoch


def test_the_epoch_needs_a_tab_before_it() -> None:
    assert not read_name_line(b"a/f 1970-01-01 00:00:00 +0000", git=False).epoch


@pytest.mark.parametrize(
    ("rest", "old", "new"),
    [
        (b"a/f b/f", b"a/f", b"b/f"),
        (b"a/f b/f\r", b"a/f", b"b/f"),
        (b"a/a b/c d b/a b/c d", b"a/a b/c d", b"b/a b/c d"),
        (b"a/x b/x b/x b/x", b"a/x b/x", b"b/x b/x"),
        (b"f f", b"f", b"f"),
        (b"d/f d/f", b"d/f", b"d/f"),
        (b"i/f w/f", b"i/f", b"w/f"),
        (b"a/one/f b/two/f", b"a/one/f", b"b/two/f"),
        (b'"a/t\\tb" "b/t\\tb"', b"a/t\tb", b"b/t\tb"),
        (b'a/f "b/f"', b"a/f", b"b/f"),
        (b'"a/f" b/f', b"a/f", b"b/f"),
    ],
)
def test_the_names_of_a_diff_git_line_are_split(rest: bytes, old: bytes, new: bytes) -> None:
    pair = split_git_names(rest)
    assert pair is not None
    assert (pair.old, pair.new) == (old, new)
    assert rest[pair.second :].removesuffix(b"\r") in (new, quote_name(new.decode()), b'"' + new + b'"')


def test_other_lines_decide_between_splits() -> None:
    pair = split_git_names(b"a/x y b/x z", old=b"x y", new=b"x z")
    assert pair is not None
    assert (pair.old, pair.new) == (b"a/x y", b"b/x z")


@pytest.mark.parametrize("rest", [b"f", b"a/f b/g", b'"a/f"', b"", b" "])
def test_names_that_differ_or_lack_are_not_split(rest: bytes) -> None:
    assert split_git_names(rest) is None


def test_names_of_a_binary_notice_are_split() -> None:
    pair = split_binary_names(b"a/this and that and b/this and that")
    assert pair is not None
    assert (pair.old, pair.new) == (b"a/this and that", b"b/this and that")


def test_a_whole_name_may_be_quoted() -> None:
    assert read_whole_name(b'"t\\tb"') == b"t\tb"
    assert read_whole_name(b"my file ") == b"my file "
