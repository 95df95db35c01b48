"""`run --http`: the numbers of /metrics against the topic's log, what /healthz and /readyz say while brokers
come and go, and that a fault is told once."""

import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter

from harness import broker, cases, events
from harness.world import World

LISTENING = "answering /metrics, /healthz and /readyz"


def address(toll):
    """Where it listens, once it does."""
    cases.until(f"{toll.name} listens", lambda: toll.is_up() and toll.told(LISTENING), 20)
    return toll.told(LISTENING)[0]["address"]


def get(where, path):
    """(status, body)"""
    try:
        with urllib.request.urlopen(f"http://{where}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(where):
    """{series: value}. Every family has its HELP and TYPE, and no series stands twice."""
    status, page = get(where, "/metrics")
    assert status == 200, (status, page)
    series, family = {}, None
    for line in page.splitlines():
        if told := re.fullmatch(r"# HELP (\S+) (\S.*)", line):
            family = told[1]
        elif told := re.fullmatch(r"# TYPE (\S+) (counter|gauge|histogram)", line):
            assert told[1] == family and (told[2] == "counter") == family.endswith("_total"), line
        else:
            name, value = line.rsplit(" ", 1)
            assert name.startswith(family) and name not in series, line
            series[name] = float(value)
    return series


def reason(payload):
    """What is wrong with one of `events.bad`'s."""
    if payload.startswith(b"["):
        return "not_an_object"
    return "missing_field" if payload.endswith(b"}") else "invalid_json"


def of(family, **labels):
    return family + "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def numbers(w):
    """Each record is counted once as what it is; lag comes to 0; a restart counts again what it reads again."""
    topic = w.topic(3)
    toll = w.run(topic, "--http", "127.0.0.1:0")
    where = address(toll)
    cases.until("it is ready", lambda: toll.is_up() and get(where, "/readyz") == (200, "ok\n"), 40)
    assert get(where, "/healthz") == (200, "ok\n")

    odd = events.event(w.rng, "odd", 0, 1) | {"elapsed_ms": -5, "nonsense": 1}
    broker.produce(topic, events.mixture(w.rng, 400, 3) + [(1, events.payload(odd))])
    log = broker.log(topic)
    expected = events.Expected(log)
    rows = sum(expected.rows.values())
    assert rows == 401 and expected.bad and expected.nulls and expected.repeats

    def is_all_in():
        now = toll.is_up() and scrape(where)
        lag = [now.get(of("retrytoll_lag_records", partition=p)) for p in range(3)]
        return now if now.get("retrytoll_rows_committed_total") == rows and lag == [0, 0, 0] else None
    now = cases.until("all is in the lake", is_all_in, 40)
    letters = Counter(reason(value) for p, o, value in log if (p, o) in expected.bad)
    found = {name: now[of("retrytoll_dead_letters_total", reason=name)] for name in letters}
    assert found == letters, (found, letters)
    ends = {p: max(o for q, o, _ in log if q == p) + 1 for p in range(3)}
    due = {
        "retrytoll_records_total": len(log), "retrytoll_attempts_total": rows,
        "retrytoll_duplicates_total": expected.repeats, "retrytoll_nulls_total": expected.nulls,
        "retrytoll_replayed_total": 0, "retrytoll_dead_letters_delivered_total": len(expected.bad),
        "retrytoll_unknown_fields_total": 1, of("retrytoll_invalid_values_total", field="elapsed_ms"): 1,
        of("retrytoll_invalid_values_total", field="status_code"): 0, "retrytoll_future_events_total": 0,
        "retrytoll_partitions": 3, "retrytoll_brokers_connected": 1, "retrytoll_leader": 1,
        "retrytoll_restarts_total": 0, of("retrytoll_commit_conflicts_total", kind="fenced"): 0,
        of("retrytoll_memory_limit_bytes", part="seen"): 64_000_000,
        of("retrytoll_commits_total", kind="rows"): operations(w)["WRITE"],
        of("retrytoll_commits_total", kind="claim"): operations(w)["CLAIM"],
        "retrytoll_files_committed_total": len(w.actions("add")),
        "retrytoll_parquet_bytes_total": sum(add["size"] for _, add in w.actions("add"))}
    wrong = {name: (now.get(name), value) for name, value in due.items() if now.get(name) != value}
    assert not wrong, wrong
    assert ends == {p: w.position(topic, p) for p in range(3)}
    assert now["retrytoll_commit_seconds_count"] >= now["retrytoll_flush_seconds_count"] >= 1
    assert now[of("retrytoll_memory_bytes", part="seen")] > 0 and now["process_resident_memory_bytes"] > 1e6
    for p in range(3):
        assert -1 < now[of("retrytoll_clock_delay_seconds", partition=p)] < 60
    # The leader counts the files each minute: at first there may have been none.
    counted = lambda: toll.is_up() and scrape(where).get("retrytoll_live_files")
    cases.until("files are counted", lambda: counted() is not None, 20)
    assert counted() <= len(w.actions("add"))
    toll.stop()

    toll = w.run(topic, "--http", "127.0.0.1:0")
    where = address(toll)
    # From the oldest event on that a repeat could still come of.
    again = [(p, o, value) for p, o, value in log if o >= w.position(topic, p, "low")]
    known = [value for p, o, value in again if value is not None and (p, o) not in expected.bad]
    assert len(known) > 300, "the oldest events are forgotten already"

    def is_all_read():
        now = toll.is_up() and scrape(where)
        return now if now.get("retrytoll_records_total", 0) >= len(again) else None
    now = cases.until("all was read again", is_all_read, 40)
    assert now["retrytoll_attempts_total"] == now["retrytoll_duplicates_total"] == 0, now
    assert (now["retrytoll_records_total"], now["retrytoll_replayed_total"]) == (len(again), len(known)), now
    toll.stop()


def operations(w):
    return Counter(info["operation"] for _, info in w.actions("commitInfo"))


def a_broker_that_is_gone(w):
    """Before the group's answer, and without a broker, the process is well and not ready; the log tells an
    outage a few times at most, and when it is over. (With a broker of its own.)"""
    env = {k: v for k, v in os.environ.items() if k != "KAFKA_BOOTSTRAP"}
    kafka = lambda *args: subprocess.run([broker.SCRIPT, *args, "--dir", w.folder / "kafka"], check=True, timeout=120,
                                         env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
    try:
        bootstrap = kafka("up").strip().split("=", 1)[1]
        kafka("topic", "create", "calls", "--partitions", "2")
        pid = int((w.folder / "kafka/pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        toll = w.start("run", "--bootstrap", bootstrap, "--topic", "calls", "--lake", w.lake, "--http", "127.0.0.1:0")
        where = address(toll)
        status, body = get(where, "/readyz")
        assert status == 503 and body.startswith("starting\n"), (status, body)
        assert get(where, "/healthz") == (200, "ok\n")
        os.kill(pid, signal.SIGCONT)
        cases.until("it is ready", lambda: toll.is_up() and get(where, "/readyz")[0] == 200, 60)
        kafka("down")
        no_broker = lambda: toll.is_up() and get(where, "/readyz")[1].splitlines()[-1:] == ["no broker is connected"]
        cases.until("it is not ready", no_broker, 20)
        assert get(where, "/healthz") == (200, "ok\n")
        assert scrape(where)["retrytoll_brokers_connected"] == 0
        kafka("up")
        cases.until("it is ready again", lambda: toll.is_up() and get(where, "/readyz") == (200, "ok\n"), 90)
        cases.until("that it is over", lambda: toll.told("kafka answers again"), 20)
        # One for connections that fail, one for brokers that are all down.
        told = toll.told("kafka is not reached; it is tried again")
        assert 1 <= len(told) <= 4, told
        loud = [line for line in toll.text().splitlines() if '"ERROR"' in line]
        assert not loud, loud[:3]
        toll.stop()
    finally:
        subprocess.run([broker.SCRIPT, "down", "--wipe", "--dir", w.folder / "kafka"], env=env, timeout=60,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def places_that_will_not_do(w):
    """An address that is none is a mistake of the configuration; one that is taken ends the process."""
    topic = w.topic(1)
    text = w.run(topic, "--http", "localhost").ends(2, 20).text()
    assert "http.listen" in text and "is not an IP address and a port" in text and "127.0.0.1:9464" in text, text
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        text = w.run(topic, "--until-end", http__listen=where).ends(1, 20).text()
    assert f"cannot listen on {where}" in text and "hint: is another process there?" in text, text


CASES = [numbers, a_broker_that_is_gone, places_that_will_not_do]

if __name__ == "__main__":
    if not cases.skip("/metrics, /healthz and /readyz of run"):
        cases.main(World, CASES)
