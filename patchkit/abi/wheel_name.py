"""What the name of a .whl file says, which is what pip goes by: beside its metadata, and beside machine and Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from patchkit.abi.facts import WheelFacts
from patchkit.abi.system import version_key
from patchkit.abi.verdicts import Finding
from patchkit.abi.wheel_tags import tagged_glibc
from patchkit.engine import normalise_name
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.version import read_version

_NAME = compile_lazily(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-[0-9][^-]*)?-(?P<pythons>[^-]+)-(?P<abis>[^-]+)-(?P<platforms>[^-]+)\.whl"
)
_LINUX = compile_lazily(r"(?:manylinux(?:1|2010|2014|_[0-9]+_[0-9]+)|linux)_(.+)")
_KIND = "file name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """Where a wheel is to be installed. `machine` is `x86_64`, "" for any with Linux and glibc; `glibc` is `2.36`, ""
    where it is not known.

    `python_version` is `3.11`; `chosen`: that interpreter was named, not only the one that patchkit runs in.
    """

    machine: str
    glibc: str
    python_version: str
    chosen: bool


def audit_name(wheel: WheelFacts, destination: Destination) -> tuple[Finding, ...]:
    """Compare the name of a wheel's file with its metadata and its destination; nothing for what is no file."""
    if not wheel.file:
        return ()
    match = _NAME.fullmatch(wheel.file)
    if match is None:
        words = f"{wheel.file} is no name of a wheel, so that pip refuses it: {_expected(wheel)} would be one"
        return (Finding(kind=_KIND, words=words, broken=True),)
    parts = (match[group].split(".") for group in ("pythons", "abis", "platforms"))
    tags = ["-".join(tag) for tag in product(*parts)]
    return (
        *_metadata(wheel, match["name"], match["version"], tags),
        *_machine(wheel, match["platforms"].split("."), destination),
        *_python(wheel, tags, destination),
    )


def _metadata(wheel: WheelFacts, name: str, version: str, tags: list[str]) -> Iterator[Finding]:
    if normalise_name(name) != wheel.distribution:
        words = f"{wheel.file} says {name}, its METADATA {wheel.distribution}: pip refuses it"
        yield Finding(kind=_KIND, words=words, broken=True)
    if not _same_version(version, wheel.version):
        words = f"{wheel.file} says version {version}, its METADATA {wheel.version}: pip refuses it"
        yield Finding(kind=_KIND, words=words, broken=True)
    if wheel.tags and set(tags) != set(wheel.tags):
        words = f"{wheel.file} is tagged {', '.join(tags)}, and its WHEEL says {', '.join(wheel.tags)}"
        yield Finding(kind=_KIND, words=f"{words}: pip goes by the name", broken=False)


def _machine(wheel: WheelFacts, platforms: list[str], destination: Destination) -> Iterator[Finding]:
    if "any" in platforms:
        return
    matches = [(one, match[1]) for one in platforms if (match := _LINUX.fullmatch(one))]
    fitting = [one for one, machine in matches if destination.machine in ("", machine)]
    promised = "" if any(one.startswith("linux_") for one in fitting) else tagged_glibc(fitting)
    if not fitting:
        here = f"this is Linux with glibc on {destination.machine}" if destination.machine else "that is no such system"
        words = f"{wheel.file} is for {', '.join(platforms)}, and {here}"
        yield Finding(kind="platform tag", words=words, broken=True)
    elif promised and destination.glibc and version_key(promised) > version_key(destination.glibc):
        here = "this machine" if destination.machine else "that system"
        words = f"{wheel.file} is for glibc {promised} or newer, and {here} has {destination.glibc}: pip refuses it"
        yield Finding(kind="platform tag", words=words, broken=True)


def _python(wheel: WheelFacts, tags: list[str], destination: Destination) -> Iterator[Finding]:
    from packaging.tags import compatible_tags, cpython_tags

    major, minor = map(int, destination.python_version.split(".")[:2])
    platforms = sorted({tag.rpartition("-")[2] for tag in tags} - {"any"})
    version, interpreter = (major, minor), f"cp{major}{minor}"
    fitting = {
        *map(str, cpython_tags(version, platforms=platforms)),
        *map(str, compatible_tags(version, interpreter, platforms)),
    }
    if fitting.isdisjoint(tags):
        pythons = ", ".join(dict.fromkeys(tag.rpartition("-")[0] for tag in tags))
        here = f"this is Python {major}.{minor}"
        words = f"{wheel.file} is for {pythons}, and " + (
            here if destination.chosen else f"{here}; --python EXE names the one that it is for"
        )
        yield Finding(kind="python tag", words=words, broken=destination.chosen)


def _same_version(one: str, other: str) -> bool:
    mine, theirs = read_version(one.replace("_", "-")), read_version(other)
    return one == other if mine is None or theirs is None else mine == theirs


def _expected(wheel: WheelFacts) -> str:
    tag = wheel.tags[0] if wheel.tags else "py3-none-any"
    return f"{wheel.distribution.replace('-', '_')}-{wheel.version}-{tag}.whl"
