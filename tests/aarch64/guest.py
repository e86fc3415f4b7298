"""What the program does on aarch64, tried on a booted kernel of that architecture: run there by .ci/emulate, once for each caller.

Prints a line for each thing that was tried, and `aarch64: N passed, N failed` at the end; its exit status is 1 if anything
failed. What is tried more deeply on x86-64 (tests/it) is not tried again here: only what differs between architectures, which is
the clock, the numbers of system calls, and the file times.
"""

import json
import os
import subprocess
import sys

START, SHOWN = 946684800, "2000-01-01T00:00:00Z"
HERE = os.path.dirname(os.path.abspath(__file__))
# Programs of the machine's, so that each tree is small.
PROBES = "/usr/local/lib/probes/"
PASSED, FAILED = [], []


def checkrun(*arguments, status=0):
    done = subprocess.run([HERE + "/checkrun", *arguments], capture_output=True, text=True, timeout=600)
    if status is not None:
        assert done.returncode == status, f"status {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


def at_2000(*command, options=()):
    return checkrun("--dir", "tree", "--clock", SHOWN, "--timeout", "500s", *options, "--", *command)


def result(*command, options=()):
    return json.loads(at_2000(*command, options=("--format", "json", *options)).stdout)


def tried(what):
    def run(function):
        try:
            told = function()
            PASSED.append(what)
            print(f"ok      {what}{': ' + told if told else ''}", flush=True)
        except Exception as error:
            FAILED.append(what)
            print(f"FAILED  {what}: {type(error).__name__}: {error}", flush=True)

    return run


def all_from_start(text, least=1):
    lines = [line.split(" ") for line in text.splitlines()]
    assert len(lines) >= least, f"{len(lines)} lines: {text!r}"
    for name, seconds, nanoseconds in lines:
        assert START <= int(seconds) < START + 500, f"{name} shows {seconds}"
        assert 0 <= int(nanoseconds) < 10**9, f"{name} shows {nanoseconds} ns"
    return f"{len(lines)} readings"


os.makedirs("tree", exist_ok=True)
open("tree/read", "w").write("one\n")
open("tree/unread", "w").write("one\n")


@tried("a check runs, and its result answers the next time")
def _():
    first, second = result("sh", "-c", "uname -m"), result("sh", "-c", "uname -m")
    assert (first["cache"], second["cache"]) == ("miss", "hit"), (first["cache"], second["cache"])
    assert first["tail"] == second["tail"] == "aarch64\n", first["tail"]
    assert first["sandbox"]["layers"]["clock"] == "enforced", first["sandbox"]


READS = ("reads", "reads-static", "reads-musl", "reads-musl-static", "reads-go")


@tried("every reading shows the date: dynamic and static, glibc and musl, Go; main, threads, children, raw calls")
def _():
    text = at_2000("sh", "-c", f"for p in {' '.join(READS)}; do echo {PROBES}$p; {PROBES}$p; done").stdout
    parts = text.split(PROBES)[1:]
    assert len(parts) == len(READS), text
    told = {part.split("\n")[0]: all_from_start(part.split("\n", 1)[1], 20 if "-go" in part else 45) for part in parts}
    return ", ".join(f"{name} {found}" for name, found in told.items())


@tried("so do busybox, date, shells, Perl and Python")
def _():
    lines = (
        "busybox date '+busybox %s 0'",
        "date '+date %s %-N'",
        "for i in 1 2 3; do (date '+subshell %s 0'); done",
        "bash -c 'printf \"printf %(%s)T 0\\n\" -1; echo EPOCHSECONDS $EPOCHSECONDS 0'",
        "perl -e 'print \"perl \", time, \" 0\\n\"'",
        "python3 -c 'import time; n = time.time_ns(); print(\"python\", n // 10**9, n % 10**9)'",
    )
    return all_from_start(at_2000("sh", "-ec", "\n".join(lines)).stdout, 9)


@tried("a program without any C library shows the date by raw calls")
def _():
    return all_from_start(at_2000(PROBES + "bare").stdout)


@tried("calls that fail, fail as the kernel's own")
def _():
    assert at_2000(PROBES + "settimes").stdout == "ok\n"


