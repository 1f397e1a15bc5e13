"""One file of one patch against the tree as it stands then: can it be done, where do its hunks go, what results.

Within a patch, as git has it, a rename or copy reads the tree as it was before the patch, anything else what earlier
files of the same patch left; a path that the patch vacates may be taken again.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable

from patchkit.counting import counted, counted_of
from patchkit.diff.apply import apply_placements
from patchkit.diff.image import split_lines
from patchkit.diff.locate import Evidence, accepted, place_hunks
from patchkit.diff.model import BinaryPatch, Change, FilePatch, Placement, Proof, Verdict
from patchkit.diff.proven import patch_proven
from patchkit.errors import PatchkitError, RefusedError, UnsafePathError
from patchkit.overlay import Overlay
from patchkit.record import dataclass, replace
from patchkit.tree import Kind, TreeEntry

EXECUTABLE = 0o111
_NEW_FILE_MODE = 0o644
_SHORTEST_BLOB = 7
_SHA1_LENGTH = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of a patch beside the tree that it meets.

    `base` is the tree it was cut against, None when nobody knows it, `pristine` the tree without any patch. `proven`
    tells of an old path whether its content is known by hash to be what the patch was cut against. `moved`: its hunks
    are stated where they stood in the base, and belong where those lines are now.
    """

    base: Overlay | None
    pristine: Overlay
    proven: Callable[[str], bool]
    strict: bool
    moved: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What a file patch is decided against.

    `before` is the tree before the patch, `now` the tree with what earlier files of this patch did (written to).
    `vacated` are the paths that this patch renames or deletes.
    """

    before: Overlay
    now: Overlay
    known: Known
    crlf: bool
    vacated: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one file patch came to. `refusal` is "" when it can be done or is there already (`present`)."""

    placements: tuple[Placement, ...] = ()
    refusal: str = ""
    present: bool = False


def decide_file(file: FilePatch, old: str, new: str, ground: Ground) -> Finding:
    """Decide one file patch and, when it can be done, write its result into `ground.now`."""
    try:
        if file.change is Change.CREATE:
            return _create(file, new, ground)
        if file.change is Change.DELETE:
            return _delete(file, old, ground)
        if file.change in (Change.RENAME, Change.COPY) or old != new:
            return _rename(file, old, new, ground)
        return _modify(file, old, ground)
    except PatchkitError as error:
        return Finding(refusal=" ".join(part for part in (error.what, error.why and f"({error.why})") if part))


def _modify(file: FilePatch, path: str, ground: Ground) -> Finding:
    ground.now.check_parents(path)
    entry = ground.now.lookup(path)
    if entry is None:
        if not file.git and file.hunks and all(hunk.old_count == 0 for hunk in file.hunks):
            return _create(file, path, ground)
        return _gone(file, f"{path} is not there")
    wrong = _wrong_kind(file, path, entry)
    if wrong:
        return Finding(refusal=wrong)
    content, placements, refusal = _new_content(file, path, entry, ground)
    if refusal or content is None:
        return Finding(placements=placements, refusal=refusal)
    mode = _new_mode(file.new_mode, entry.mode)
    present = content == entry.content and mode == entry.mode
    if not present:
        ground.now.put(path, TreeEntry(kind=entry.kind, mode=mode, content=content))
    return Finding(placements=placements, present=present)


def _create(file: FilePatch, path: str, ground: Ground) -> Finding:
    ground.now.check_parents(path, leaving=ground.vacated)
    standing = ground.now.lookup(path)
    kind, mode = _kind_and_mode(file.new_mode)
    empty = TreeEntry(kind=kind, mode=mode, content=b"")
    if standing is not None and _is_vacated(path, standing, ground):
        standing = None
    content, placements, refusal = _new_content(file, path, empty, ground)
    if refusal or content is None:
        return Finding(placements=placements, refusal=refusal)
    entry = TreeEntry(kind=kind, mode=mode, content=content)
    if standing is None:
        ground.now.put(path, entry)
        return Finding(placements=placements)
    if standing.kind is kind and standing.content == content and (mode ^ standing.mode) & EXECUTABLE & 0o100 == 0:
        return Finding(placements=tuple(_as_present(placement) for placement in placements), present=True)
    what = "a directory of that name" if standing.kind is Kind.DIRECTORY else "a file of that name with other content"
    return Finding(placements=placements, refusal=f"{path} is to be created, but {what} is there")


