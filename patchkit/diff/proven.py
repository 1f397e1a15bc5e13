"""Patching a file that is known by its hash to be what the patch was cut against, without splitting it into lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchkit.diff.model import Placement, Proof, Verdict

if TYPE_CHECKING:
    from patchkit.diff.model import Hunk

_CHANGES = (b"+", b"-")
_LF = 0x0A


def patch_proven(hunks: tuple[Hunk, ...], content: bytes) -> tuple[bytes, tuple[Placement, ...]] | None:
    """Return the new content and the placements when every hunk stands where it says, in order, before more context.

    It is what `place_hunks` and `apply_placements` come to for proven content, at half the cost: a series with a lock
    is nothing but such hunks. None for anything else, also where a hunk's old lines stand above their place as well.
    """
    pieces: list[bytes | memoryview] = []
    placements: list[Placement] = []
    view = memoryview(content)
    done = line = 0
    for hunk in hunks:
        sides = _plain_sides(hunk)
        if sides is None:
            return None
        old, new = sides
        start = content.find(old, done)
        at_line_start = not start or (start > 0 and content[start - 1] == _LF)
        if not at_line_start or line + content.count(b"\n", done, start) != hunk.old_start - 1:
            return None
        pieces += (view[done:start], new)
        done = start + len(old)
        line = hunk.old_start - 1 + hunk.old_count
        placements.append(
            Placement(
                hunk=hunk,
                verdict=Verdict.EXACT,
                line=hunk.old_start,
                offset=0,
                reason="",
                scope_before=None,
                scope_after=None,
                proof=Proof.LOCK,
            )
        )
    pieces.append(view[done:])
    return b"".join(pieces), tuple(placements)


def _plain_sides(hunk: Hunk) -> tuple[bytes, bytes] | None:
    """Return the lines before and after the hunk; None where it is adrift, ends with a change or has a marker.

    A no-newline marker is a line more than the `@@` line counts.
    """
    if hunk.adrift or hunk.lines[-1].startswith(_CHANGES):
        return None
    old = [line[1:] for line in hunk.lines if not line.startswith(b"+")]
    new = [line[1:] for line in hunk.lines if not line.startswith(b"-")]
    if len(old) != hunk.old_count or len(new) != hunk.new_count:
        return None
    return b"\n".join((*old, b"")), b"\n".join((*new, b""))
