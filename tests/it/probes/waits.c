// Waits for an instant of the wall clock in one of many ways: waits WAY MILLISECONDS REPEAT. The instant is now and so
// many milliseconds, which may be negative. For each wait one line: real milliseconds that it took, by the monotonic
// clock; whether the wall clock had come to the instant; whether the time in memory was as it had been written.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

// From linux/futex.h, which musl-gcc does not find.
#ifndef FUTEX_WAIT
#define FUTEX_WAIT 0
#define FUTEX_WAIT_BITSET 9
#define FUTEX_PRIVATE_FLAG 128
#define FUTEX_CLOCK_REALTIME 256
#define FUTEX_BITSET_MATCH_ANY 0xffffffff
#endif

static void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int64_t millis(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static struct timespec from_now(clockid_t id, long ms) {
    struct timespec t;
    clock_gettime(id, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec < 0) t.tv_nsec += 1000000000, t.tv_sec--;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

static int reached(struct timespec t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec);
}

static void nothing(int signal) { (void)signal; }

static void by_sleep(clockid_t id, const struct timespec *at) {
    check(clock_nanosleep(id, TIMER_ABSTIME, at, NULL) == 0, "clock_nanosleep");
}

static void by_mutex(const struct timespec *at) {
    pthread_mutex_t mutex;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_NORMAL);
    pthread_mutex_init(&mutex, &attributes);
    pthread_mutex_lock(&mutex);
    check(pthread_mutex_timedlock(&mutex, at) == ETIMEDOUT, "pthread_mutex_timedlock");
}

static pthread_mutex_t held;
static void *wait_for_held(void *at) {
    int result = pthread_mutex_timedlock(&held, at);
    // A clock that stands still moves for who has waited for it.
    time_t now = time(NULL);
    return (void *)(intptr_t)(now ? result : -1);
}

// A mutex with priority inheritance takes another operation of futex(2). Held by this thread, wanted by another.
static void by_pi_mutex(const struct timespec *at) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    check(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0, "protocol");
    pthread_mutex_init(&held, &attributes);
    pthread_mutex_lock(&held);
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, wait_for_held, (void *)at);
    pthread_join(thread, &result);
    check((intptr_t)result == ETIMEDOUT, "pthread_mutex_timedlock, inherited");
    pthread_mutex_unlock(&held);
}

static void by_condition(const struct timespec *at) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    int result;
    while ((result = pthread_cond_timedwait(&condition, &mutex, at)) == 0) {}
    check(result == ETIMEDOUT, "pthread_cond_timedwait");
}

static void by_semaphore(const struct timespec *at) {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    check(sem_timedwait(&semaphore, at) == -1 && errno == ETIMEDOUT, "sem_timedwait");
}

static void by_futex(const struct timespec *at) {
    uint32_t word = 7;
    int operation = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;
    check(syscall(SYS_futex, &word, operation, 7, at, NULL, FUTEX_BITSET_MATCH_ANY) == -1 && errno == ETIMEDOUT, "futex");
    check(syscall(SYS_futex, &word, operation, 8, at, NULL, FUTEX_BITSET_MATCH_ANY) == -1 && errno == EAGAIN, "futex word");
}

// With the plain operation the time is a span, also where the wall clock is named.
static void by_futex_span(long ms) {
    uint32_t word = 7;
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    long done = syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, 7, &span, NULL, 0);
    check(done == -1 && (errno == ETIMEDOUT || errno == ENOSYS), "futex span");
    if (errno == ENOSYS) usleep(ms * 1000);
}

static void by_futex_waitv(const struct timespec *at) {
    uint32_t word = 7;
    struct { uint64_t value, address; uint32_t flags, reserved; } waiter = {7, (uintptr_t)&word, 2 | 128, 0};
    check(syscall(449, &waiter, 1, 0, at, CLOCK_REALTIME) == -1 && errno == ETIMEDOUT, "futex_waitv");
}

