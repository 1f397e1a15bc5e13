"""Every error a user sees: what failed, why, and what to do next.

One class per reaction of the caller. The exit status belongs to the class, so that a command never chooses one.
"""

from __future__ import annotations

import enum


class ExitStatus(enum.IntEnum):
    """What a command's exit status says; documented in docs/exit-status.md."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    BUG = 3
    WRONG_TREE = 4
    TREE_CHANGED = 5
    INTERRUPTED = 130


class PatchkitError(Exception):
    """The root of all errors that patchkit raises on purpose.

    `what` is the first line (under 100 characters, with the place: file:line or symbol), `why` what was expected and
    found, `hint` the command or option that helps.
    """

    status = ExitStatus.REFUSED

    def __init__(self, what: str, *, why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.why, self.hint) if part)


class UsageError(PatchkitError):
    """The command line asks for something that cannot be meant."""

    status = ExitStatus.USAGE


class ParseError(PatchkitError):
    """A text is not in the format it should be in; says where and shows the line."""

    def __init__(
        self, what: str, *, source: str, line_number: int, line: bytes = b"", why: str = "", hint: str = ""
    ) -> None:
        place = f"{source}:{line_number}: {what}"
        shown = repr(line[:120])[2:-1]
        super().__init__(place, why=f"  {line_number} | {shown}\n{why}".rstrip(), hint=hint)
        self.source = source
        self.line_number = line_number
        self.line = line


class PatchFormatError(ParseError):
    """A patch file cannot be read: it is damaged, or not a unified diff."""


class ObjectFormatError(PatchkitError):
    """A binary (an ELF file, stored facts) is damaged or of a kind that no engine has."""


class UnsafePathError(PatchkitError):
    """A name in a patch leaves the tree, passes through a symlink, or is one that patchkit never writes."""


class TargetError(PatchkitError):
    """No tree, several trees, or a tree of another engine or version than asked for."""


class OtherReleaseError(TargetError):
    """The tree is of another release than asked for, or of one that no series is for."""

    status = ExitStatus.WRONG_TREE


class SeriesError(PatchkitError):
    """A series, its trailers or its lock are not well formed."""


class RefusedError(PatchkitError):
    """The answer is no: a conflict, a refused file, a failed check. The tree is as it was."""


class WrongTreeError(PatchkitError):
    """The tree is not what the series was cut against."""

    status = ExitStatus.WRONG_TREE


class TreeChangedError(PatchkitError):
    """The tree changed since it was patched, or a journal is pending."""

    status = ExitStatus.TREE_CHANGED
