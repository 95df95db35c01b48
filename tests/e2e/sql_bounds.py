"""Users' SQL: it only reads, and what would take for ever, or all memory, ends with the key that bounds it."""

import hashlib
import json
import os
import subprocess
import time

from harness import broker, cases, events
from harness.world import QUICK, World, words

# As little memory as can be set: 50 MB for a question. What the program itself takes comes on top.
LITTLE = {"limits.prefetch": "1MB", "limits.batches": "8MB", "limits.encode": "16MB", "limits.seen": "1MB", "limits.sql": "16MB",
          "limits.rest": "8MB", "limits.spill_max": "40MB", "limits.sql_time": "5m"}
PROCESS_BYTES_MAX = 400_000_000
ROWS = 3_000
# A minute is far more than it takes, and far less than the queries would.
ENDS_WITHIN = 60


def filled(w):
    source = w.folder / "in.jsonl"
    source.write_bytes(b"\n".join(map(events.payload, events.events(w.rng, ROWS))) + b"\n")
    w.ingest(source)
    (w.folder / "tmp").mkdir()


def ask(w, sql, settings, code):
    return w.start("sql", sql, "--lake", w.lake, "--format", "json", *words(settings), env={"TMPDIR": str(w.folder / "tmp")}).ends(code, ENDS_WITHIN)


def files_of(folder):
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def it_only_reads(w):
    """No statement that changes anything is taken, no file is read by its path, and the lake is as it was."""
    filled(w)
    before = files_of(w.lake)
    target = w.folder / "target"
    for sql, word in [("INSERT INTO attempts SELECT * FROM attempts", "INSERT"), ("DELETE FROM attempts", "DELETE"),
                      ("UPDATE attempts SET model = 'x'", "UPDATE"), ("DROP TABLE attempts", "DROP"), ("DROP VIEW attempts", "DROP"),
                      ("TRUNCATE TABLE attempts", "TRUNCATE"), ("CREATE TABLE x AS SELECT * FROM attempts", "CREATE"),
                      ("CREATE VIEW attempts AS SELECT 1", "CREATE"), (f"COPY attempts TO '{target}.csv'", "COPY"),
                      (f"COPY (SELECT 1) TO '{target}' STORED AS PARQUET", "COPY"), (f"EXPLAIN ANALYZE COPY attempts TO '{target}.csv'", "COPY"),
                      ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", "CREATE"), ("SELECT * INTO x FROM attempts", "SELECT INTO"),
                      ("WITH x AS (INSERT INTO attempts VALUES (1)) SELECT 1", "INSERT"), ("SET datafusion.execution.batch_size = 1", "SET"),
                      ("PREPARE x AS SELECT 1", "PREPARE"), ("CREATE FUNCTION f() RETURNS INT RETURN 1", "CREATE")]:
        told = ask(w, sql, {}, 2).text()
        assert f"{word} would change something" in told and "use SELECT, WITH, EXPLAIN or SHOW" in told, f"{sql}: {told}"
    csv = w.folder / "readable.csv"
    csv.write_text("a\n1\n")
    for source in (f"'{csv}'", f'"{csv}"', f"'file://{csv}'", f"read_csv('{csv}')", f"read_parquet('{w.table}')", f"'{w.table}'", "'/etc/passwd'"):
        for form in ("SELECT * FROM {}", "EXPLAIN SELECT * FROM {}", "WITH x AS (SELECT * FROM {}) SELECT * FROM x"):
            told = ask(w, form.format(source), {}, 2).text()
            assert "not found: queries read the lake alone, and SHOW TABLES lists what it has" in told, told
    assert "there are 2 statements" in ask(w, "SELECT 1; DROP TABLE attempts", {}, 2).text()
    for sql in ("EXPLAIN SELECT * FROM attempts", "EXPLAIN ANALYZE SELECT count(*) FROM attempts", "SHOW TABLES", "DESCRIBE attempts"):
        ask(w, sql, {}, 0)
    assert files_of(w.lake) == before and not list(w.folder.glob("target*"))


def it_ends_in_time(w):
    """Joins of everything with everything, ones that find nothing, and steps without an end."""
    filled(w)
    for sql in ["SELECT count(*) FROM attempts a, attempts b, attempts c, attempts d",
                "SELECT count(*) FROM attempts_raw a, attempts_raw b, attempts_raw c WHERE a.attempt + b.attempt + c.attempt < 0",
                "SELECT a.request_id FROM attempts_raw a, attempts_raw b, attempts_raw c",
                "SELECT count(*) FROM range(0, 100000000) a JOIN range(0, 100000000) b ON a.value < b.value AND a.value + b.value < 0",
                "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x",
                "SELECT sum(a.value) FROM range(0, 1000000000000) a"]:
        told = ask(w, sql, {"limits.sql_time": "2s"}, 1).text()
        assert "the query took longer than 2s" in told and "limits.sql_time" in told, f"{sql}: {told}"
    told = w.start("report", "operations", "--lake", w.lake, *words({"limits.sql_time": "1ms"})).ends(2, ENDS_WITHIN).text()
    assert "limits.sql_time" in told and "below 1s" in told, told


