"""Whether several engines can share one environment: what each requires of the same packages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from patchkit.abi.check import fitting_torches
from patchkit.abi.facts import WheelFacts
from patchkit.abi.requirements import Pin, pinned_versions, requirements
from patchkit.abi.snapshot import Facts
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.version import read_version, set_has

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

_EXTRAS = compile_lazily(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*(.*)")
# What is meant when nobody names an extra: an engine whose plain install does not run anything.
_USUAL_EXTRAS = {"sglang": ("all",)}
_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """A package that several ask for. `fits` says whether one version satisfies all; `example` is one that does."""

    package: str
    pins: tuple[Pin, ...]
    fits: bool
    example: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A distribution of the environment: an engine that was named, or a kernel that one of them pins.

    `torches` are the stored torches that have all symbols of its binaries; None when it has no such binary.
    """

    wheel: WheelFacts
    extras: tuple[str, ...]
    torches: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """What `abi env` found. `pythons` are the interpreters that all allow; `torches` those that fit all binaries."""

    members: tuple[Member, ...]
    shared: tuple[Shared, ...]
    pythons: tuple[str, ...]
    torches: tuple[str, ...] | None

    @property
    def conflicts(self) -> tuple[Shared, ...]:
        """The packages of which no version satisfies all."""
        return tuple(one for one in self.shared if not one.fits)

    @property
    def possible(self) -> bool:
        """Tell whether nothing that is known stands in the way."""
        return not self.conflicts and bool(self.pythons) and self.torches != ()


def split_extras(text: str) -> tuple[str, tuple[str, ...]]:
    """Split `sglang[srt]==0.5.1` into the requirement without extras and the extras."""
    match = _EXTRAS.fullmatch(text.strip())
    if match is None:
        return text, ()
    extras = tuple(part.strip() for part in (match[2] or "").split(",") if part.strip())
    return f"{match[1]}{match[3]}", extras


def compare_requirements(
    named: Sequence[tuple[WheelFacts, tuple[str, ...]]], facts: Facts, *, python_version: str
) -> Sharing:
    """Compare what wheels (with extras) require, and the torches that their binaries fit."""
    members = [_member(wheel, extras, facts) for wheel, extras in named]
    for wheel, _ in named:
        members += [_member(kernel, (), facts) for kernel in _kernels(wheel, facts)]
    pins: dict[str, list[Pin]] = {}
    for member in members:
        for pin in requirements(member.wheel, member.extras, python_version=python_version):
            pins.setdefault(pin.package, []).append(pin)
    for member in members:  # a member itself is there in its version
        if any(pin.by != member.wheel.title for pin in pins.get(member.wheel.distribution, ())):
            own = Pin(package=member.wheel.distribution, specifier=f"=={member.wheel.version}", by="the environment")
            pins[member.wheel.distribution].append(own)
    owners = {package: {pin.by.partition("[")[0].partition("==")[0] for pin in all_} for package, all_ in pins.items()}
    shared = [_shared(package, pins[package]) for package in sorted(pins) if len(owners[package]) > 1]
    known = [set(member.torches) for member in members if member.torches is not None]
    common = tuple(one for one in facts.torches if all(one in each for each in known)) if known else None
    return Sharing(
        members=tuple(members),
        shared=tuple(shared),
        pythons=tuple(one for one in _PYTHONS if all(_allows(member.wheel, one) for member in members)),
        torches=common,
    )


def _member(wheel: WheelFacts, extras: tuple[str, ...], facts: Facts) -> Member:
    from patchkit.abi.compare import torch_imports

    usual = tuple(one for one in _USUAL_EXTRAS.get(wheel.distribution, ()) if one in wheel.extras)
    has_binaries = any(torch_imports(one) for one in wheel.objects)
    return Member(wheel=wheel, extras=extras or usual, torches=fitting_torches(wheel, facts) if has_binaries else None)


def _kernels(wheel: WheelFacts, facts: Facts) -> Iterable[WheelFacts]:
    for kernel in ("sgl-kernel", "sglang-kernel"):
        for version in pinned_versions(wheel, kernel):
            if (found := facts.find(kernel, version)) is not None:
                yield found


def _shared(package: str, pins: Sequence[Pin]) -> Shared:
    from packaging.specifiers import SpecifierSet

    together = SpecifierSet(",".join(pin.specifier for pin in pins if pin.specifier))
    candidates = _candidates(together)
    example = next((str(one) for one in candidates if together.contains(one, prereleases=True)), "")
    return Shared(package=package, pins=tuple(pins), fits=bool(example), example=example)


def _candidates(together: SpecifierSet) -> list[Version]:
    """Return versions of which one satisfies a set if any does: its bounds, and what lies just beside them."""
    from packaging.version import Version

    bounds = set(filter(None, (read_version(one.version.removesuffix(".*")) for one in together)))
    found = {Version("0"), Version("1"), Version("9999"), *bounds}
    for bound in bounds:
        release = bound.release
        found.add(Version(".".join(map(str, (*release, 1)))))
        found.add(Version(f"{bound.public}.post1" if bound.post is None else bound.public))
        found.update(
            Version(".".join(map(str, (*release[:place], release[place] + 1)))) for place in range(len(release))
        )
    return sorted(found, reverse=True)


def _allows(wheel: WheelFacts, python_version: str) -> bool:
    return set_has(wheel.requires_python, f"{python_version}.0") is not False  # one that is no set pip ignores too
