"""Compilers as child processes: which are there, and what they say when they fail, with the command to run by hand."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from patchkit.errors import RefusedError, UsageError
from patchkit.process import run_child
from patchkit.quoting import typed
from patchkit.record import dataclass

COMPILE_SECONDS = 600.0
_LAST_LINES = 20
_WARNINGS = ("-Wall", "-Wextra", "-Werror")

STAGE1_FLAGS = (
    *("-std=c11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec"),
    # No vector register before the slow path has saved them; no name that musl or an older glibc lacks.
    *("-mgeneral-regs-only", "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-fasynchronous-unwind-tables", *_WARNINGS),
)
LINK_FLAGS = ("-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,defs", "-Wl,--build-id=sha1", "-Wl,--as-needed")
STAGE2_FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", *_WARNINGS)
HOST_FLAGS = ("-std=c11", "-O2", "-g", *_WARNINGS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """A C and a C++ compiler, by path, and what the C compiler says of itself and its machine."""

    cc: tuple[str, ...]
    cxx: tuple[str, ...]
    version: str
    machine: str


def find_toolchain() -> Toolchain:
    """Return the compilers that CC and CXX name, else gcc and g++; RefusedError says what to install."""
    cc, cxx = _command("CC", "gcc"), _command("CXX", "g++")
    version = _answer((*cc, "--version")).splitlines()[0]
    machine = _answer((*cc, "-dumpmachine")).strip().partition("-")[0]
    if machine not in ("x86_64", "aarch64"):
        raise RefusedError(
            f"no trampolines for {machine}", why="  there are some for x86_64 and aarch64", hint="CC=... names another"
        )
    return Toolchain(cc=cc, cxx=cxx, version=version, machine=machine)


def compile_with(command: Sequence[str], directory: Path) -> str:
    """Run a compiler in a directory and return the command as a line; RefusedError shows it with what was said."""
    shown = typed(*command)
    done = run_child(command, timeout=COMPILE_SECONDS, directory=directory)
    if done.status:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").splitlines()[:_LAST_LINES]
        raise RefusedError(
            f"{Path(command[0]).name} ended with {done.status}",
            why="\n".join(f"  {line}" for line in said),
            hint=f"run it by hand:\ncd {typed(directory)}\n{shown}",
        )
    return shown


def _command(variable: str, otherwise: str) -> tuple[str, ...]:
    try:
        words = shlex.split(os.environ.get(variable, "")) or [otherwise]
    except ValueError as error:
        raise UsageError(f"{variable} is no command: {os.environ[variable][:60]!r}", why=f"  {error}") from error
    found = shutil.which(words[0])
    if found is None:
        raise RefusedError(
            f"no compiler: {words[0]} is not on PATH",
            hint=f"on Debian: apt-get install gcc g++ libc6-dev; or name one with {variable}=...",
        )
    return (found, *words[1:])


def _answer(command: Sequence[str]) -> str:
    done = run_child(command, timeout=60.0)
    if done.status or not done.stdout.strip():
        raise RefusedError(f"{typed(*command)} does not answer", why=done.last_words, hint="check CC and CXX")
    return done.stdout.decode("utf-8", "replace")
