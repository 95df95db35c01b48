"""A topic -> `retrytoll run` -> the exact rows, whatever the records are and however they came."""

import base64
import datetime
import shutil
import threading
import time

from confluent_kafka import Producer

from harness import broker, cases, events
from harness.world import World, foreign_read

COUNT, PARTITIONS = (1_000_000, 8) if cases.LONG else (10_000, 8)
CONSOLE = 10_000 if cases.LONG else 500


def exact_rows(w):
    """Events with repeats, nulls and bad records on 8 partitions, and some of Kafka's own console
    producer; the table by DuckDB, Polars and delta-rs."""
    topic = w.topic(PARTITIONS)
    broker.produce(topic, events.mixture(w.rng, COUNT, PARTITIONS))
    if shutil.which("java"):
        typed = [events.payload(it) for it in events.events(w.rng, CONSOLE, "typed")]
        broker.console_producer(topic, typed)
    else:
        typed = []
        print("SKIPPED (no Java): events of Kafka's console producer")
    ended = w.read_all(topic)
    expected = w.check(topic)
    assert sum(expected.rows.values()) == COUNT + len(typed), sum(expected.rows.values())
    told = ended.told("stopped")[0]
    assert told["duplicates"] == expected.repeats > 0, told
    assert told["dead_letters"] == len(expected.bad) > 0, told
    db, facts = foreign_read.load(w.table)
    for reader in ["polars", "deltalake"]:
        differ = foreign_read.differences(db, w.table, facts["version"], reader)
        assert not differ["only_there"] and not differ["only_here"], (reader, differ)
    w.read_all(topic)
    w.check(topic)


def whole(**members):
    return events.payload({"request_id": "zoo", "attempt": 0, "model": "gpt-4o", "decision": "success"} | members)


