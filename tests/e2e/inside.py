"""Nothing outside the lake is ever written: by the system calls of every command, with hostile input, and with a hostile log."""

import json
import os
import re
import shutil
import subprocess
from urllib.parse import quote

from harness import broker, cases, events
from harness.world import QUICK, World, words

# Calls that change what is on disk. `-y` prints the folder of a relative path.
CALLS = ("openat,open,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,"
         "truncate,chmod,fchmodat,chown,fchownat,lchown,mknod,mknodat")
OPENS = re.compile(r"^(open|openat|openat2|creat)\(")
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:[^"\\]|\\.)*)"')
# Where a process may write whatever it does.
DEVICES = ("/dev/null", "/dev/tty", "/dev/pts/", "/dev/shm/", "/proc/self/", "/proc/thread-self/")
NAMES = ["../../../outside", "/tmp/outside-absolute", "a/../../../../outside", "..", "date=2026-01-01/../../outside", "~/outside",
         "nul\u0000name", "line\nbreak", "%2e%2e%2foutside", "..\\..\\outside", "$(touch outside)", "file:///tmp/outside-url", "\u202e/outside"]


def traced(w, *args, allowed=(), code=0, stdin=None):
    """Runs the program under strace; every path that it changed is in the lake, or in one of `allowed`."""
    number = len(w.processes) + len(list(w.folder.glob("trace-*")))
    trace, err = w.folder / f"trace-{number}", w.folder / f"strace-{number}.err"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RETRYTOLL_")} | {"TMPDIR": str(w.folder / "tmp")}
    command = ["strace", "-f", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", trace, os.environ["RETRYTOLL_BIN"], *args]
    done = subprocess.run([str(x) for x in command], cwd=w.folder, env=clean, input=stdin or b"", capture_output=True, timeout=300)
    err.write_bytes(done.stderr)
    assert done.returncode == code, f"{args} ended with {done.returncode}: {done.stderr[-3000:]}"
    places = [w.lake, w.folder / "tmp", *allowed]
    changed = [path for line in trace.read_text(errors="replace").splitlines() for path in paths_of(line, w.folder)]
    outside = [path for path in changed if not is_in(path, places)]
    assert not outside, f"{args[:2]} wrote to {sorted(set(outside))[:5]}"
    return changed


def paths_of(line, folder):
    """The paths that a call changed, absolute and without '..'; of none that failed, nor of one that only reads."""
    call = re.sub(r"^\d+ +", "", line)
    if "= -1 E" in call or "resumed>" in call and " = -1" in call or call.startswith(("+++", "---", "<...")):
        return
    if OPENS.match(call) and not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", call) and not call.startswith("creat("):
        return
    for base, path in PATH.findall(call):
        path = path.encode().decode("unicode_escape")
        yield os.path.normpath(os.path.join(base or folder, path))


def is_in(path, places):
    return path.startswith(DEVICES) or any(path == str(it) or path.startswith(f"{it}/") or path.startswith(f"{it}.partial") for it in places)


def hostile_events():
    """Names that would be paths, in every field that is text."""
    fields = ["request_id", "model", "service", "tenant", "provider", "error_type", "reason", "region", "team", "project", "environment",
              "api_key_id", "conversation_id", "server_request_id", "trace_id", "prompt_hash", "app_version"]
    made = []
    for number, name in enumerate(NAMES):
        base = {"request_id": f"r-{number}", "attempt": 0, "model": "gpt-4o", "decision": "success", "service": "shop",
                "input_tokens": 10, "output_tokens": 5}
        made += [base | {"request_id": f"r-{number}-{field}"} | {field: name} for field in fields]
        made.append(base | {"request_id": f"l-{number}", "labels": {name: name}})
        made.append(base | {"request_id": f"t-{number}", "ts": name, "date": name, "path": name})
    made += [base | {"request_id": f"ts-{n}", "ts": ts} for n, ts in enumerate(
        ["2026-11-30T10:00:00Z", "1970-01-01T00:00:00Z", 253402300799, -1, 0, 1790000000, "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z"])]
    return made


def prepared(w):
    """Whether there is strace; its folder for temporary files is made."""
    if not shutil.which("strace"):
        print("SKIPPED (no strace): the system calls of every command")
        return False
    (w.folder / "tmp").mkdir()
    return True


def of_files(w):
    """Ingest (files and stdin), reports, SQL, alerts, lint, hash, init, check: only the lake, and what they were told to write."""
    if not prepared(w):
        return
    source, letters = w.folder / "in.jsonl", w.folder / "letters.jsonl"
    made = hostile_events()
    source.write_bytes(b"\n".join(map(events.payload, made)) + b'\n{"request_id":"../../bad"}\n')
    lake = ["--lake", w.lake]
    sets = ["--set", f"dead_letters.file={letters}"]
    changed = traced(w, "ingest", source, *lake, *sets, allowed=[letters])
    assert any(path.endswith(".parquet") for path in changed), "no file was seen being written: is strace in order?"
    assert letters.exists()
    for number, name in enumerate(NAMES):
        if "\0" not in name:
            traced(w, "ingest", "-", "--source", name, *lake, stdin=events.payload({"request_id": f"s-{number}", "attempt": 0, "model": "m", "decision": "success"}) + b"\n")
    for name in NAMES[:4]:
        traced(w, "report", "retries", "--by", name, *lake, code=2)
        traced(w, "report", name, *lake, code=2)
        traced(w, "sql", f"COPY attempts TO '{w.folder}/stolen.csv'", *lake, code=2)
        traced(w, "sql", f"CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{name}'", *lake, code=2)
    traced(w, "report", "retry_cost_share", *lake, "--since", "30d")
    traced(w, "sql", "SELECT a.* FROM attempts a ORDER BY reason", *lake)
    answer = w.folder / "answer.csv"
    traced(w, "sql", "SELECT * FROM attempts", *lake, "--format", "csv", "-o", answer, allowed=[answer])
    assert answer.exists()
    traced(w, "alerts", *lake)
    traced(w, "lint", source)
    traced(w, "check", *lake)
    traced(w, "hash", stdin=b'{"messages":[{"role":"user","content":"../../x"}]}')
    config = w.folder / "made.toml"
    traced(w, "init", "-o", config, allowed=[config])
    assert not any((w.folder / name).exists() for name in ("outside", "stolen.csv")) and not os.path.exists("/tmp/outside-absolute")


def of_a_topic(w):
    """`run` to the topic's end, with its alerts, rollup and maintenance."""
    if not prepared(w) or cases.skip("the system calls of `run`"):
        return
    topic = w.topic(2)
    broker.produce(topic, [(n % 2, events.payload(it)) for n, it in enumerate(hostile_events())] + [(0, b"../../bad")])
    sets = words(QUICK | {"kafka.group": topic, "alerts.retries_per_hour": 1})
    w.topics += [f"{topic}.alerts", f"{topic}.breaker"]
    traced(w, "run", "--bootstrap", broker.bootstrap(), "--topic", topic, "--lake", w.lake, "--until-end", *sets)
    assert w.count() == len(hostile_events())


def a_hostile_log(w):
    """A log entry of another writer names a file outside of the lake: it is not read, and stays where it is through
    queries, further events, and compaction."""
    outside = w.folder / "outside"
    outside.mkdir()
    for number in range(12):
        source = w.folder / f"in-{number}.jsonl"
        made = events.events(w.rng, 20, f"f{number}")
        source.write_bytes(b"\n".join(map(events.payload, made)) + b"\n")
        w.ingest(source)
    inside = w.count()
    file = next(path for path in w.table.glob("date=*/*.parquet"))
    stolen = outside / "stolen.parquet"
    shutil.copy(file, stolen)
    add = next(action for _, action in w.actions("add") if action["path"].endswith(file.name))
    ways_out = [f"../../outside/{stolen.name}", f"{file.parent.name}/../../../outside/{stolen.name}", str(stolen), f"file://{stolen}",
                quote(f"../../outside/{stolen.name}", safe="").replace(".", "%2E"), f"..%2F..%2Foutside%2F{stolen.name}"]
    for number, path in enumerate(ways_out):
        lake = w.folder / f"lake-{number}"
        shutil.copytree(w.lake, lake)
        log = lake / "attempts/_delta_log"
        newest = max(int(entry.stem) for entry in log.glob("*.json") if entry.stem.isdigit())
        entry = json.dumps({"add": add | {"path": path, "dataChange": True}})
        (log / f"{newest + 1:020}.json").write_text(entry + "\n")
        asked = w.start("sql", "SELECT upper(request_id) AS r FROM attempts_raw", "--lake", lake, "--format", "json")
        code = asked.process.wait(60)
        # A count alone may be answered by the log; what rows say has to be read.
        if code == 0:
            assert len(json.loads(asked.out.read_text())) == inside, f"{path}: a file outside was read"
        else:
            assert code == 1 and "error: " in asked.text(), f"{path}: {code} {asked.text()}"
        # More events, and the compaction that follows them; it may well refuse such a lake.
        more = w.folder / f"in-more-{number}.jsonl"
        more.write_bytes(b"\n".join(map(events.payload, events.events(w.rng, 20, f"m{number}"))) + b"\n")
        ended = w.start("ingest", more, "--lake", lake).process.wait(60)
        assert ended in (0, 1), ended
        w.start("report", "retries", "--lake", lake).process.wait(60)
        assert stolen.read_bytes() == file.read_bytes() and list(outside.iterdir()) == [stolen], f"{path}: {list(outside.iterdir())}"


CASES = [of_files, of_a_topic, a_hostile_log]

if __name__ == "__main__":
    cases.main(World, CASES)
