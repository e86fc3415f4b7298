// A program without a C library: reads the wall clock by system calls alone.
static long call(long number, long a, long b, long c) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}

static char *decimal(char *at, unsigned long n) {
    char digits[20];
    int count = 0;
    do digits[count++] = '0' + n % 10; while (n /= 10);
    while (count) *at++ = digits[--count];
    return at;
}

void _start(void) {
    long time[2] = {0, 0};
    char line[64] = "bare ", *at = line + 5;
    call(113, 0, (long)time, 0); // clock_gettime(CLOCK_REALTIME)
    at = decimal(at, time[0]);
    *at++ = ' ';
    at = decimal(at, time[1]);
    *at++ = '\n';
    call(64, 1, (long)line, at - line); // write
    call(94, 0, 0, 0);                  // exit_group
}
