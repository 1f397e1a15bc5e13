"""What was applied to a tree, in which order, and what every touched file was before: the receipt and its file."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchkit.tree import FileState


class Origin(enum.Enum):
    """Where a layer's patches come from."""

    SHIPPED = "shipped"
    USER = "user"
    AD_HOC = "ad hoc"


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedPatch:
    """One patch of a layer, as it was applied or left out.

    `sha256` names its bytes below `.patchkit/<engine>/patches/`. `mapping` says in words how its names became paths;
    `paths` holds, per file of the patch, the old and the new path below the root ("" for none: nothing there before,
    nothing there after, or, both empty, not in this tree), so that the stack is rendered again without asking the tree.
    `enabled` is False when a toggle or Retires-When left it out (`reason` says which).
    """

    name: str
    sha256: str
    mapping: str
    paths: tuple[tuple[str, str], ...]
    reverse: bool
    config: str
    enabled: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedLayer:
    """One layer of the stack. `number` counts from 1 and stays with the layer when lower ones are taken out."""

    number: int
    origin: Origin
    name: str
    patches: tuple[AppliedPatch, ...]
    locked: bool
    applied_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TouchedFile:
    """A file that the stack changes: as it was, and as patchkit left it. None: it was, or is, not there."""

    path: PurePosixPath
    pristine: FileState | None
    current: FileState | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The state of a patched tree, stored as `.patchkit/<engine>/receipt.json`.

    `distribution` is the dist-info directory's name and `record_sha256` the digest of its RECORD as patchkit left it:
    both "" for a tree without one. `directories` are those that patchkit made and removes again. Times are UTC,
    ISO 8601, taken from SOURCE_DATE_EPOCH where it is set.
    """

    engine: str
    version: str
    distribution: str
    record_sha256: str
    layers: tuple[AppliedLayer, ...]
    configuration: tuple[tuple[str, str], ...]
    files: tuple[TouchedFile, ...]
    directories: tuple[PurePosixPath, ...]
    plan_sha256: str
    tool_version: str
