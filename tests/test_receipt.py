"""The receipt's file: what is written is read again, and what is damaged or hostile is refused with a clear error."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from patchkit.errors import TreeChangedError
from patchkit.receipt import (
    AppliedLayer,
    AppliedPatch,
    Origin,
    Receipt,
    TouchedFile,
    parse_path,
    read_receipt,
    render_receipt,
)
from patchkit.tree import FileState, Kind

FILE = FileState(kind=Kind.FILE, mode=0o4755, sha256="a" * 64)
LINK = FileState(kind=Kind.SYMLINK, mode=0o777, sha256="b" * 64)
RECEIPT = Receipt(
    engine="vllm",
    version="0.6.3",
    distribution="vllm-0.6.3.dist-info",
    record_sha256="c" * 64,
    layers=(
        AppliedLayer(
            number=2,
            origin=Origin.USER,
            name="mine",
            patches=(
                AppliedPatch(
                    name="0001-a.patch",
                    sha256="d" * 64,
                    mapping="-p1",
                    paths=(("vllm/a.py", "vllm/a.py"), ("", "vllm/ü \udc80\n.py"), ("", "")),
                    lines=((1, 20), (), ()),
                    reverse=False,
                    config="KV",
                    enabled=True,
                    reason="",
                ),
            ),
            locked=True,
            applied_at="2024-01-02T03:04:05Z",
        ),
    ),
    configuration=(("KV", "y"), ("SIZE", "16")),
    files=(
        TouchedFile(path=PurePosixPath("vllm/a.py"), pristine=FILE, current=LINK),
        TouchedFile(path=PurePosixPath("vllm/ü \udc80\n.py"), pristine=None, current=FILE),
    ),
    directories=(PurePosixPath("vllm/new"),),
    plan_sha256="e" * 64,
    tool_version="0.1.0",
    emptied=((PurePosixPath("vllm/old"), 0o2750),),
)
# The oldest file of this schema that patchkit ever wrote must stay readable.
FIRST = """{
 "schema": 2,
 "engine": "tree",
 "version": "",
 "distribution": "",
 "record_sha256": "",
 "plan_sha256": "",
 "tool_version": "0.1.0",
 "configuration": [],
 "layers": [
  {"number": 1, "origin": "ad hoc", "name": "pr.diff", "locked": false, "applied_at": "2024-01-02T03:04:05Z",\
 "patches": []}],
 "files": [
  ["a.py", null, "file 644 %s"]],
 "directories": [],
 "emptied": []
}
""" % ("f" * 64)


def test_receipt_that_is_written_is_read_again(tmp_path: Path) -> None:
    place = tmp_path / "receipt.json"
    place.write_bytes(render_receipt(RECEIPT))
    assert read_receipt(place) == RECEIPT


def test_same_receipt_is_the_same_bytes() -> None:
    assert render_receipt(RECEIPT) == render_receipt(RECEIPT)


def test_oldest_file_of_this_schema_is_read(tmp_path: Path) -> None:
    place = tmp_path / "receipt.json"
    place.write_text(FIRST)
    receipt = read_receipt(place)
    assert receipt.layers[0].origin is Origin.AD_HOC
    assert receipt.files[0].pristine is None
    assert render_receipt(receipt) == FIRST.encode()


@pytest.mark.parametrize(
    ("schema", "whose", "way_out"),
    [(1, "an older", "revert with the patchkit that wrote it"), (3, "a newer", "one as new as that")],
)
def test_receipt_of_another_patchkit_is_refused_with_the_way_out(
    schema: int, whose: str, way_out: str, tmp_path: Path
) -> None:
    place = tmp_path / "receipt.json"
    place.write_text(FIRST.replace('"schema": 2', f'"schema": {schema}'))
    with pytest.raises(TreeChangedError, match=f"was written by {whose} patchkit") as caught:
        read_receipt(place)
    assert way_out in caught.value.hint


def test_absent_receipt_is_not_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_receipt(tmp_path / "receipt.json")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"schema": "2"}', b'{"schema": 2}', b"[" * 100_000],
    ids=["empty", "cut", "list", "null", "not text", "no schema", "schema in words", "fields missing", "deep"],
)
def test_damaged_receipt_is_named(raw: bytes, tmp_path: Path) -> None:
    place = tmp_path / "receipt.json"
    place.write_bytes(raw)
    with pytest.raises(TreeChangedError, match=r"receipt.*receipt\.json is damaged"):
        read_receipt(place)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("engine", 3),
        ("record_sha256", "../../etc/passwd"),
        ("configuration", [["A"]]),
        ("files", [["../outside", None, None]]),
        ("files", [["/etc/passwd", None, None]]),
        ("files", [["a/../../b", None, None]]),
        ("files", [["a/.git/config", None, None]]),
        ("files", [[".PATCHKIT/vllm/lock", None, None]]),
        ("files", [["a\0b", None, None]]),
        ("files", [["", None, None]]),
        ("files", [["a//b", None, None]]),
        ("files", [["a", "file 644 short", None]]),
        ("files", [["a", "file 99999 " + "a" * 64, None]]),
        ("files", [["a", ["file"], None]]),
        ("files", [["a"]]),
        ("files", {"a": 1}),
        ("files", None),
        ("directories", [".."]),
        ("emptied", [["a", "999999"]]),
        ("emptied", [["a", "rwx"]]),
        ("layers", [{"number": 0}]),
        ("layers", ["x"]),
    ],
)
def test_hostile_field_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    fields = json.loads(render_receipt(RECEIPT))
    fields[field] = value
    _require_damaged(fields, tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sha256", "../x"),
        ("sha256", ""),
        ("paths", [["../a", "b"]]),
        ("paths", [["a"]]),
        ("lines", [["one"]]),
        ("reverse", 1),
        ("name", None),
    ],
)
def test_hostile_field_of_a_patch_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    fields = json.loads(render_receipt(RECEIPT))
    fields["layers"][0]["patches"][0][field] = value
    _require_damaged(fields, tmp_path)


@pytest.mark.parametrize("text", ["a/b", "a b", ".gitignore", "...", "a/.gitattributes"])
def test_ordinary_path_is_taken(text: str) -> None:
    assert str(parse_path(text)) == text


def _require_damaged(fields: Any, tmp_path: Path) -> None:
    place = tmp_path / "receipt.json"
    place.write_text(json.dumps(fields))
    with pytest.raises(TreeChangedError, match="is damaged"):
        read_receipt(place)
