/* The entry points, x86-64 System V.
 *
 * Fast path: r11 alone, the one register that a call through the PLT may destroy anyway. It counts in the slot of the
 * thread, by one instruction that no signal can split, and jumps, in the modes above COUNT to the typed hook: the callee sees the caller's frame, arguments on the
 * stack and return address, so exceptions, sret pointers and variable arguments need no care.
 * Slow path, once a thread and once a symbol: the whole state that may carry arguments is saved, then C decides. */
    .altmacro

/* Offsets in struct pk_control and struct pk_slot; stage1.c asserts them. */
#define MODE 64
#define COUNT 1
#define CALLS 64

    .text

    .macro ENTRY index, name
    .globl  \name
    .type   \name, @function
    .p2align 5
\name:
    .cfi_startproc
    endbr64
    movq    pk_control(%rip), %r11
    cmpl    $COUNT, MODE(%r11)
    jb      1f
    ja      3f
    movq    pk_self@gottpoff(%rip), %r11
    movq    %fs:(%r11), %r11
    testq   %r11, %r11
    je      2f
    incq    CALLS+8*\index(%r11)
1:  jmp     *pk_real+8*\index(%rip)
3:  movq    pk_self@gottpoff(%rip), %r11
    movq    %fs:(%r11), %r11
    testq   %r11, %r11
    je      2f
    incq    CALLS+8*\index(%r11)
    jmp     *pk_target+8*\index(%rip)
2:  pushq   $\index
    .cfi_adjust_cfa_offset 8
    pushq   $0
    .cfi_adjust_cfa_offset 8
    jmp     pk_enter
    .cfi_endproc
    .size   \name, . - \name

    .p2align 4
    .type   pk_unbound\index, @function
pk_unbound\index:
    .cfi_startproc
    endbr64
    pushq   $\index
    .cfi_adjust_cfa_offset 8
    pushq   $1
    .cfi_adjust_cfa_offset 8
    jmp     pk_enter
    .cfi_endproc
    .size   pk_unbound\index, . - pk_unbound\index
    .endm

/* On the stack: whether the call is counted, the index, the return address. */
    .p2align 4
    .type   pk_enter, @function
pk_enter:
    .cfi_startproc
    .cfi_def_cfa_offset 24
    pushq   %rbp
    .cfi_def_cfa_offset 32
    .cfi_offset %rbp, -32
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq   %rdi
    pushq   %rsi
    pushq   %rdx
    pushq   %rcx
    pushq   %r8
    pushq   %r9
    pushq   %rax
    pushq   %r10
    pushq   %rbx
    .cfi_offset %rbx, -104
    pushq   %r12
    .cfi_offset %r12, -112
    call    pk_vector_mask          /* touches no vector register; 0: no XSAVE */
    movl    %eax, %r12d
    call    pk_vector_bytes
    subq    %rax, %rsp
    andq    $-64, %rsp
    movq    %rsp, %rbx
    testl   %r12d, %r12d
    je      1f
    leaq    512(%rbx), %rdi         /* XRSTOR faults on a header that is not zero where it should be */
    xorl    %eax, %eax
    movl    $8, %ecx
    rep stosq
    movl    %r12d, %eax
    xorl    %edx, %edx
    xsave64 (%rbx)
    jmp     2f
1:  fxsave64 (%rbx)
2:  movq    16(%rbp), %rdi          /* index */
    movq    24(%rbp), %rsi          /* return address */
    movq    8(%rbp), %rdx           /* counted */
    call    pk_decide
    movq    %rax, %r11
    testl   %r12d, %r12d
    je      3f
    movl    %r12d, %eax
    xorl    %edx, %edx
    xrstor64 (%rbx)
    jmp     4f
3:  fxrstor64 (%rbx)
4:  leaq    -80(%rbp), %rsp
    popq    %r12
    .cfi_restore %r12
    popq    %rbx
    .cfi_restore %rbx
    popq    %r10
    popq    %rax
    popq    %r9
    popq    %r8
    popq    %rcx
    popq    %rdx
    popq    %rsi
    popq    %rdi
    popq    %rbp
    .cfi_restore %rbp
    .cfi_def_cfa %rsp, 24
    addq    $16, %rsp
    .cfi_def_cfa_offset 8
    jmp     *%r11
    .cfi_endproc
    .size   pk_enter, . - pk_enter

    .macro ADDRESS index
    .quad   pk_unbound\index
    .endm

    .set    next, 0
#define PK_SYMBOL(engine, releases, object, hook, symbol) ENTRY %next, symbol; .set next, next + 1;
#include "symbols.inc"
#undef PK_SYMBOL
    .set    rows, next

/* Where a call goes: first to the slow path, later to the hook or the real function. Both stand on cache lines of
 * their own; pk_unbound stays as it is, to tell the one from the other. */
    .macro TABLE name
    .globl  \name
    .hidden \name
    .type   \name, @object
    .p2align 6
\name:
    .set    next, 0
    .rept   rows
    ADDRESS %next
    .set    next, next + 1
    .endr
    .size   \name, . - \name
    .endm

    .data
    TABLE   pk_target
    TABLE   pk_real
    .section .data.rel.ro, "aw", @progbits
    TABLE   pk_unbound

    .section .note.GNU-stack, "", @progbits
    .section .note.gnu.property, "a", @note
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000002, 4, 3, 0     /* x86: IBT and SHSTK */
