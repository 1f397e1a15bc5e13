"""From `vllm==0.6.3` to the tree it names: which engine, which version, where, and how we know."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


class Layout(enum.Enum):
    """How a tree came to be where it is."""

    PIP = "pip"  # site-packages, INSTALLER says pip (or nothing)
    UV = "uv"
    CONDA = "conda"
    WHEEL = "wheel"  # an unpacked wheel: dist-info without INSTALLER
    SOURCE = "source"  # a checkout or an unpacked sdist
    PLAIN = "plain"  # any directory: no engine


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpec:
    """What the user asked for: `specifier` is a PEP 440 set ("" for any), `root` and `python` are None unless given."""

    engine: str
    specifier: str
    root: Path | None
    python: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTree:
    """A tree that was found.

    `root` is what paths are relative to (site-packages, a checkout); `package` the engine's package below it
    (`vllm`, `sglang`, `python/sglang` in sglang's source layout; `.` for a plain tree). `version` is "" when a plain
    tree has none. `distribution` is the name of the dist-info directory below root, "" without one. `python` is the
    interpreter that will import the tree and `python_version` its `3.11`, None and "" when unknown. `evidence` says
    in words how engine and version were found out.
    """

    engine: str
    version: str
    root: Path
    package: PurePosixPath
    layout: Layout
    distribution: str
    python: Path | None
    python_version: str
    evidence: tuple[str, ...]

    @property
    def installed(self) -> bool:
        """Tell whether only paths below the package may be written."""
        return self.layout not in (Layout.SOURCE, Layout.PLAIN)
