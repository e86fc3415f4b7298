// New bodies for the three functions of the vDSO that read a wall clock, copied into its unused end.
// Position-independent, no stack beyond a few words, no memory of their own: children inherit them by fork.
// The words at the end are filled in for each run.
    .pushsection .rodata.checkrun_clock_stub, "a"
    .balign 16
    .globl checkrun_stub_start
    .hidden checkrun_stub_start
checkrun_stub_start:
// int clock_gettime(clockid_t edi, struct timespec *rsi)
    cmp edi, 0          // CLOCK_REALTIME
    je 10f
    cmp edi, 11         // CLOCK_TAI
    je 10f
    cmp edi, 5          // CLOCK_REALTIME_COARSE
    jne 30f
10: cmp qword ptr [rip + checkrun_stub_by_syscall], 0
    jne 20f
// The boot clock and a constant: whatever is done to the machine's wall clock, this one runs on, also while it sleeps.
    mov edi, 7          // CLOCK_BOOTTIME
    push rsi
    sub rsp, 8
    call 30f
    add rsp, 8
    pop rsi
    test eax, eax
    jne 13f
    mov rax, [rsi + 8]
    add rax, [rip + checkrun_stub_nanoseconds]
    mov rcx, [rip + checkrun_stub_seconds]
    cmp rax, 1000000000
    jb 12f
    sub rax, 1000000000
    inc rcx
12: mov [rsi + 8], rax
    add [rsi], rcx
    xor eax, eax
13: ret
20: mov eax, 228        // the supervisor answers; a signal may come first, which no reading of a clock tells of
    syscall
    cmp rax, -4         // EINTR
    je 20b
    ret
// The function as it was: the instructions that the jump to here displaced, then a jump behind them.
    .globl checkrun_stub_original
    .hidden checkrun_stub_original
checkrun_stub_original:
30: .fill 16, 1, 0x90
    .byte 0xe9
    .long 0
    .globl checkrun_stub_gettimeofday
    .hidden checkrun_stub_gettimeofday
// int gettimeofday(struct timeval *rdi, struct timezone *rsi)
checkrun_stub_gettimeofday:
    test rdi, rdi
    je 42f
    push rdi
    push rsi
    sub rsp, 24
    xor edi, edi
    mov rsi, rsp
    call checkrun_stub_start
    mov rax, [rsp + 8]
    xor edx, edx
    mov ecx, 1000
    div rcx
    mov rcx, [rsp]
    add rsp, 24
    pop rsi
    pop rdi
    mov [rdi], rcx
    mov [rdi + 8], rax
42: test rsi, rsi
    je 43f
    mov qword ptr [rsi], 0
43: xor eax, eax
    ret
    .globl checkrun_stub_time
    .hidden checkrun_stub_time
// time_t time(time_t *rdi)
checkrun_stub_time:
    push rdi
    sub rsp, 16
    xor edi, edi
    mov rsi, rsp
    call checkrun_stub_start
    mov rax, [rsp]
    add rsp, 16
    pop rdi
    test rdi, rdi
    je 50f
    mov [rdi], rax
50: ret
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
