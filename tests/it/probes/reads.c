// Reads every clock by every way there is, before and in main, in a thread, in a forked child and in an executed one.
// One line each: name, seconds, nanoseconds.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct timespec before_main;
__attribute__((constructor)) static void early(void) { clock_gettime(CLOCK_REALTIME, &before_main); }

static const char *where = "main";
static void say(const char *name, long long seconds, long nanoseconds) {
    printf("%s.%s %lld %ld\n", where, name, seconds, nanoseconds);
}

static void clocks(void) {
    static const struct { const char *name; clockid_t id; } ids[] = {
        {"realtime", CLOCK_REALTIME}, {"coarse", CLOCK_REALTIME_COARSE}, {"tai", CLOCK_TAI},
    };
    char name[64];
    for (int i = 0; i < 3; i++) {
        struct timespec t = {0};
        if (clock_gettime(ids[i].id, &t)) exit(2);
        say(ids[i].name, t.tv_sec, t.tv_nsec);
        if (syscall(SYS_clock_gettime, ids[i].id, &t)) exit(3);
        snprintf(name, sizeof name, "raw-%s", ids[i].name);
        say(name, t.tv_sec, t.tv_nsec);
    }
    struct timeval v;
    struct timezone z;
    if (gettimeofday(&v, NULL)) exit(4);
    say("gettimeofday", v.tv_sec, v.tv_usec * 1000);
    if (syscall(SYS_gettimeofday, &v, &z)) exit(5);
    say("raw-gettimeofday", v.tv_sec, v.tv_usec * 1000);
    say("time", time(NULL), 0);
#ifdef SYS_time // newer architectures lack it
    time_t seconds, told = syscall(SYS_time, &seconds);
    if (told != seconds) exit(6);
    say("raw-time", seconds, 0);
#endif
    struct timespec u;
    if (timespec_get(&u, TIME_UTC) != TIME_UTC) exit(7);
    say("timespec_get", u.tv_sec, u.tv_nsec);
    struct timex x = {0};
    if (syscall(SYS_adjtimex, &x) < 0) exit(8);
    say("adjtimex", x.time.tv_sec, x.time.tv_usec * 1000);
    fflush(stdout);
}

static void *in_thread(void *unused) {
    where = "thread";
    clocks();
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        where = argv[1];
        clocks();
        return 0;
    }
    say("before", before_main.tv_sec, before_main.tv_nsec);
    clocks();
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, NULL) || pthread_join(thread, NULL)) return 10;
    pid_t child = fork();
    if (child == 0) {
        where = "fork";
        clocks();
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) return 11;
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "reads", "exec", (char *)NULL);
        _exit(1);
    }
    if (waitpid(child, &status, 0) != child || status) return 12;
    return 0;
}
