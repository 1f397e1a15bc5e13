from __future__ import annotations

import base64
import csv
import hashlib
import io
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.dist import record_rows, recorded_sha256, rewrite_record

OWN = b"pkg-1.dist-info/RECORD,,\n"


def row(path: str, content: bytes, end: str = "\n") -> bytes:
    """Write a row the way installers do: with the csv module."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerow((path, f"sha256={digest}", len(content)))
    return text.getvalue().encode()


def rewrite(record: bytes, **changes: bytes | None) -> bytes:
    return rewrite_record(record, {PurePosixPath(f"pkg/{name}.py"): content for name, content in changes.items()})


A, B = row("pkg/a.py", b"a"), row("pkg/b.py", b"b")


def test_row_of_a_changed_file_is_computed_anew_and_no_other_byte_changes() -> None:
    assert rewrite(A + B + OWN, a=b"changed") == row("pkg/a.py", b"changed") + B + OWN


def test_row_of_a_removed_file_goes() -> None:
    assert rewrite(A + B + OWN, a=None) == B + OWN


def test_rows_of_new_files_stand_sorted_before_the_own_row_when_that_is_last() -> None:
    assert rewrite(A + OWN, z=b"z", c=b"c") == A + row("pkg/c.py", b"c") + row("pkg/z.py", b"z") + OWN


def test_rows_of_new_files_stand_at_the_end_when_the_own_row_is_elsewhere() -> None:
    assert rewrite(A + OWN + B, c=b"c") == A + OWN + B + row("pkg/c.py", b"c")


def test_new_file_that_is_gone_again_leaves_no_row() -> None:
    assert rewrite(A + OWN, c=None) == A + OWN


def test_last_row_without_line_end_is_ended_before_a_new_one() -> None:
    assert rewrite(A + B[:-1], c=b"c") == A + B + row("pkg/c.py", b"c")


def test_last_row_without_line_end_stays_without_when_it_is_changed() -> None:
    assert rewrite(A + B[:-1], b=b"changed") == A + row("pkg/b.py", b"changed")[:-1]


def test_carriage_returns_are_kept_and_given_to_new_rows() -> None:
    record = row("pkg/a.py", b"a", "\r\n") + b"pkg-1.dist-info/RECORD,,\r\n"
    expected = row("pkg/a.py", b"x", "\r\n") + row("pkg/c.py", b"c", "\r\n") + b"pkg-1.dist-info/RECORD,,\r\n"
    assert rewrite(record, a=b"x", c=b"c") == expected


def test_empty_record_takes_rows() -> None:
    assert rewrite(b"", a=b"a") == A


def test_the_own_row_is_never_given_a_digest() -> None:
    assert rewrite_record(A + OWN, {PurePosixPath("pkg-1.dist-info/RECORD"): b"x"}) == A + OWN


def test_repeated_rows_of_one_file_are_all_changed() -> None:
    assert rewrite(A + B + A + OWN, a=b"x") == row("pkg/a.py", b"x") + B + row("pkg/a.py", b"x") + OWN


@pytest.mark.parametrize(
    "path",
    ["pkg/a,b.py", 'pkg/say "hi".py', "pkg/line\nend.py", "pkg/ spaced .py", "pkg/späß.py", "pkg/a'b.py"],
    ids=["comma", "quote", "newline", "space", "not ascii", "apostrophe"],
)
def test_quoting_is_what_the_csv_module_writes_and_reads(path: str) -> None:
    added = rewrite_record(A + OWN, {PurePosixPath(path): b"new"})
    assert added == A + row(path, b"new") + OWN
    assert rewrite_record(added, {PurePosixPath(path): b"newer"}) == A + row(path, b"newer") + OWN
    assert rewrite_record(added, {PurePosixPath(path): None}) == A + OWN
    assert path in record_rows(added)


def test_needless_quotes_of_another_writer_are_kept() -> None:
    record = b'"pkg/a.py",sha256=xyz,1\n' + OWN
    assert rewrite(record, a=b"a") == b'"pkg/a.py"' + A[len("pkg/a.py") :] + OWN


def test_name_that_is_not_utf8_is_found_by_its_bytes() -> None:
    record = b"pkg/\xff.py,sha256=xyz,1\n" + OWN
    changed = rewrite_record(record, {PurePosixPath("pkg/\udcff.py"): b"a"})
    assert changed == b"pkg/\xff.py" + A[len("pkg/a.py") :] + OWN


def test_paths_outside_and_absolute_ones_are_left_alone_and_read() -> None:
    record = b"../../bin/vllm,sha256=xyz,9\n/usr/share/x,,\n" + A + OWN
    assert rewrite(record, a=b"a") == record
    assert record_rows(record)["../../bin/vllm"] == ("sha256=xyz", 9)
    assert record_rows(record)["/usr/share/x"] == ("", None)


def test_path_with_a_leading_dot_is_the_same_path() -> None:
    record = b"./pkg/a.py,sha256=xyz,1\n" + OWN
    assert rewrite(record, a=b"a") == b"./" + A + OWN


@pytest.mark.parametrize(
    "record",
    [
        b'"pkg/a.py,sha256=x,1\npkg/b.py,,\n',
        b'x"y,,\n"',
        b"\n\n,,\n",
        b"pkg/a.py\n",
        b"pkg/a.py,sha256=\xff,-3\n",
        b"\0\r\r\n",
    ],
    ids=["open quote", "quote inside", "empty rows", "one field", "bad digest", "control"],
)
def test_damaged_record_is_carried_through_and_read_without_a_traceback(record: bytes) -> None:
    assert rewrite(record, zz=None) == record
    record_rows(record)
    assert recorded_sha256(record, "pkg/a.py") is None


@given(st.binary(max_size=200), st.text(max_size=20))
def test_no_change_is_no_change_for_any_bytes(record: bytes, name: str) -> None:
    assert rewrite_record(record, {}) == record
    record_rows(record)
    recorded_sha256(record, name)


# Without carriage return: csv.writer did not quote it everywhere before Python 3.13.
names = st.text(st.characters(exclude_characters="/\0\r", codec="utf-8"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)
trees = st.dictionaries(names, st.binary(max_size=20), max_size=6)


@given(trees, trees, st.sampled_from(["\n", "\r\n"]))
def test_rewritten_record_lists_exactly_the_changed_tree(
    before: dict[str, bytes], after: dict[str, bytes], end: str
) -> None:
    own = b"pkg-1.dist-info/RECORD,," + end.encode()
    record = b"".join(row(f"pkg/{name}", content, end) for name, content in before.items()) + own
    changes = {PurePosixPath(f"pkg/{name}"): after.get(name) for name in {*before, *after}}
    rewritten = rewrite_record(record, changes)
    listed = [fields for fields in csv.reader(io.StringIO(rewritten.decode(), newline="")) if fields]
    assert {fields[0] for fields in listed} == {*(f"pkg/{name}" for name in after), "pkg-1.dist-info/RECORD"}
    for name, content in after.items():
        assert recorded_sha256(rewritten, f"pkg/{name}") == hashlib.sha256(content).hexdigest()
    assert rewritten.endswith(own)
    if set(before) == set(after):
        back = {PurePosixPath(f"pkg/{name}"): content for name, content in before.items()}
        assert rewrite_record(rewritten, back) == record


def test_recorded_digest_is_given_in_hex_and_only_for_sha256() -> None:
    record = A + b"pkg/b.py,md5=xyz,1\npkg/c.py,,\n"
    assert recorded_sha256(record, PurePosixPath("pkg/a.py")) == hashlib.sha256(b"a").hexdigest()
    assert recorded_sha256(record, "pkg/b.py") is None
    assert recorded_sha256(record, "pkg/c.py") is None
    assert recorded_sha256(record, "pkg/d.py") is None
