"""patches/<engine>/<version>/: the patches of a series in their order, with their trailers and their lock."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from patchkit.diff.model import Patch


class Toggle(enum.Enum):
    """How a gated patch is switched: rendered or not, or both variants in the tree."""

    SELECT = "select"
    GUARD = "guard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trailers:
    """What a patch's header says about it. Empty strings and tuples where it says nothing.

    `applies_to` and `retires_when` are target specifiers (`vllm>=0.6.3,<0.6.5`), `config` a symbol without CONFIG_.
    """

    subject: str
    config: str
    toggle: Toggle
    applies_to: str
    origin: str
    forwarded: str
    retires_when: str
    requires: tuple[str, ...]
    needs_runtime: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchEntry:
    """One line of a series file with the patch it names. `raw` are the patch file's bytes."""

    name: str
    strip: int
    trailers: Trailers
    patch: Patch
    raw: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedFile:
    """A touched file by hash, before and after the whole series. None: it is not there."""

    path: str
    pristine: str | None
    patched: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedArtifact:
    """A released file that the series was cut and proved against; `version` is its public version."""

    file: str
    sha256: str
    version: str
    files: tuple[LockedFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """series.lock: a section per released artifact and the sha256 of every patch, by name."""

    artifacts: tuple[LockedArtifact, ...]
    patches: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A series as it lies on disk. `version` is the directory's name, `directory` where it was read from."""

    engine: str
    version: str
    directory: Path
    entries: tuple[PatchEntry, ...]
    lock: Lock | None
