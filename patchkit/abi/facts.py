"""The records of what is known about a released wheel: read from its files, or kept in a snapshot."""

from __future__ import annotations

from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """A symbol that a shared object needs: `version` is "" for one without (torch's have none)."""

    name: str
    version: str
    weak: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionNeed:
    """A symbol version that a library has to have: `libc.so.6`, `GLIBC_2.32`."""

    library: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectFacts:
    """A shared object of a wheel.

    `path` is relative to the wheel's root. `search` are the directories of RPATH or RUNPATH. `exports` are names;
    `schemas` those of registered operators. `fault` says why the file cannot be read; then the rest is empty.
    """

    path: str
    machine: str = ""
    soname: str = ""
    build_id: str = ""
    needed: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    versions: tuple[VersionNeed, ...] = ()
    imports: tuple[Import, ...] = ()
    exports: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    fault: str = ""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFacts:
    """A distribution with its shared objects.

    `file` and `sha256` are the wheel's, "" when it is an installed tree. `tags` as in WHEEL or the file's name;
    `requires` the Requires-Dist lines as written; `extras` those that it provides.
    """

    distribution: str
    version: str
    file: str
    sha256: str
    tags: tuple[str, ...]
    requires_python: str
    requires: tuple[str, ...]
    extras: tuple[str, ...]
    objects: tuple[ObjectFacts, ...]

    @property
    def title(self) -> str:
        """The distribution as pip writes it."""
        return f"{self.distribution}=={self.version}" if self.version else self.distribution
