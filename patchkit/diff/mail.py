"""What a mail puts around a diff: where its message ends and how it is encoded, as git mailsplit and mailinfo see."""

from __future__ import annotations

from collections.abc import Iterable

from patchkit.diff.text import PatchText
from patchkit.errors import PatchFormatError
from patchkit.pattern import compile_lazily

_HG = rb"# HG changeset patch\r?$"
# Behind a sender stands what git mailsplit looks for (is_from_line): a time, and a year behind the last colon.
_FROM = rb"From (?:[0-9a-f]{40}(?:[0-9a-f]{24})?[ \r]?|.*[0-9].[0-9]{2}:[0-9]{2}[ \t]*(?:9[1-9]|[1-9][0-9]{2})[^:]*$)"
COMMIT = compile_lazily(rb"%b|commit [0-9a-f]{40}(?:[0-9a-f]{24})?[ \r]?|%b" % (_FROM, _HG))
"""What begins another commit between two files: of a mailbox, `git log -p --reverse`, `hg export`."""
_MAIL = compile_lazily(rb"%b|%b" % (_FROM, _HG))
_STARTS = (b"From ", b"# HG ")
_FIRST = (b"From ", b"From: ")  # git am asks no more of the first line
_FIELD = compile_lazily(rb"[!-9;-~]+:")
_FOLDED = (b" ", b"\t")
# git mailinfo's patchbreak.
_BREAK = compile_lazily(rb"diff -|Index: |--- \S|---\s*$")
_HEADS = (b"diff --git ", b"--- ")
_ENCODING = compile_lazily(rb"(?i)content-transfer-encoding:[ \t]*(quoted-printable|base64)\b")
_BOUNDARY = compile_lazily(rb"(?i)(?:content-type:[ \t]*multipart/.*|[ \t]+)\bboundary=\"?([^\";\s]+)")
_ESCAPE = compile_lazily(rb"=(?:[0-9A-F]{2}|[ \t]*\r?$)")
DECODE = "decode it: `git mailinfo MESSAGE PATCH < MAIL`, mail by mail; PATCH is the diff"


class Messages:
    """The messages of mails behind a file, to be asked about one line after the other; it passes once over the lines.

    Lines before `end` are prose of a message. Where no head of a file follows in the mail, a line may have lost its
    own: it is none.
    """

    __slots__ = ("_at", "_is_below", "_known", "_text", "end")

    def __init__(self, text: PatchText, floor: int) -> None:
        self._text = text
        self._at = self._known = self.end = floor
        self._is_below = not floor and _begins_as_mail(text)

    def hold(self, index: int) -> bool:
        """Tell whether the line at `index` is prose of a message; `end` is then that message's."""
        for line in self._text.lines[self._at : index]:  # whether a mail begins above, and its message goes on
            self._is_below = bool(_MAIL.match(line)) or (self._is_below and not _BREAK.match(line))
        self._at = max(self._at, index)
        if self._is_below and index >= self._known:
            self._look_ahead(index)
        return self._is_below and index < self.end

    def _look_ahead(self, index: int) -> None:
        """Find the end of the message; what is found stands for all lines before `_known`."""
        end = None
        for at in range(index + 1, self._text.end):
            line = self._text.lines[at]
            if end is None and _BREAK.match(line):
                end = at
            if end is not None and line.startswith(_HEADS):
                self.end = self._known = end
                return
            if _MAIL.match(line):
                self._known = at
                return
        self._known = self._text.end


def _begins_as_mail(text: PatchText) -> bool:
    """Tell whether git am takes the whole for a mail: a `From`, or nothing but fields down to the first empty line."""
    first = next((line for line in text.lines if line.strip()), b"")
    if first.startswith(_FIRST):
        return True
    for line in text.lines:
        if not line.strip():
            break
        if not line.startswith(_FOLDED) and not _FIELD.match(line):
            return False
    return bool(text.lines[0].strip())


def boundaries(lines: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return how the lines begin that part a mail, as its header says."""
    return tuple(b"--" + found[1] for found in map(_BOUNDARY.match, lines) if found is not None)


def check_encoding(text: PatchText, spans: Iterable[tuple[int, int]]) -> None:
    """Refuse a mail that git am would decode before it reads the diff; `spans` are the lines of the files.

    Quoted-printable is one where decoding changes a diff (`a=3D1` is `a=1`), base64 one in which no diff is seen.
    """
    mail = _Mail(text)
    for start, stop in (*spans, (text.end, text.end)):
        if mail.index < start:
            mail.read_to(start)
        if mail.encoding == b"quoted-printable":
            for at in range(start, stop):
                if _ESCAPE.search(text.lines[at]):
                    raise _encoded(text, at, mail.encoding)
        mail.index, mail.hidden = stop, None


class _Mail:
    """The mail at `index`: the `encoding` of this part; `hidden` is the line that says base64 until a diff is seen."""

    __slots__ = ("_boundaries", "_inside", "_text", "encoding", "hidden", "index")

    def __init__(self, text: PatchText) -> None:
        self._text = text
        self._boundaries: tuple[bytes, ...] = ()
        self._inside = True
        self.encoding = b""
        self.hidden: int | None = None
        self.index = 0

    def read_to(self, stop: int) -> None:
        """Read the header lines of mails and their parts, down to a file or the end."""
        for at in range(self.index, stop):
            line = self._text.lines[at]
            if line.startswith(_STARTS) and _MAIL.match(line):
                self._end(begins=True)
            elif self._boundaries and line.startswith(self._boundaries):
                self._end(begins=False)
            elif self._inside and not line.strip():
                self._inside = False
            elif self._inside:
                self._boundaries += boundaries((line,))
                self._note(at, line)
        if stop == self._text.end:
            self._end(begins=True)

    def _note(self, at: int, line: bytes) -> None:
        found = _ENCODING.match(line)
        if found is not None:
            self.encoding = found[1].lower()
            self.hidden = at if self.encoding == b"base64" else self.hidden

    def _end(self, *, begins: bool) -> None:
        self._inside, self.encoding = True, b""
        if begins:
            self._boundaries = ()
            if self.hidden is not None:
                raise _encoded(self._text, self.hidden, b"base64")


def _encoded(text: PatchText, index: int, encoding: bytes) -> PatchFormatError:
    why = "the diff in it can only be read when it has been decoded"
    return text.error(index, f"a mail in {encoding.decode()}", why=why, hint=DECODE)