static void by_queue(const struct timespec *at, int sends) {
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    mqd_t queue = mq_open("/waits", O_RDWR | O_CREAT, 0600, &attributes);
    check(queue != (mqd_t)-1, "mq_open");
    char message[8] = {0};
    if (sends) {
        check(mq_send(queue, message, 8, 0) == 0, "mq_send");
        check(mq_timedsend(queue, message, 8, 0, at) == -1 && errno == ETIMEDOUT, "mq_timedsend");
        check(mq_receive(queue, message, 8, NULL) == 8, "mq_receive");
    } else {
        check(mq_timedreceive(queue, message, 8, NULL, at) == -1 && errno == ETIMEDOUT, "mq_timedreceive");
    }
    mq_close(queue);
    mq_unlink("/waits");
}

static void by_timer(clockid_t id, const struct itimerspec *at) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    check(timer_create(id, &event, &timer) == 0, "timer_create");
    check(timer_settime(timer, TIMER_ABSTIME, at, NULL) == 0, "timer_settime");
    int signal;
    check(sigwait(&set, &signal) == 0, "sigwait");
    timer_delete(timer);
}

static void by_timer_descriptor(const struct itimerspec *at) {
    int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
    struct itimerspec old;
    check(timerfd_settime(fd, TFD_TIMER_ABSTIME, at, &old) == 0, "timerfd_settime");
    check(old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0, "old setting");
    uint64_t count;
    check(read(fd, &count, 8) == 8 && count == 1, "timerfd");
    // A time of zero disarms, and means no date.
    struct itimerspec none = {0};
    check(timerfd_settime(fd, TFD_TIMER_ABSTIME, &none, NULL) == 0, "timerfd_settime to nothing");
    struct itimerspec now;
    check(timerfd_gettime(fd, &now) == 0 && now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0, "disarmed");
    close(fd);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *way = argv[1];
    long ms = atol(argv[2]);
    signal(SIGUSR2, nothing);
    for (int repeat = atoi(argv[3]); repeat > 0; repeat--) {
        struct timespec at = from_now(CLOCK_REALTIME, ms);
        struct itimerspec timer = {.it_value = at};
        struct timespec kept = at;
        int64_t began = millis(CLOCK_MONOTONIC);
        if (!strcmp(way, "sleep")) by_sleep(CLOCK_REALTIME, &at);
        else if (!strcmp(way, "sleep-tai")) by_sleep(CLOCK_TAI, &at);
        else if (!strcmp(way, "mutex")) by_mutex(&at);
        else if (!strcmp(way, "pi-mutex")) by_pi_mutex(&at);
        else if (!strcmp(way, "condition")) by_condition(&at);
        else if (!strcmp(way, "semaphore")) by_semaphore(&at);
        else if (!strcmp(way, "futex")) by_futex(&at);
        else if (!strcmp(way, "futex-span")) by_futex_span(ms);
        else if (!strcmp(way, "futex-waitv")) by_futex_waitv(&at);
        else if (!strcmp(way, "queue-receive")) by_queue(&at, 0);
        else if (!strcmp(way, "queue-send")) by_queue(&at, 1);
        else if (!strcmp(way, "timer")) by_timer(CLOCK_REALTIME, &timer);
        else if (!strcmp(way, "timer-descriptor")) by_timer_descriptor(&timer);
        else return 2;
        int64_t took = millis(CLOCK_MONOTONIC) - began;
        int come = reached(kept);
        // What was lent is put back soon, if not at once.
        int same = 0;
        for (int i = 0; i < 200 && !same; i++) {
            same = !memcmp(&at, &kept, sizeof at) && !memcmp(&timer.it_value, &kept, sizeof at);
            if (!same) usleep(5000);
        }
        printf("%lld %s %s\n", (long long)took, come ? "reached" : "early", same ? "same" : "changed");
        fflush(stdout);
    }
    return 0;
}
