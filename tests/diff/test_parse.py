"""The reader of patches, over inputs that producers write and inputs that something damaged."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import tarfile
from pathlib import Path

import pytest

from patchkit.diff.crosscheck import crosscheck
from patchkit.diff.model import BinaryKind, Change, FilePatch, Patch
from patchkit.diff.parse import parse_patch
from patchkit.diff.render import render_patch
from patchkit.diff.reverse import reverse_patch
from patchkit.errors import PatchFormatError

CASES = Path(__file__).parents[1] / "cases"
SHARED = Path(__file__).parents[3] / "shared"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="../shared is not there: it holds the public cases and patches"
)

# What each file holds: a row per file patch, `change old new hunks` and what else is to be said of it.
GOOD = {
    "damaged-blanks-for-tab.patch": ["modify|a/my file|b/my file|1"],
    "difflib-no-names.patch": ["modify|f.py|f.py|1"],
    "git-binary-delta.patch": ["modify|a/f.bin|b/f.bin|0|100644||delta"],
    "git-binary-differ.patch": ["modify|a/f.bin|b/f.bin|0|100644||no data"],
    "git-binary-literal.patch": ["create|-|b/new.bin|0||100644|literal"],
    "git-byte-order-mark.patch": ["create|-|b/x|1||100755"],
    "git-content-looks-like-headers.patch": ["modify|a/f|b/f|1|100644"],
    "git-converted-and-stripped.patch": ["modify|a/f|b/f|1|100644"],
    "git-converted-to-crlf.patch": ["modify|a/f|b/f|1|100644", "delete|a/g|-|1|100644", "create|-|b/h|0||100644"],
    "git-copy-with-edit.patch": ["modify|a/f.py|b/f.py|1|100644", "copy|a/f.py|b/g.py|1|100644"],
    "git-crlf-file.patch": ["modify|a/f|b/f|1|100644"],
    "git-directory-ends-in-b.patch": ["modify|a/a b/c d.py|b/a b/c d.py|1|100644"],
    "git-empty-create-and-delete.patch": ["create|-|b/come|0||100644", "delete|a/gone|-|0|100644"],
    "git-file-becomes-symlink.patch": ["delete|a/k|-|1|100644", "create|-|b/k|1||120000"],
    "git-format-patch.patch": ["modify|a/f|b/f|1|100644"],
    "git-gzipped.patch.gz": ["modify|a/f|b/f|1|100644"],
    "git-marker-in-german.patch": ["modify|a/f|b/f|1"],
    "git-marker-without-line-end.patch": ["modify|a/f|b/f|1|100644"],
    "git-mnemonic-prefix.patch": ["modify|i/d/f.py|w/d/f.py|1|100644"],
    "git-mode-and-edit.patch": ["modify|a/run.sh|b/run.sh|1|100644|100755"],
    "git-mode-only-directory-ends-in-b.patch": ["modify|a/x b/c d|b/x b/c d|0|100644|100755"],
    "git-mode-only.patch": ["modify|a/run.sh|b/run.sh|0|100644|100755"],
    "git-no-index-two-trees.patch": [
        "modify|a/one/pkg/f.py|b/two/pkg/f.py|1|100644",
        "create|-|b/two/pkg/new.py|1||100644",
    ],
    "git-no-newline-both-changed.patch": ["modify|a/f|b/f|1|100644"],
    "git-no-newline-both.patch": ["modify|a/f|b/f|1|100644"],
    "git-no-newline-new.patch": ["modify|a/f|b/f|1|100644"],
    "git-no-newline-old.patch": ["modify|a/f|b/f|1|100644"],
    "git-no-prefix.patch": ["modify|d/f.py|d/f.py|1|100644", "delete|e|-|0|100644"],
    "git-odd-line-ends.patch": ["modify|a/f|b/f|1|100644"],
    "git-pure-rename.patch": ["rename|a/old.py|b/new.py|0"],
    "git-quoted-names.patch": [
        "modify|a/d/latin\udce9|b/d/latin\udce9|1|100644",
        'modify|a/d/quo"te\\|b/d/quo"te\\|1|100644',
        "modify|a/d/tab\there|b/d/tab\there|1|100644",
        "modify|a/d/日本.txt|b/d/日本.txt|1|100644",
    ],
    "git-rename-with-edit.patch": ["rename|a/pkg/old name.py|b/pkg/new name.py|1|100644"],
    "git-stripped-blanks.patch": ["modify|a/f|b/f|1|100644"],
    "git-symlink.patch": ["create|-|b/l|1||120000"],
    "git-two-mails.patch": ["modify|a/f|b/f|1|100644", "create|-|b/g|1||100644"],
    "git-zero-context.patch": ["modify|a/f|b/f|3|100644"],
    "gnu-diff-backup-name.patch": ["modify|f.orig|f|1"],
    "gnu-diff-binary.patch": ["modify|a/x.bin|b/x.bin|0|||no data"],
    "gnu-diff-quoted-name.patch": ["modify|q\tt|r\tt|1"],
    "gnu-diff-ruN.patch": [
        "create|-|b/come|1",
        "modify|a/f.py|b/f.py|1",
        "delete|a/gone|-|1",
        "modify|a/my file|b/my file|1",
    ],
    "hand-made-dev-null-without-mode.patch": ["create|-|b/n.py|1"],
    "hg-git-with-dates.patch": ["modify|a/f.py|b/f.py|1"],
    "svn-index-lines.patch": ["modify|src/f.c|src/f.c|1"],
}

# The line that the error shows, and words of it.
BAD = {
    "bad-api-answer.patch": (1, "looks like JSON"),
    "bad-empty.patch": (1, "the patch is empty"),
    "bad-git-binary-bad-letter.patch": (6, "not a line of base85"),
    "bad-git-binary-line-lost.patch": (5, "does not inflate to 300 bytes"),
    "bad-git-binary-too-long.patch": (5, "too long"),
    "bad-git-binary-wrong-length.patch": (5, "does not inflate to 299 bytes"),
    "bad-git-combined.patch": (1, "combined diff"),
    "bad-git-index-line-only.patch": (1, "without any change"),
    "bad-git-mode-not-octal.patch": (3, "not a file mode"),
    "bad-git-mode-of-a-device.patch": (2, "not a file or a symlink: b/f"),
    "bad-git-names-contradict.patch": (3, "inconsistent file name"),
    "bad-git-new-and-deleted.patch": (3, "line 2 says create"),
    "bad-git-new-file-with-old-lines.patch": (5, "a created file cannot have old lines"),
    "bad-git-new-file-with-old-name.patch": (3, "expected /dev/null"),
    "bad-git-one-name-only.patch": (1, "lacks a file name"),
    "bad-git-quoted-name-not-closed.patch": (1, "not closed"),
    "bad-git-quoted-nul.patch": (1, "NUL"),
    "bad-git-rename-contradicts.patch": (5, "line 3 names another file"),
    "bad-git-rename-without-to.patch": (3, "`rename to ` is missing"),
    "bad-git-submodule.patch": (2, "a submodule is not a file: a/vendor/lib"),
    "bad-gnu-both-names-null.patch": (2, "both names are /dev/null"),
    "bad-gnu-context.patch": (3, "looks like a context diff"),
    "bad-gnu-ed.patch": (1, "looks like an ed script"),
    "bad-gnu-normal.patch": (1, "looks like a normal diff"),
    "bad-gz-truncated.patch.gz": (1, "ends too early"),
    "bad-hand-created-twice-over.patch": (8, "line 5 inserts there too"),
    "bad-hand-counts-swapped.patch": (3, "says 1 old and 3 new lines, here are 2 and 3"),
    "bad-hand-hunk-changes-nothing.patch": (3, "changes nothing"),
    "bad-hand-hunk-longer-behind-a-blank.patch": (8, "longer than it says"),
    "bad-hand-hunk-longer.patch": (7, "longer than it says"),
    "bad-hand-hunk-shorter.patch": (10, "shorter than it says"),
    "bad-hand-hunk-without-header.patch": (2, "hunk without a file header"),
    "bad-hand-lone-return-in-hunk.patch": (4, "lone CR"),
    "bad-hand-marker-in-the-middle.patch": (6, "no-newline marker is out of place"),
    "bad-hand-negative-number.patch": (3, "damaged hunk header"),
    "bad-hand-number-out-of-range.patch": (3, "out of range"),
    "bad-model-blanks-in-hunk-header.patch": (3, "@@ -0,0 +1,     239 @@"),
    "bad-model-damaged-second-hunk-header.patch": (6, "damaged hunk header"),
    "bad-model-hunk-header-without-numbers.patch": (3, "damaged hunk header"),
    "bad-names-without-hunk.patch": (3, "looks like an ed script"),
    "bad-powershell-utf16.patch": (1, "UTF-16"),
    "bad-prose.patch": (1, "plain text"),
    "bad-truncated-in-a-header.patch": (3, "ends in the middle of a line"),
    "bad-truncated-in-a-hunk.patch": (5, "ends in the middle of a hunk"),
    "bad-truncated-in-a-line.patch": (6, "ends in the middle of a line"),
    "bad-web-page.patch": (1, "a web page"),
}


def row(file: FilePatch) -> str:
    modes = ["" if mode is None else f"{mode:o}" for mode in (file.old_mode, file.new_mode)]
    kind = ""
    if file.binary is not None:
        kind = "no data" if file.binary.forward is None else file.binary.forward.kind.value
    parts = [file.change.value, file.old_name or "-", file.new_name or "-", str(len(file.hunks)), *modes, kind]
    return "|".join(parts).rstrip("|")


def read(name: str) -> Patch:
    return parse_patch((CASES / name).read_bytes(), source=name)


def test_no_more_than_the_start_of_a_file_tells_what_it_looks_like() -> None:
    with pytest.raises(PatchFormatError, match="it looks like a binary file"):
        parse_patch(b"text" + bytes(9), source="x")
    with pytest.raises(PatchFormatError, match="it looks like plain text"):
        parse_patch(b"text" * 20_000 + bytes(9), source="x")


def test_every_case_file_is_read_by_a_test() -> None:
    assert {path.name for path in CASES.glob("*.patch*")} == GOOD.keys() | BAD.keys()


@pytest.mark.parametrize("name", GOOD)
def test_files_names_changes_and_modes_are_read(name: str) -> None:
    assert [row(file) for file in read(name).files] == GOOD[name]


@pytest.mark.parametrize("name", GOOD)
def test_rendering_gives_the_same_bytes(name: str) -> None:
    raw = (CASES / name).read_bytes()
    patch = read(name)
    expected = gzip.decompress(raw) if name.endswith(".gz") else raw
    assert render_patch(patch) == expected
    assert patch.sha256 == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize("name", GOOD)
def test_line_numbers_lead_to_the_lines(name: str) -> None:
    lines = render_patch(read(name)).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for file in read(name).files:
        assert lines[file.line_number - 1].startswith((b"diff ", b"Index: ", b"--- ", b"Binary files "))
        for hunk in file.hunks:
            start = hunk.line_number
            assert lines[start - 1] == hunk.header
            assert lines[start : start + len(hunk.lines)] == list(hunk.lines)


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_patch_is_refused_with_file_line_and_the_line_itself(name: str) -> None:
    number, words = BAD[name]
    with pytest.raises(PatchFormatError) as caught:
        read(name)
    error = caught.value
    assert error.line_number == number
    assert error.what.startswith(f"{name}:{number}: ")
    assert words in str(error)
    if not name.endswith(".gz"):
        assert error.line == ((CASES / name).read_bytes().split(b"\n"))[number - 1]


@pytest.mark.parametrize("name", ["git-converted-to-crlf.patch", "git-converted-and-stripped.patch"])
def test_a_wholly_converted_patch_is_known_as_crlf(name: str) -> None:
    patch = read(name)
    assert patch.crlf
    assert all(line.endswith(b"\r") for file in patch.files for hunk in file.hunks for line in hunk.lines)


@pytest.mark.parametrize("name", ["git-crlf-file.patch", "git-odd-line-ends.patch", "git-format-patch.patch"])
def test_carriage_returns_of_a_file_are_content(name: str) -> None:
    assert not read(name).crlf


def test_lines_are_split_on_lf_only() -> None:
    lines = read("git-odd-line-ends.patch").files[0].hunks[0].lines
    assert lines[:5] == (b"-one\rtwo", b"+one\r2\r\r", b" \x0cpage", b" u\xe2\x80\xa8v\xc2\x85", b" latin \xe9")
    assert lines[-2:] == (b"-x", b"+y\r")


def test_counts_win_over_lines_that_look_like_headers() -> None:
    lines = read("git-content-looks-like-headers.patch").files[0].hunks[0].lines
    assert {b"--- x", b"+-- X", b"-++ y", b"+++ Y", b" @@ -1 +1 @@", b" diff --git a/f b/f", b"-- ", b"+-"} <= set(
        lines
    )


def test_the_mail_signature_is_no_part_of_the_hunk() -> None:
    patch = read("git-format-patch.patch")
    assert patch.footer.startswith(b"-- \n2.")
    assert patch.files[0].hunks[-1].lines[-1] == b" line 18"
    assert b"Config: FIFTEEN" in patch.preamble


def test_of_two_mails_the_second_header_stands_before_its_file() -> None:
    first, second = read("git-two-mails.patch").files
    assert first.header.startswith(b"diff --git a/f b/f\n")
    assert second.header.startswith(b"-- \n2.")
    assert b"Subject: [PATCH 2/2] Add g" in second.header


def test_two_mails_are_two_commits_and_a_patch_without_mails_is_one() -> None:
    assert [file.commit for file in read("git-two-mails.patch").files] == [0, 1]
    assert {file.commit for file in reverse_patch(read("git-format-patch.patch")).files} == {0}


def test_numbers_sections_and_blobs_are_read() -> None:
    file = read("git-format-patch.patch").files[0]
    hunk = file.hunks[0]
    assert (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count) == (12, 7, 12, 7)
    assert hunk.section == b"line 11"
    assert len(file.old_blob) == len(file.new_blob) == 7


def test_a_missing_count_means_one_and_zero_counts_are_kept() -> None:
    hunks = read("git-zero-context.patch").files[0].hunks
    assert [(hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count) for hunk in hunks] == [
        (4, 1, 3, 0),
        (9, 0, 9, 1),
        (20, 1, 20, 1),
    ]


@pytest.mark.parametrize(
    ("name", "markers"),
    [("old", [1]), ("new", [2]), ("both", [3]), ("both-changed", [1, 3])],
)
def test_no_newline_markers_stay_behind_their_lines(name: str, markers: list[int]) -> None:
    lines = [line[:1] for line in read(f"git-no-newline-{name}.patch").files[0].hunks[0].lines]
    assert lines.count(b"\\") == len(markers)


def test_a_binary_patch_is_inflated() -> None:
    delta = read("git-binary-delta.patch").files[0].binary
    literal = read("git-binary-literal.patch").files[0].binary
    assert delta is not None
    assert literal is not None
    assert delta.forward is not None
    assert delta.reverse is not None
    assert literal.forward is not None
    assert (delta.forward.kind, delta.reverse.kind) == (BinaryKind.DELTA, BinaryKind.DELTA)
    assert len(literal.forward.payload) == 300


def test_stripped_blanks_are_context() -> None:
    plain, converted = (
        read(f"git-{name}.patch").files[0].hunks[0].lines for name in ("stripped-blanks", "converted-and-stripped")
    )
    assert plain.count(b"") == converted.count(b"\r") == 2


@pytest.mark.parametrize("signature", [b"-- \n2.39.5\n\n", b"--\n2.39.5\n", b"---\n", b"\n\nprose\n", b"From x\n", b""])
def test_what_may_stand_behind_a_hunk_is_the_footer(signature: bytes) -> None:
    raw = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    assert parse_patch(raw + signature, source="x").footer == signature


def test_too_long_a_patch_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.diff.text.MAX_RAW", 10)
    with pytest.raises(PatchFormatError, match="too long"):
        parse_patch(b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", source="x")


def test_a_gz_that_inflates_too_far_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.diff.text.MAX_INFLATED", 1000)
    with pytest.raises(PatchFormatError, match="too long"):
        parse_patch(gzip.compress(b"\n" * 100_000), source="x")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"diff --git" + b" a" * 2_000_000 + b"\nold mode 100644\nnew mode 100755\n", "lacks a file name"),
        (b"Binary files a" + b" and a" * 500_000 + b" differ\n", "no unified diff"),
        (b"--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n-a\n" + b"\\ No newline\n" * 300_000, "out of place"),
        (b"--- a/f\n+++ b/f\n@@ -1,900000 +1,900000 @@\n" + b"-a\n+b\n" * 300_000, "in the middle of a hunk"),
        (b"diff --git a/f b/f\nGIT binary patch\nliteral 1\n" + b"A00000\n" * 500_000, "more data than"),
    ],
    ids=["many names", "many ands", "many markers", "a huge count", "more data than stated"],
)
def test_hostile_input_is_refused_in_one_pass(raw: bytes, words: str) -> None:
    with pytest.raises(PatchFormatError, match=words):
        parse_patch(raw, source="x")


def test_a_long_run_of_blanks_is_searched_once_for_a_date() -> None:
    raw = b"--- a/f" + b" " * 2_000_000 + b"x\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    assert len(parse_patch(raw, source="x").files) == 1


def test_mutated_patches_are_read_or_refused_and_nothing_else() -> None:
    chance = random.Random(20)  # noqa: S311 - the same mutations every time
    seeds = [path.read_bytes() for path in sorted(CASES.glob("*.patch"))]
    read_patches = 0
    for _ in range(4000):
        raw = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(raw) + 1)
            raw[at : at + chance.choice((0, 1, 20))] = chance.choice(
                (b"", b"\n", b"-", b"+ ", b"@@ -1 +1 @@\n", b'"', b"\0")
            )
        try:
            patch = parse_patch(bytes(raw), source="x")
        except PatchFormatError:
            continue
        read_patches += 1
        assert render_patch(patch) == raw
    assert read_patches > 500


@pytest.fixture(scope="module")
def shared_cases() -> dict[str, bytes]:
    with tarfile.open(SHARED / "cases" / "cases.tar.xz") as archive:
        contents = {}
        for member in archive:
            stream = archive.extractfile(member) if member.name.endswith("/patch") else None
            if stream is not None:
                contents[Path(member.name).parts[-2]] = stream.read()
        return contents


@needs_shared
def test_public_cases_that_apply_are_read_and_those_without_a_diff_are_refused(shared_cases: dict[str, bytes]) -> None:
    # GNU patch alone takes these: names that contradict each other, a mode of letters, lines beyond the counts.
    refused = {"git-t4133-apply-filenames-2", "git-t4129-apply-samemode-17", "whatthepatch-diff-unified-blah"}
    wrong = []
    for case in json.loads((SHARED / "cases" / "index.json").read_text()):
        if case["tier"] == "disagree" or case["git_options"] or case["name"] in refused:
            continue
        raw = shared_cases[case["name"]]
        try:
            patch = parse_patch(raw, source=case["name"])
        except PatchFormatError as error:
            wrong += [str(error)] if case["expect"] == "apply" else []
        else:
            wrong += [case["name"]] if case["tier"] == "format" else []
            wrong += [] if render_patch(patch) == raw or raw.startswith(b"\x1f\x8b") else [f"{case['name']} differs"]
            wrong += crosscheck(raw, patch)
    assert wrong == []


@needs_shared
def test_real_patches_are_read_rendered_and_cross_checked() -> None:
    paths = sorted(path for end in ("patch", "diff") for path in (SHARED / "real-patches").glob(f"*/*.{end}"))
    assert len(paths) > 50
    for path in paths:
        raw = path.read_bytes()
        patch = parse_patch(raw, source=path.name)
        assert render_patch(patch) == raw, path
        assert crosscheck(raw, patch) == (), path


def test_a_diff_of_many_hunks_is_read_whole() -> None:
    hunk = b"@@ -%d,3 +%d,4 @@ def f():\n a\n-b\n+c\n+d\n e\n"
    body = b"".join(hunk % (10 * at, 11 * at) for at in range(1, 5001))
    patch = parse_patch(b"--- a/f\n+++ b/f\n" + body, source="x")
    assert [hunk.new_start for hunk in patch.files[0].hunks] == [11 * at for at in range(1, 5001)]
    assert patch.files[0].change is Change.MODIFY
