"""From edits that can be made to a journal: everything new is staged and everything old kept, all of it synced."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import PurePosixPath

from patchkit.counting import counted
from patchkit.durable import start_writing, sync_all
from patchkit.errors import PatchkitError, RefusedError
from patchkit.held import Seen
from patchkit.journal import Act, Journal, Step
from patchkit.kept_patches import files_to_keep
from patchkit.preflight import Checked, Preflight, heir
from patchkit.receipt import Receipt
from patchkit.record import dataclass, replace
from patchkit.staging import Dress, keep_entry, ourselves, write_file, write_link
from patchkit.state import GENERATED, pristine_name
from patchkit.steps import Site
from patchkit.tree import FileState, Kind

_MOST_OPEN = 512
_SET_ID = 0o6000
_RECEIPT_MODE = 0o644


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A journal that can be carried out. `expected` is what stands now at the paths it replaces or removes."""

    journal: Journal
    expected: dict[str, Seen]


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """What to keep for later: pristine bytes by path, patches by SHA-256, and the receipt (None: the stack is empty).

    `stored` is the receipt there is now: what it names is kept already. `generated` are the files that show the
    configuration, by name, all of them; None leaves them as they are.
    """

    pristine: Mapping[PurePosixPath, bytes]
    patches: Mapping[str, bytes]
    receipt: bytes | None
    stored: Receipt | None
    generated: Mapping[str, bytes] | None = None


def prepare(site: Site, found: Preflight, keeping: Keeping, *, engine: str, seconds: int | None) -> Prepared:
    """Stage and keep everything. Raises one error that names all files whose owner or attributes cannot be kept."""
    stager = _Stager(site, found, keeping, seconds)
    try:
        stager.keep_patches()
        removed, placed = stager.stage_edits()
        dropped = stager.drop_bytecode()
        generated = stager.stage_generated()
        receipt = stager.stage_receipt()
        stager.sync_files()
    finally:
        stager.close_files()
    steps = (
        *removed,
        *dropped,
        *(Step(Act.UNMAKE, folder.path, mode=folder.mode, owner=folder.owner) for folder in found.emptied),
        *(Step(Act.MAKE, folder.path, mode=folder.mode, owner=folder.owner) for folder in found.made),
        *placed,
        *generated,
        *receipt,
    )
    # The state directory too: a journal must not outlive what it counts on, and they lie side by side.
    site.directories.sync((*stager.changed, site.state))
    return Prepared(journal=Journal(engine=engine, steps=steps), expected=stager.expected)


