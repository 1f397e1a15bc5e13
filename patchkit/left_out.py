"""Why a patch is left out of a tree, in the words that the receipt keeps."""

from __future__ import annotations

from patchkit.decision import Outcome

UPSTREAMED = "the tree has all of it already"
TAKEN_OUT = "taken out"
NOTHING_HERE = "none of its files is in this tree"
NO_CHANGE = "it has no change yet"
NEEDS_NOTHING = frozenset({UPSTREAMED, NOTHING_HERE, NO_CHANGE})
"""Why a patch that is switched on is not in the tree: as it is there, it has nothing to do."""


def unset_reason(config: str) -> str:
    """Return why a patch is left out whose toggle is off."""
    return f"CONFIG_{config} is not set"


def guarded_reason(config: str) -> str:
    """Return why a patch with `Toggle: guard` does nothing while its toggle is off; more may follow."""
    return f"CONFIG_{config} is not set; its guards stand in the files"


def left_out_as(config: str, reason: str) -> Outcome:
    """Return what is said of a patch that is left out for a reason, but for a retired one."""
    return Outcome.GUARDED_OFF if config and reason.startswith(guarded_reason(config)) else Outcome.DISABLED
