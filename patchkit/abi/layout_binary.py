"""Whether a stripped library uses a struct as a layout says: the stores of the function that fills it.

A released wheel has no debug information, but its code writes to the struct that it was compiled with. The function
gets the struct by reference as its first argument (in %rdi, System V AMD64); every store through the register that it
is copied to has to begin where a field begins and end where one ends: gcc joins the stores of neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchkit.abi.layout import StructLayout
from patchkit.errors import RefusedError
from patchkit.pattern import compile_lazily
from patchkit.process import require_success, run_child
from patchkit.record import dataclass

_PATIENCE_SECONDS = 120.0
_STORE = compile_lazily(r"(\w+)\s+(?:(\S+),)?(-?0x[0-9a-f]+)?\(%(\w+)\)$")
_COPY = compile_lazily(r"mov\s+%rdi,%(r\w+)$")
_CLEAR_TAIL = compile_lazily(r"add\s+\$0x([0-9a-f]+),%ecx$")
_CLEAR_WORDS = compile_lazily(r"mov\s+\$0x([0-9a-f]+),%ecx$")
_SUFFIXES = {"b": 1, "w": 2, "l": 4, "q": 8}
_VECTOR_STORES = {"movss": 4, "movsd": 8, "movd": 4, "movlps": 8, "movhps": 8}
_WIDE_STORES = frozenset({"movups", "movaps", "movdqu", "movdqa", "movupd", "movapd"})
_WIDE = 16
_BYTE_REGISTERS = compile_lazily(r"%(?:[a-d]l|[sd]il|[sb]pl|r\d+b)$")
_WORD_REGISTERS = compile_lazily(r"%(?:[a-d]x|[sd]i|[sb]p|r\d+w)$")
_LONG_REGISTERS = compile_lazily(r"%(?:e\w\w|r\d+d)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreCheck:
    """What a function's code says of a layout.

    `agreeing` stores begin and end where fields do; `odd` are the others, (offset, bytes). `cleared` is the number of
    bytes that the function sets to zero at its start, 0 when that is not seen: no more than the struct's last field.
    """

    function: str
    agreeing: int
    odd: tuple[tuple[int, int], ...]
    cleared: int

    def fits(self, layout: StructLayout) -> bool:
        """True when every store agrees, and what is cleared ends in the struct's last bytes."""
        last = max(field.end for field in layout.fields)
        return not self.odd and self.agreeing > 0 and self.cleared in (0, last, layout.size)


def check_binary(library: Path, function: str, layout: StructLayout) -> StoreCheck:
    """Compare the stores of the only function whose mangled name contains `function` with a layout. Needs binutils."""
    symbol = _symbol(library, function)
    line = ["objdump", "-d", "--no-show-raw-insn", f"--disassemble={symbol}", str(library)]
    text = require_success(run_child(line, timeout=_PATIENCE_SECONDS)).stdout.decode("utf-8", "replace")
    return check_stores(text, function, layout)


def check_stores(disassembly: str, function: str, layout: StructLayout) -> StoreCheck:
    """Compare the stores in objdump's text of a function with a layout."""
    starts, ends = {field.offset for field in layout.fields}, {field.end for field in layout.fields}
    agreeing, odd = 0, set()
    for offset, width in _stores(disassembly):
        if offset in starts and offset + width in ends:
            agreeing += 1
        else:
            odd.add((offset, width))
    return StoreCheck(function=function, agreeing=agreeing, odd=tuple(sorted(odd)), cleared=_cleared(disassembly))


def _symbol(library: Path, function: str) -> str:
    listed = require_success(run_child(["nm", "--defined-only", str(library)], timeout=_PATIENCE_SECONDS)).stdout
    names = {words[-1] for words in (line.split() for line in listed.decode("utf-8", "replace").splitlines()) if words}
    found = sorted(name for name in names if function in name and "." not in name)
    if len(found) != 1:
        raise RefusedError(f"{library.name}: {len(found)} functions {function}", why=f"  {', '.join(found) or 'none'}")
    return found[0]


def _instructions(disassembly: str) -> Iterator[str]:
    for line in disassembly.splitlines():
        place, colon, rest = line.partition(":\t")
        if colon and place.strip().isalnum():
            yield rest.split("#")[0].split("<")[0].strip()


def _stores(disassembly: str) -> Iterator[tuple[int, int]]:
    """Yield (offset, bytes) of the stores through the register that the first argument was copied to."""
    base = ""
    for instruction in _instructions(disassembly):
        copied = _COPY.match(instruction)
        if copied is not None and not base:
            base = copied[1]
        store = _STORE.match(instruction)
        if base and store is not None and store[4] == base:
            width = _width(store[1], store[2] or "")
            if width:
                yield int(store[3] or "0", 16), width


def _width(operation: str, source: str) -> int:
    """Return how many bytes an instruction stores; 0 for one that stores nothing."""
    if operation.startswith("set"):
        return 1
    if operation in _VECTOR_STORES:
        return _VECTOR_STORES[operation]
    if operation in _WIDE_STORES:
        return _WIDE
    if source.startswith("$"):
        is_move = operation.startswith("mov") and operation[3:] in _SUFFIXES
        return _SUFFIXES[operation[3:]] if is_move else 0
    if operation == "movq":
        return 8
    if operation != "mov" or not source.startswith("%"):
        return 0
    narrow = ((_BYTE_REGISTERS, 1), (_WORD_REGISTERS, 2), (_LONG_REGISTERS, 4))
    return next((width for pattern, width in narrow if pattern.match(source)), 8)


def _cleared(disassembly: str) -> int:
    """Return the number of bytes of the first `rep stos`: gcc's *params = {} of a struct without padding at its end."""
    tail = words = 0
    for instruction in _instructions(disassembly):
        if (match := _CLEAR_TAIL.match(instruction)) is not None:
            tail = int(match[1], 16)
        elif (match := _CLEAR_WORDS.match(instruction)) is not None:
            words = int(match[1], 16)
        elif instruction.startswith("rep stos"):
            return tail or 8 * words
    return 0
