"""A machine that can lose power: of what a recorded run wrote, only what it synced is sure to be there afterwards.

Of what was not synced anything may survive: any of the changes of a directory's entries, with or without the others,
and of a file its new content or none. A rename within one directory is one change, one across directories is
two: that is harsher than any journaling file system is.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_ARGUMENT = re.compile(r'\d+<[^>]*>|AT_FDCWD(?:<[^>]*>)?|"[^"]*"|[^, ]+')
_AT_REMOVEDIR = "AT_REMOVEDIR"


@dataclass(eq=False)
class File:
    content: bytes = b""
    mode: int = 0o600
    synced: tuple[bytes, int] = (b"", 0o600)


@dataclass(eq=False)
class Link:
    target: str


@dataclass(eq=False)
class Directory:
    mode: int = 0o755
    synced: dict[str, Node] = field(default_factory=dict)
    waiting: list[tuple[tuple[str, Node | None], ...]] = field(default_factory=list)

    def now(self) -> dict[str, Node]:
        return self.surviving(range(len(self.waiting)))

    def surviving(self, kept: Sequence[int]) -> dict[str, Node]:
        entries = dict(self.synced)
        for number in kept:
            for name, node in self.waiting[number]:
                if node is None:
                    entries.pop(name, None)
                else:
                    entries[name] = node
        return entries


Node = File | Link | Directory
Doubt = tuple[Directory, int] | File


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call that succeeded: its name and its arguments, directories as paths below the root."""

    name: str
    arguments: tuple[str, ...]


def read_calls(log: Path) -> list[Call]:
    calls = []
    for line in log.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is not None and int(match[3]) >= 0:
            calls.append(Call(match[1], tuple(_ARGUMENT.findall(match[2]))))
    return calls


