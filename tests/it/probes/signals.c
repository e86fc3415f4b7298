// Signals arrive all the time. signals read: raw readings of the wall clock with a handler that restarts calls never
// fail. signals frozen: readings through the library with a handler that does not never fail. signals wait RESTART: a
// long absolute sleep ends with EINTR whatever the handler says, and a shorter one that is stopped and continued does
// not. Ends with "ok".
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int signals;
static void count(int signal) { (void)signal; signals++; }

static void storm(int flags, long microseconds, long first) {
    struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, microseconds}, {0, first}};
    setitimer(ITIMER_REAL, &often, NULL);
}

static int wait_interrupted(int flags) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += 3600;
    storm(flags, 0, 100000);
    int result = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
    if (result != EINTR) return printf("clock_nanosleep: %s\n", strerror(result)), 1;
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    storm(flags, 0, 100000);
    // Whether this one is restarted is the handler's choice (signal(7)); it is woken by the second signal's post.
    if (!(flags & SA_RESTART) && (sem_timedwait(&semaphore, &at) != -1 || errno != EINTR)) return puts("sem_timedwait"), 1;
    return 0;
}

static int wait_stopped(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct timespec at, now;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_sec += 1;
        int result = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
        clock_gettime(CLOCK_REALTIME, &now);
        _exit(result || now.tv_sec < at.tv_sec);
    }
    usleep(200000);
    kill(child, SIGSTOP);
    usleep(100000);
    kill(child, SIGCONT);
    if (waitpid(child, &status, 0) != child || status) return printf("stopped: status %#x\n", status), 1;
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    struct timespec t;
    if (!strcmp(what, "read")) {
        storm(SA_RESTART, 500, 500);
        for (int i = 0; i < 20000; i++)
            if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &t)) return printf("reading %d: %s\n", i, strerror(errno)), 1;
        if (!signals) return puts("no signal came"), 1;
    } else if (!strcmp(what, "frozen")) {
        storm(0, 500, 500);
        for (int i = 0; i < 20000; i++)
            if (clock_gettime(CLOCK_REALTIME, &t)) return printf("reading %d: %s\n", i, strerror(errno)), 1;
        if (!signals) return puts("no signal came"), 1;
    } else {
        if (wait_interrupted(0) || wait_interrupted(SA_RESTART) || wait_stopped()) return 1;
    }
    puts("ok");
    return 0;
}
