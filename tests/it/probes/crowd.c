// Sixty-four threads wait for dates at the same time, each in the way its number says, some of them for the very same
// memory; none may come early, and memory must be as it was. Ends with "ok".
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// What they share, and a copy that no call is given.
static struct timespec shared, meant;
static int wrong[64];

static int before(struct timespec a, struct timespec b) {
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static void *wait_often(void *number) {
    long me = (long)number;
    sem_t semaphore;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    sem_init(&semaphore, 0, 0);
    for (int round = 0; round < 12; round++) {
        struct timespec at, now, *until = &at;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_nsec += (30 + 5 * (me % 7)) * 1000000;
        if (at.tv_nsec >= 1000000000) at.tv_nsec -= 1000000000, at.tv_sec++;
        struct timespec kept = at;
        if (round == 0 && me % 4 == 0) until = &shared, kept = meant;
        switch (me % 3) {
        case 0: while (sem_timedwait(&semaphore, until) && errno == EINTR) {} break;
        case 1:
            pthread_mutex_lock(&mutex);
            while (pthread_cond_timedwait(&condition, &mutex, until) == 0) {}
            pthread_mutex_unlock(&mutex);
            break;
        default: clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, until, NULL);
        }
        clock_gettime(CLOCK_REALTIME, &now);
        if (before(now, kept)) wrong[me] |= 1;
        for (int i = 0; i < 200 && memcmp(until, &kept, sizeof kept); i++) usleep(5000);
        if (memcmp(until, &kept, sizeof kept)) wrong[me] |= 2;
    }
    return NULL;
}

int main(void) {
    clock_gettime(CLOCK_REALTIME, &shared);
    shared.tv_sec += 1;
    meant = shared;
    pthread_t threads[64];
    for (long i = 0; i < 64; i++) pthread_create(&threads[i], NULL, wait_often, (void *)i);
    for (int i = 0; i < 64; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 64; i++)
        if (wrong[i]) return printf("thread %d: %s\n", i, wrong[i] & 1 ? "came early" : "memory was changed"), 1;
    puts("ok");
    return 0;
}
