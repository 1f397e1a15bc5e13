"""Writing a series: new and imported patches get a number and a header, a refreshed one is made anew from its tree.

Comments in the `series` file stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath

from patchkit.diff.model import FilePatch, Patch
from patchkit.diff.produce import produce_diff
from patchkit.diff.render import render_patch
from patchkit.errors import RefusedError, SeriesError, UsageError
from patchkit.imported import kept_files, renamed
from patchkit.lock import LOCK_NAME, Lock, render_lock
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass, replace
from patchkit.series import (
    BELOW_NAME,
    SERIES_NAME,
    SHIPPED,
    PatchEntry,
    Series,
    parse_series,
    stands_on_shipped,
)
from patchkit.trailers import add_trailers, parse_trailers
from patchkit.tree import TreeEntry
from patchkit.writing import locked_directory, write_file

NamePaths = Callable[[FilePatch], tuple[str, str]]
"""Gives the old and the new path below the root for one file of a patch, "" for none (strip.file_paths)."""

_MBOX_LINE = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
_MIME = "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n"
_CONTROL = compile_lazily(r"[\x00-\x1f\x7f]")
_TRAILER_NAME = compile_lazily(r"[A-Za-z0-9-]+")
_NUMBER = compile_lazily(r"([0-9]{4,9})-")
_ENDINGS = compile_lazily(r"(\.(patch|diff|txt|gz))+$", re.IGNORECASE)
_NOISE = ("diff ", "Index: ", "Only in ", "Binary files ")
_SLUG_LENGTH = 52


@dataclass(frozen=True, kw_only=True, slots=True)
class Letterhead:
    """What a new header says: the title, who made the patch (`Name <mail>`), when, and its trailers by name."""

    subject: str
    author: str
    date: datetime
    trailers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A patch that was added to a series; `outside` are the names as written of files that are not in the tree.

    They are in the patch, or left out of it when the package alone was asked for.
    """

    name: str
    path: Path
    outside: tuple[str, ...]


def new_patch(series_dir: Path, slug: str, letterhead: Letterhead, *, on_shipped: bool = False) -> Written:
    """Add the next NNNN-slug.patch: a header and no change yet; quilt's own push wants it refreshed first.

    `on_shipped`: the series begins on top of the shipped one; RefusedError where it has patches that do not.
    """
    content = render_header(letterhead)
    return _add(series_dir, _slug(slug or letterhead.subject), content, outside=(), on_shipped=on_shipped)


def import_patch(
    series_dir: Path,
    patch: Patch,
    letterhead: Letterhead,
    *,
    slug: str,
    name_paths: NamePaths,
    package_only: bool = False,
    applies_to: str = "",
    on_shipped: bool = False,
) -> Written:
    """Add any diff to a series: numbered, with a header, its names as `a/` and `b/` below the root of the tree.

    A header that is there stays byte for byte, but for the letterhead's trailers, which are added to it; a title is
    taken from the letterhead, else from the name of the patch's source. Hunks are never changed. With `package_only`
    the files that are not in the tree are left out. `applies_to` is written where the header has no Applies-To.
    `on_shipped` is as in `new_patch`.
    """
    stem = re.sub(r"^[0-9]+[-_.]", "", _ENDINGS.sub("", PurePosixPath(patch.source).name))
    titled = letterhead if letterhead.subject else replace(letterhead, subject=re.sub(r"[-_]+", " ", stem))
    if applies_to and not parse_trailers(patch.preamble, source=patch.source).applies_to:
        titled = replace(titled, trailers=(*titled.trailers, ("Applies-To", applies_to)))
    mapped = [(file_patch, *name_paths(file_patch)) for file_patch in patch.files]
    outside = tuple(written(file_patch) for file_patch, old, new in mapped if not (old or new))
    if package_only:
        mapped = kept_files(mapped)
    if not mapped:
        raise RefusedError(f"{patch.source}: none of its files is in this tree", why="\n".join(outside))
    files = tuple(renamed(file_patch, old, new) for file_patch, old, new in mapped)
    content = render_patch(replace(patch, preamble=_preamble(patch, titled), files=files))
    return _add(series_dir, _slug(slug or stem), content, outside=outside, on_shipped=on_shipped)