PROMPT = "the quick brown fox jumps over the lazy dog " * 10
ZOO = [
    ("invalid_utf8", whole(reason="AB").replace(b"AB", b"\xff\xfe")),
    ("invalid_json", whole()[:-9]),
    ("invalid_json", whole(attempt="?").replace(b'"?"', b"NaN")),
    ("invalid_json", b""),
    ("not_an_object", b"[" + whole() + b"]"),
    ("not_an_object", b'"text"'),
    ("trailing_data", whole() + b"\n" + whole(request_id="second")),
    ("duplicate_key", whole()[:-1] + b',"model":"gpt-4o-mini"}'),
    ("too_deep", whole()[:-1] + b',"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
    ("too_large", whole(prompt="x" * (8 << 20))),
    ("missing_field", whole(request_id="", reason=PROMPT, prompt=PROMPT)),
    ("missing_field", b'{"request_id":"zoo","attempt":0,"decision":"success","prompt":"%s"}' % PROMPT.encode()),
]


def zoo(w, content):
    """(topic, bodies by offset) of the zoo, a null and good events on either side of each."""
    topic = w.topic(1, {"max.message.bytes": "12000000"})
    good = [events.payload(it) for it in events.events(w.rng, len(ZOO) + 1)]
    records = [(0, good[0])]
    for (_, payload), after in zip(ZOO, good[1:]):
        records += [(0, payload), (0, None), (0, after)]
    broker.produce(topic, records, message_max_bytes=12_000_000)
    w.read_all(topic, dead_letters__content=content)
    found = w.letters(topic)
    assert len(found) == len(ZOO), [(body["offset"], body["reason"]) for _, body in found]
    rows = w.query("SELECT source_offset, request_id FROM attempts ORDER BY 1")
    assert [offset for offset, _ in rows] == list(range(0, len(records), 3)), rows
    bodies = {body["offset"]: body for _, body in found}
    for number, (reason, payload) in enumerate(ZOO):
        body = bodies[3 * number + 1]
        assert body["reason"] == reason, (payload[:80], body)
        assert body["partition"] == 0 and body["source"].endswith("/" + topic), body
        assert body["payload_bytes"] == len(payload), body
    assert w.position(topic, 0) == len(records)
    return bodies


def payload_zoo_redacted(w):
    """F21, M17: reason, position and content, but no prompt, of each bad record; nulls are only
    counted; the stream goes on."""
    for offset, body in zoo(w, "redacted").items():
        reason, payload = ZOO[offset // 3]
        assert "payload" not in body and "payload_base64" not in body, body
        assert PROMPT[:40] not in str(body) and "x" * 300 not in str(body), body
        if reason == "missing_field":
            assert body["fields"]["decision"] == "success", body
        elif reason not in ("too_large", "too_deep") and payload:
            assert "around" in body or "fields" in body, body


def payload_zoo_full(w):
    """F21: with dead_letters.content=full every byte is there; what is too large goes without."""
    for offset, body in zoo(w, "full").items():
        _, payload = ZOO[offset // 3]
        if len(payload) > 1_000_000:
            assert body["content_dropped"] is True, sorted(body)
        elif "payload_base64" in body:
            assert base64.b64decode(body["payload_base64"]) == payload
        else:
            assert body["payload"].encode() == payload, body


def codecs(w):
    """F20: the same records by each codec, each on its own partition: equal results."""
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    topic = w.topic(len(names))
    plan = events.mixture(w.rng, 300, 1)
    for partition, name in enumerate(names):
        broker.produce(topic, [(partition, value) for _, value in plan], compression_type=name)
    w.read_all(topic)
    w.check(topic)
    rows = [w.query("SELECT * EXCLUDE (source_partition, ts, date) FROM attempts WHERE source_partition = ? "
                    "ORDER BY source_offset", p) for p in range(len(names))]
    assert len(rows[0]) == 300 and all(r == rows[0] for r in rows), [len(r) for r in rows]


def transactions(w):
    """F17, F27: aborted rows are never seen, a bounded read ends though control records stand last,
    and nothing is read twice after it."""
    topic = w.topic(3)
    made = [events.payload(it) for it in events.events(w.rng, 60)]
    producer = Producer({"bootstrap.servers": broker.bootstrap(), "transactional.id": topic})
    producer.init_transactions(30)
    aborted = set()
    for number in range(0, 60, 5):
        producer.begin_transaction()
        for at, value in enumerate(made[number:number + 5]):
            producer.produce(topic, value, partition=at % 3)
        if number % 15 == 10:
            producer.abort_transaction(30)
            aborted |= {events.parsed(v)["request_id"] for v in made[number:number + 5]}
        else:
            producer.commit_transaction(30)
    w.read_all(topic)
    expected = w.check(topic)
    assert sum(expected.rows.values()) == 40 and aborted
    # Not only the rows are dealt with, the markers behind them are too.
    ends = {p: w.position(topic, p) for p in range(3)}
    rows_end = dict(w.query("SELECT source_partition, max(source_offset) + 1 FROM attempts GROUP BY 1"))
    assert all(ends[p] > rows_end[p] for p in range(3)), (ends, rows_end)
    version = w.load() and foreign_read.live_files(w.table)[0]
    again = w.read_all(topic)
    assert again.told("stopped")[0]["rows"] == 0, again.told("stopped")
    assert foreign_read.live_files(w.table)[0] > version, "the second read claims, at least"
    w.check(topic)


def lag_reaches_zero(w):
    """F17, F26: behind transactions, and behind a hundred nulls at a partition's end, lag monitors see 0."""
    topic = w.topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap(), "transactional.id": topic})
    producer.init_transactions(30)
    for end in [producer.commit_transaction, producer.abort_transaction, producer.commit_transaction]:
        producer.begin_transaction()
        for it in events.events(w.rng, 5, end.__name__ + str(w.rng.random())):
            producer.produce(topic, events.payload(it), partition=0)
        end(30)
    broker.produce(topic, [(1, events.payload(it)) for it in events.events(w.rng, 10)] + [(1, None)] * 100)
    toll = w.run(topic)
    cases.until("lag 0", lambda: toll.is_up() and broker.lag(topic, f"{topic}-group") == 0, 30)
    toll.stop()
    w.check(topic)
    assert w.position(topic, 1) == 110, w.position(topic, 1)


def lag_after_bounded_read(w):
    """F17: a bounded read that ended in order leaves no lag behind either, though its last flush
    is the end itself."""
    topic = w.topic(2)
    broker.produce(topic, events.mixture(w.rng, 200, 2))
    w.read_all(topic, flush__interval="10m", flush__interval_behind="30m")
    w.check(topic)
    cases.until("lag 0", lambda: broker.lag(topic, f"{topic}-group") == 0, 10)


def ten_events_then_silence(w):
    """F5: rows are there after the flush interval, though nothing follows them: not when more come,
    not when the topic is far behind."""
    topic = w.topic(4)
    toll = w.run(topic, flush__interval="1s", flush__interval_behind="10m").claimed(4)
    for number in range(2):
        broker.produce(topic, [(n % 4, events.payload(it)) for n, it in enumerate(events.events(w.rng, 10, f"r{number}"))])
        w.wait_rows(10 * (number + 1), 60)
    toll.stop()
    w.check(topic)


def silent_partition(w):
    """F22: of two partitions one never gets anything. It holds nobody back, and old data that comes there later is not
    late, as it is in the other."""
    topic, began = w.topic(2), time.time()
    toll = w.run(topic).claimed(2)
    made = events.events(w.rng, 90)
    for n, it in enumerate(made):
        it["ts"] = began + n / 100 if n < 50 else began - 3 * 3_600 + n
    broker.produce(topic, [(0, events.payload(it)) for it in made[:50]])
    w.wait_rows(50, 60)

    def is_complete():
        # Two hours behind our clock, which goes on.
        told = w.report("toll")["complete_through"]
        return told[:1] == "2" and datetime.datetime.fromisoformat(told).timestamp() > began - 2 * 3_600 + 1

    cases.until("the mark goes on without the silent partition", is_complete, 60)
    broker.produce(topic, [(1, events.payload(it)) for it in made[50:70]] + [(0, events.payload(it)) for it in made[70:]])
    w.wait_rows(90, 60)
    toll.stop()
    w.check(topic)
    late = w.report("late", "--by", "partition", "--since", "6h")
    found = [(it["key"].rsplit("/", 1)[1], it["late"]) for it in late["rows"]]
    assert found == [("0", 20)], found
    assert late["beside"]["attempts"] == 90, late["beside"]


def redelivery(w):
    """F49, M31, M52: the same event again, with another record time, by broker's or producer's clock,
    before and after a restart: one row."""
    once = events.event(w.rng, "again", 0, 1) | {"event_id": "e-1"}
    unnamed = {k: v for k, v in events.event(w.rng, "unnamed", 0, 2).items() if k != "event_id"}
    values = [events.payload(once), events.payload(unnamed)]
    for kind in ["CreateTime", "LogAppendTime"]:
        topic = w.topic(1, {"message.timestamp.type": kind})
        producer = Producer({"bootstrap.servers": broker.bootstrap()})
        now_ms = int(time.time() * 1_000)
        for at_ms in [now_ms - 60_000, now_ms - 30_000]:
            for value in values:
                producer.produce(topic, value, partition=0, timestamp=at_ms)
        assert producer.flush(30) == 0
        w.read_all(topic)
        for value in reversed(values):
            producer.produce(topic, value, partition=0, timestamp=now_ms)
        assert producer.flush(30) == 0
        w.read_all(topic)
        expected = w.check(topic)
        assert sum(expected.rows.values()) == 2 and expected.repeats == 4


def across_midnight(w):
    """F6: a thousand events that alternate across midnight make at most two files per flush."""
    topic = w.topic(1)
    made = events.events(w.rng, 1_000)
    for number, it in enumerate(made):
        it["ts"] = "2026-11-01T23:59:59.5Z" if number % 2 else "2026-11-02T00:00:00.5Z"
    broker.produce(topic, [(0, events.payload(it)) for it in made])
    w.read_all(topic)
    w.check(topic)
    added = {}
    for version, add in w.actions("add"):
        added[version] = added.get(version, 0) + 1
    assert added and max(added.values()) <= 2, added
    days = dict(w.query("SELECT date::TEXT, count(*) FROM attempts GROUP BY 1"))
    assert days == {"2026-11-01": 500, "2026-11-02": 500}, days


def only_nulls_and_dead_letters(w):
    """F39: none comes again after clean stops; after kills at most some, under the same key; and
    `next` passes them though there are no rows."""
    topic = w.topic(2)
    number = 0

    def more(count=30):
        nonlocal number
        records = []
        for _ in range(count):
            records.append((number % 2, None if number % 3 == 0 else events.bad(w.rng, number)))
            number += 1
        broker.produce(topic, records)

    end = lambda: {p: len([1 for q, *_ in broker.log(topic) if q == p]) for p in range(2)}
    passed = lambda: {p: w.position(topic, p) for p in range(2)}
    more()
    ends = end()
    for _ in range(3):
        toll = w.run(topic).claimed(2)
        cases.until("next at the end", lambda: toll.is_up() and passed() == ends, 15)
        toll.stop()
    assert w.count() == 0
    w.check(topic)
    for _ in range(3):
        toll = w.run(topic, kafka__instance_id=f"{topic}-1").claimed(2)
        more()
        threading.Event().wait(w.rng.random())  # a random moment
        toll.kill()
    w.run(topic, "--until-end", kafka__instance_id=f"{topic}-1").ends(0, 60)
    assert passed() == end()
    w.check(topic, repeats=True)


CASES = [exact_rows, payload_zoo_redacted, payload_zoo_full, codecs, transactions, lag_reaches_zero,
         lag_after_bounded_read, ten_events_then_silence, silent_partition, redelivery, across_midnight,
         only_nulls_and_dead_letters]

if __name__ == "__main__":
    if not cases.skip("exact rows of a topic"):
        cases.main(World, CASES)
