"""What the machine code of a function reads and writes through its first argument, from objdump's text (x86-64, AT&T).

The argument comes in %rdi (System V AMD64) and is copied to other registers. Which of them hold it at an instruction is
followed along every way through the function; only what holds it on all ways counts. Copies on the stack are not
followed, so accesses can be missed, and none is made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

ARGUMENT = "rdi"
_LINE = compile_lazily(r"\s*([0-9a-f]+):\t(?:(?:lock|rep[a-z]*|bnd|notrack|cs|ds|data16)\s+)*(\S+)\s*(.*)")
_THROUGH = compile_lazily(r"(-?0x[0-9a-f]+)?\(%(\w+)\)")
_TARGET = compile_lazily(r"([0-9a-f]+)(?: <.*)?$")
_SPLIT = compile_lazily(r",(?![^()]*\))")
_NUMBERED = compile_lazily(r"(r\d+)[dwb]?$")
_CALLER_SAVED = frozenset({"rax", "rcx", "rdx", "rsi", "rdi", *(f"r{number}" for number in range(8, 12))})
_READ_ONLY = ("cmp", "test", "push", "ucomis", "comis", "vucomis", "vcomis", "nop", "bt", "prefetch")
_ENDS = ("ret", "ud2", "hlt")
_SUFFIXES = {"b": 1, "w": 2, "l": 4, "q": 8}
_VECTORS = {"ss": 4, "sd": 8, "ps": 16, "pd": 16}
_NAMED = {
    **dict.fromkeys(("movd", "vmovd"), 4),
    **dict.fromkeys(("movq", "vmovq", "movlps", "movhps", "movlpd", "movhpd", "vmovhps", "vmovlps"), 8),
    **dict.fromkeys(("movdqu", "movdqa", "vmovdqu", "vmovdqa", "pshufd", "paddd", "paddq"), 16),
}
_EXTENDS = compile_lazily(r"mov[sz]([bwl])[wlq]$")
_WIDEST = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """One line of objdump: `operands` in AT&T's order, the destination last."""

    address: int
    operation: str
    operands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Bytes behind the pointer that an instruction reads or writes."""

    offset: int
    size: int


def read_instructions(disassembly: str) -> tuple[Instruction, ...]:
    """Return the instructions of objdump's text."""
    found = []
    for line in disassembly.splitlines():
        match = _LINE.match(line.split("#", 1)[0])
        if match is not None:
            operands = tuple(part.strip() for part in _SPLIT.split(match[3].strip()) if part.strip())
            found.append(Instruction(address=int(match[1], 16), operation=match[2], operands=operands))
    return tuple(found)


def accesses(instructions: Sequence[Instruction]) -> tuple[Access, ...]:
    """Return what is read and written through the function's first argument, in the order of the code."""
    held = _registers_that_hold(instructions)
    return tuple(
        access
        for place, instruction in enumerate(instructions)
        if place in held
        for access in _through(instruction, held[place])
    )


def _registers_that_hold(instructions: Sequence[Instruction]) -> Mapping[int, frozenset[str]]:
    """Return, by place, the registers that hold the argument before an instruction; what cannot be reached is out."""
    if not instructions:
        return {}
    places = {instruction.address: place for place, instruction in enumerate(instructions)}
    held: dict[int, frozenset[str]] = {0: frozenset({ARGUMENT})}
    waiting = [0]
    while waiting:
        place = waiting.pop()
        after = _after(instructions[place], held[place])
        for following in _following(instructions, place, places):
            known = held.get(following)
            joined = after if known is None else known & after
            if joined != known:
                held[following] = joined
                waiting.append(following)
    return held


def _following(instructions: Sequence[Instruction], place: int, places: Mapping[int, int]) -> Iterator[int]:
    instruction = instructions[place]
    operation = instruction.operation
    if operation.startswith("j") and instruction.operands:
        target = _TARGET.match(instruction.operands[0])
        if target is not None and (there := places.get(int(target[1], 16))) is not None:
            yield there
    if operation not in ("jmp", *_ENDS) and place + 1 < len(instructions):
        yield place + 1


