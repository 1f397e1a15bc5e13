"""What machine code reads and writes through its first argument: objdump's lines in, offsets and sizes out."""

from __future__ import annotations

import pytest

from patchkit.abi.disassembly import accesses, read_instructions


def _code(*lines: str) -> str:
    """Return objdump's text of instructions of four bytes each; `@2` stands for the address of line 2."""
    start = 0x1000
    placed = "\n".join(f"    {start + 4 * number:x}:\t{line}" for number, line in enumerate(lines))
    for target in range(len(lines)):
        placed = placed.replace(f"@{target}", f"{start + 4 * target:x} <f+0x{4 * target:x}>")
    return f"\n0000000000001000 <f>:\n{placed}"


def _found(*lines: str) -> list[tuple[int, int]]:
    return [(one.offset, one.size) for one in accesses(read_instructions(_code(*lines)))]


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("mov    0x10(%rdi),%rax", (16, 8)),
        ("mov    %r8d,0x10(%rdi)", (16, 4)),
        ("mov    %r8w,0x10(%rdi)", (16, 2)),
        ("mov    %sil,0x10(%rdi)", (16, 1)),
        ("mov    (%rdi),%eax", (0, 4)),
        ("movl   $0x1,0x8(%rdi)", (8, 4)),
        ("movq   $0x0,-0x8(%rdi)", (-8, 8)),
        ("cmpb   $0x0,0x259(%rdi)        # comment", (601, 1)),
        ("setne  0x4(%rdi)", (4, 1)),
        ("movzbl 0x4(%rdi),%eax", (4, 1)),
        ("movzwl 0x4(%rdi),%eax", (4, 2)),
        ("movslq 0x4(%rdi),%rax", (4, 4)),
        ("movss  0xc(%rdi),%xmm0", (12, 4)),
        ("mulsd  0x10(%rdi),%xmm1", (16, 8)),
        ("movups %xmm0,0x20(%rdi)", (32, 16)),
        ("vmovdqu 0x20(%rdi),%ymm0", (32, 32)),
        ("cvtsi2sdl 0x20(%rdi),%xmm0", (32, 4)),
        ("cvtss2sd 0x20(%rdi),%xmm0", (32, 4)),
        ("movhps %xmm0,0x8(%rdi)", (8, 8)),
        ("imul   0x8(%rdi),%esi", (8, 4)),
        ("lock incl 0x8(%rdi)", (8, 4)),
        ("push   0x8(%rdi)", (8, 8)),
        ("test   %al,0x8(%rdi)", (8, 1)),
    ],
)
def test_size_of_an_access_is_that_of_its_instruction(instruction: str, expected: tuple[int, int]) -> None:
    assert _found(instruction, "ret") == [expected]


@pytest.mark.parametrize(
    "instruction",
    ["lea    0x8(%rdi),%rax", "mov    0x8(%rsi),%rax", "mov    0x8(%rdi,%rax,8),%rcx", "nopw   0x0(%rdi)"],
)
def test_what_touches_no_known_bytes_is_no_access(instruction: str) -> None:
    assert _found(instruction, "ret") == []


def test_copies_of_the_pointer_are_followed_over_calls() -> None:
    assert _found(
        "endbr64", "mov    %rdi,%rbx", "call   2000 <g>", "mov    0x8(%rbx),%eax", "mov    0x8(%rdi),%eax"
    ) == [(8, 4)]


@pytest.mark.parametrize(
    "changes",
    ["mov    %rsi,%rbx", "pop    %rbx", "xor    %ebx,%ebx", "mov    $0x1,%bl", "add    $0x8,%rbx", "xchg   %rax,%rbx"],
)
def test_a_register_that_is_written_holds_it_no_more(changes: str) -> None:
    assert _found("mov    %rdi,%rbx", changes, "mov    0x8(%rbx),%eax") == []


def test_half_of_the_pointer_is_not_the_pointer() -> None:
    assert _found("mov    %edi,%ebx", "mov    0x8(%rbx),%eax") == []


def test_only_what_holds_it_on_all_ways_counts() -> None:
    both = ("test   %esi,%esi", "je     @4", "mov    %rsi,%rdi", "nop", "mov    0x8(%rdi),%eax", "ret")
    assert _found(*both) == []
    apart = ("test   %esi,%esi", "je     @4", "mov    %rsi,%rdi", "ret", "mov    0x8(%rdi),%eax", "ret")
    assert _found(*apart) == [(8, 4)]


def test_a_loop_that_moves_the_pointer_ends_it() -> None:
    assert _found("mov    0x8(%rdi),%eax", "add    $0x10,%rdi", "jmp    @0") == []


def test_code_that_nothing_reaches_says_nothing() -> None:
    assert _found("ret", "mov    0x8(%rdi),%eax") == []
    assert accesses(read_instructions("no code at all")) == ()
