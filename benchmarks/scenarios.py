"""What is measured: for each scenario the pristine tree, and for each tool the command that patches a copy of it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
REAL_SERIES = CHECKOUT.parent / "shared" / "real-patches" / "slime-v0.5.9" / "01-sglang.patch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A command, run by a shell in a fresh copy of the tree. `reference` results are what the others must equal."""

    name: str
    command: str
    reference: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Contenders that do the same to the same tree; `tree` is None where none is needed. Limits are patchkit's;
    it must also take less CPU than each of the `rivals`.
    """

    name: str
    what: str
    tree: Path | None
    contenders: tuple[Contender, ...]
    cpu_limit: float | None = None
    rivals: tuple[str, ...] = ()
    rss_limit: float | None = None


class UnavailableError(Exception):
    """A scenario cannot be run here; the message says what is missing."""


def patchkit() -> str:
    """Return the command under test, as a shell word: the installed script, else the module."""
    script = Path(sys.executable).with_name("patchkit")
    return shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m patchkit"


def startup(_scratch: Path) -> Scenario:
    """`patchkit --help`, beside a Python that does nothing."""
    return Scenario(
        name="startup",
        what="patchkit --help",
        tree=None,
        cpu_limit=100,
        contenders=(
            Contender(name="patchkit", command=f"{patchkit()} --help"),
            Contender(name="python -c pass", command=f"{shlex.quote(sys.executable)} -c pass"),
            Contender(name="git --help", command="git --help"),
        ),
    )


def real_series(scratch: Path) -> Scenario:
    """A real series with a lock: slime's 167 hunks over 49 files of sglang 0.5.9."""
    tree = _sglang()
    directory = scratch / "patches" / "sglang" / "0.5.9"
    directory.mkdir(parents=True)
    patch = directory / REAL_SERIES.name
    patch.write_bytes(REAL_SERIES.read_bytes())
    (directory / "series").write_text(f"{patch.name} -p2\n")
    _lock("sglang==0.5.9", directory.parent.parent, tree)
    return Scenario(
        name="real-series",
        what="a real series with lock: 167 hunks, 49 files, sglang 0.5.9",
        tree=tree,
        cpu_limit=120,
        contenders=(
            Contender(name="patchkit", command=_apply_series("sglang==0.5.9", directory.parent.parent)),
            *_peers(directory, strip=2),
        ),
    )


def real_diff(_scratch: Path) -> Scenario:
    """The same patch as an ad hoc diff, every file syntax-checked."""
    command = f"{patchkit()} apply --root . --target sglang --patch {shlex.quote(str(REAL_SERIES))} --strip 2"
    return Scenario(
        name="real-diff",
        what="the same as an ad hoc diff, every file syntax-checked",
        tree=_sglang(),
        cpu_limit=600,
        contenders=(
            Contender(name="patchkit", command=f"{command} --check-syntax"),
            Contender(name="patchkit, default", command=command),
            _git([REAL_SERIES], strip=2),
            _gnu([REAL_SERIES], strip=2),
        ),
    )


def series(scratch: Path) -> Scenario:
    """200 patches, 2,000 hunks over 600 of 3,000 files."""
    directory = _generate("series", scratch)
    _lock("vllm==0.1.0", scratch / "patches", scratch / "tree")
    return Scenario(
        name="series",
        what="generated series with lock: 200 patches, 2,000 hunks, 600 of 3,000 files",
        tree=scratch / "tree",
        rivals=("git apply", "quilt push -a"),
        contenders=(
            Contender(name="patchkit", command=_apply_series("vllm==0.1.0", scratch / "patches")),
            *_peers(directory, strip=1),
        ),
    )


def large(scratch: Path) -> Scenario:
    """One diff of 20 MB with 48,000 hunks."""
    directory = _generate("large", scratch)
    (patch,) = directory.glob("*.patch")
    return Scenario(
        name="large",
        what="one diff of 20 MB: 48,000 hunks, 394 files",
        tree=scratch / "tree",
        cpu_limit=3000,
        rss_limit=400,
        contenders=(
            Contender(name="patchkit", command=f"{patchkit()} apply --root . --target vllm --patch {patch} --strip 1"),
            _git([patch], strip=1),
            _gnu([patch], strip=1),
        ),
    )


SCENARIOS = {
    "startup": startup,
    "real-series": real_series,
    "real-diff": real_diff,
    "series": series,
    "large": large,
}


def _sglang() -> Path:
    """Return the published tree of sglang 0.5.9, as the tests fetch it."""
    if not REAL_SERIES.exists():
        raise UnavailableError("the real series lies in ../shared, which is not beside this checkout")
    from tests.blackbox.released import UnreachableError, released_tree

    try:
        return released_tree("sglang", "0.5.9")
    except UnreachableError as error:
        raise UnavailableError(str(error)) from error


def _generate(shape: str, scratch: Path) -> Path:
    """Generate in a process of its own, so that ours stays small; return the series' directory."""
    command = [sys.executable, "-m", "benchmarks.generate", shape, str(scratch)]
    subprocess.run(command, cwd=CHECKOUT, check=True)
    return scratch / "patches" / "vllm" / "0.1.0"


def _lock(target: str, patches: Path, tree: Path) -> None:
    """Have patchkit write the lock of a series; the tree stays as it is."""
    command = f"{patchkit()} series lock --target {target} --root {tree} --patches {patches}"
    subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.DEVNULL, env=_environment())


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(CHECKOUT)}


def _apply_series(target: str, patches: Path) -> str:
    return f"{patchkit()} apply --root . --target '{target}' --patches {shlex.quote(str(patches))}"


def _peers(directory: Path, *, strip: int) -> tuple[Contender, ...]:
    """Return git and GNU patch, called once a patch, and quilt."""
    names = [line.split()[0] for line in (directory / "series").read_text().splitlines()]
    patches = [directory / name for name in names]
    return (_git(patches, strip=strip), _gnu(patches, strip=strip), _quilt(directory))


def _git(patches: list[Path], *, strip: int) -> Contender:
    names = " ".join(shlex.quote(str(patch)) for patch in patches)
    return Contender(
        name="git apply",
        command=f"for patch in {names}; do git apply --whitespace=nowarn -p{strip} $patch || exit 1; done",
        reference=True,
    )


def _gnu(patches: list[Path], *, strip: int) -> Contender:
    names = " ".join(shlex.quote(str(patch)) for patch in patches)
    return Contender(name="patch", command=f"for patch in {names}; do patch -s -F0 -p{strip} -i $patch || exit 1; done")


def _quilt(directory: Path) -> Contender:
    return Contender(name="quilt push -a", command=f"QUILT_PATCHES={shlex.quote(str(directory))} quilt push -a -q")
