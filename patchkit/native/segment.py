"""The file in shared memory in which a watched process counts: native/include/patchkit/shim.h, read from outside.

The file is another process's and changes while it is read. Its owner, mode and length are checked before anything in
it is believed; a record counts only if its number is the same before and after it was copied. It is read with `pread`
and not mapped: looking at a page that was never written would take memory of a /dev/shm that may be full (SIGBUS).
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from patchkit.errors import ObjectFormatError
from patchkit.native.settings import Settings, from_numbers, numbers
from patchkit.record import dataclass

SYMBOLS, SLOTS, RECORDS = 16, 256, 256
CONTROL_BYTES, SYMBOL_BYTES, SLOT_BYTES, RECORD_BYTES = 4096, 1024, 256, 128
SYMBOLS_AT = CONTROL_BYTES
SLOTS_AT = SYMBOLS_AT + SYMBOLS * SYMBOL_BYTES
RINGS_AT = SLOTS_AT + SLOTS * SLOT_BYTES
SEGMENT_BYTES = RINGS_AT + SLOTS * RECORDS * RECORD_BYTES
_MODE = 0o600
MAGIC, VERSION = b"PKPATCHK", 1

_HEAD = struct.Struct("<8sIIQIIQIIQ")
_SETTINGS_AT, _COUNTED_AT, _MESSAGE_AT, _OVERFLOW_AT, _PROGRAM_AT = 64, 128, 152, 536, 664
_SETTINGS = struct.Struct("<IIQIIQQQ")
_SLOT = struct.Struct("<IIQQ")
_CALLS_AT = 64
_RECORD = struct.Struct("<QQQHBBI4i4i4idiII")
_PATH, _NAME = 384, 512
_WAYS = ("", "RTLD_NEXT", "loaded object", "caller", "dispatcher")
STAGE2_STATES = ("", "binding", "bound", "refused")


@dataclass(frozen=True, kw_only=True, slots=True)
class SymbolState:
    """An entry point in a process: where its real function was found and how, and how often it was called."""

    name: str
    object: str
    way: str
    typed: bool
    calls: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What a segment said at one moment. `written` and `unrecorded` are records; `threads` have a slot."""

    pid: int
    start_time: int
    program: str
    settings: Settings
    stage2: str
    message: str
    symbols: tuple[SymbolState, ...]
    threads: int
    written: int
    unrecorded: int
    compared: int
    differed: int
    replaced: int

    @property
    def calls(self) -> int:
        """The calls of all entry points."""
        return sum(symbol.calls for symbol in self.symbols)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One traced call. Times in ns, `begin` on CLOCK_MONOTONIC; on a GPU `nanoseconds` is the time of the launch."""

    sequence: int
    begin: int
    nanoseconds: int
    symbol: int
    dtype: int
    device: int
    tid: int
    q: tuple[int, ...]
    k: tuple[int, ...]
    o: tuple[int, ...]
    scale: float
    window: int
    mode: int
    causal: bool


class Segment:
    """An open segment. `records` goes on where it ended; `lost` counts those overwritten before they were read."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self.path = path
        self._descriptor = _open(path, writable=writable)
        self._cursors = [0] * SLOTS
        self.lost = 0

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def counted(self) -> Counted:
        """Read the counters."""
        claimed = min(_HEAD.unpack(self._bytes(0, _HEAD.size))[7], SLOTS)
        seen = self._bytes(0, SLOTS_AT + claimed * SLOT_BYTES)
        head = _HEAD.unpack_from(seen, 0)
        pid, start_time, symbols, stage2 = head[4], head[6], min(head[2], SYMBOLS), head[8]
        slots = [SLOTS_AT + index * SLOT_BYTES for index in range(claimed)]
        states = [_SLOT.unpack_from(seen, slot) for slot in slots]
        compared, differed, replaced = struct.unpack_from("<3Q", seen, _COUNTED_AT)
        return Counted(
            pid=pid,
            start_time=start_time,
            program=_text(seen, _PROGRAM_AT, _PATH),
            settings=from_numbers(_SETTINGS.unpack_from(seen, _SETTINGS_AT)[:7]),
            stage2=STAGE2_STATES[stage2] if stage2 < len(STAGE2_STATES) else str(stage2),
            message=_text(seen, _MESSAGE_AT, _PATH),
            symbols=tuple(_symbol(seen, index, slots) for index in range(symbols)),
            threads=sum(1 for state in states if state[0]),
            written=sum(state[2] for state in states),
            unrecorded=head[9] + sum(state[3] for state in states),
            compared=compared,
            differed=differed,
            replaced=replaced,
        )

    def write(self, settings: Settings) -> None:
        """Tell the process: the numbers first, the mode last, each by one store."""
        mode, every, scale, window, offset, theta, tolerance = numbers(settings)
        with mmap.mmap(self._descriptor, CONTROL_BYTES) as control, memoryview(control) as whole:
            words, longs = whole.cast("I"), whole.cast("Q")
            try:
                at, along = _SETTINGS_AT // 4, _SETTINGS_AT // 8
                words[at + 1], longs[along + 1] = every, scale
                words[at + 4], words[at + 5] = window, offset
                longs[along + 3], longs[along + 4] = theta, tolerance
                longs[along + 5] += 1
                words[at] = mode
            finally:
                words.release()
                longs.release()

    def records(self) -> Iterator[Record]:
        """Yield the records that came since the last time, thread by thread; what was overwritten counts as lost."""
        claimed = min(_HEAD.unpack(self._bytes(0, _HEAD.size))[7], SLOTS)
        for index in range(claimed):
            written = self._number(SLOTS_AT + index * SLOT_BYTES + 8)
            first = max(self._cursors[index], written - RECORDS, 0)
            self.lost += first - self._cursors[index]
            for number in range(first, written):
                record = self._record(index, number)
                self._cursors[index] = number + 1
                if record is None:
                    self.lost += 1
                else:
                    yield record

    def _record(self, slot: int, number: int) -> Record | None:
        at = RINGS_AT + (slot * RECORDS + number % RECORDS) * RECORD_BYTES
        before = self._number(at)
        copy = self._bytes(at, RECORD_BYTES)
        after = self._number(at)
        return _parsed(copy) if before == after == number + 1 else None

    def _number(self, at: int) -> int:
        return int.from_bytes(self._bytes(at, 8), "little")

    def _bytes(self, at: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, at)
        if len(content) != size:
            raise ObjectFormatError(f"{self.path}: not a segment", why=f"  it ends after {at + len(content)} bytes")
        return content


