// A program with system call filters of its own: one that lets only what it names through, as sandboxing programs do.
// The filter must hold, the clock must read, and an own listener is refused, since there can be only one. Prints the
// date's seconds.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog all = {1, allow};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &all) != -1 || errno != EBUSY)
        return puts("a second listener was had"), 1;
    struct sock_filter strict[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog own = {sizeof strict / sizeof *strict, strict};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &own)) return puts("no filter"), 1;
    struct timespec t;
    if (syscall(SYS_getpid) != -1 || errno != EPERM) return puts("the filter does not hold"), 1;
    if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &t) != -1 || errno != EPERM) return puts("a raw reading"), 1;
    if (clock_gettime(CLOCK_REALTIME, &t)) return puts("a reading"), 1;
    printf("main.filtered %ld %ld\n", (long)t.tv_sec, t.tv_nsec);
    return 0;
}
