"""The processes that the shim counts in: which there are, whether they live, and what their numbers mean."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from patchkit.errors import PatchkitError, RefusedError, UsageError
from patchkit.native.segment import Counted, Segment
from patchkit.native.settings import Settings, check_dispatched, check_settings, parse_settings
from patchkit.native.symbols import EntryPoint
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

_NAME = compile_lazily(r"patchkit-([1-9][0-9]{0,9})-([0-9]{1,20})")
_START_TIME = 22 - 3  # of /proc/PID/stat, counted behind the name


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """A process that has or had a segment. `running` is false when it has ended, its number given to another or not."""

    path: Path
    running: bool
    counted: Counted

    @property
    def verdict(self) -> str:
        """Say in words what the numbers mean."""
        if self.counted.calls:
            return "called"
        return (
            "loaded, never called"
            if any(symbol.way for symbol in self.counted.symbols) or not self.running
            else ("loaded, not called yet")
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """All that was seen: processes, and segments that could not be read, in words."""

    watched: tuple[Watched, ...]
    unreadable: tuple[str, ...]


def segment_directory() -> Path:
    """Return where segments are: PATCHKIT_SHIM_DIRECTORY, else /dev/shm."""
    return Path(os.environ.get("PATCHKIT_SHIM_DIRECTORY") or "/dev/shm")  # noqa: S108 -- O_EXCL and owner are checked


def look(directory: Path, pid: int | None = None) -> Sight:
    """Read every segment of ours, those of one process when `pid` is given; sorted by process."""
    watched, unreadable = [], []
    for path, number, start_time in _segments(directory):
        if pid is not None and number != pid:
            continue
        try:
            counted = _read(path)
        except PatchkitError as error:
            if not _is_foreign(path):
                unreadable.append(str(error))
            continue
        watched.append(Watched(path=path, running=_start_time(number) == start_time, counted=counted))
    return Sight(watched=tuple(watched), unreadable=tuple(unreadable))


def tell(directory: Path, words: Sequence[str], pid: int | None, rows: Sequence[EntryPoint]) -> tuple[Watched, ...]:
    """Change the settings of running processes; RefusedError without one, UsageError when nothing would change."""
    running = [one for one in look(directory, pid).watched if one.running]
    if not running:
        raise RefusedError(
            f"no running process {pid} with the shim" if pid else "no running process with the shim",
            hint="`patchkit native status` lists them; `patchkit native run` starts one",
        )
    wanted: list[tuple[Watched, Settings]] = []
    for one in running:
        known = {symbol.name for symbol in one.counted.symbols if symbol.typed or not one.counted.stage2}
        settings = parse_settings(words, one.counted.settings)
        named = {word.partition("=")[0] for word in words}
        check_settings(settings, [row for row in rows if row.symbol in known], named=named)
        if any(symbol.way == "dispatcher" for symbol in one.counted.symbols):
            check_dispatched(settings)
        wanted.append((one, settings))
    for one, settings in wanted:
        segment = Segment(one.path, writable=True)
        segment.write(settings)
        segment.close()
    return tuple(one for one in look(directory, pid).watched if one.running)


def forget(directory: Path) -> tuple[Path, ...]:
    """Remove the segments of processes that have ended; returns them."""
    gone = []
    for path, number, start_time in _segments(directory):
        if _start_time(number) != start_time and not _is_foreign(path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                gone.append(path)
    return tuple(gone)


def require_words(words: Sequence[str]) -> None:
    """UsageError when nothing is to be changed."""
    if not words:
        raise UsageError("nothing to set", hint="patchkit native set mode=trace")


def _segments(directory: Path) -> list[tuple[Path, int, int]]:
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError as error:
        raise RefusedError(
            f"{directory} cannot be listed", why=f"  {error}", hint="PATCHKIT_SHIM_DIRECTORY names another place"
        ) from error
    found = [(directory / name, match) for name in names if (match := _NAME.fullmatch(name))]
    return sorted(((path, int(match[1]), int(match[2])) for path, match in found), key=lambda row: row[1:])


def _read(path: Path) -> Counted:
    segment = Segment(path)
    try:
        return segment.counted()
    finally:
        segment.close()


def _is_foreign(path: Path) -> bool:
    """Tell whether a file is another user's: it says nothing to us, and is no fault."""
    try:
        return path.lstat().st_uid != os.geteuid()
    except OSError:
        return True


def _start_time(pid: int) -> int:
    """Return when a process began, in clock ticks since boot; -1 when it is not there."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return int(text.rpartition(b")")[2].split()[_START_TIME])
    except (OSError, ValueError, IndexError):
        return -1