def refreshed(
    header: bytes,
    before: Mapping[PurePosixPath, TreeEntry],
    after: Mapping[PurePosixPath, TreeEntry],
    *,
    footer: bytes = b"",
) -> bytes:
    """Make a patch anew: its header byte for byte, then what differs between the tree without it and the tree as it is.

    `footer` is what stood behind the last hunk (a mail's signature).
    """
    gap = b"" if header.endswith(b"\n") or not header else b"\n"
    return header + gap + produce_diff(dict(before), dict(after)) + footer


def refresh_patch(
    series: Series,
    name: str,
    before: Mapping[PurePosixPath, TreeEntry],
    after: Mapping[PurePosixPath, TreeEntry],
) -> bool:
    """Write a patch of a series anew and tell whether it changed. Its names become `a/` and `b/`: strip level 1."""
    entry = split_series(series, name)[1]
    if entry.strip != 1:
        what = f"{name}: cannot be refreshed with -p{entry.strip}"
        raise RefusedError(what, hint="import it first: its names become -p1")
    content = refreshed(entry.patch.preamble, before, after, footer=entry.patch.footer)
    if entry.patch.files and content == entry.patch.preamble + entry.patch.footer:
        what = f"{name}: nothing is left of it in the tree"
        raise RefusedError(what, why="the tree is what it is without the patch", hint="take its line out of `series`")
    if content == entry.raw:
        return False
    with locked_directory(series.directory):
        write_file(series.directory / name, _compressed(content) if name.endswith(".gz") else content)
    return True


def write_lock(series_dir: Path, lock: Lock) -> bool:
    """Write series.lock and tell whether it changed."""
    path, content = series_dir / LOCK_NAME, render_lock(lock)
    with locked_directory(series_dir):
        if path.is_symlink():
            raise SeriesError(f"{path}: is a symlink", why="a rename over it would replace the link, not the lock")
        if path.exists() and path.read_bytes() == content:
            return False
        write_file(path, content)
    return True


def split_series(series: Series, name: str) -> tuple[tuple[PatchEntry, ...], PatchEntry, tuple[PatchEntry, ...]]:
    """Split a series at a patch: those below it, the patch, and those above, which a refresh must check again."""
    for place, entry in enumerate(series.entries):
        if entry.name == name:
            return series.entries[:place], entry, series.entries[place + 1 :]
    known = ", ".join(entry.name for entry in series.entries) or "none"
    raise UsageError(f"{name}: not in the series {series.directory}", why=f"its patches are: {known}")


def render_header(letterhead: Letterhead) -> bytes:
    """Write the header that git format-patch writes, with our trailers, up to the diff."""
    _check_letterhead(letterhead)
    fields = [f"From: {_mailbox(letterhead.author)}", f"Date: {_mail_date(letterhead.date)}"]
    fields.append("Subject: " + _encoded(f"[PATCH] {letterhead.subject}"))
    mime = "" if all(value.isascii() for _, value in letterhead.trailers) else _MIME
    message = _MBOX_LINE + ("\n".join(fields) + "\n" + mime).encode()
    header = add_trailers(message, letterhead.trailers) + (b"---\n\n" if letterhead.trailers else b"\n---\n\n")
    parse_trailers(header, source="new header")
    return header


def written(file: FilePatch) -> str:
    """Return the name of a file as the patch writes it."""
    return file.new_name or file.old_name or ""


