// What must be refused or must fail as the kernel would: bad addresses, unknown clocks, setting the clock. Ends with
// "ok".
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define FAILS(errno_expected, call) \
    do { \
        errno = 0; \
        if ((call) != -1 || errno != (errno_expected)) return printf("%s: %s\n", #call, strerror(errno)), 1; \
    } while (0)

int main(void) {
    void *bad = (void *)8;
    struct timespec t = {0}, wrong = {1, 2000000000};
    struct timeval v = {0};
    struct timex x = {.modes = ADJ_FREQUENCY};
    FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_REALTIME, bad));
    FAILS(EFAULT, syscall(SYS_gettimeofday, bad, NULL));
    FAILS(EFAULT, syscall(SYS_gettimeofday, &v, bad));
#ifdef SYS_time // newer architectures lack it
    FAILS(EFAULT, syscall(SYS_time, bad));
#endif
    FAILS(EFAULT, syscall(SYS_adjtimex, bad));
    // Memory that the program itself may not write stays as it is.
    const char *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_REALTIME, constant));
    FAILS(EFAULT, syscall(SYS_gettimeofday, constant, NULL));
    FAILS(EFAULT, syscall(SYS_adjtimex, constant));
    int timer = timerfd_create(CLOCK_REALTIME, 0);
    struct itimerspec later = {.it_value = {.tv_sec = 4000000000}};
    FAILS(EFAULT, syscall(SYS_timerfd_settime, timer, TFD_TIMER_ABSTIME, &later, constant));
    for (size_t at = 0; at < 4096; at++)
        if (constant[at]) return puts("constant memory was written"), 1;
    FAILS(EFAULT, syscall(SYS_clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, bad, NULL));
    FAILS(EINVAL, syscall(SYS_clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, &wrong, NULL));
    FAILS(EINVAL, syscall(SYS_clock_gettime, 77, &t));
    FAILS(EPERM, syscall(SYS_adjtimex, &x));
    FAILS(EPERM, syscall(SYS_clock_settime, CLOCK_REALTIME, &t));
    FAILS(EPERM, syscall(SYS_settimeofday, &v, NULL));
    if (syscall(SYS_gettimeofday, NULL, NULL)) return puts("gettimeofday of nothing"), 1;
    if (gettimeofday(&v, NULL) || v.tv_usec < 0 || v.tv_usec > 999999) return puts("gettimeofday"), 1;
    puts("ok");
    return 0;
}
