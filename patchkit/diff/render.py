"""A patch back to bytes: what was parsed comes out as it was."""

from __future__ import annotations

from patchkit.diff.model import FilePatch, Hunk, Patch


def render_patch(patch: Patch) -> bytes:
    """Return the patch's bytes; of a parsed patch the very same (inflated where it was gz)."""
    parts = [patch.preamble]
    for file in patch.files:
        _append_file(parts, file)
    body = b"".join(parts)
    return (body.removesuffix(b"\n") if patch.unterminated else body) + patch.footer


def render_file(file: FilePatch) -> bytes:
    """Return the bytes of one file's patch."""
    parts: list[bytes] = []
    _append_file(parts, file)
    return b"".join(parts)


def render_hunk(hunk: Hunk) -> bytes:
    """Return the bytes of one hunk."""
    return b"\n".join((hunk.header, *hunk.lines, b""))


def _append_file(parts: list[bytes], file: FilePatch) -> None:
    parts.append(file.header)
    parts += [render_hunk(hunk) for hunk in file.hunks]
