"""Whether a stripped library uses a struct as a layout says: what its functions read and write there.

A released wheel has no debug information, but its code reads and writes the struct that it was compiled with. A
function that gets the struct by reference as its first argument has to begin every access where a field begins and end
it where one ends: gcc joins the accesses of neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from patchkit.abi.disassembly import Instruction, accesses, read_instructions
from patchkit.abi.layout import StructLayout
from patchkit.errors import RefusedError
from patchkit.pattern import compile_lazily
from patchkit.process import require_success, run_child
from patchkit.record import dataclass

_PATIENCE_SECONDS = 300.0
_COLUMNS = 4  # of nm -S: address, size, kind, name
_LENGTH = compile_lazily(r"[1-9][0-9]{0,3}")
_CONSTANT = compile_lazily(r"\$0x([0-9a-f]+)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessCheck:
    """What the code of functions says of a layout.

    `agreeing` accesses begin and end where fields do; `odd` are the others, (offset, bytes). `reach` is the first byte
    behind the last one that is touched. `cleared` is the number of bytes that a function sets to zero at its start, 0
    when that is not seen: no more than the struct's last field.
    """

    functions: tuple[str, ...]
    agreeing: int
    odd: tuple[tuple[int, int], ...]
    reach: int
    cleared: int

    def fits(self, layout: StructLayout) -> bool:
        """True when every access agrees, and what is cleared ends in the struct's last bytes."""
        last = max(field.end for field in layout.fields)
        return not self.odd and self.agreeing > 0 and self.cleared in (0, last, layout.size)


def check_binary(library: Path, layout: StructLayout) -> AccessCheck:
    """Compare what functions do with a layout: those of a library that get the struct by reference first. No templates.

    Needs binutils. RefusedError when the library has no such function.
    """
    functions = _functions(library, layout.name)
    return check_code({name: _code(library, start, size) for name, (start, size) in functions.items()}, layout)


def check_code(code: Mapping[str, Sequence[Instruction]], layout: StructLayout) -> AccessCheck:
    """Compare functions, their instructions by name, with a layout."""
    starts, ends = {field.offset for field in layout.fields}, {field.end for field in layout.fields}
    found = [access for instructions in code.values() for access in accesses(instructions)]
    odd = {(one.offset, one.size) for one in found if one.offset not in starts or one.offset + one.size not in ends}
    return AccessCheck(
        functions=tuple(code),
        agreeing=sum((one.offset, one.size) not in odd for one in found),
        odd=tuple(sorted(odd)),
        reach=max((one.offset + one.size for one in found), default=0),
        cleared=max(map(_cleared, code.values()), default=0),
    )


def _functions(library: Path, struct: str) -> Mapping[str, tuple[int, int]]:
    """Return symbol -> (address, bytes), from the full symbol table and the dynamic one, which stripping leaves."""
    found: dict[str, tuple[int, int]] = {}
    for table in ([], ["-D"]):
        line = ["nm", *table, "-S", "--defined-only", str(library)]
        listed = require_success(run_child(line, timeout=_PATIENCE_SECONDS)).stdout.decode("utf-8", "replace")
        rows = (words for words in map(str.split, listed.splitlines()) if len(words) == _COLUMNS)
        found |= {name: (int(at, 16), int(size, 16)) for at, size, _, name in rows if takes_reference(name, struct)}
    if not found:
        raise RefusedError(
            f"{library.name} has no function that takes a {struct} by reference",
            why="  only such functions tell how the struct lies, by what they read and write in it",
            hint="name another library",
        )
    return dict(sorted(found.items()))


def takes_reference(symbol: str, struct: str) -> bool:
    """Tell whether a mangled name is a plain function's whose first parameter is a reference to a struct.

    The struct is in the function's own namespace.
    """
    nested = symbol.startswith("_ZN")
    rest = symbol.removeprefix("_ZN" if nested else "_Z")
    while (match := _LENGTH.match(rest)) is not None:
        rest = rest[match.end() + int(match[0]) :]
    spelled = f"{len(struct)}{struct}"
    return "." not in symbol and rest.startswith(f"ERNS_{spelled}E" if nested else f"R{spelled}")


def _code(library: Path, start: int, size: int) -> tuple[Instruction, ...]:
    # By address: of a stripped file, `--disassemble=SYMBOL` gives other sections as well.
    extent = [f"--start-address={start:#x}", f"--stop-address={start + size:#x}"]
    line = ["objdump", "-d", "--no-show-raw-insn", *extent, str(library)]
    text = require_success(run_child(line, timeout=_PATIENCE_SECONDS)).stdout.decode("utf-8", "replace")
    return read_instructions(text)


def _cleared(instructions: Sequence[Instruction]) -> int:
    """Return the number of bytes of the first `rep stos`: gcc's *params = {} of a struct without padding at its end."""
    tail = words = 0
    for instruction in instructions:
        match = _CONSTANT.match(instruction.operands[0]) if instruction.operands else None
        if match is not None and instruction.operands[-1] == "%ecx":
            tail, words = (int(match[1], 16), words) if instruction.operation == "add" else (tail, int(match[1], 16))
        elif instruction.operation.startswith("stos"):
            return tail or 8 * words
    return 0
