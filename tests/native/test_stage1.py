"""Stage 1 in real processes: what it counts, what it leaves alone, how it finds the real function."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.native.monitor import forget, look
from patchkit.native.segment import SLOTS
from patchkit.native.settings import Settings
from tests.native.workshop import PROBED, WIDE, Workshop, environment, run

pytestmark = pytest.mark.xdist_group("native")


class TestCounts:
    def test_eight_threads_of_ten_million_calls_are_counted_exactly(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "threads", 8, 10**7], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.err) == (0, "")
        assert ran.calls("nothing")[0] == 8 * 10**7

    def test_more_threads_than_slots_one_after_the_other(self, workshop: Workshop, segments: Path) -> None:
        threads = SLOTS + 100
        ran = run([workshop.drive(), "one-by-one", threads], segments, workshop.shim(*PROBED))
        assert ran.calls("nothing")[0] == threads

    def test_more_threads_than_slots_at_once(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "threads", SLOTS + 50, 2000], segments, workshop.shim(*PROBED))
        assert ran.calls("nothing")[0] == (SLOTS + 50) * 2000

    def test_a_hundred_forks_while_calling(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "forks", 100, 50], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.err) == (0, "")
        [parent, *children] = ran.calls("nothing")
        assert parent == int(ran.out), "a child's calls do not land in its parent's segment"
        assert children == [50] * 100

    def test_a_child_of_a_process_that_is_off_can_be_told_otherwise(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "forks", 3, 5], segments, workshop.shim(*PROBED), Settings(mode="off"))
        assert (ran.status, ran.err) == (0, "")
        assert [one.counted.settings.mode for one in ran.watched] == ["off"] * 4
        assert ran.calls("nothing") == [0] * 4

    def test_after_an_exec_the_new_program_counts(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "exec"], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.err) == (0, "")
        assert ran.calls("nothing") == [7], "number and start time are those of before"

    def test_a_file_in_the_place_of_a_segment_stays(self, workshop: Workshop, segments: Path) -> None:
        """It has the right name, and is no file that the process can have made."""
        drive = workshop.drive()
        script = f"ln -s /etc/passwd {segments}/patchkit-$$-$(cut -d' ' -f22 /proc/$$/stat); exec {drive} arguments"
        ran = run(["/bin/sh", "-c", script], segments, workshop.shim(*PROBED), None, 120, PATCHKIT_SHIM=str(drive))
        assert (ran.status, ran.watched) == (0, ())
        assert ran.err.endswith("errno 17\n")

    def test_a_killed_process_leaves_a_segment_that_can_be_read(self, workshop: Workshop, segments: Path) -> None:
        command: list[object] = [workshop.drive(), "until-killed"]
        child = subprocess.Popen(command, env=environment(command, segments, workshop.shim(*PROBED), None, {}))  # type: ignore[arg-type]
        while not any(one.counted.calls for one in look(segments).watched):
            assert child.poll() is None
        [one] = look(segments).watched
        assert one.running
        child.send_signal(signal.SIGKILL)
        child.wait()
        [one] = look(segments).watched
        assert not one.running
        assert one.counted.calls
        assert forget(segments) == (one.path,)
        assert look(segments).watched == ()


class TestTransparency:
    def test_arguments_results_and_errno(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "arguments"], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.err) == (0, "")
        assert [ran.calls(name)[0] for name in ("many", "variadic", "probe")] == [3, 3, 3]

    @pytest.mark.skipif(not WIDE, reason="vector registers wider than 16 bytes carry arguments on x86-64 only")
    def test_wide_vector_arguments(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "wide"], segments, workshop.shim(*WIDE))
        if ran.status == 77:
            pytest.skip("the processor has no AVX")
        assert (ran.status, ran.err) == (0, "")
        assert ran.calls("wide4")[0] == 2

    def test_exceptions_pass(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.drive(), "exceptions"], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.err) == (0, "")
        assert ran.calls("thrower")[0] == 99

    @pytest.mark.parametrize(
        "line", [["/bin/true"], ["/bin/false"], ["uname", "-a"], ["g++", "--version"]], ids=" ".join
    )
    @pytest.mark.parametrize("opted", [False, True], ids=["not opted in", "another program opted in"])
    def test_a_process_that_is_not_the_engine_is_left_alone(
        self, workshop: Workshop, segments: Path, line: list[str], opted: bool
    ) -> None:
        program = shutil.which(line[0]) or line[0]
        plain = run([program, *line[1:]], segments)
        preload = {"LD_PRELOAD": str(workshop.shim(*PROBED).stage1)}
        if opted:
            preload |= {"PATCHKIT_SHIM": sys.executable, "PATCHKIT_SHIM_INSIDE": "1"}
        beside = run([program, *line[1:]], segments, None, None, 120, **preload)
        assert (beside.status, beside.out, beside.err) == (plain.status, plain.out, plain.err)
        assert list(segments.iterdir()) == []

    def test_below_an_engine_other_programs_lose_the_preload(self, workshop: Workshop, segments: Path) -> None:
        stage1 = str(workshop.shim(*PROBED).stage1)
        chosen = {"PATCHKIT_SHIM": "/nowhere/python", "LD_PRELOAD": f"{stage1}:{stage1}"}
        line: list[object] = [shutil.which("env") or "env"]
        assert "LD_PRELOAD" in run(line, segments, None, None, 120, PATCHKIT_SHIM_INSIDE="0", **chosen).out
        assert "LD_PRELOAD" not in run(line, segments, None, None, 120, PATCHKIT_SHIM_INSIDE="1", **chosen).out
        other = workshop.library("libprobe.so", "probe.cpp", "-Wno-psabi")
        chosen["LD_PRELOAD"] = f"{other} {stage1}"
        said = run(line, segments, None, None, 120, PATCHKIT_SHIM_INSIDE="1", **chosen).out
        assert f"LD_PRELOAD={other}\n" in said

    def test_no_shared_memory_is_said_once_and_calls_pass(self, workshop: Workshop, segments: Path) -> None:
        ran = run(
            [workshop.drive(), "arguments"],
            segments,
            workshop.shim(*PROBED),
            None,
            120,
            PATCHKIT_SHIM_DIRECTORY="/nowhere",
        )
        assert ran.status == 0
        [line] = ran.err.splitlines()
        assert line == "patchkit shim: calls are passed through and not counted: no segment in shared memory, errno 2"

    def test_a_directory_that_depends_on_where_the_process_is_is_refused(
        self, workshop: Workshop, segments: Path
    ) -> None:
        relative = {"PATCHKIT_SHIM_DIRECTORY": "segments"}
        ran = run([workshop.drive(), "arguments"], segments, workshop.shim(*PROBED), None, 120, **relative)
        assert (ran.status, ran.err.endswith("errno 22\n")) == (0, True)

    def test_settings_that_are_no_numbers_count(self, workshop: Workshop, segments: Path) -> None:
        spoilt = {"PATCHKIT_SHIM_SETTINGS": "mode=off"}
        ran = run([workshop.drive(), "arguments"], segments, workshop.shim(*PROBED), None, 120, **spoilt)
        assert (ran.status, ran.calls("many")) == (0, [3])

    def test_a_full_file_system_is_said_and_calls_pass(self, workshop: Workshop, segments: Path) -> None:
        artifact, drive = workshop.shim(*PROBED), workshop.drive()
        script = f"mount -t tmpfs -o size=16k none {segments} && exec {drive} arguments"
        line = ["unshare", "-rm", "sh", "-c", script]
        if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
            pytest.skip("no user namespaces here: a file system of its own cannot be mounted")
        seen = environment([drive], segments, artifact, None, {})
        done = subprocess.run(line, env=seen, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0
        assert done.stderr.endswith("errno 28\n")


class TestRealFunction:
    def test_of_a_library_that_is_opened_local(self, workshop: Workshop, segments: Path) -> None:
        load = workshop.compile("load", "load.c")
        library = workshop.library("libprobe.so", "probe.cpp", "-Wno-psabi")
        ran = run([load, library], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.out, ran.err) == (0, "42 43\n", "")
        [process] = ran.watched
        [symbol] = [one for one in process.counted.symbols if one.name == "probe"]
        assert (symbol.calls, symbol.way, symbol.object) == (2, "loaded object", str(library))

    def test_of_two_libraries_each_calls_its_own(self, workshop: Workshop, segments: Path) -> None:
        load = workshop.compile("load", "load.c")
        first = workshop.library("libprobe.so", "probe.cpp", "-Wno-psabi")
        second = workshop.library("libsecond.so", "probe.cpp", "-Wno-psabi", "-DANSWER=100")
        ran = run([load, first, second], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.out, ran.err) == (0, "42 43\n141 142\n", "")
        assert ran.calls("probe") == [4]

    def test_of_two_libraries_and_a_stranger_is_refused(self, workshop: Workshop, segments: Path) -> None:
        load = workshop.compile("load", "load.c")
        first = workshop.library("libprobe.so", "probe.cpp", "-Wno-psabi")
        second = workshop.library("libsecond.so", "probe.cpp", "-Wno-psabi", "-DANSWER=100")
        ran = run([load, first, second, "direct"], segments, workshop.shim(*PROBED))
        assert ran.status == -signal.SIGABRT
        assert "several libraries define it" in ran.err
        assert str(first) in ran.err
        assert str(second) in ran.err

    def test_that_does_not_exist_is_said(self, workshop: Workshop, segments: Path) -> None:
        ran = run([workshop.compile("load", "load.c"), "direct"], segments, workshop.shim(*PROBED))
        assert ran.status == -signal.SIGABRT
        assert ran.err == "patchkit shim: probe: no loaded library defines it\n"

    @pytest.mark.parametrize("kind", ["IFUNC", "VERSIONED"])
    def test_with_a_resolver_or_a_version(self, workshop: Workshop, segments: Path, kind: str) -> None:
        flags = ["-fPIC"]
        if kind == "VERSIONED":
            script = workshop.directory / "versions"
            script.write_text("PROBE_1 { global: call_probe; table; };\nPROBE_2 { global: probe; };\n")
            flags.append(f"-Wl,--version-script={script}")
        library = workshop.library(f"lib{kind}.so", "special.c", f"-D{kind}", *flags)
        ran = run([workshop.compile("load", "load.c"), library], segments, workshop.shim(*PROBED))
        assert (ran.status, ran.out, ran.err) == (0, "42 43\n", "")
        assert ran.calls("probe") == [2]

    def test_opened_global_before_the_library_it_needs_no_preload(self, workshop: Workshop, segments: Path) -> None:
        library = workshop.library("libprobe.so", "probe.cpp", "-Wno-psabi")
        artifact = workshop.shim(*PROBED)
        code = (
            f"import ctypes; ctypes.CDLL({str(artifact.stage1)!r}, mode=ctypes.RTLD_GLOBAL);"
            f"print(ctypes.CDLL({str(library)!r}).call_probe(41))"
        )
        program = os.path.realpath(sys.executable)
        ran = run([program, "-c", code], segments, artifact, None, 120, LD_PRELOAD="")
        assert (ran.status, ran.out, ran.err) == (0, "42\n", "")
        assert ran.calls("probe") == [1]


class TestObject:
    """What the file itself says."""

    def test_it_needs_libc_and_nothing_else(self, workshop: Workshop) -> None:
        said = _readelf("-d", workshop.shim(*PROBED).stage1)
        assert re.findall(r"\(NEEDED\).*\[(.*?)\]", said) == ["libc.so.6"]

    def test_it_has_one_constructor(self, workshop: Workshop) -> None:
        said = _readelf("-d", workshop.shim(*PROBED).stage1)
        [size] = re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", said)
        assert int(size) == 2 * 8, "ours, and the compiler's frame_dummy"

    def test_it_exports_the_entry_points_its_table_and_what_a_plugin_calls(self, workshop: Workshop) -> None:
        said = subprocess.run(
            ["nm", "-D", "--defined-only", "--format=just-symbols", str(workshop.shim(*PROBED).stage1)],
            capture_output=True,
            text=True,
            check=True,
        )
        ours = [f"patchkit_shim_{name}" for name in ("call", "operator", "qk_scale", "traced")]
        assert sorted(said.stdout.split()) == sorted([*PROBED, *ours, "patchkit_layout_table"])

    def test_it_has_unwind_tables_for_the_trampolines(self, workshop: Workshop) -> None:
        said = _readelf("--debug-dump=frames", workshop.shim(*PROBED).stage1)
        assert said.count("DW_CFA_def_cfa_offset: 24") >= len(PROBED) or "DW_CFA_def_cfa_offset: 144" in said


def _readelf(option: str, path: Path) -> str:
    said = subprocess.run(["readelf", "-W", option, str(path)], capture_output=True, text=True, check=True)
    return said.stdout