def _after(instruction: Instruction, held: frozenset[str]) -> frozenset[str]:
    operation, operands = instruction.operation, instruction.operands
    if operation == "call":
        return held - _CALLER_SAVED
    if operation == "mov" and len(operands) == 2 and all(one.startswith("%r") for one in operands):  # noqa: PLR2004
        source, target = (_whole(one) for one in operands)
        return held | {target} if source in held and operands[0] == f"%{source}" else held - {target}
    return held - _written(operation, operands)


def _written(operation: str, operands: Sequence[str]) -> frozenset[str]:
    """Return the registers that an instruction may change, rather too many."""
    if operation.startswith(_READ_ONLY) or operation.startswith("j"):
        return frozenset()
    if operation.startswith(("xchg", "cmpxchg", "xadd", "mul", "div", "idiv", "imul", "cpuid")) or not operands:
        changed = {"rax", "rdx", "rbx", "rcx"} if operation == "cpuid" else {"rax", "rdx"}
        return frozenset(changed | {_whole(one) for one in operands if one.startswith("%")})
    if operation.startswith(("stos", "movs")) and "(%rdi)" in "".join(operands):
        return frozenset({"rdi", "rsi", "rcx"})
    return frozenset({_whole(operands[-1])}) if operands[-1].startswith("%") else frozenset()


def _whole(operand: str) -> str:
    """Return the 64-bit register that one is part of: `%eax`, `%al` -> `rax`."""
    name = operand.removeprefix("%")
    if match := _NUMBERED.match(name):
        return match[1]
    plain = name.lstrip("re") if len(name) > 2 else name.removesuffix("l").removesuffix("h")  # noqa: PLR2004
    plain = plain.removesuffix("l") if plain in ("sil", "dil", "bpl", "spl") else plain
    return f"r{plain}x" if plain in ("a", "b", "c", "d") else f"r{plain}"


def _through(instruction: Instruction, held: frozenset[str]) -> Iterator[Access]:
    if instruction.operation.startswith(("lea", "nop", "prefetch")):
        return
    for operand in instruction.operands:
        match = _THROUGH.fullmatch(operand)
        if match is not None and match[2] in held:
            size = _size(instruction.operation, [one for one in instruction.operands if one is not operand])
            if size:
                yield Access(offset=int(match[1] or "0", 16), size=size)


def _size(operation: str, others: Sequence[str]) -> int:
    """Return how many bytes of memory an instruction touches, 0 where that is not known."""
    if operation.startswith(("set", "push", "pop")):
        return 1 if operation.startswith("set") else 8
    if (extends := _EXTENDS.match(operation)) is not None:
        return _SUFFIXES[extends[1]]
    if operation in _NAMED:
        return _wide(_NAMED[operation], others)
    registers = [one for one in others if one.startswith("%")]
    if any(one.startswith(("%xmm", "%ymm", "%zmm")) for one in registers):
        if operation.startswith(("cvtsi2", "vcvtsi2")):
            return _SUFFIXES.get(operation[-1], 0)
        kind = operation.replace("cvt", "")[:2] if "cvt" in operation else operation[-2:]
        return _wide(_VECTORS.get(kind, 0), registers) if "cvt" not in operation or kind in ("ss", "sd") else 0
    if registers:
        return _register_size(registers[-1])
    return _SUFFIXES.get(operation[-1], 0)


def _wide(size: int, others: Sequence[str]) -> int:
    if size < _WIDEST:
        return size
    return 64 if any("%zmm" in one for one in others) else 32 if any("%ymm" in one for one in others) else size


def _register_size(register: str) -> int:
    name = register.removeprefix("%")
    if match := _NUMBERED.match(name):
        return {"d": 4, "w": 2, "b": 1}.get(name.removeprefix(match[1]), 8)
    if name.startswith("r"):
        return 8
    if name.startswith("e"):
        return 4
    return 1 if name.endswith(("l", "h")) else 2
