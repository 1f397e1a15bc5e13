"""The trampolines of AArch64, cross-compiled and run under qemu-user, with and without SVE."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.native.build import BuildArtifact, BuildRequest, build
from patchkit.native.compiler import find_toolchain
from patchkit.native.monitor import look
from patchkit.native.symbols import named_entry_points
from patchkit.resources import native_directory
from tests.native.workshop import PROBED, PROGRAMS

GCC, GXX, QEMU, ROOT = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"

pytestmark = [
    pytest.mark.xdist_group("native"),
    pytest.mark.skipif(
        not all(shutil.which(tool) for tool in (GCC, GXX, QEMU)),
        reason="g++-aarch64-linux-gnu and qemu-user are not installed",
    ),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("aarch64")
    common: list[str | Path] = ["-O2", "-pthread", "-Wl,-rpath,$ORIGIN"]
    library = [GXX, *common, "-fPIC", "-shared", "-o", directory / "libprobe.so", PROGRAMS / "probe.cpp"]
    subprocess.run(library, check=True)
    drive = [GXX, *common, "-o", directory / "drive", PROGRAMS / "drive.cpp", f"-L{directory}", "-lprobe"]
    subprocess.run(drive, check=True)
    return directory


@pytest.fixture(scope="module")
def shim(directory: Path) -> BuildArtifact:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", GCC)
        patch.setenv("CXX", GXX)
        toolchain = find_toolchain()
    assert toolchain.machine == "aarch64"
    rows = named_entry_points(PROBED, "test")
    request = BuildRequest(native=native_directory(), rows=rows, libraries=(), torch=None, toolchain=toolchain)
    return build(request, directory / "cache")


@pytest.mark.parametrize("processor", ["cortex-a57", "max"], ids=["without SVE", "with SVE"])
@pytest.mark.parametrize(
    ("line", "symbol", "calls"),
    [("threads 4 100000", "nothing", 400000), ("arguments", "many", 3), ("exceptions", "thrower", 99)],
)
def test_it_counts_and_is_transparent(
    directory: Path, shim: BuildArtifact, segments: Path, processor: str, line: str, symbol: str, calls: int
) -> None:
    program = directory / "drive"
    variables = {"LD_PRELOAD": shim.stage1, "PATCHKIT_SHIM": program, "PATCHKIT_SHIM_DIRECTORY": segments}
    handed = [part for name, value in variables.items() for part in ("-E", f"{name}={value}")]
    command = [QEMU, "-cpu", processor, "-L", ROOT, *handed, str(program), *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    [process] = look(segments).watched
    assert [one.calls for one in process.counted.symbols if one.name == symbol] == [calls]
