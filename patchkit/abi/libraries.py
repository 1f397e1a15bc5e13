"""Where the libraries that a wheel needs are found, as the loader looks for them once torch has been imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from patchkit.abi.elf import read_exports
from patchkit.abi.facts import ObjectFacts, WheelFacts
from patchkit.abi.system import System
from patchkit.abi.torch_build import TorchBuild
from patchkit.abi.verdicts import Finding
from patchkit.environment import directory_names
from patchkit.errors import ObjectFormatError
from patchkit.pattern import compile_lazily

_TORCH = compile_lazily(r"lib(?:torch|c10|shm|caffe2)[a-z0-9_]*\.so")
_DRIVER = compile_lazily(r"lib(?:cuda|nvidia-ml)\.so\.1")
_CUDA = compile_lazily(
    r"lib(?:cud|cublas|cufft|cufile|cupti|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink|nvToolsExt|nvshmem)"
)
_BASE = compile_lazily(
    r"(?:ld-linux|linux-vdso|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so|libgcc_s\.so|libstdc\+\+\.so)"
)
_PAIR = compile_lazily(r"(nvidia_[a-z_]+?)_cu([0-9]+)-[^-]+\.dist-info")
_MOST_SHOWN = 4


def find_libraries(
    wheel: WheelFacts, root: Path, *, sites: tuple[Path, ...], system: System, torch: TorchBuild
) -> tuple[Finding, ...]:
    """Say which needed libraries are not found, or found twice. `root` is the site directory that holds the wheel."""
    own = {PurePosixPath(facts.path).name: facts.path for facts in wheel.objects}
    own.update({facts.soname: facts.path for facts in wheel.objects if facts.soname})
    loaded = {name for one in torch.wheel.objects for name in (one.name, one.soname, *one.needed)}
    found: dict[str, Finding] = {}
    for facts in wheel.objects:
        for name in facts.needed:
            finding = _look(name, facts, root=root, own=own, loaded=loaded, system=system)
            if finding is not None:
                found.setdefault(name, finding)
    needed = sorted({name for facts in wheel.objects for name in facts.needed} | loaded)
    twice = [_twice(name, wheel, sites=sites, system=system) for name in needed if _CUDA.match(name)]
    return (*found.values(), *_pairs(sites), *(finding for finding in twice if finding is not None))


def _look(
    name: str, facts: ObjectFacts, *, root: Path, own: dict[str, str], loaded: set[str], system: System
) -> Finding | None:
    if name in loaded or _TORCH.match(name) or _BASE.match(name):
        return None
    directories = [_expanded(entry, root / facts.path) for entry in facts.search]
    if any((directory / name).is_file() for directory in directories):
        return None
    if name in own:
        search = ":".join(facts.search) or "none"
        there = f"which the wheel has as {own[name]}"
        words = f"{facts.path} needs {name}, {there}, and its RPATH ({search}) does not lead there"
        return Finding(kind="rpath", words=words, broken=True)
    if not system.directories or any((directory / name).exists() for directory in system.directories):
        return None
    if _DRIVER.match(name):
        words = f"{facts.path} needs {name} of the GPU's driver, which is not on this machine"
        return Finding(kind="driver", words=words, broken=False)
    if _CUDA.match(name):  # torch's own packages bring them; the column of system versions compares their major
        return None
    looked = ", ".join(map(str, (*directories, *system.directories)[:_MOST_SHOWN]))
    words = f"{facts.path} needs {name}, which is not found (looked in {looked})"
    return Finding(kind="library", words=words, broken=True)


def _pairs(sites: tuple[Path, ...]) -> Iterator[Finding]:
    """Find packages of one library for two CUDA versions: both write the same file names."""
    for site in sites:
        majors: dict[str, set[str]] = {}
        for name in directory_names(site):
            if match := _PAIR.fullmatch(name.lower()):
                majors.setdefault(match[1], set()).add(match[2])
        for package, found in sorted(majors.items()):
            if len(found) > 1:
                names = " and ".join(f"{package}_cu{one}".replace("_", "-") for one in sorted(found))
                words = f"{names} are both installed in {site}: libraries of one name for two CUDA versions"
                yield Finding(kind="two libraries", words=words, broken=True)


def _twice(name: str, wheel: WheelFacts, *, sites: tuple[Path, ...], system: System) -> Finding | None:
    """Say which of several files of one name wins: LD_LIBRARY_PATH and the system's come before a RUNPATH's."""
    places = [directory / name for directory in system.directories]
    for site in sites:
        nvidia = site / "nvidia"
        places += [nvidia / package / "lib" / name for package in sorted(directory_names(nvidia))]
    files = {path.resolve(): path for path in reversed(places) if path.is_file()}
    if len(files) < 2:  # noqa: PLR2004 -- that is what twice means
        return None
    paths = [path for path in places if path in files.values()]
    wanted = {one.name for facts in wheel.objects for one in facts.imports if one.name.startswith("nccl")}
    lacking = [line for path in paths for line in _lacks(path, wanted)]
    words = f"{len(paths)} files {name}: {', '.join(map(str, paths))}; the first that is loaded serves all"
    return Finding(kind="two libraries", words="; ".join((words, *lacking)), broken=bool(lacking))


def _lacks(path: Path, wanted: set[str]) -> Iterator[str]:
    if not wanted:
        return
    try:
        names = {name.decode("utf-8", "replace") for name in read_exports(path)}
    except ObjectFormatError as error:
        yield error.what
        return
    if gone := sorted(wanted - names):
        yield f"{path} has no {', '.join(gone)}"


def _expanded(entry: str, path: Path) -> Path:
    """Return a directory of RPATH or RUNPATH with $ORIGIN put in."""
    origin = str(path.parent)
    return Path(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
