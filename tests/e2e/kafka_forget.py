"""A tenant is forgotten while workers read its events: no row of it from before comes back, and none of others is
lost or doubled."""

import datetime
import json
import signal
import threading
import time

import duckdb

from harness import broker, cases, events
from harness.cases import until
from harness.world import World

PARTITIONS = 4


def records(w, count, prefix, tenants=("acme", "other", None), late_ms=0):
    """With `ts` now, or `late_ms` before."""
    now, made = int(time.time() * 1000) - late_ms, []
    for n, it in enumerate(events.events(w.rng, count, prefix)):
        it["ts"] = now - (n + 1) % 50
        if tenant := tenants[n % len(tenants)]:
            it["tenant"] = tenant
        made.append((n % PARTITIONS, events.payload(it)))
    return made


def forget(w, *flags):
    """Forgets acme; up to when, ms."""
    w.maintain("forget", "tenant=acme", *flags)
    told = [json.loads(p.read_text())["until"] for p in (w.lake / "receipts").glob("*-forget-*.json")]
    return max(round(datetime.datetime.fromisoformat(it).timestamp() * 1000) for it in told)


def due(topic, until_ms):
    def stays(payload):
        it = json.loads(payload)
        return it.get("tenant") != "acme" or it["ts"] >= until_ms
    return events.Expected([it for it in broker.log(topic) if stays(it[2])])


def beside_workers(w):
    """Two workers, records all the while, an hour of late ones, and the same records again in another topic."""
    topic = w.topic(PARTITIONS)
    tolls = [w.run(topic, flush__interval="200ms") for _ in range(2)]
    until("each has its partitions", lambda: all(toll.owned() for toll in tolls), 60)
    broker.produce(topic, records(w, 400, "before"))
    w.wait_rows(400)
    over, sent = threading.Event(), []

    def produce():
        while not over.is_set():
            broker.produce(topic, records(w, 40, f"while-{len(sent)}"))
            sent.append(0)
            over.wait(0.1)
    thread = threading.Thread(target=produce)
    thread.start()
    try:
        until_ms = forget(w, "--set", "limits.sql_time=2s", "--set", "jobs.time_max=2s")
    finally:
        over.set()
        thread.join()
    broker.produce(topic, records(w, 200, "late", late_ms=3_600_000))
    broker.produce(topic, records(w, 200, "after"))
    expected = due(topic, until_ms)
    assert any('"tenant":"acme"' in it[2].decode() and json.loads(it[2])["ts"] >= until_ms for it in broker.log(topic))
    until("all of it is read", lambda: w.committed(topic) >= len(broker.log(topic)), 60)
    w.same_rows(expected)
    for toll in tolls:
        assert toll.told("a commit was refused; reading again from the lake's positions"), toll.text()[-2000:]
        toll.stop()

    mirror = w.topic(PARTITIONS)
    broker.produce(mirror, [(p, value) for p, _, value in broker.log(topic)])
    w.read_all(mirror)
    w.same_rows(due(mirror, until_ms), f"source LIKE '%/{mirror}'")


def a_worker_that_slept(w):
    """It has files with such rows, and commits them later: its files are gone by then, it is refused, and goes on."""
    topic = w.topic(PARTITIONS)
    toll = w.run(topic, env={"FAULTS": "files=sleep 5s"})
    broker.produce(topic, records(w, 90, "slept"))
    until("files that are not committed", lambda: list(w.table.glob("*/*.parquet")), 60)
    until_ms = forget(w, "--at-once")
    until("the refusal", lambda: toll.told("a commit was refused; reading again from the lake's positions"), 60)
    expected = due(topic, until_ms)
    w.wait_rows(expected.rows.total())
    toll.stop(30)
    w.same_rows(expected)


def the_leader_goes_on(w):
    """A command that died has said who is forgotten: the leader does the rest, with its vacuum."""
    topic = w.topic(PARTITIONS)
    broker.produce(topic, records(w, 90, "left"))
    w.read_all(topic)
    w.maintain("forget", "tenant=acme", "--at-once", code=-signal.SIGABRT, FAULTS="edited=kill")
    assert w.query("SELECT count(*) FROM attempts WHERE tenant = 'acme'") == [(30,)]
    toll = w.run(topic, maintain__vacuum_every="1s", limits__sql_time="1s",
                 jobs__time_max="1s")
    until("all is done", lambda: any("/forgot/" in it["appId"] for _, it in w.actions("txn")), 60)
    toll.stop()
    on_disk = f"read_parquet('{w.table}/*/*.parquet', union_by_name=true)"
    assert duckdb.sql(f"SELECT DISTINCT tenant FROM {on_disk} ORDER BY 1").fetchall() == [("other",), (None,)]
    w.same_rows(due(topic, int(time.time() * 1000)))


CASES = [beside_workers, a_worker_that_slept, the_leader_goes_on]

if __name__ == "__main__":
    cases.main(World, CASES)