def _delete(file: FilePatch, path: str, ground: Ground) -> Finding:
    ground.before.check_parents(path)
    changed = ground.now.changed(path)
    if changed and ground.now.lookup(path) is None:
        return _gone(file, f"{path} is to be deleted, but the patch takes it away already")
    retaken = changed and path in ground.vacated  # an earlier file of the patch took the place of it
    entry = (ground.now if changed and not retaken else ground.before).lookup(path)
    if entry is None:
        return _gone(file, f"{path} is to be deleted, but is not there")
    wrong = _wrong_kind(file, path, entry)
    if wrong:
        return Finding(refusal=wrong)
    content, placements, refusal = _new_content(file, path, entry, ground)
    if refusal or content is None:
        return Finding(placements=placements, refusal=refusal)
    if content:
        left = counted(len(split_lines(content)), "line")
        return Finding(placements=placements, refusal=f"{path} is to be deleted, but {left} would be left")
    if not retaken:
        ground.now.put(path, None)
    return Finding(placements=placements)


def _rename(file: FilePatch, old: str, new: str, ground: Ground) -> Finding:
    if file.change is Change.MODIFY and not file.hunks:
        return Finding(refusal=f"{old} and {new} are two names, and nothing says that the file is renamed")
    ground.before.check_parents(old)
    ground.now.check_parents(new, leaving=ground.vacated)
    source = (ground.now if file.change is Change.MODIFY else ground.before).lookup(old)
    if source is None:
        return _gone(file, f"{old} is not there")
    wrong = _wrong_kind(file, old, source)
    if wrong:
        return Finding(refusal=wrong)
    standing = ground.now.lookup(new)
    if standing is not None and new != old and not _is_vacated(new, standing, ground):
        return Finding(refusal=f"{new} is to be made from {old}, but something stands there")
    content, placements, refusal = _new_content(file, old, source, ground)
    if refusal or content is None:
        return Finding(placements=placements, refusal=refusal)
    ground.now.put(new, TreeEntry(kind=source.kind, mode=_new_mode(file.new_mode, source.mode), content=content))
    if file.change is not Change.COPY and old != new and not (ground.now.changed(old) and file.change is Change.RENAME):
        ground.now.put(old, None)
    return Finding(placements=placements)


def _is_vacated(path: str, standing: TreeEntry, ground: Ground) -> bool:
    """Tell whether the patch itself makes room: it takes away what stands there, or a file of the directory there.

    An earlier commit, patch or layer may have done the latter too. Whether the directory is empty then, the transaction
    finds out.
    """
    if standing.kind is Kind.DIRECTORY:
        return any(gone.startswith(f"{path}/") for gone in ground.vacated) or ground.now.vacates(path)
    return path in ground.vacated and not ground.now.changed(path)


def _new_content(
    file: FilePatch, path: str, entry: TreeEntry, ground: Ground
) -> tuple[bytes | None, tuple[Placement, ...], str]:
    """Return the content after the patch, the placements, and why not (then the content is None)."""
    if file.binary is not None:
        return _binary_content(file, file.binary, path, entry)
    if not file.hunks:
        return entry.content, (), ""
    known, evidence = ground.known, _evidence(file, path, entry, ground)
    usual = patch_proven(file.hunks, entry.content) if evidence.proven and not (known.moved or ground.crlf) else None
    if usual is not None:
        return (*usual, "")
    lines = split_lines(entry.content)
    if known.moved and evidence.base is not None:
        from patchkit.diff.compare import compare_lines
        from patchkit.moving import move_with_lines, surrounded_as_before

        base_lines = split_lines(evidence.base)
        moved = move_with_lines(file, compare_lines(base_lines, lines))
        if surrounded_as_before(file, base_lines, moved, lines):
            evidence = replace(evidence, proven=True)
        file = moved
    placements = place_hunks(file, lines, evidence)
    refused = [placement for placement in placements if not accepted(placement, strict=known.strict)]
    if refused:
        return None, placements, _refused_hunks(path, placements, refused)
    verdicts = {placement.verdict is Verdict.PRESENT for placement in placements}
    if len(verdicts) > 1:
        there = sum(placement.verdict is Verdict.PRESENT for placement in placements)
        words = counted_of(there, len(placements), "hunk", "is there already", "are there already")
        return None, placements, f"{path}: partly applied: {words}"
    return apply_placements(file, lines, placements), placements, ""


def _binary_content(
    file: FilePatch, binary: BinaryPatch, path: str, entry: TreeEntry
) -> tuple[bytes | None, tuple[Placement, ...], str]:
    """Return what a binary patch makes of a file that is, by its object id or its other side, what it was made for."""
    from patchkit.diff.binary import apply_binary

    content = entry.content
    if _is_blob(file.new_blob, content):
        return content, (), ""
    made = apply_binary(binary, content)
    if len(file.new_blob) >= _SHA1_LENGTH and file.new_blob.strip("0") and not _is_blob(file.new_blob, made):
        return None, (), f"{path}: the binary patch does not make what its index line names"
    if made == content or not content or _is_blob(file.old_blob, content) or _leads_back(binary, made, content):
        return made, (), ""
    return None, (), f"{path}: the binary patch is for another content than is there"