class Machine:
    """The file system below a root: `play` does a call, `doubts` is what a loss of power now would make uncertain."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.tree = _load(root)

    def play(self, call: Call) -> None:
        """Do one call."""
        play = getattr(self, f"_play_{call.name}", None)
        if play is None:
            assert call.name in _WITHOUT_TRACE, f"the model does not know {call.name}"
            return
        play(*call.arguments)

    def doubts(self) -> list[Doubt]:
        found: list[Doubt] = []
        for node in _walk(self.tree):
            if isinstance(node, Directory):
                found += [(node, number) for number in range(len(node.waiting))]
            elif isinstance(node, File) and (node.content, node.mode) != node.synced:
                found.append(node)
        return found

    def write_out(self, goal: Path, kept: Sequence[Doubt]) -> None:
        """Write the tree as it is found after the power came back, if of all doubts only these survived."""
        _write(self.tree, goal, set(map(_key, kept)), {})

    def _find(self, path: str) -> Directory | None:
        """Return the directory at an absolute path, None outside the root."""
        if path != self._root and not path.startswith(f"{self._root}/"):
            return None
        node: Node = self.tree
        for part in path[len(self._root) :].strip("/").split("/"):
            if part:
                assert isinstance(node, Directory)
                node = node.now()[part]
        assert isinstance(node, Directory)
        return node

    def _at(self, directory: str, name: str) -> tuple[Directory, str]:
        path = _text(name) if _text(name).startswith("/") else f"{_path(directory)}/{_text(name)}"
        above, _, last = path.rpartition("/")
        found = self._find(above)
        assert found is not None, path
        return found, last

    def _file(self, descriptor: str) -> File | None:
        above, _, name = _path(descriptor).rpartition("/")
        directory = self._find(above)
        node = None if directory is None else directory.now().get(name)
        return node if isinstance(node, File) else None

    def _play_openat(self, directory: str, name: str, flags: str, mode: str = "0") -> None:
        if "O_CREAT" in flags:
            above, last = self._at(directory, name)
            if last not in above.now():
                above.waiting.append(((last, File(mode=int(mode, 8), synced=(b"", int(mode, 8)))),))

    def _play_write(self, descriptor: str, content: str, _size: str) -> None:
        file = self._file(descriptor)
        if file is not None:
            file.content += _raw(content)

    def _play_pwrite64(self, descriptor: str, content: str, _size: str, _offset: str) -> None:
        file = self._file(descriptor)
        if file is not None:
            file.content = _raw(content)

    def _play_fchmod(self, descriptor: str, mode: str) -> None:
        file = self._file(descriptor)
        node = file if file is not None else self._find(_path(descriptor))
        assert node is not None
        node.mode = int(mode, 8)

    def _play_fsync(self, descriptor: str) -> None:
        file = self._file(descriptor)
        if file is not None:
            file.synced = (file.content, file.mode)
            return
        directory = self._find(_path(descriptor))
        assert directory is not None
        directory.synced, directory.waiting = directory.now(), []

    def _play_mkdirat(self, directory: str, name: str, mode: str) -> None:
        above, last = self._at(directory, name)
        above.waiting.append(((last, Directory(mode=int(mode, 8))),))

    def _play_mkdir(self, name: str, mode: str) -> None:
        self._play_mkdirat("", name, mode)

    def _play_symlinkat(self, target: str, directory: str, name: str) -> None:
        above, last = self._at(directory, name)
        above.waiting.append(((last, Link(_text(target))),))

    def _play_linkat(self, old: str, old_name: str, new: str, new_name: str, _flags: str) -> None:
        (source, name), (goal, last) = self._at(old, old_name), self._at(new, new_name)
        goal.waiting.append(((last, source.now()[name]),))

    def _play_renameat(self, old: str, old_name: str, new: str, new_name: str) -> None:
        (source, name), (goal, last) = self._at(old, old_name), self._at(new, new_name)
        node = source.now()[name]
        if goal.now().get(last) is node:
            return  # two names of one file: nothing happens
        if source is goal:
            goal.waiting.append(((name, None), (last, node)))
        else:
            source.waiting.append(((name, None),))
            goal.waiting.append(((last, node),))

    def _play_unlinkat(self, directory: str, name: str, _flags: str) -> None:
        above, last = self._at(directory, name)
        above.waiting.append(((last, None),))

    def _play_rmdir(self, name: str) -> None:
        self._play_unlinkat("", name, _AT_REMOVEDIR)


_WITHOUT_TRACE = frozenset({"flock", "ftruncate", "utimensat"})  # only the lock file is ever cut short


def survivals(doubts: Sequence[Doubt], chance: random.Random, *, singles: int, mixtures: int) -> Iterator[list[Doubt]]:
    """Choose what survives: nothing, everything, everything but one, only one, and mixtures."""
    yield []
    if not doubts:
        return
    yield list(doubts)
    for number in chance.sample(range(len(doubts)), min(singles, len(doubts))):
        yield [doubts[number]]
        yield [doubt for place, doubt in enumerate(doubts) if place != number]
    for _ in range(mixtures):
        yield [doubt for doubt in doubts if chance.random() < 0.5]


def _load(place: Path) -> Directory:
    directory = Directory(mode=place.stat().st_mode & 0o7777)
    for entry in sorted(place.iterdir()):
        if entry.is_symlink():
            directory.synced[entry.name] = Link(str(entry.readlink()))
        elif entry.is_dir():
            directory.synced[entry.name] = _load(entry)
        else:
            content, mode = entry.read_bytes(), entry.stat().st_mode & 0o7777
            directory.synced[entry.name] = File(content=content, mode=mode, synced=(content, mode))
    return directory


def _walk(directory: Directory) -> Iterator[Node]:
    """Yield all that may survive, whatever becomes of the doubts; each once."""
    seen: set[int] = set()
    waiting: list[Node] = [directory]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, Directory):
            waiting += node.synced.values()
            waiting += [below for change in node.waiting for _, below in change if below is not None]


def _write(directory: Directory, goal: Path, kept: set[tuple[int, int]], written: dict[int, Path]) -> None:
    goal.mkdir()
    numbers = [number for number in range(len(directory.waiting)) if (id(directory), number) in kept]
    for name, node in directory.surviving(numbers).items():
        place = goal / name
        if isinstance(node, Directory):
            if id(node) not in written:  # a directory has one place
                written[id(node)] = place
                _write(node, place, kept, written)
        elif id(node) in written:
            place.hardlink_to(written[id(node)])
        elif isinstance(node, Link):
            place.symlink_to(node.target)
        else:
            written[id(node)] = place
            content, mode = (node.content, node.mode) if _key(node) in kept else node.synced
            place.write_bytes(content)
            place.chmod(mode)
    goal.chmod(directory.mode)


def _key(doubt: Doubt) -> tuple[int, int]:
    return (id(doubt), 0) if isinstance(doubt, File) else (id(doubt[0]), doubt[1])


def _path(descriptor: str) -> str:
    return os.fsdecode(_unhex(descriptor[descriptor.index("<") + 1 : -1])) if "<" in descriptor else ""


def _text(argument: str) -> str:
    return os.fsdecode(_raw(argument))


def _raw(argument: str) -> bytes:
    return _unhex(argument.strip('"'))


def _unhex(text: str) -> bytes:
    return _HEX.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1")
