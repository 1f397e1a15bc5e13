"""What was decided about a file of a patch, and about a patch: records for people, machines and the plan."""

from __future__ import annotations

import enum
from pathlib import PurePosixPath

from patchkit.diff.model import Change, Placement
from patchkit.record import dataclass


class Outcome(enum.Enum):
    """What becomes of a patch as a whole."""

    APPLIES = "applies"
    ALREADY_APPLIED = "already applied"
    UPSTREAMED = "upstreamed"
    NOTHING_HERE = "nothing here"
    PARTLY_APPLIED = "partly applied"
    REFUSED = "refused"
    DISABLED = "disabled"
    GUARDED_OFF = "guarded, off"
    RETIRED = "retired"


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
    """What a patch came to in this tree. `number` is its layer's, `layer` the layer's name."""

    number: int
    layer: str
    patch: str
    outcome: Outcome
    reason: str
    mapping: str
    files: tuple[FileDecision, ...]

    @property
    def refused(self) -> bool:
        """Tell whether the plan must not be carried out because of this patch."""
        return self.outcome in (Outcome.REFUSED, Outcome.PARTLY_APPLIED)
