"""From a tree, its layers and a configuration to a plan: a verdict for every hunk and patch, and the edits."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchkit.diff.model import Change, Placement
from patchkit.receipt import AppliedLayer
from patchkit.target import TargetTree
from patchkit.tree import FileState


class Outcome(enum.Enum):
    """What becomes of a patch as a whole."""

    APPLIES = "applies"
    ALREADY_APPLIED = "already applied"
    UPSTREAMED = "upstreamed"
    PARTLY_APPLIED = "partly applied"
    REFUSED = "refused"
    DISABLED = "disabled"
    RETIRED = "retired"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEdit:
    """What is to be done to one path. `content` is the new bytes (or link target), None for a deletion."""

    path: PurePosixPath
    before: FileState | None
    after: FileState | None
    content: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDecision:
    """What a patch's change of one file came to. `path` is None when the name maps to nothing in this tree.

    `name` is the name as the patch writes it. `refusal` is empty when the change can be made (or is there already);
    `note` carries what is said of a skipped file (`not in this tree: harmless`).
    """

    name: str
    path: PurePosixPath | None
    change: Change
    placements: tuple[Placement, ...]
    refusal: str
    note: str
    present: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What a patch came to in this tree."""

    layer: str
    patch: str
    outcome: Outcome
    reason: str
    mapping: str
    files: tuple[FileDecision, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that will happen, decided before anything is written.

    `layers` is the stack as it will be; `decisions` are in the order of the patches; `edits` are sorted by path and
    take the tree as it is to the tree as it will be; `files` are the pristine states of everything the stack touches,
    with the state it will have. `warnings` are for people and stand in the JSON too. `sha256` identifies the plan:
    same input, same digest.
    """

    tree: TargetTree
    layers: tuple[AppliedLayer, ...]
    configuration: tuple[tuple[str, str], ...]
    decisions: tuple[Decision, ...]
    edits: tuple[FileEdit, ...]
    warnings: tuple[str, ...]
    sha256: str
