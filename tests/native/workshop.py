"""Compiles the programs of tests/native and runs them under a shim that the package's own build has made."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.native.build import BuildArtifact, BuildRequest, build
from patchkit.native.compiler import find_toolchain
from patchkit.native.library import read_library
from patchkit.native.monitor import Watched, look
from patchkit.native.settings import Settings, numbers
from patchkit.native.symbols import HOST, EntryPoint, named_entry_points, read_symbols
from patchkit.resources import native_directory

PROGRAMS = Path(__file__).resolve().parent / "programs"
PROBED = ("probe", "many", "variadic", "thrower", "nothing")
WIDE = ("wide4", "wide8") if platform.machine() == "x86_64" else ()


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a program ended, and what it left in shared memory."""

    status: int
    out: str
    err: str
    watched: tuple[Watched, ...]

    def calls(self, symbol: str) -> list[int]:
        """Return the calls of an entry point in each process, the most first."""
        found = (one.calls for process in self.watched for one in process.counted.symbols if one.name == symbol)
        return sorted(found, reverse=True)


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """A directory with compiled programs and shims."""

    directory: Path
    made: dict[str, Path] = field(default_factory=dict)

    def compile(self, name: str, source: str, *flags: str, compiler: str = "") -> Path:
        """Compile a program or, with -shared, a library, once."""
        if name not in self.made:
            command = [compiler or ("g++" if source.endswith("pp") else "gcc"), "-O2", "-g", "-Wall", "-Wextra"]
            include = f"-I{native_directory() / 'include'}"
            target = self.directory / name
            flags = (f"-L{self.directory}", "-Wl,-rpath,$ORIGIN", *flags, "-pthread", "-ldl")
            subprocess.run(
                [*command, include, str(PROGRAMS / source), "-o", str(target), *flags], check=True, timeout=120
            )
            self.made[name] = target
        return self.made[name]

    def library(self, name: str, source: str, *flags: str) -> Path:
        """Compile a library."""
        return self.compile(name, source, "-fPIC", "-shared", *flags)

    def shim(self, *symbols: str) -> BuildArtifact:
        """Return a shim that counts some functions."""
        rows = named_entry_points(symbols, "test")
        return self.build(rows)

    def host_shim(self) -> BuildArtifact:
        """Return the shim with the typed hook of attention_forward; it takes the library that does nothing too."""
        rows = tuple(row for row in read_symbols(native_directory()) if row.engine == HOST)
        return self.build(rows, self.library("libempty.so", "empty.c"))

    def build(self, rows: tuple[EntryPoint, ...], *libraries: Path) -> BuildArtifact:
        request = BuildRequest(
            native=native_directory(),
            rows=rows,
            libraries=tuple(read_library(path, ()) for path in libraries),
            torch=None,
            toolchain=find_toolchain(),
        )
        return build(request, self.directory / "cache")

    def drive(self) -> Path:
        """Return the program that calls the probe."""
        self.library("libprobe.so", "probe.cpp", "-Wno-psabi")
        return self.compile("drive", "drive.cpp", "-lprobe", "-Wno-psabi")


def run(
    command: list[object],
    segments: Path,
    artifact: BuildArtifact | None = None,
    settings: Settings | None = None,
    seconds: float = 120,
    **variables: str,
) -> Ran:
    """Run a program, under a shim that is awake in it where one is given."""
    segments.mkdir(exist_ok=True)
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(command, segments, artifact, settings, variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    watched = look(segments).watched
    return Ran(status=done.returncode, out=done.stdout, err=done.stderr, watched=watched)


def environment(
    command: list[object],
    segments: Path,
    artifact: BuildArtifact | None,
    settings: Settings | None,
    variables: Mapping[str, str],
) -> dict[str, str]:
    """Return what a program sees."""
    chosen = {"PATH": os.environ["PATH"], "PATCHKIT_SHIM_DIRECTORY": str(segments)}
    if artifact is not None:
        chosen["LD_PRELOAD"] = str(artifact.stage1)
        chosen["PATCHKIT_SHIM"] = os.path.realpath(str(command[0]))
        chosen["PATCHKIT_SHIM_SETTINGS"] = ":".join(map(str, numbers(settings or Settings())))
        if artifact.stage2 is not None:
            chosen["PATCHKIT_SHIM_STAGE2"] = str(artifact.stage2)
    return {**chosen, **variables}