def it_keeps_its_memory(w):
    """A sort of a join of everything with everything spills, and ends when it has spilled what it may; the process stays
    below its cap, and leaves nothing behind. The next question is answered."""
    filled(w)
    sql = "SELECT a.request_id AS a, b.request_id AS b, c.model FROM attempts_raw a, attempts_raw b, attempts_raw c ORDER BY c.model, a, b"
    group = ("SELECT a.source_offset * 10000000 + b.source_offset AS k, min(a.request_id), count(*) "
             "FROM attempts_raw a, attempts_raw b GROUP BY k ORDER BY 3 DESC LIMIT 1")
    collect = "SELECT length(string_agg(a.request_id || b.request_id || c.request_id, '')) FROM attempts_raw a, attempts_raw b, attempts_raw c"
    for name, query in [("sort", sql), ("group", group), ("collect", collect)]:
        peak, told = peak_of(w, name, query)
        assert "limits.sql and limits.spill_max" in told, f"{name}: {told}"
        assert peak < PROCESS_BYTES_MAX, f"{name}: the process held {peak:,} bytes"
        assert not [path for path in (w.folder / "tmp").rglob("*") if path.is_file()], "spilled files are left"
    for function in ("repeat('x', 2000000000)", "lpad('x', 2000000000)", "array_repeat('x', 2000000000)", "range(0, 2000000000)"):
        assert "nvalid function" in ask(w, f"SELECT length(CAST({function} AS TEXT))", LITTLE, 2).text(), function
    found = json.loads(ask(w, "SELECT count(*) AS n FROM attempts", LITTLE, 0).out.read_text())
    assert found == [{"n": ROWS}], found


def peak_of(w, name, query):
    """The most bytes that the process held, and what it told; it must fail."""
    err = w.folder / f"{name}.err"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RETRYTOLL_")} | {"TMPDIR": str(w.folder / "tmp")}
    with open(err, "wb") as told:
        process = subprocess.Popen([os.environ["RETRYTOLL_BIN"], "sql", query, "--lake", str(w.lake), *words(LITTLE)],
                                   stdout=subprocess.DEVNULL, stderr=told, env=clean)
        _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1, err.read_text()
    return usage.ru_maxrss * 1024, err.read_text()


def a_job_without_an_end(w):
    """A user's job in `run` that would take for ever has failed after jobs.time_max, and says so; the others go on, and
    their alert is sent."""
    if cases.skip("a job without an end"):
        return
    folder = w.folder / "jobs"
    folder.mkdir()
    (folder / "hog.sql").write_text("SELECT a.service AS key, count(*) AS n FROM attempts a, range(0, 1000000000000) b\n"
                                    "WHERE a.ts >= $since AND a.ts < $until GROUP BY a.service\n")
    (folder / "jobs.toml").write_text('[hog]\ntitle = "Hog"\nmeaning = "Never ends."\nunit = "rows"\ncounts = "attempts"\nschedule = "1m"\n'
                                      'action = "Remove it."\n[hog.alert]\nrule = "hog"\nseverity = "warning"\nentity = "service"\n'
                                      'column = "key"\nwindow = "1h"\nthresholds = { n_over = "1" }\n')
    topic = w.topic(2)
    w.beside(topic, "alerts")
    w.beside(topic, "breaker")
    # A little ago, so that a tick lies behind them.
    then = int(time.time() * 1000) - 30_000
    broker.produce(topic, [(n % 2, events.payload(it), then) for n, it in enumerate(events.events(w.rng, ROWS))])
    settings = {"jobs.sql_dir": folder, "jobs.time_max": "1s", "jobs.tick": "10s", "alerts.retries_per_hour": 1}
    given = QUICK | settings | {"kafka.group": topic}
    ended = w.start("run", "--bootstrap", broker.bootstrap(), "--topic", topic, "--lake", w.lake, "--until-end", *words(given)).ends(1, 180)
    failed = [it for it in ended.entries("alert rule") if it["message"].startswith("the alert rule hog;")]
    assert failed and "jobs.time_max" in failed[0]["error"], ended.text()[-3000:]
    told = [json.loads(message.value())["data"]["dedup_key"] for message in broker.messages(f"{topic}.alerts")]
    assert any(key.startswith("retry_budget/") for key in told), told
    assert w.count() == ROWS


CASES = [it_only_reads, it_ends_in_time, it_keeps_its_memory, a_job_without_an_end]

if __name__ == "__main__":
    cases.main(World, CASES)
