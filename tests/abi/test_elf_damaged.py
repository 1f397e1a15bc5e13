"""200 damaged copies of real shared objects: an error or an answer, never a crash, never a hang."""

from __future__ import annotations

import random
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.abi.elf import read_exports, read_object
from patchkit.abi.elf_dynamic import (
    DT_GNU_HASH,
    DT_HASH,
    DT_RELASZ,
    DT_STRSZ,
    DT_SYMTAB,
    DT_VERNEED,
    DT_VERNEEDNUM,
    Dynamic,
)
from patchkit.abi.elf_file import PT_DYNAMIC, open_elf
from patchkit.errors import ObjectFormatError
from tests.abi.binaries import compile_shared, needs_compiler
from tests.abi.test_elf import REAL

_HANGS_AFTER = 120  # seconds for 34 files; they take about one
_HUGE = 0xFFFF_FFFF_FFFF_FFF0


def _truncated(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def _flipped(content: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 8, 200))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _flipped_in_the_tables(content: bytearray, chance: random.Random) -> None:
    """Flip bytes where the structures are: header, program headers, and the first pages."""
    for _ in range(chance.choice((1, 4, 40))):
        content[chance.randrange(16, min(len(content), 6000))] ^= 1 << chance.randrange(8)


def _huge_counts(content: bytearray, chance: random.Random) -> None:
    at = chance.choice((0x20, 0x28, 0x36, 0x38, 0x3A, 0x3C, 0x3E))
    content[at : at + 2] = b"\xff\xff"


def _dynamic_entries(content: bytearray) -> list[tuple[int, int]]:
    """Return (place in the file, tag) of the entries of the dynamic section."""
    offset, count = struct.unpack_from("<Q", content, 0x20)[0], struct.unpack_from("<H", content, 0x38)[0]
    for number in range(count):
        row = struct.unpack_from("<IIQQQQQQ", content, offset + 56 * number)
        if row[0] == PT_DYNAMIC:
            places = range(row[2], row[2] + row[5], 16)
            return [(place, struct.unpack_from("<q", content, place)[0]) for place in places]
    raise AssertionError("no dynamic section in a real file")


def _wild_dynamic(content: bytearray, chance: random.Random) -> None:
    """Send one entry of the dynamic section elsewhere: sizes, counts, addresses of tables."""
    entries = [place for place, tag in _dynamic_entries(content) if tag]
    value = chance.choice((0, 1, _HUGE, len(content) - 1, chance.randrange(1 << 40)))
    struct.pack_into("<Q", content, chance.choice(entries) + 8, value)


def _wild_table(content: bytearray, chance: random.Random) -> None:
    """Damage a table that has counts and links of its own: a hash table with no end, version needs in a circle."""
    wanted = (DT_GNU_HASH, DT_HASH, DT_VERNEED, DT_VERNEEDNUM, DT_SYMTAB, DT_STRSZ, DT_RELASZ)
    entries = [(place, tag) for place, tag in _dynamic_entries(content) if tag in wanted]
    place, tag = chance.choice(entries)
    if tag in (DT_VERNEEDNUM, DT_STRSZ, DT_RELASZ):
        struct.pack_into("<Q", content, place + 8, 0xFFFFFF)
        return
    at = struct.unpack_from("<Q", content, place + 8)[0]  # these tables lie in the first segment: address is offset
    if tag == DT_VERNEED:
        struct.pack_into("<I", content, at + 8, chance.choice((0, 1, 16, 0x7FFFFFFF)))
        struct.pack_into("<I", content, at + 12, chance.choice((1, 4, 0xFFFFFFF0)))
        return
    for _ in range(chance.choice((1, 3))):
        struct.pack_into("<I", content, at + 4 * chance.randrange(6), chance.choice((0, 0x7FFFFFFF, 0xFFFFFFFF)))


_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _truncated,
    _flipped,
    _flipped_in_the_tables,
    _huge_counts,
    _wild_dynamic,
    _wild_table,
)
_EACH = 34  # 6 * 34 = 204 files


@pytest.mark.skipif(not REAL, reason="needs the system's ELF libraries")
@pytest.mark.parametrize("damage", _DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_damaged_file_is_an_error_or_an_answer(damage: Callable[..., None], tmp_path: Path) -> None:
    refused = 0
    signal.alarm(_HANGS_AFTER)  # ends the test run: a hang is worse than a failed test
    for number in range(_EACH):
        chance = random.Random(f"{damage.__name__} {number}")  # noqa: S311 -- the same files every time
        content = bytearray(REAL[number % len(REAL)].read_bytes())
        damage(content, chance)
        path = tmp_path / f"{number}.so"
        path.write_bytes(content)
        refused += _is_refused(path)
        path.unlink()
    signal.alarm(0)
    assert refused, "the damage was never seen"


def _is_refused(path: Path) -> bool:
    """Read a file; any other error than the one for damaged files fails the test."""
    try:
        read_object(path, uses=True)
    except ObjectFormatError as error:
        return str(path) in error.what
    return False


def test_reading_past_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "short.so"
    path.write_bytes(REAL[0].read_bytes())
    with open_elf(path) as elf:
        with pytest.raises(ObjectFormatError, match="short"):
            elf.read(elf.size - 1, 2, "table")
        path.write_bytes(b"")  # it shrinks while it is open
        with pytest.raises(ObjectFormatError, match="short") as caught:
            elf.read(0, 64, "table")
    assert "ends after 0 of 64 bytes" in caught.value.why


@needs_compiler
def test_names_that_would_fill_the_memory_are_an_error(tmp_path: Path) -> None:
    """Ten thousand symbols that all have one name of 60,000 letters: 600 MB out of a file of 1 MB."""
    long_name = "f" * 60_000
    plenty = "".join(f".globl n{one}\\n n{one}:\\n" for one in range(10_000))
    path = compile_shared(tmp_path, "a.so", f'int {long_name}(void) {{ return 0; }}\nasm("{plenty}");\n')
    with open_elf(path) as elf:
        dynamic = Dynamic(elf)
        table = elf.offset_of(dynamic.value(DT_SYMTAB) or 0, "symbols")[0]
        place = dynamic.strings.index(long_name.encode())
    content = bytearray(path.read_bytes())
    for number in range(1, 10_000):
        struct.pack_into("<I", content, table + 24 * number, place)
    path.write_bytes(content)
    with pytest.raises(ObjectFormatError, match="would be more than"):
        read_object(path)
    with pytest.raises(ObjectFormatError, match="would be more than"):
        read_exports(path)
