// Eight threads read the wall clock by turns through the library and by a raw call; none may ever see it step back, nor
// run apart from the monotonic clock. Ends with "ok".
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t nanos(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }
static int64_t vdso(clockid_t id) { struct timespec t; clock_gettime(id, &t); return nanos(t); }
static int64_t raw(clockid_t id) { struct timespec t; syscall(SYS_clock_gettime, id, &t); return nanos(t); }
static int64_t apart;

static void *watch(void *bad) {
    int64_t last = 0;
    for (int i = 0; i < 20000; i++) {
        int64_t now = i % 50 ? vdso(CLOCK_REALTIME) : raw(CLOCK_REALTIME);
        if (now < last) *(int *)bad = 1;
        last = now;
        if (i % 100 == 0) {
            struct timeval v;
            gettimeofday(&v, NULL);
            // It has microseconds only.
            if (v.tv_sec * 1000000LL + v.tv_usec < last / 1000) *(int *)bad = 2;
            int64_t before = vdso(CLOCK_BOOTTIME), wall = vdso(CLOCK_REALTIME), after = vdso(CLOCK_BOOTTIME);
            if (wall < before + apart || wall > after + apart) *(int *)bad = 3;
        }
    }
    return NULL;
}

int main(void) {
    // The distance of the two clocks, as near as one reading after the other can tell it.
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (int i = 0; i < 1000; i++) {
        int64_t before = vdso(CLOCK_BOOTTIME), wall = vdso(CLOCK_REALTIME), after = vdso(CLOCK_BOOTTIME);
        if (wall - after > low) low = wall - after;
        if (wall - before < high) high = wall - before;
    }
    if (low > high) return puts("the clocks run apart"), 1;
    apart = low + (high - low) / 2;
    pthread_t threads[8];
    int bad[8] = {0};
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, watch, &bad[i]);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++) if (bad[i] == 1 || bad[i] == 2) return printf("thread %d saw it step back (%d)\n", i, bad[i]), 1;
    puts("ok");
    return 0;
}