def _symbol(seen: bytes, index: int, slots: list[int]) -> SymbolState:
    at = SYMBOLS_AT + index * SYMBOL_BYTES
    way, typed = struct.unpack_from("<II", seen, at + _NAME + _PATH + 8)
    calls = struct.unpack_from("<Q", seen, _OVERFLOW_AT + 8 * index)[0]
    calls += sum(struct.unpack_from("<Q", seen, slot + _CALLS_AT + 8 * index)[0] for slot in slots)
    return SymbolState(
        name=_text(seen, at, _NAME),
        object=_text(seen, at + _NAME, _PATH),
        way=_WAYS[way] if way < len(_WAYS) else str(way),
        typed=bool(typed),
        calls=calls,
    )


def _text(seen: bytes, at: int, size: int) -> str:
    return seen[at : at + size].partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _parsed(copy: bytes) -> Record:
    row = _RECORD.unpack_from(copy)
    return Record(
        sequence=row[0],
        begin=row[1],
        nanoseconds=row[2],
        symbol=row[3],
        dtype=row[4],
        device=row[5],
        tid=row[6],
        q=_shape(row[7:11]),
        k=_shape(row[11:15]),
        o=_shape(row[15:19]),
        scale=row[19],
        window=row[20],
        mode=row[21],
        causal=bool(row[22]),
    )


def _shape(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size)


def _open(path: Path, *, writable: bool) -> int:
    """Open a segment, if it is a file that only its owner can write, ours, whole, and of our version."""
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ObjectFormatError(f"{path}: cannot be opened", why=f"  {error}") from error
    try:
        _check(descriptor, path)
    except ObjectFormatError:
        os.close(descriptor)
        raise
    return descriptor


def _check(descriptor: int, path: Path) -> None:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or stat.S_IMODE(about.st_mode) != _MODE:
        raise ObjectFormatError(f"{path}: not a segment", why="  expected a file with mode 0600")
    if about.st_uid != os.geteuid():
        raise ObjectFormatError(f"{path}: of another user", why=f"  uid {about.st_uid}, not {os.geteuid()}")
    if about.st_size != SEGMENT_BYTES:
        raise ObjectFormatError(f"{path}: not a segment", why=f"  {about.st_size} bytes, not {SEGMENT_BYTES}")
    magic, version = struct.unpack("<8sI", os.pread(descriptor, 12, 0).ljust(12, b"\0"))
    if magic != MAGIC or version != VERSION:
        raise ObjectFormatError(f"{path}: not a segment of this version", why=f"  it begins with {magic!r} {version}")
