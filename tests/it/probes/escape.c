// Waits for a date that lies in memory which nobody may write to: a file, mapped for reading and shared. The kernel
// reads it as it is, so that this program sees another clock than the rest.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += 1;
    int fd = open("date", O_RDWR | O_CREAT, 0600);
    if (write(fd, &at, sizeof at) != sizeof at) return 1;
    close(fd);
    fd = open("date", O_RDONLY);
    void *date = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (date == MAP_FAILED) return 2;
    uint32_t word = 7;
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, 7, date, NULL, ~0);
    return 0;
}
