"""Stage 2 before the host library: modes, and what happens when it is not what it should be."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.native.build import HOST_LIBRARY, BuildArtifact
from patchkit.native.manifest import manifest_path
from patchkit.native.monitor import look
from patchkit.native.segment import Segment
from patchkit.native.settings import Settings
from tests.native.workshop import Ran, Workshop, environment, run

pytestmark = pytest.mark.xdist_group("native")

WRAPS = 1000
RING = 256


@pytest.fixture
def shim(workshop: Workshop) -> BuildArtifact:
    return workshop.host_shim()


def host(shim: BuildArtifact, segments: Path, settings: Settings | None = None, **variables: str) -> Ran:
    return run([shim.program, 20, 2], segments, shim, settings, 120, **variables)


def plain(shim: BuildArtifact, segments: Path) -> str:
    return run([shim.program, 20, 2], segments).out


class TestModes:
    @pytest.mark.parametrize("mode", ["off", "count", "trace"])
    def test_what_changes_no_argument_changes_no_result(self, shim: BuildArtifact, segments: Path, mode: str) -> None:
        ran = host(shim, segments, Settings(mode=mode))
        assert (ran.status, ran.err, ran.out) == (0, "", plain(shim, segments))
        assert ran.calls("attention_forward") == [0 if mode == "off" else 40]

    def test_trace_records_every_call(self, shim: BuildArtifact, segments: Path) -> None:
        host(shim, segments, Settings(mode="trace"))
        [path] = segments.iterdir()
        segment = Segment(path)
        records = list(segment.records())
        assert (len(records), segment.lost, segment.counted().written) == (40, 0, 40)
        assert {record.q for record in records} == {(2, 9)}
        assert len({record.tid for record in records}) == 2
        assert all(record.nanoseconds > 0 for record in records)
        assert list(segment.records()) == []
        segment.close()

    def test_a_scale_by_transform_is_that_scale_by_configuration(self, shim: BuildArtifact, segments: Path) -> None:
        scaled = run([shim.program, 20, 2, 0.125], segments).out
        assert scaled != plain(shim, segments)
        assert host(shim, segments, Settings(mode="transform", qk_scale=0.5)).out == scaled

    def test_rope_offset_turns_the_query(self, shim: BuildArtifact, segments: Path) -> None:
        turned = host(shim, segments, Settings(mode="transform", rope_offset=3)).out
        assert turned != plain(shim, segments)
        assert host(shim, segments, Settings(mode="transform", rope_offset=0)).out == plain(shim, segments)

    def test_the_callers_query_is_never_written(self, shim: BuildArtifact, segments: Path) -> None:
        # Were it, the second call would see another query than the first, and the sum of 20 calls would differ.
        once = run([shim.program, 1, 1], segments, shim, Settings(mode="transform", qk_scale=0.5)).out
        often = run([shim.program, 20, 1], segments, shim, Settings(mode="transform", qk_scale=0.5)).out
        assert once.partition(", ")[2] == often.partition(", ")[2]

    def test_replace_compares_every_nth_call(self, shim: BuildArtifact, segments: Path) -> None:
        library = str(shim.directory / HOST_LIBRARY)
        ran = host(shim, segments, Settings(mode="replace", every=10), PATCHKIT_SHIM_REPLACE=library)
        assert ran.out == plain(shim, segments)
        counted = ran.watched[0].counted
        assert (counted.replaced, counted.compared, counted.differed) == (36, 4, 0)

    def test_a_library_without_the_function_is_said(
        self, workshop: Workshop, shim: BuildArtifact, segments: Path
    ) -> None:
        other = str(workshop.library("libspecial.so", "special.c"))
        ran = host(shim, segments, Settings(mode="replace"), PATCHKIT_SHIM_REPLACE=other)
        assert (ran.status, ran.out) == (0, plain(shim, segments))
        [line] = ran.err.splitlines()
        assert line.startswith("patchkit shim: no patchkit_attention_run to replace with: ")
        assert line.endswith("; calls are passed through")

    def test_replace_falls_back_on_the_first_difference(
        self, workshop: Workshop, shim: BuildArtifact, segments: Path
    ) -> None:
        wrong = workshop.library("libwrong.so", "wrong.c")
        ran = run(
            [shim.program, 20, 1],
            segments,
            shim,
            Settings(mode="replace", every=1),
            PATCHKIT_SHIM_REPLACE=str(wrong),
        )
        assert ran.out == run([shim.program, 20, 1], segments).out
        counted = ran.watched[0].counted
        assert (counted.replaced, counted.compared, counted.differed) == (0, 1, 1)


class TestRing:
    def test_wrapped_a_thousand_times_lost_and_read_are_what_was_written(
        self, workshop: Workshop, shim: BuildArtifact, segments: Path
    ) -> None:
        calls = WRAPS * RING
        workshop.library("libempty.so", "empty.c")
        program = workshop.compile("nanoseconds", "nanoseconds.c", "-lempty")
        command: list[object] = [program, "call", calls]
        seen = environment(command, segments, shim, Settings(mode="trace"), {})
        child = subprocess.Popen([str(word) for word in command], env=seen)
        segment = Segment(_ready(segments, child))
        read, last, torn = 0, 0, 0
        while True:
            ended = child.poll() is not None
            for record in segment.records():
                torn += record.q[0] != record.sequence  # the n-th call has batch_size n
                assert record.sequence > last
                last, read = record.sequence, read + 1
            if ended:
                break
        assert child.returncode == 0
        assert torn == 0
        assert segment.counted().written == calls
        assert read + segment.lost == calls
        assert segment.lost, "the reader was meant to be slower than the writer"
        segment.close()


def _ready(segments: Path, child: subprocess.Popen[bytes]) -> Path:
    while not look(segments).watched:
        assert child.poll() is None
    return look(segments).watched[0].path


def _cut(share: int) -> Callable[[Path], str]:
    def cut(stage2: Path) -> str:
        content = stage2.read_bytes()
        kept = len(content) * share // 100
        stage2.write_bytes(content[:kept])
        return f"it has {kept} bytes, its manifest says {len(content)}"

    return cut


def _missing(stage2: Path) -> str:
    stage2.unlink()
    return "it cannot be opened"


def _fifo(stage2: Path) -> str:
    stage2.unlink()
    os.mkfifo(stage2)
    return "it cannot be opened"


def _fifo_for_a_manifest(stage2: Path) -> str:
    manifest_path(stage2).unlink()
    os.mkfifo(manifest_path(stage2))
    return "it has no manifest that can be read"


def _no_manifest(stage2: Path) -> str:
    manifest_path(stage2).unlink()
    return "it has no manifest that can be read"


def _foreign(stage2: Path) -> str:
    content = bytearray(stage2.read_bytes())
    content[len(content) // 2] ^= 1
    stage2.write_bytes(content)
    return "its digest is not that of its manifest"


def _rewrite(before: str, after: str, why: str) -> Callable[[Path], str]:
    def rewrite(stage2: Path) -> str:
        path = manifest_path(stage2)
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))
        return why

    return rewrite


SPOILT: dict[str, Callable[[Path], str]] = {
    **{f"cut at {share} %": _cut(share) for share in (0, 5, 50, 90, 99)},
    "missing": _missing,
    "a FIFO": _fifo,
    "without manifest": _no_manifest,
    "with a FIFO for a manifest": _fifo_for_a_manifest,
    "one bit changed": _foreign,
    "another format": _rewrite("format 1", "format 2", "its manifest is of another format"),
    "another layout": _rewrite("layout ", "layout 00", "it was built for shared structs with the layout 00"),
    "another torch": _rewrite("torch -", "torch 2.8.0", "it was built for torch 2.8.0, the process has none"),
    "another engine": _rewrite("engine ", "stranger ", "it was not built for the library with build-id "),
}


@pytest.fixture
def stage2(shim: BuildArtifact, tmp_path: Path) -> Path:
    """Return a copy of stage 2 and its manifest, to be spoilt."""
    assert shim.stage2 is not None
    copied = tmp_path / "stage2.so"
    shutil.copy(shim.stage2, copied)
    shutil.copy(manifest_path(shim.stage2), manifest_path(copied))
    return copied


@pytest.mark.parametrize("what", SPOILT)
def test_spoilt_it_passes_through_and_says_one_line(
    shim: BuildArtifact, segments: Path, stage2: Path, what: str
) -> None:
    why = SPOILT[what](stage2)
    ran = host(shim, segments, Settings(mode="transform", qk_scale=0.5), PATCHKIT_SHIM_STAGE2=str(stage2))
    assert (ran.status, ran.out) == (0, plain(shim, segments))
    [line] = ran.err.splitlines()
    assert line.startswith(f"patchkit shim: stage 2 {stage2}: {why}")
    assert line.endswith("; calls are passed through")
    [process] = ran.watched
    assert (process.counted.stage2, process.counted.calls) == ("refused", 40)
    assert process.counted.message == line.removeprefix("patchkit shim: ")


def test_what_a_manifest_says_cannot_steer_the_terminal(shim: BuildArtifact, segments: Path, stage2: Path) -> None:
    _rewrite("layout ", "layout \x1b[31m\x9b\a", "")(stage2)
    ran = host(shim, segments, Settings(mode="transform", qk_scale=0.5), PATCHKIT_SHIM_STAGE2=str(stage2))
    assert "shared structs with the layout ?[31m" in ran.err
    assert ran.err.removesuffix("\n").isprintable()
    assert ran.err.isascii()
