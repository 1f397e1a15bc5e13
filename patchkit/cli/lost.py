"""Whether a tree without a receipt was patched all the same: asked of the series that are known without being named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from patchkit.errors import PatchkitError, WrongTreeError
from patchkit.session import Session, Standing
from patchkit.target import Layout


def lost_receipt(session: Session, warn: Callable[[str], None]) -> WrongTreeError | None:
    """Return what `plan` says of a tree that has lost its receipt; None where nothing shows that it had one.

    `warn` gets what cannot be read: then a tree may have had one.
    """
    from patchkit.resources import patches_directory, user_directories
    from patchkit.series import find_series
    from patchkit.wanted import gone_receipt

    situation = session.situation
    if session.condition.standing is not Standing.UNPATCHED or situation.tree.layout is Layout.PLAIN:
        return None
    try:
        for directory in (patches_directory(), *user_directories(Path.cwd())):
            series = find_series(directory, situation.tree)
            gone = None if series is None else gone_receipt(series, situation)
            if gone is not None:
                return gone
    except PatchkitError as error:
        warn(f"not compared with every series: {error.what}")
    return None
