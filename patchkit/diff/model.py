"""What a patch says, as records: a patch has files, a file has hunks, a hunk has lines; all content is bytes."""

from __future__ import annotations

import enum

from patchkit.record import dataclass

NO_NEWLINE = b"\\"
"""First byte of the marker line `\\ No newline at end of file`."""
BINARY_MARKER = b"GIT binary patch"
MAX_BINARY = 128 << 20
"""The most bytes that one patch's binary hunks may inflate to, and that one delta may make."""


class Change(enum.Enum):
    """What a file patch does to its file."""

    MODIFY = "modify"
    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"
    COPY = "copy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """One `@@` block. `lines` are the body lines as they stand in the patch, without their LF.

    A body line begins with ` `, `-`, `+` or the backslash of the no-newline marker; an empty one (in a patch with
    `crlf`: one that is a CR) is an empty context line whose blank was stripped on the way. Line numbers count from 1;
    `old_count == 0` puts the insertion after line `old_start`. `header` is the `@@` line as written, `line_number` its
    line in the patch file. `adrift`: lines of patches that are left out stand in it, and no number says its place.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: bytes
    lines: tuple[bytes, ...]
    header: bytes
    line_number: int
    adrift: bool = False


class BinaryKind(enum.Enum):
    """How a side of a `GIT binary patch` is written."""

    LITERAL = "literal"
    DELTA = "delta"


@dataclass(frozen=True, kw_only=True, slots=True)
class BinaryHunk:
    """One side of a `GIT binary patch`: `payload` is the inflated literal content or git delta."""

    kind: BinaryKind
    payload: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class BinaryPatch:
    """A `GIT binary patch`; `reverse` is None when it was made without it, both are None for `Binary files differ`."""

    forward: BinaryHunk | None
    reverse: BinaryHunk | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePatch:
    """What a patch does to one file.

    `old_name` and `new_name` are the names as written, unquoted, nothing stripped, decoded with surrogateescape; None
    stands for /dev/null (a created file has no old name, a deleted one no new name). `git` tells whether a `diff
    --git` line was there: then both names are authoritative, otherwise a name may be a backup's (`f.orig`). Modes are
    st_mode values (0o100644, 0o100755, 0o120000) or None when the patch does not say (the mode of an `index` line is
    the old one only: it asks for no change); `old_blob` and `new_blob` are the (abbreviated) object ids of the `index`
    line or "". `header` holds the raw lines between the file before and the first hunk (with a binary patch's own),
    `line_number` is the line of the first of them that names the file. `commit` counts the commits of a mailbox from 0:
    a rename of one reads what those before it left.
    """

    change: Change
    old_name: str | None
    new_name: str | None
    old_mode: int | None
    new_mode: int | None
    old_blob: str
    new_blob: str
    git: bool
    hunks: tuple[Hunk, ...]
    binary: BinaryPatch | None
    header: bytes
    line_number: int
    commit: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """A parsed patch file.

    `source` names it in messages. `preamble` is what stands before the first file (mail header, prose), `footer` what
    stands behind the last hunk (mail signature); `crlf` is true when every line of the diff itself, headers too, ends
    with CRLF: the patch was converted on its way, and the lines' CR mean nothing unless the file has them too.
    `sha256` is of the raw (not of the gz-compressed) bytes. `unterminated` is true when the file ends in the middle of
    a no-newline marker line, without that line's LF.
    """

    source: str
    sha256: str
    preamble: bytes
    files: tuple[FilePatch, ...]
    footer: bytes
    crlf: bool
    unterminated: bool = False


class Verdict(enum.Enum):
    """What became of a hunk when it was placed."""

    EXACT = "exact"
    OFFSET = "offset"
    PRESENT = "present"
    MOVED = "moved"
    CONFLICT = "conflict"
    FILE_GONE = "file gone"
    NOT_IN_TREE = "not in this tree"


class Proof(enum.Enum):
    """What shows that a hunk stands where its author meant it."""

    LOCK = "lock"  # the file's preimage hash is the lock's, the base's, or the blob id of the index line
    SCOPE = "scope"  # the enclosing function or class is the one in the base file
    HEADING = "heading"  # only git's section heading agrees
    LINE = "line"  # exact context at the stated line
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where a hunk goes. `line` is the 1-based line of its first preimage line in the file it is placed on.

    `line` is None unless the verdict is EXACT, OFFSET or PRESENT (then the line of the postimage) or MOVED. `offset`
    is `line - hunk.old_start` (0 for exact). `reason` is a phrase for people, empty for EXACT. The scopes are
    qualified names (`Scheduler.schedule`), "" at module level, None when unknown.
    """

    hunk: Hunk
    verdict: Verdict
    line: int | None
    offset: int
    reason: str
    scope_before: str | None
    scope_after: str | None
    proof: Proof