def _leads_back(binary: BinaryPatch, made: bytes, content: bytes) -> bool:
    """Tell whether the patch's other side makes the content again."""
    from patchkit.diff.binary import apply_binary

    if binary.reverse is None:
        return False
    try:
        return apply_binary(BinaryPatch(forward=binary.reverse, reverse=None), made) == content
    except RefusedError:
        return False


def _evidence(file: FilePatch, path: str, entry: TreeEntry, ground: Ground) -> Evidence:
    known, told = ground.known, ground.known.proven(path)
    base_content = None if told and known.base is None else _base_content(file, path, entry, ground)
    proven = told or base_content == entry.content or _is_blob(file.old_blob, entry.content)
    return Evidence(
        base=base_content, proven=proven, python=path.endswith((".py", ".pyi")), strict=known.strict, crlf=ground.crlf
    )


def _base_content(file: FilePatch, path: str, entry: TreeEntry, ground: Ground) -> bytes | None:
    """Return the file that the patch was cut against: the base's, else the pristine one where that is evident.

    Evident means that the index line names its blob, or that every hunk stands in it exactly where it says.
    """
    try:
        base = (ground.known.base or ground.known.pristine).lookup(path)
    except UnsafePathError:  # where a symlink stood before an earlier patch
        return None
    if base is None or base.kind is not entry.kind:
        return None
    if ground.known.base is not None:
        return base.content
    if base.content == entry.content:
        return None  # it says nothing that the file itself does not say
    if _is_blob(file.old_blob, base.content):
        return base.content
    evidence = Evidence(base=None, proven=False, python=False, strict=True, crlf=ground.crlf)
    placements = place_hunks(file, split_lines(base.content), evidence)
    exact = all(placement.verdict is Verdict.EXACT for placement in placements)
    return base.content if exact else None


def _is_blob(abbreviated: str, content: bytes) -> bool:
    """Tell whether the content has the object id that the patch's index line names."""
    if len(abbreviated) < _SHORTEST_BLOB or not abbreviated.strip("0"):
        return False
    header = b"blob %d\0" % len(content)
    algorithm = hashlib.sha1 if len(abbreviated) <= _SHA1_LENGTH else hashlib.sha256
    return algorithm(header + content, usedforsecurity=False).hexdigest().startswith(abbreviated)


def _refused_hunks(path: str, placements: tuple[Placement, ...], refused: list[Placement]) -> str:
    words = sorted({placement.verdict.value for placement in refused})
    there = sum(placement.verdict is Verdict.PRESENT for placement in placements)
    beside = f"; {counted(there, 'is there already', 'are there already')}" if there else ""
    return f"{path}: {counted_of(len(refused), len(placements), 'hunk')} refused ({', '.join(words)}){beside}"


def _gone(file: FilePatch, why: str) -> Finding:
    placements = tuple(
        Placement(
            hunk=hunk,
            verdict=Verdict.FILE_GONE,
            line=None,
            offset=0,
            reason=why,
            scope_before=None,
            scope_after=None,
            proof=Proof.NONE,
        )
        for hunk in file.hunks
    )
    return Finding(placements=placements, refusal=f"file gone: {why}")


def _as_present(placement: Placement) -> Placement:
    return Placement(
        hunk=placement.hunk,
        verdict=Verdict.PRESENT,
        line=placement.line,
        offset=placement.offset,
        reason="",
        scope_before=placement.scope_before,
        scope_after=placement.scope_after,
        proof=placement.proof,
    )


def _wrong_kind(file: FilePatch, path: str, entry: TreeEntry) -> str:
    if entry.kind in (Kind.DIRECTORY, Kind.OTHER):
        return f"{path} is not a file ({entry.kind.value})"
    said = file.old_mode or (file.new_mode if file.change is not Change.CREATE else None)
    is_link = entry.kind is Kind.SYMLINK
    if said is None:
        moves = file.change in (Change.RENAME, Change.COPY) and not file.hunks and file.binary is None
        meant = moves or not is_link  # git writes no mode where all that a file is goes elsewhere
        return "" if meant else f"{path} is a symlink; the patch does not say that it means one"
    if stat.S_ISLNK(said) == is_link:
        return ""
    return f"{path} is a {entry.kind.value}, the patch is about a {'symlink' if stat.S_ISLNK(said) else 'file'}"


def _kind_and_mode(mode: int | None) -> tuple[Kind, int]:
    if mode is not None and stat.S_ISLNK(mode):
        return Kind.SYMLINK, 0o777
    return Kind.FILE, _NEW_FILE_MODE | (EXECUTABLE if mode is not None and mode & 0o100 else 0)


def _new_mode(said: int | None, standing: int) -> int:
    """Set or clear the executable bits as the patch says; whoever may read may then execute, as git does it."""
    if said is None or stat.S_ISLNK(said):
        return standing
    if said & 0o100:
        return standing | ((standing & 0o444) >> 2)
    return standing & ~EXECUTABLE
