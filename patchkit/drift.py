"""A tree that nothing may be done to yet: files were edited by hand, or a run was interrupted; and what helps then."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.counting import counted
from patchkit.errors import TreeChangedError
from patchkit.quoting import typed
from patchkit.session import Condition, Session, Standing


def check_workable(session: Session, *, patch: str = "", layer: int | None = None) -> None:
    """Refuse a tree that somebody changed since it was patched, or that an interrupted run left.

    `patch` and `layer` are what a revert was asked to take out; other acts name neither.
    """
    condition = session.condition
    if condition.standing is Standing.PENDING:
        raise TreeChangedError(
            f"{session.situation.tree.root}: an interrupted run left a journal",
            why=condition.reason,
            hint="run `patchkit apply` or `patchkit revert` again: it finishes what was begun first",
        )
    if condition.standing is Standing.DRIFTED:
        raise TreeChangedError(
            f"{session.situation.tree.root}: {condition.reason} patchkit wrote it",
            why="\n".join(changed_lines(condition)),
            hint=_undoing(session, patch, layer),
        )


def changed_lines(condition: Condition) -> Iterator[str]:
    """Yield a line for every file that is not as patchkit left it."""
    for path in condition.files:
        yield f"{'gone' if path in condition.gone else 'changed'}: {path}"


def _undoing(session: Session, patch: str, layer: int | None) -> str:
    """Say what takes the edits out, and what goes with them."""
    from patchkit.typed import typed_tree

    receipt = session.situation.receipt
    many = 0 if receipt is None else len(receipt.layers)
    taken = patch or (f"the whole stack ({counted(many, 'layer')})" if layer is None else f"layer {layer}")
    words = ["patchkit revert", typed_tree(session.situation.tree), "--save-edits FILE"]
    words += [] if layer is None else [f"--layer {layer}"]
    words += ["-- " * patch.startswith("-") + typed(patch)] if patch else []
    return f"undo the edits, or `{' '.join(words)}`: FILE gets them as a diff, and {taken} is taken out with them"