class _Stager:
    """Numbers what is staged and kept, and remembers which directories have to be synced."""

    def __init__(self, site: Site, found: Preflight, keeping: Keeping, seconds: int | None) -> None:
        self.site = site
        self.found = found
        self.keeping = keeping
        self.seconds = seconds
        self.expected: dict[str, Seen] = {}
        self.changed: dict[str, None] = {}
        self.refusals: list[str] = []
        self.unsynced: list[int] = []
        self.count = 0
        self.room = min(_MOST_OPEN, os.sysconf("SC_OPEN_MAX") // 3)
        stored = keeping.stored
        self.kept = frozenset(file.path for file in (stored.files if stored else ()) if file.pristine is not None)
        self.born = ourselves(self._directory("stage"))
        self._directory("backup")
        self._directory("pristine")  # there with every receipt, be it empty: it is read as a tree
        self.heirs = {folder.path: folder.owner for folder in found.made}

    def sync_files(self) -> None:
        """Sync what was written since the last time."""
        start_writing(self.unsynced)
        sync_all(self.unsynced)
        self.close_files()

    def close_files(self) -> None:
        """Close what is still open."""
        while self.unsynced:
            os.close(self.unsynced.pop())

    def keep_patches(self) -> None:
        """Write the patches that the present receipt does not know."""
        layers = self.keeping.stored.layers if self.keeping.stored is not None else ()
        known = {patch.sha256 for layer in layers for patch in layer.patches}
        fresh = {sha256: raw for sha256, raw in self.keeping.patches.items() if sha256 not in known}
        for name, content in files_to_keep(fresh):
            self._write_anew(self._directory("patches"), name, content)

    def stage_edits(self) -> tuple[list[Step], list[Step]]:
        """Stage what is new and keep what is old; return the steps that remove and those that place."""
        removed: list[Step] = []
        placed: list[Step] = []
        for checked in self.found.checked:
            try:
                step = self._stage_edit(checked)
            except (PermissionError, RefusedError) as error:
                reason = error.what if isinstance(error, PatchkitError) else f"owner cannot be kept ({error.strerror})"
                self.refusals.append(f"  {checked.path}: {reason}")
                continue
            (removed if step.act is Act.REMOVE else placed).append(step)
        if self.refusals:
            raise RefusedError(
                counted(len(self.refusals), "file cannot be replaced as it is", "files cannot be replaced as they are"),
                why="\n".join((*self.refusals, "  the tree is as it was")),
                hint="run as the owner of the tree",
            )
        return removed, placed

    def drop_bytecode(self) -> list[Step]:
        """Keep the .pyc files that are to be dropped."""
        steps = []
        for path in self.found.bytecode:
            seen = self.site.directories.see(path)
            if seen is not None and seen.kind is not Kind.DIRECTORY:
                steps.append(Step(Act.DROP, path, backup=self._back_up(path, seen)))
        return steps

    def stage_generated(self) -> list[Step]:
        """Stage the files that show the configuration, where they change."""
        generated = {} if self.keeping.receipt is None else self.keeping.generated
        if generated is None:
            return []
        return [step for name in GENERATED for step in self._stage_own(name, generated.get(name))]

    def stage_receipt(self) -> list[Step]:
        """Stage the new receipt, or its removal."""
        return self._stage_own("receipt.json", self.keeping.receipt)

    def _stage_own(self, name: str, content: bytes | None) -> list[Step]:
        """Stage a file of the state directory, or its removal; one that stays as it is needs no step."""
        path = f"{self.site.state}/{name}"
        old = self.site.directories.see(path)
        if content is not None and old is not None and old.sha256 == hashlib.sha256(content).hexdigest():
            return []
        before = None if old is None else FileState(kind=Kind.FILE, mode=old.mode, sha256=old.sha256)
        backup = "" if old is None else self._back_up(path, old)
        if old is not None:
            self.expected[path] = old
        if content is None:
            return [] if old is None else [Step(Act.REMOVE, path, before, None, backup=backup)]
        stage = self._stage(Kind.FILE, content, Dress(_RECEIPT_MODE, seconds=self.seconds))
        after = FileState(kind=Kind.FILE, mode=_RECEIPT_MODE, sha256=hashlib.sha256(content).hexdigest())
        return [Step(Act.PLACE, path, before, after, stage=stage, backup=backup)]

    def _stage_edit(self, checked: Checked) -> Step:
        edit, path, seen = checked.edit, checked.path, checked.seen
        backup = ""
        if seen is not None:
            self.expected[path] = seen
            backup = self._keep_old(checked, seen)
        elif edit.path in self.keeping.pristine:
            self._keep_pristine(path, self.keeping.pristine[edit.path])
        if edit.after is None or edit.content is None:
            return Step(Act.REMOVE, path, edit.before, None, backup=backup)
        dress = self._dress(checked)
        stage = self._stage(edit.after.kind, edit.content, dress)
        return Step(Act.PLACE, path, edit.before, replace(edit.after, mode=dress.mode), stage=stage, backup=backup)

    def _keep_old(self, checked: Checked, seen: Seen) -> str:
        """Keep what is about to go; its pristine copy and its backup are one where they can be. Return the backup."""
        path, pristine = checked.path, self.keeping.pristine.get(checked.edit.path)
        if pristine is None or checked.edit.path in self.kept:
            return self._back_up(path, seen)
        alone = seen.kind is Kind.FILE and seen.status.st_nlink == 1 and not seen.mode & _SET_ID
        if not checked.is_pristine or not alone:
            self._keep_pristine(path, pristine)
            return self._back_up(path, seen)
        # The tree's own file becomes the copy: nobody else has a name for it, and the tree gets a new one.
        goal = self._pristine_place(path)
        self._keep(path, goal, seen)
        return f"pristine/{goal[1]}"

    def _back_up(self, path: str, seen: Seen) -> str:
        self.count += 1
        self._keep(path, (self._directory("backup"), str(self.count)), seen)
        return f"backup/{self.count}"

    def _keep(self, path: str, goal: tuple[int, str], seen: Seen) -> None:
        source = self.site.directories.place(path)
        try:
            keep_entry(source, goal, seen)
        except FileExistsError:  # left over by somebody who was stopped
            os.unlink(goal[1], dir_fd=goal[0])
            keep_entry(source, goal, seen)

    def _keep_pristine(self, path: str, content: bytes) -> None:
        self._write_anew(*self._pristine_place(path), content)

    def _pristine_place(self, path: str) -> tuple[int, str]:
        return self._directory("pristine"), pristine_name(path)

    def _write_anew(self, directory: int, name: str, content: bytes) -> None:
        dress = Dress(_RECEIPT_MODE, seconds=self.seconds)
        try:
            descriptor = write_file(directory, name, content, dress)
        except FileExistsError:
            os.unlink(name, dir_fd=directory)
            descriptor = write_file(directory, name, content, dress)
        self._sync_later(descriptor)

    def _sync_later(self, descriptor: int) -> None:
        self.unsynced.append(descriptor)
        if len(self.unsynced) >= self.room:
            self.sync_files()

    def _stage(self, kind: Kind, content: bytes, dress: Dress) -> str:
        self.count += 1
        directory, name = self._directory("stage"), str(self.count)
        if kind is Kind.SYMLINK:
            write_link(directory, name, content, dress)
        else:
            self._sync_later(write_file(directory, name, content, dress))
        return f"stage/{self.count}"

    def _dress(self, checked: Checked) -> Dress:
        """Return what the new file is besides its content: as the old one, but for a mode that the edit changes."""
        edit, seen, after = checked.edit, checked.seen, checked.edit.after
        mode = 0o777 if after is None else after.mode
        if seen is None:
            owner = self._heir(checked.path.rpartition("/")[0])
            return Dress(mode, None if owner == self.born else owner, (), self.seconds)
        if edit.before is not None and edit.before.mode == mode:
            mode = seen.mode
        owner = seen.status.st_uid, seen.status.st_gid
        return Dress(mode, None if owner == self.born else owner, seen.attributes, self.seconds)

    def _heir(self, above: str) -> tuple[int, int]:
        if above not in self.heirs:
            self.heirs[above] = heir(os.fstat(self.site.directories.descriptor(above)))
        return self.heirs[above]

    def _directory(self, name: str) -> int:
        """Return a directory of the state directory, made where it is missing, and note it as one to sync."""
        path = f"{self.site.state}/{name}"
        if path not in self.changed:
            try:
                self.site.directories.descriptor(path)
            except FileNotFoundError:
                self.site.directories.make(path, mode=0o755, owner=None)
            self.changed[path] = None
        return self.site.directories.descriptor(path)