def _check_letterhead(letterhead: Letterhead) -> None:
    """Refuse what would make other lines of the header than it says."""
    for text in (letterhead.subject, letterhead.author, *(value for _, value in letterhead.trailers)):
        if _CONTROL.search(text) or not text.strip():
            raise UsageError(f"{text!r}: not a line of text", why="a header's line has text and no control characters")
    for name, _ in letterhead.trailers:
        if not _TRAILER_NAME.fullmatch(name):
            raise UsageError(f"{name!r}: not the name of a trailer", why="expected letters, digits and hyphens")


def _preamble(patch: Patch, letterhead: Letterhead) -> bytes:
    """Return the header with a title and the letterhead's trailers; text that is no header goes below its `---`."""
    _check_letterhead(letterhead)
    found = parse_trailers(patch.preamble, source=patch.source)
    if found.subject and not found.subject.startswith(_NOISE):
        header = add_trailers(patch.preamble, letterhead.trailers)
        parse_trailers(header, source=patch.source)
        return header
    if replace(found, subject="") != parse_trailers(b""):
        return add_trailers(f"Description: {letterhead.subject}\n".encode() + patch.preamble, letterhead.trailers)
    return render_header(letterhead) + patch.preamble


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", _ENDINGS.sub("", text).lower()).strip("-")
    return slug[:_SLUG_LENGTH].rstrip("-") or "patch"


def _mailbox(author: str) -> str:
    from email.utils import formataddr, parseaddr

    name, address = parseaddr(author)
    if "@" not in address:
        raise UsageError(f"{author!r}: not an author", hint="write it as `Name <name@example.org>`")
    return formataddr((name, address))


def _mail_date(date: datetime) -> str:
    from email.utils import format_datetime

    return format_datetime(date)


def _encoded(text: str) -> str:
    if text.isascii():
        return text
    from email.header import Header

    return Header(text, "utf-8", header_name="Subject").encode()


def _add(series_dir: Path, slug: str, content: bytes, *, outside: tuple[str, ...], on_shipped: bool) -> Written:
    """Write a patch under the next number, then name it in the series: a crash between leaves a file nobody names."""
    series_dir.mkdir(parents=True, exist_ok=True)
    with locked_directory(series_dir):
        listing = _series_text(series_dir)
        if on_shipped and not stands_on_shipped(series_dir):
            _check_begins(series_dir, listing)
            write_file(series_dir / BELOW_NAME, f"{SHIPPED}\n".encode())
        name = f"{_next_number(series_dir, listing):04d}-{slug}.patch"
        write_file(series_dir / name, content)
        gap = b"" if not listing or listing.endswith(b"\n") else b"\n"
        write_file(series_dir / SERIES_NAME, listing + gap + name.encode() + b"\n")
    return Written(name=name, path=series_dir / name, outside=outside)


def _check_begins(series_dir: Path, listing: bytes) -> None:
    lines = parse_series(listing, source=str(series_dir / SERIES_NAME), faults=[])
    if lines:
        raise RefusedError(
            f"{series_dir}: has patches, which are cut on the release and not on the shipped series",
            why=f"the first is {lines[0].name}; what stands below holds for the whole series",
            hint="begin a series of its own in another directory for what goes on top of the shipped one",
        )


def _series_text(series_dir: Path) -> bytes:
    path = series_dir / SERIES_NAME
    if path.is_symlink():
        raise SeriesError(f"{path}: is a symlink", why="a rename over it would replace the link, not the series")
    if path.exists() and not path.is_file():
        raise SeriesError(f"{path}: is not a file", why="a series is a text file, a patch a line")
    return path.read_bytes() if path.exists() else b""


def _next_number(series_dir: Path, listing: bytes) -> int:
    """Return the number behind the highest one in use, in the series or in the directory."""
    lines = parse_series(listing, source=str(series_dir / SERIES_NAME), faults=[])
    names = [PurePosixPath(line.name).name for line in lines] + [path.name for path in series_dir.iterdir()]
    return max((int(match.group(1)) for name in names if (match := _NUMBER.match(name))), default=0) + 1


def _compressed(content: bytes) -> bytes:
    import gzip

    return gzip.compress(content, mtime=0)
