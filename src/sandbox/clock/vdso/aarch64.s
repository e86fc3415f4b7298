// New bodies for the two functions of the vDSO that read a wall clock, copied into its unused end.
// Position-independent, no stack beyond a few words, no memory of their own: children inherit them by fork.
// The words at the end are filled in for each run. Nothing comes here but by a direct branch, so no landing pad is needed;
// only registers that a call may change are changed (procedure call standard of AArch64: x0 to x17, and x30 kept on the stack).
    .pushsection .rodata.checkrun_clock_stub, "a"
    .balign 16
    .globl checkrun_stub_start
    .hidden checkrun_stub_start
checkrun_stub_start:
// int clock_gettime(clockid_t w0, struct timespec *x1)
    cmp w0, #0          // CLOCK_REALTIME
    b.eq 10f
    cmp w0, #11         // CLOCK_TAI
    b.eq 10f
    cmp w0, #5          // CLOCK_REALTIME_COARSE
    b.ne 30f
10: adr x9, checkrun_stub_seconds
    ldr x10, [x9, #16]  // by_syscall
    cbnz x10, 20f
// The boot clock and a constant: whatever is done to the machine's wall clock, this one runs on, also while it sleeps.
    mov w0, #7          // CLOCK_BOOTTIME
    stp x30, x1, [sp, #-16]!
    bl 30f
    ldp x30, x1, [sp], #16
    cbnz w0, 13f
    adr x9, checkrun_stub_seconds
    ldp x4, x5, [x9]    // seconds and nanoseconds to add
    ldp x2, x3, [x1]    // those of the boot clock
    add x2, x2, x4
    add x3, x3, x5
    mov w6, #51712      // 1,000,000,000 in two halves
    movk w6, #15258, lsl #16
    cmp x3, x6
    b.lo 12f
    sub x3, x3, x6
    add x2, x2, #1
12: stp x2, x3, [x1]
13: ret
20: mov x9, x0          // the call's result takes this place
21: mov x0, x9
    mov x8, #113        // the supervisor answers; a signal may come first, which no reading of a clock tells of
    svc #0
    cmn x0, #4          // EINTR
    b.eq 21b
    ret
// The function as it was: the instructions that the branch to here displaced, then a branch behind them.
    .globl checkrun_stub_original
    .hidden checkrun_stub_original
checkrun_stub_original:
30: nop
    nop
    nop
    nop
    .word 0
    .globl checkrun_stub_gettimeofday
    .hidden checkrun_stub_gettimeofday
// int gettimeofday(struct timeval *x0, struct timezone *x1)
checkrun_stub_gettimeofday:
    cbz x0, 42f
    stp x30, x0, [sp, #-48]!
    str x1, [sp, #16]
    mov w0, #0          // CLOCK_REALTIME
    add x1, sp, #32
    bl checkrun_stub_start
    ldp x2, x3, [sp, #32]
    ldr x1, [sp, #16]
    ldp x30, x0, [sp], #48
    mov w4, #1000
    udiv x3, x3, x4     // nanoseconds to microseconds
    stp x2, x3, [x0]
42: cbz x1, 43f
    str xzr, [x1]       // the two ints of struct timezone
43: mov w0, #0
    ret
    .balign 8
    .globl checkrun_stub_seconds
    .hidden checkrun_stub_seconds
checkrun_stub_seconds: .quad 0
    .globl checkrun_stub_nanoseconds
    .hidden checkrun_stub_nanoseconds
checkrun_stub_nanoseconds: .quad 0
    .globl checkrun_stub_by_syscall
    .hidden checkrun_stub_by_syscall
checkrun_stub_by_syscall: .quad 0
    .globl checkrun_stub_end
    .hidden checkrun_stub_end
checkrun_stub_end:
    .popsection
