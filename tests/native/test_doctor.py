"""The doctor on real libraries: what is out of reach is said to be, and what it promises comes true."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.native.doctor import Diagnosis, diagnose
from patchkit.native.library import read_library
from patchkit.native.program import program_faults
from patchkit.native.symbols import EntryPoint, named_entry_points
from patchkit.native.target_libraries import TargetLibraries
from tests.native.workshop import PROBED, Workshop, run

pytestmark = pytest.mark.xdist_group("native")

KINDS = {
    "plain": ((), True, "relocations name it"),
    "ifunc": (("-DIFUNC",), True, "its address comes from a resolver"),
    "weak table": (("-fno-plt",), True, "relocations name it"),
    "protected": (("-DPROTECTED",), False, "the symbol is protected"),
    "symbolic": (("-Wl,-Bsymbolic",), False, "-Bsymbolic"),
    "symbolic functions": (("-Wl,-Bsymbolic-functions",), False, "no relocation names it"),
}


def examine(workshop: Workshop, kind: str) -> tuple[Path, tuple[Diagnosis, ...]]:
    name = f"libdoctor-{kind.replace(' ', '-')}.so"
    path = workshop.library(name, "special.c", *KINDS[kind][0])
    rows = named_entry_points(["probe"], "test")
    found = TargetLibraries(libraries=(read_library(path, ["probe"]),), unreadable=())
    return path, diagnose(rows, found, version="1", program=None)


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_says_of_the_preload_is_what_happens(workshop: Workshop, segments: Path, kind: str) -> None:
    _, reaches, why = KINDS[kind]
    path, [diagnosis] = examine(workshop, kind)
    [way] = [way for way in diagnosis.ways if way.method == "LD_PRELOAD"]
    assert (way.reaches, why in way.why) == (reaches, True), way.why
    ran = run([workshop.compile("load", "load.c"), path], segments, workshop.shim(*PROBED))
    assert (ran.status, ran.out, ran.err) == (0, "42 43\n", "")
    assert ran.calls("probe") == [2 if reaches else 0]


def test_hidden_is_not_there_at_all(workshop: Workshop) -> None:
    path = workshop.library("libhidden.so", "special.c", "-fvisibility=hidden")
    assert read_library(path, ["probe"]).exports == ()


def test_every_way_has_a_reason(workshop: Workshop) -> None:
    _, [diagnosis] = examine(workshop, "plain")
    assert all(way.why for way in diagnosis.ways)
    assert diagnosis.chosen == "LD_PRELOAD"


@pytest.mark.parametrize(("version", "plugin"), [("0.6.3", False), ("0.32.0", True)])
@pytest.mark.parametrize("hands_out", [True, False])
def test_the_plugin_and_the_dispatcher_depend_on_release_and_torch(
    workshop: Workshop, version: str, plugin: bool, hands_out: bool
) -> None:
    path = workshop.library("libdoctor-symbolic.so", "special.c", *KINDS["symbolic"][0])
    row = EntryPoint(engine="vllm", releases="", object="*", hook="paged_attention_v1", symbol="probe")
    found = TargetLibraries(libraries=(read_library(path, ["probe"]),), unreadable=())
    kernels = (hands_out, "torch says so")
    [diagnosis] = diagnose([row], found, version=version, program=None, kernels=kernels)
    assert diagnosis.chosen == ("torch dispatcher" if hands_out else "")
    ways = {way.method: way for way in diagnosis.ways}
    assert "torch says so" in ways["torch dispatcher"].why
    assert ways["the engine's plugin"].reaches is False, "linked with -Bsymbolic"
    assert ("before its plugins" in ways["the engine's plugin"].why) == (not plugin)


def test_a_static_program_is_out_of_reach(workshop: Workshop) -> None:
    (workshop.directory / "static.c").write_text("int main(void) { return 0; }\n")
    target = workshop.directory / "static"
    subprocess.run(["gcc", "-static", "-o", target, workshop.directory / "static.c"], check=True)
    [fault] = program_faults(target)
    assert "linked statically" in fault


def test_a_program_with_another_users_rights_is_out_of_reach(tmp_path: Path) -> None:
    copy = tmp_path / "true"
    shutil.copy("/bin/true", copy)
    assert program_faults(copy) == ()
    copy.chmod(0o4755)
    [fault] = program_faults(copy)
    assert "set-user-ID" in fault


def test_a_program_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    [fault] = program_faults(tmp_path / "script")
    assert "cannot be read" in fault
