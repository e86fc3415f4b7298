# What belongs to checkrun itself: its records, its secret, its locks, layers of other trees, its program, its caller.
def ourselves(name, cites="", bare="never"):
    return attempt("ourselves", name, cites, bare)

CACHE, STATE = C["cache"], C["secret_file"]

@ourselves("read-the-records", "", "user")
def _(): return got(open(CACHE + "/records/v1/checkrun.db", "rb").read(16) == b"SQLite format 3\0")
@ourselves("forge-a-record", "marcusquinn/aidevops and others: a check that writes its own pass", "user")
def _(): return opens(CACHE + "/records/v1/checkrun.db", os.O_RDWR)
@ourselves("forge-a-record-through-the-journal", "", "user")
def _():
    open(CACHE + "/records/v1/checkrun.db-wal", "ab").close()
    return "the journal"
@ourselves("replace-the-records", "", "user")
def _():
    open(CACHE + "/records/v1/new", "w").close()
    return "a file beside the records"
@ourselves("read-the-secret-of-the-records", "", "user")
def _(): return got(len(open(STATE, "rb").read()) == 32)
@ourselves("write-the-secret-of-the-records", "", "user")
def _(): return opens(STATE, os.O_WRONLY)
@ourselves("list-the-cache", "", "user")
def _(): return got(os.listdir(CACHE))
@ourselves("take-a-lock", "rochecompaan/patchmill#255", "user")
def _():
    open(CACHE + "/locks/" + "0" * 64, "w").close()
    return "a lock"
@ourselves("read-another-tree", "", "user")
def _():
    def one(top): return got(any(name for name in os.listdir(top)), top)
    return one(CACHE + "/trees")
@ourselves("write-into-the-tree-of-the-next-run", "moby/buildkit: cache mounts shared between builds", "maybe")
def _():
    return first_of(lambda path: opens(path, os.O_WRONLY), [path for path in glob.glob(CACHE + "/trees/*/f")] or [CACHE + "/trees/none/f"])
@ourselves("leave-a-layer", "", "user")
def _():
    os.mkdir(CACHE + "/trees/" + "0" * 40)
    return "a layer"
@ourselves("kept-logs-of-others", "", "user")
def _(): return got(os.listdir(CACHE + "/logs") is not None)
@ourselves("run-checkrun-on-the-callers-cache", "", "never")
def _():
    run = subprocess.run([C["program"], "log"], env={"CHECKRUN_CACHE_DIR": CACHE, "HOME": C["home"]}, capture_output=True)
    return got(run.returncode == 0)
@ourselves("settings-of-the-caller", "", "user")
def _(): return opens(C["home"] + "/.config/checkrun/planted", os.O_RDWR)
@ourselves("environment-of-the-caller", "openai/codex: secrets in the environment", "user")
def _(): return got(SECRET in "".join(os.environ.values()))
@ourselves("descriptor-of-the-caller", "CVE-2024-21626", "user")
def _(): return got(SECRET.encode() in os.pread(9, 100, 0))
@ourselves("standard-input-of-the-caller", "", "user")
def _(): return got(SECRET.encode() in os.pread(0, 100, 0))
@ourselves("working-folder-of-the-caller", "CVE-2024-21626", "user")
def _(): return got(os.path.exists("/proc/self/cwd/../../canary/secret") or os.path.exists(f"/proc/{PROBE}/cwd/../canary/secret"))
