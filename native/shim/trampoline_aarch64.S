/* The entry points, AArch64. As trampoline_x86_64.S, with x9, x16 and x17, which carry no argument.
 *
 * The count is a load, an add and a store: a signal handler that calls the same entry point between them loses one. */
#define MODE 64
#define COUNT 1
#define CALLS 64

    .text
    .altmacro

    .macro PAIR operation, one, other
    \operation q\one, q\other, [x20, #16*\one]
    .endm

    .macro ENTRY index, name
    .globl  \name
    .hidden pk_control
    .hidden pk_self
    .type   \name, %function
    .p2align 5
\name:
    .cfi_startproc
    hint    #34                     /* bti c */
    adrp    x16, pk_control
    ldr     x16, [x16, :lo12:pk_control]
    ldr     w16, [x16, #MODE]
    cbz     w16, 1f
    mov     w9, w16
    adrp    x16, :gottprel:pk_self
    ldr     x16, [x16, :gottprel_lo12:pk_self]
    mrs     x17, tpidr_el0
    ldr     x16, [x17, x16]
    cbz     x16, 2f
    ldr     x17, [x16, #CALLS+8*\index]
    add     x17, x17, #1
    str     x17, [x16, #CALLS+8*\index]
    cmp     w9, #COUNT
    b.eq    1f
    adrp    x16, pk_target+8*\index
    ldr     x16, [x16, :lo12:pk_target+8*\index]
    br      x16
1:  adrp    x16, pk_real+8*\index
    ldr     x16, [x16, :lo12:pk_real+8*\index]
    br      x16
2:  mov     x16, #\index
    mov     x17, #0
    b       pk_enter
    .cfi_endproc
    .size   \name, . - \name

    .p2align 4
    .type   pk_unbound\index, %function
pk_unbound\index:
    .cfi_startproc
    hint    #34
    mov     x16, #\index
    mov     x17, #1
    b       pk_enter
    .cfi_endproc
    .size   pk_unbound\index, . - pk_unbound\index
    .endm

/* x16: index, x17: whether the call is counted. x9 to x15 are free here. */
    .p2align 4
    .type   pk_enter, %function
pk_enter:
    .cfi_startproc
    stp     x29, x30, [sp, #-144]!
    .cfi_def_cfa_offset 144
    .cfi_offset 29, -144
    .cfi_offset 30, -136
    mov     x29, sp
    .cfi_def_cfa_register 29
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    stp     x8, x19, [sp, #80]
    .cfi_offset 19, -56
    stp     x20, x21, [sp, #96]
    .cfi_offset 20, -48
    .cfi_offset 21, -40
    stp     x16, x17, [sp, #112]
    bl      pk_vector_bytes         /* touches no vector register; of SVE, 0 without */
    mov     x19, x0
    cbz     x19, 1f
    sub     x9, sp, x19
    and     sp, x9, #-64
    mov     x20, sp
    .arch_extension sve
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    str     z\n, [x20, #\n, mul vl]
    .endr
    addvl   x21, x20, #31
    addvl   x21, x21, #1
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    str     p\n, [x21, #\n, mul vl]
    .endr
    b       2f
1:  sub     sp, sp, #512
    mov     x20, sp
    .irp    n, 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30
    PAIR    stp, \n, %\n+1
    .endr
2:  ldp     x0, x2, [x29, #112]
    ldr     x1, [x29, #8]           /* the caller's return address */
    bl      pk_decide
    mov     x16, x0
    cbz     x19, 3f
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ldr     z\n, [x20, #\n, mul vl]
    .endr
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    ldr     p\n, [x21, #\n, mul vl]
    .endr
    b       4f
3:  .irp    n, 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30
    PAIR    ldp, \n, %\n+1
    .endr
4:  mov     sp, x29
    .cfi_def_cfa_register 31
    ldp     x0, x1, [sp, #16]
    ldp     x2, x3, [sp, #32]
    ldp     x4, x5, [sp, #48]
    ldp     x6, x7, [sp, #64]
    ldp     x8, x19, [sp, #80]
    .cfi_restore 19
    ldp     x20, x21, [sp, #96]
    .cfi_restore 20
    .cfi_restore 21
    ldp     x29, x30, [sp], #144
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br      x16
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

    .macro TABLE name
    .globl  \name
    .hidden \name
    .type   \name, %object
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
    .section .data.rel.ro, "aw", %progbits
    TABLE   pk_unbound

    .section .note.GNU-stack, "", %progbits
    .section .note.gnu.property, "a", %note
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000000, 4, 1, 0     /* aarch64: BTI */
