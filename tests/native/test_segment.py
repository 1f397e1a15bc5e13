"""The segment as it is read from outside: the numbers of the header, and files that are not what they should be."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from patchkit.errors import ObjectFormatError, RefusedError, UsageError
from patchkit.native import segment as numbers
from patchkit.native.launch import compose_preload
from patchkit.native.library import has_new_strings
from patchkit.native.monitor import look, tell
from patchkit.native.segment import Segment
from patchkit.native.settings import (
    Settings,
    check_settings,
    from_numbers,
    parse_settings,
    settings_document,
    settings_words,
)
from patchkit.native.settings import numbers as settings_numbers
from patchkit.native.symbols import HOST, read_symbols, symbols_text
from patchkit.resources import native_directory
from tests.native.workshop import PROBED, Workshop, environment, run

pytestmark = pytest.mark.xdist_group("native")


def test_the_numbers_are_those_of_the_header(workshop: Workshop) -> None:
    said = subprocess.run([workshop.compile("layout", "layout.c")], capture_output=True, text=True, check=True)
    ours = [numbers.CONTROL_BYTES, numbers.SYMBOL_BYTES, numbers.SLOT_BYTES, numbers.RECORD_BYTES]
    ours += [numbers.SYMBOLS_AT, numbers.SLOTS_AT, numbers.RINGS_AT, numbers.SEGMENT_BYTES]
    assert [int(word) for word in said.stdout.split()] == ours


def test_settings_travel_as_numbers() -> None:
    told = Settings(mode="transform", every=7, qk_scale=0.3, window=256, rope_offset=-5, rope_theta=5e5, tolerance=1e-3)
    assert from_numbers(settings_numbers(told)) == told


@pytest.mark.parametrize(
    "word",
    [
        "mode=fast",
        "speed=1",
        "qk_scale",
        "qk_scale=x",
        "qk_scale=nan",
        "window=-1",
        "window=1.5",
        "rope_theta=0",
        "every=9999999999",
    ],
)
def test_settings_that_mean_nothing_are_errors(word: str) -> None:
    with pytest.raises(UsageError):
        parse_settings([word], Settings())


@pytest.mark.parametrize(
    ("words", "symbol"),
    [
        (["mode=replace"], "paged_attention_v2"),
        (["mode=transform", "window=5"], "paged_attention_v1"),
        (["mode=transform", "rope_offset=5"], "paged_attention_v1"),
        (["mode=trace"], "none"),
    ],
    ids=str,
)
def test_settings_that_would_change_nothing_are_errors(words: list[str], symbol: str) -> None:
    rows = [row for row in read_symbols(native_directory()) if row.hook == symbol]
    with pytest.raises(UsageError):
        check_settings(parse_settings(words, Settings()), rows)


@pytest.mark.parametrize("mode", ["count", "trace", "replace"])
def test_what_is_named_and_would_change_nothing_is_an_error_in_every_mode(mode: str) -> None:
    rows = [row for row in read_symbols(native_directory()) if row.hook == "paged_attention_v1"]
    settings = parse_settings(["window=5"], Settings(mode=mode))
    with pytest.raises(UsageError, match="window changes nothing here"):
        check_settings(settings, rows, named=("window",))
    check_settings(settings, rows)  # what was set before is no fault of who sets the mode


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "mode count"),
        (["mode=transform", "qk_scale=0.5", "window=1234567"], "mode transform, qk_scale 0.5, window 1234567"),
        (["mode=trace", "qk_scale=0.5"], "mode trace, qk_scale 0.5 (for mode transform)"),
        (["mode=replace", "every=3"], "mode replace, every 3"),
        (
            ["tolerance=0.5", "rope_offset=2"],
            "mode count, rope_offset 2 (for mode transform), tolerance 0.5 (for mode replace)",
        ),
    ],
    ids=str,
)
def test_words_name_what_is_not_as_at_first_and_the_mode_that_it_is_for(words: list[str], said: str) -> None:
    assert settings_words(parse_settings(words, Settings())) == said


def test_the_list_of_entry_points_is_read_and_written() -> None:
    rows = read_symbols(native_directory())
    assert {row.hook for row in rows if row.engine == HOST} == {"attention_forward"}
    written = (native_directory() / "shim/symbols.def").read_text().splitlines()
    assert symbols_text(rows).splitlines() == [line for line in written if line.startswith('PK_SYMBOL("')]
    for row in rows:
        assert (native_directory() / "hooks" / f"{row.hook}.cpp").is_file()


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ("", "/c/libpatchkit-shim.so"),
        ("/a/libasan.so", "/a/libasan.so:/c/libpatchkit-shim.so"),
        ("/a/x.so /b/y.so", "/a/x.so:/b/y.so:/c/libpatchkit-shim.so"),
        ("/old/libpatchkit-shim.so:/a/x.so", "/a/x.so:/c/libpatchkit-shim.so"),
    ],
)
def test_the_preload_keeps_what_is_there(present: str, wanted: str) -> None:
    assert compose_preload(present, Path("/c/libpatchkit-shim.so")) == wanted


def test_a_path_that_the_preload_cannot_hold_is_refused() -> None:
    with pytest.raises(RefusedError):
        compose_preload("", Path("/my cache/libpatchkit-shim.so"))


@pytest.mark.parametrize("ending", ["Ss", "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"], ids=["old", "new"])
def test_the_kind_of_string_is_told_by_a_function_that_takes_one(workshop: Workshop, ending: str) -> None:
    # As in a real libc10.so of the old kind, names of the new kind are there too: libstdc++'s own.
    source = workshop.directory / f"c10-{len(ending)}.c"
    names = (f"_ZN3c106detail14torchCheckFailEPKcS2_jRK{ending}", "_ZNSt7__cxx1119basic_ostringstreamIcE")
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    library = workshop.library(f"libc10-{len(ending)}.so", str(source))
    assert has_new_strings(library) == (ending != "Ss")


class TestHostile:
    @pytest.fixture
    def path(self, workshop: Workshop, segments: Path) -> Path:
        run([workshop.drive(), "arguments"], segments, workshop.shim(*PROBED))
        [path] = segments.iterdir()
        return path

    def test_it_is_its_owners_alone(self, path: Path) -> None:
        assert path.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("spoil", ["mode", "short", "magic", "version", "link", "fifo"])
    def test_what_is_no_segment_is_refused(self, path: Path, spoil: str) -> None:
        if spoil == "mode":
            path.chmod(0o644)
        elif spoil == "short":
            os.truncate(path, 4096)
        elif spoil in ("magic", "version"):
            with path.open("r+b") as file:
                file.seek(0 if spoil == "magic" else 8)
                file.write(b"\xff")
        else:
            path.rename(path.with_name("other"))
            if spoil == "link":
                path.symlink_to("other")
            else:
                os.mkfifo(path, 0o600)
        with pytest.raises(ObjectFormatError):
            Segment(path)
        sight = look(path.parent)
        assert (sight.watched, len(sight.unreadable)) == ((), 1)

    def test_it_is_looked_at_without_taking_memory(self, path: Path) -> None:
        """A look through a mapping takes a page of a tmpfs where none was written: SIGBUS when it is full."""
        shared = Path("/dev/shm")  # noqa: S108 -- a directory of our own is made in it
        if not os.access(shared, os.W_OK):
            pytest.skip("shared memory is not writable here")
        with tempfile.TemporaryDirectory(dir=shared) as directory:
            copy = Path(directory, path.name)
            copy.touch(0o600)
            with copy.open("r+b") as file:
                file.write(path.read_bytes()[: numbers.CONTROL_BYTES])
                file.truncate(numbers.SEGMENT_BYTES)
                file.seek(40)
                file.write(b"\xff" * 4)  # claimed, of which none has memory
            before = copy.stat().st_blocks
            segment = Segment(copy)
            segment.counted()
            list(segment.records())
            segment.close()
            assert copy.stat().st_blocks == before

    def test_one_that_shrinks_while_it_is_read_is_an_error(self, path: Path) -> None:
        segment = Segment(path)
        os.truncate(path, 4096)
        with pytest.raises(ObjectFormatError, match="it ends after"):
            segment.counted()
        segment.close()

    def test_settings_of_a_foreign_hand_are_shown_and_not_written_back(self, path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(64)
            file.write(struct.pack("<IIdii", 7, 1, math.nan, 0, 0))
        settings = Segment(path).counted().settings
        assert settings_document(settings)["mode"] == "7"
        json.dumps(settings_document(settings), allow_nan=False)
        with pytest.raises(UsageError, match="nobody knows"):
            check_settings(parse_settings(["every=5"], settings), ())

    def test_counters_out_of_range_are_not_followed(self, path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(12)
            file.write(b"\xff" * 4)  # symbols
            file.seek(40)
            file.write(b"\xff" * 8)  # claimed, stage2
        [one] = look(path.parent).watched
        assert len(one.counted.symbols) == numbers.SYMBOLS
        assert list(Segment(path).records()) == []


def test_a_running_process_sees_what_is_set(workshop: Workshop, segments: Path) -> None:
    command: list[object] = [workshop.drive(), "until-killed"]
    seen = environment(command, segments, workshop.shim(*PROBED), None, {})
    child = subprocess.Popen([str(word) for word in command], env=seen)
    try:
        while not any(one.counted.calls for one in look(segments).watched):
            assert child.poll() is None
        [told] = tell(segments, ["mode=off"], child.pid, ())
        assert told.counted.settings.mode == "off"
        # A call that was under way may still count; after that the number stands still.
        before = look(segments).watched[0].counted.calls
        while (now := look(segments).watched[0].counted.calls) != before:
            before = now
        tell(segments, ["mode=count"], None, ())
        while look(segments).watched[0].counted.calls == now:
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    with pytest.raises(RefusedError):
        tell(segments, ["mode=off"], None, ())
