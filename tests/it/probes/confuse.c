// Programs that make observing hard, by the first argument. Each reads the file `input` of its folder in the end, in its
// own way, and prints what is in it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

// The first byte of a file, or -1.
static int first(int folder, const char *name) {
    char byte;
    int fd = openat(folder, name, O_RDONLY);
    if (fd < 0) return -1;
    int got = read(fd, &byte, 1);
    close(fd);
    return got == 1 ? byte : -1;
}

static int told(int byte) {
    if (byte < 0) return fail("input");
    printf("%c\n", byte);
    return 0;
}

// As long as the kernel takes, and one byte longer.
static int long_paths(void) {
    static char path[4200];
    const char *name = "input";
    size_t length = 4095;
    memset(path, '/', length);
    path[0] = '.';
    memcpy(path + length - strlen(name), name, strlen(name) + 1);
    int byte = first(AT_FDCWD, path);
    memmove(path + 1, path, length + 1);
    path[0] = '.', path[1] = '/';
    if (first(AT_FDCWD, path) != -1 || errno != ENAMETOOLONG) return fail("a path that is too long");
    // At the very end of what is mapped, and where nothing is.
    if (syscall(SYS_openat, AT_FDCWD, (char *)16, O_RDONLY) != -1 || errno != EFAULT) return fail("no path at all");
    return told(byte);
}

static int closed_descriptors(void) {
    int folder = open(".", O_RDONLY | O_DIRECTORY);
    struct stat status;
    close(folder);
    if (first(folder, "input") != -1 || errno != EBADF) return fail("a closed folder");
    if (fstatat(1023, "input", &status, 0) != -1 || errno != EBADF) return fail("no descriptor");
    if (fstatat(0, "input", &status, 0) != -1 || errno != ENOTDIR) return fail("not a folder");
    // A number that is used again stands for the new one.
    int again = open("many", O_RDONLY | O_DIRECTORY);
    if (again != folder || first(again, "0") < 0) return fail("the same number");
    return told(first(again, "../input"));
}

// All of them open a file in the same moment, having waited for each other without using the processor.
enum { COUNT = 2000 };
static pthread_barrier_t all_there;
static atomic_int found;
static void *opener(void *number) {
    char name[64];
    snprintf(name, sizeof name, "many/%ld", (long)number % 100);
    pthread_barrier_wait(&all_there);
    int byte = first(AT_FDCWD, number == (void *)777 ? "input" : name);
    if (byte < 0) _exit(7);
    if (number == (void *)777) found = byte;
    return 0;
}
static int threads(void) {
    static pthread_t all[COUNT];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&all_there, 0, COUNT);
    for (long i = 0; i < COUNT; i++)
        if (pthread_create(&all[i], &small, opener, (void *)i)) return fail("thread");
    for (int i = 0; i < COUNT; i++) pthread_join(all[i], 0);
    return told(found);
}

// Many programs at once, each of which becomes another a few times.
static int storm(const char *self) {
    for (int i = 0; i < 60; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl(self, self, "again", "4", (char *)0);
            _exit(9);
        }
        if (child < 0) return fail("vfork");
    }
    int status;
    while (wait(&status) > 0)
        if (status) return printf("a child ended with %d\n", status), 1;
    return told(first(AT_FDCWD, "input"));
}
static int again(const char *self, int left) {
    char rest[16];
    snprintf(rest, sizeof rest, "%d", left - 1);
    if (left) execl(self, self, "again", rest, (char *)0);
    return first(AT_FDCWD, "many/7") < 0;
}

// A filter that refuses the call by which libraries open files; the older one still works.
static int own_filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return fail("filter");
    if (first(AT_FDCWD, "many/1") != -1 || errno != EPERM) return fail("the filter does not hold");
    char byte;
    int fd = syscall(SYS_open, "input", O_RDONLY);
    if (fd < 0 || read(fd, &byte, 1) != 1) return fail("open");
    return told(byte);
}

// One thread opens a path over and over, another changes one letter of it all the time. Says how often the file was
// another than the one that the path named when the call was made.
static char raced[] = "many/0";
static atomic_int stop;
static void *flipper(void *unused) {
    volatile char *letter = &raced[5];
    while (!stop) {
        for (int i = 0; i < 20; i++) *letter = '1';
        for (int i = 0; i < 20; i++) *letter = '0';
    }
    return unused;
}
static int race(void) {
    pthread_t thread;
    int zero = 0, one = 0;
    if (pthread_create(&thread, 0, flipper, 0)) return fail("thread");
    for (int i = 0; i < 5000; i++) {
        int byte = first(AT_FDCWD, raced);
        if (byte == 'a') zero++;
        if (byte == 'b') one++;
    }
    stop = 1;
    pthread_join(thread, 0);
    printf("%d %d\n", zero, one);
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "long")) return long_paths();
    if (!strcmp(how, "closed")) return closed_descriptors();
    if (!strcmp(how, "threads")) return threads();
    if (!strcmp(how, "storm")) return storm(argv[0]);
    if (!strcmp(how, "again")) return again(argv[0], atoi(argv[2]));
    if (!strcmp(how, "filter")) return own_filter();
    if (!strcmp(how, "race")) return race();
    return 2;
}
