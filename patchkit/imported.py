"""The files of a diff as they enter a series: named as the wheel has them, without those that it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from patchkit.diff.model import Change, FilePatch
from patchkit.diff.names import quote_name
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass, replace
from patchkit.strip import safe_path

_SIDE = compile_lazily(r"[abciow12]/|orig/|new/|old/")


def renamed(file: FilePatch, old: str, new: str) -> FilePatch:
    """Write a file patch's names as `a/old` and `b/new`. A file outside of the tree keeps its name without a side."""
    old = old or _outside_path(file.old_name)
    new = new or _outside_path(file.new_name)
    old, new = old or new, new or old
    lines = file.header.split(b"\n")
    start = _names_start(lines)
    names = _NameLines(old=old, new=new, change=file.change)
    return replace(
        file,
        header=b"\n".join((*lines[:start], *map(names.rewrite, lines[start:]))),
        old_name=None if file.old_name is None else f"a/{old}",
        new_name=None if file.new_name is None else f"b/{new}",
    )


def kept_files(mapped: Iterable[tuple[FilePatch, str, str]]) -> list[tuple[FilePatch, str, str]]:
    """Return the files that have a path; the mail that begins a commit stays above the first of them."""
    kept: list[tuple[FilePatch, str, str]] = []
    commit, mail = 0, b""
    for file, old, new in mapped:
        own = file.header
        if file.commit != commit:
            lines = own.split(b"\n")
            own = b"\n".join(lines[_names_start(lines) :])
            commit, mail = file.commit, file.header.removesuffix(own)
        if old or new:
            kept.append((replace(file, header=mail + own), old, new))
            mail = b""
    return kept


@dataclass(frozen=True, kw_only=True, slots=True)
class _NameLines:
    """Rewrites the lines of a file's header that name it; others stay as they are."""

    old: str
    new: str
    change: Change

    def rewrite(self, line: bytes) -> bytes:
        bare = line.removesuffix(b"\r")
        for start, text in self._texts():
            if bare.startswith(start):
                return start + text + line[len(bare) :]
        return line

    def _texts(self) -> tuple[tuple[bytes, bytes], ...]:
        old, new = quote_name(f"a/{self.old}"), quote_name(f"b/{self.new}")
        bare_old, bare_new = quote_name(self.old), quote_name(self.new)
        return (
            (b"diff --git ", old + b" " + new),
            (b"--- ", b"/dev/null" if self.change is Change.CREATE else _ended(old)),
            (b"+++ ", b"/dev/null" if self.change is Change.DELETE else _ended(new)),
            (b"rename from ", bare_old),
            (b"rename to ", bare_new),
            (b"copy from ", bare_old),
            (b"copy to ", bare_new),
            (b"Index: ", bare_new),
        )


def _names_start(lines: Sequence[bytes]) -> int:
    """Return where a header begins to name its file; above may stand a whole mail, between two files of an mbox."""
    for start in (b"diff --git ", b"Index: ", b"--- "):
        found = [index for index, line in enumerate(lines) if line.startswith(start)]
        if found:
            return found[-1]
    return len(lines)


def _ended(name: bytes) -> bytes:
    """Put git's tab behind a name with blanks, so that no reader takes the rest for a timestamp."""
    return name + b"\t" if b" " in name else name


def _outside_path(name: str | None) -> str:
    return "" if name is None else str(safe_path(_SIDE.sub("", name, count=1), shown=name))