for program, ways in {
    "waits": "sleep sleep-tai mutex pi-mutex condition semaphore futex futex-waitv timer timer-descriptor queue-receive",
    "waits-musl-static": "sleep mutex condition semaphore futex timer timer-descriptor",
}.items():

    @tried(f"{program}: absolute waits end at their dates, ahead and past")
    def _():
        script = f"for w in {ways}; do for d in 300 -3600000; do echo $w $d $({PROBES}{program} $w $d 1); done; done"
        lines = at_2000("sh", "-ec", script).stdout.splitlines()
        assert len(lines) == 2 * len(ways.split()), lines
        for line in lines:
            way, distance, took, *rest = line.split()
            assert max(int(distance), 0) - 1 <= int(took) < 60000, line
            assert rest[-2:] == ["reached", "same"], line
        return f"{len(lines)} waits"


@tried("file times follow: written, set and read back, the tree's own")
def _():
    script = """import os, time
def say(name, t): print(name, int(t), 0)
open('new', 'w').write('x')
say('stat', os.stat('new').st_mtime); say('lstat', os.lstat('new').st_mtime)
fd = os.open('new', os.O_RDONLY); say('fstat', os.fstat(fd).st_mtime); say('ctime', os.fstat(fd).st_ctime)
os.utime('new'); say('touched', os.stat('new').st_mtime)
for when in (1, 946684799, 4000000000):
    os.utime('new', (when, when)); assert os.stat('new').st_mtime == when, (when, os.stat('new').st_mtime)
    os.utime(fd, (when, when)); assert os.fstat(fd).st_atime == when
assert os.stat('read').st_mtime < 946684800, os.stat('read').st_mtime"""
    told = all_from_start(at_2000("/usr/bin/python3", "-c", script).stdout, 5)
    seen = at_2000("sh", "-c", "touch f; stat -c 'statx %Y 0' f").stdout
    return told + ", " + all_from_start(seen)


@tried("make does nothing the second time and warns of nothing")
def _():
    rule = "printf 'all: out\\nout: read\\n\\tcp read out\\n' >Makefile; make; make"
    done = at_2000("sh", "-c", rule)
    assert done.stdout.splitlines()[-1] == "make: Nothing to be done for 'all'.", done.stdout
    assert "skew" not in done.stdout + done.stderr and "future" not in done.stdout + done.stderr


@tried("a frozen clock stands, by every way of reading")
def _():
    options = ("--clock-mode", "frozen")
    told = all_from_start(at_2000(PROBES + "reads-static", options=options).stdout, 45)
    text = at_2000("sh", "-c", "date +%s; busybox sleep 3; date +%s", options=options).stdout
    assert text == f"{START}\n{START}\n", text
    return told


@tried("monotonic time starts small and runs")
def _():
    text = at_2000("/usr/bin/python3", "-c", "import time; print(time.monotonic(), open('/proc/uptime').read())").stdout
    assert all(90 < float(word) < 400 for word in text.split()[:2]), text


@tried("what a check read is observed, and what it did not read does not count")
def _():
    inputs = ("--guard", "inputs")
    command = ("sh", "-c", "cat read; test -e absent || echo none")
    assert result(*command, options=inputs)["cache"] == "miss"
    open("tree/unread", "w").write("two\n")
    again = result(*command, options=inputs)
    assert (again["cache"], again["guard"]) == ("hit", "inputs"), (again["cache"], again["guard"])
    open("tree/absent", "w").write("")
    assert result(*command, options=inputs)["cache"] == "miss", "a file that had been looked for came"
    os.remove("tree/absent")
    open("tree/read", "w").write("two\n")
    later = result(*command, options=inputs)
    assert (later["cache"], later["tail"]) == ("miss", "two\nnone\n"), later


@tried("strace works inside, and what it starts sees the date")
def _():
    return all_from_start(at_2000("sh", "-c", f"strace -f -o /tmp/t {PROBES}reads && test -s /tmp/t").stdout, 45)


@tried("doctor enforces the clock, and its self-check agrees")
def _():
    found = json.loads(checkrun("doctor", "--format", "json").stdout)
    assert found["layers"]["clock"]["state"] == "enforced", found["layers"]["clock"]
    assert set(found["clock_check"].values()) == {"ok"}, found["clock_check"]
    weak = {name: layer["state"] for name, layer in found["layers"].items() if layer["state"] != "enforced"}
    return f"level {found['level']}, kernel {found['kernel']}; not enforced: {weak or 'nothing'}"


print(f"aarch64, uid {os.getuid()}: {len(PASSED)} passed, {len(FAILED)} failed", flush=True)
sys.exit(1 if FAILED else 0)
