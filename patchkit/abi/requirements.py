"""What a distribution requires: its Requires-Dist lines, for an environment and with extras, as sets of versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from patchkit.abi.facts import WheelFacts
from patchkit.abi.snapshot import TORCH
from patchkit.engine import normalise_name
from patchkit.record import dataclass

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_DEEPEST = 8
_PYTHON = "3.12"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """A requirement that counts: `by` is the distribution (with its extra) that asks for it."""

    package: str
    specifier: str
    by: str


def requirements(wheel: WheelFacts, extras: Iterable[str], *, python_version: str) -> tuple[Pin, ...]:
    """Return what a wheel requires on Linux x86-64 with an interpreter (`3.12`). An extra may name other extras."""
    environment = _environment(python_version)
    pins: dict[tuple[str, str], Pin] = {}
    wanted, seen = [("", 0), *((extra, 0) for extra in extras)], set()
    while wanted:
        extra, depth = wanted.pop(0)
        if extra in seen or depth > _DEEPEST:
            continue
        seen.add(extra)
        for requirement in _parsed(wheel):
            marker = requirement.marker
            if marker is not None and not marker.evaluate({**environment, "extra": extra}):
                continue
            if marker is None and extra:
                continue
            name = normalise_name(requirement.name)
            if name == wheel.distribution:
                wanted += [(one, depth + 1) for one in sorted(requirement.extras)]
                continue
            by = f"{wheel.distribution}[{extra}]=={wheel.version}" if extra else wheel.title
            pins.setdefault(
                (name, str(requirement.specifier)), Pin(package=name, specifier=str(requirement.specifier), by=by)
            )
    return tuple(pins[key] for key in sorted(pins))


def pinned_torch(wheel: WheelFacts) -> str:
    """Return the one torch that a wheel pins, in any of its extras, "" when it pins none or several."""
    found = pinned_versions(wheel, TORCH)
    return found[0] if len(found) == 1 else ""


def pinned_versions(wheel: WheelFacts, package: str) -> tuple[str, ...]:
    """Return the single versions that a wheel pins a package to on Linux x86-64, in any of its extras."""
    from patchkit.specifier import pinned_version

    named = (one for one in _parsed(wheel, package) if normalise_name(one.name) == package)
    environment = _environment(_PYTHON)
    pinned = (
        pinned_version(str(one.specifier))
        for one in named
        if one.marker is None
        or any(one.marker.evaluate({**environment, "extra": extra}) for extra in ("", *wheel.extras))
    )
    return tuple(sorted({version for version in pinned if version}))


def requires(wheel: WheelFacts, package: str) -> bool:
    """Tell whether a wheel names a package at all, in any of its extras."""
    return any(normalise_name(one.name) == package for one in _parsed(wheel, package))


def _environment(python_version: str) -> dict[str, str]:
    """Return what markers ask about."""
    return {
        "python_version": python_version,
        "python_full_version": f"{python_version}.0",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


def _parsed(wheel: WheelFacts, start: str = "") -> Iterator[Requirement]:
    """Yield the requirements that can be read: one that cannot was not installed by anyone either.

    With a `start` only those whose lines begin with it as a name: reading one takes longer than finding it.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for line in wheel.requires:
        if not normalise_name(line.strip()).startswith(start):
            continue
        try:
            yield Requirement(line)
        except InvalidRequirement:
            continue
