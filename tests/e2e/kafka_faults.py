"""Kills, freezes, lost offsets and a dead-letter topic that refuses: each row once, all the same."""

import signal
import threading

from harness import broker, cases, events
from harness.world import World

COUNT = 200_000 if cases.LONG else 4_000


def kills(w):
    """F3, F37: kill -9 five times at random moments, each restart with another flush interval, over
    a log with repeats, nulls and bad records."""
    topic = w.topic(8)
    feed = broker.Feed(topic, events.mixture(w.rng, COUNT, 8), 8)
    # A member of this name takes its partitions back at once, with no session to wait for.
    static = {"kafka__instance_id": f"{topic}-1"}
    for _ in range(5):
        interval = w.rng.choice(["100ms", "250ms", "700ms", "2s", "1m"])
        toll = w.run(topic, flush__interval=interval, flush__interval_behind=interval, **static).claimed(8)
        threading.Event().wait(w.rng.random() * 2)  # a random moment
        assert toll.is_up()
        toll.kill()
    feed.finish()
    w.run(topic, "--until-end", **static).ends(0, 120)
    expected = w.check(topic, repeats=True)
    assert sum(expected.rows.values()) == COUNT and expected.repeats


def kafka_offsets_lost(w):
    """F3: the lake has committed, Kafka's own commit never came, and the flush interval is another."""
    topic = w.topic(4)
    for number, interval in enumerate(["200ms", "5s", "1s"]):
        broker.produce(topic, events.mixture(w.rng, 300, 4, f"r{number}"))
        w.read_all(topic, flush__interval=interval)
        broker.forget_group(f"{topic}-group")
    expected = w.check(topic)
    assert sum(expected.rows.values()) == 900


def frozen_instance(w):
    """F1, F33: an instance that holds rows it has not committed is frozen past its session; the other takes
    over and commits; awake again the first is refused, steps down, and both go on."""
    topic = w.topic(4)
    a = w.run(topic, flush__interval="10m", flush__interval_behind="30m").claimed(4)
    broker.produce(topic, events.mixture(w.rng, 400, 4, "before"))
    cases.until("A holds rows", lambda: a.is_up() and holds_rows(w), 20)
    a.send(signal.SIGSTOP)
    b = w.run(topic)
    b.claimed(4)
    broker.produce(topic, events.mixture(w.rng, 400, 4, "while-frozen"))
    w.wait_rows(800, 30)
    a.send(signal.SIGCONT)
    refused = lambda: a.is_up() and a.told("a commit was refused; reading again from the lake's positions")
    cases.until("A is refused", refused, 30)
    broker.produce(topic, events.mixture(w.rng, 400, 4, "awake"))
    cases.until("both own partitions", lambda: len(a.owned() | b.owned()) == 4 and a.owned() and b.owned(), 60)
    a.stop()
    w.wait_rows(1_200, 30)
    b.stop()
    w.check(topic, repeats=True)


def holds_rows(w):
    """A Parquet file is being written that the log does not name yet."""
    files = {str(p.relative_to(w.table)) for p in w.table.rglob("*.parquet") if "_delta_log" not in p.parts}
    return files - {add["path"] for _, add in w.actions("add")}


def behind_is_not_idle(w):
    """F23: while it is frozen, records come. Awake again, it takes no partition for silent before it has read them:
    no commit's clock is past a record that the commit does not hold."""
    topic = w.topic(2)
    send = lambda prefix: [(n % 2, events.payload(it)) for n, it in enumerate(events.events(w.rng, 100, prefix))]
    broker.produce(topic, send("before"))
    toll = w.run(topic, kafka__session_timeout="45s")
    w.wait_rows(100, 30)
    toll.send(signal.SIGSTOP)
    broker.Feed(topic, send("frozen"), 6).finish()
    toll.send(signal.SIGCONT)
    w.wait_rows(200, 60)
    toll.stop()
    times = [(m.partition(), m.offset(), m.timestamp()[1]) for m in broker.messages(topic)]
    stands = {}
    for version, txn in w.actions("txn"):
        _, field, partition, *_ = txn["appId"].split("/")
        if field in ("next", "clock"):
            stands.setdefault((version, int(partition)), {})[field] = txn["version"]
    looked_at = 0
    for (version, partition), it in stands.items():
        if it.keys() == {"next", "clock"}:
            ahead = [ms for p, offset, ms in times if p == partition and offset >= it["next"]]
            looked_at += len(ahead)
            # What is on its way from the broker may be a little older than an empty poll.
            assert it["clock"] <= min(ahead, default=it["clock"]) + 2_000, (version, partition, it, min(ahead))
    assert looked_at, "some commit lay before the records of the frozen time"


def stop_with_a_long_flush(w):
    """F12: with a flush of half an hour, SIGTERM ends it within 10 s, and nothing is lost or doubled."""
    topic = w.topic(8)
    slow = {"flush__interval": "10m", "flush__interval_behind": "30m"}
    toll = w.run(topic, **slow).claimed(8)
    broker.produce(topic, events.mixture(w.rng, 2_000, 8))
    cases.until("rows are held", lambda: toll.is_up() and holds_rows(w), 20)
    assert w.count() == 0
    toll.stop(10)
    assert w.count() > 0, "what was read is committed at the end"
    w.read_all(topic, **slow)
    w.check(topic)


def refused_dead_letters(w):
    """F38, F9: the dead-letter topic refuses every message: loud failure, and no position has passed
    the bad records; once it takes them, each is delivered."""
    topic = w.topic(2, dead_letters={"max.message.bytes": "10"})
    # Whatever the seed: each partition has a bad record.
    plan = events.mixture(w.rng, 200, 2) + [(p, events.bad(w.rng, 1_000 + p)) for p in range(2)]
    broker.produce(topic, plan)
    first_bad = {p: min(o for q, o in events.Expected(broker.log(topic)).bad if q == p) for p in range(2)}
    for _ in range(2):
        toll = w.run(topic).ends(1, 60)
        assert "dead letters" in toll.text() and f"{topic}.dead-letters" in toll.text(), toll.text()[-1000:]
        assert all(w.position(topic, p) <= first_bad[p] for p in range(2)), first_bad
        assert w.letters(topic) == []
    # Killed in the middle of it: the same.
    toll = w.run(topic, kafka__instance_id=f"{topic}-1").claimed(2)
    toll.kill()
    assert all(w.position(topic, p) <= first_bad[p] for p in range(2)), first_bad
    broker.configure(f"{topic}.dead-letters", "max.message.bytes", "1000000")
    w.run(topic, "--until-end", kafka__instance_id=f"{topic}-1").ends(0, 60)
    expected = w.check(topic)
    assert len(expected.bad) >= 2


def dead_letter_too_large(w):
    """A dead letter that the topic refuses for its size goes without its content, and is delivered."""
    topic = w.topic(1, dead_letters={"max.message.bytes": "5000"})
    text = b'{"request_id":"bad-large","attempt":0,"prompt":"' + bytes(w.rng.choices(b"abcdefgh", k=50_000)) + b'"}'
    good = [(0, events.payload(it)) for it in events.events(w.rng, 20)]
    broker.produce(topic, [*good[:10], (0, text), *good[10:]])
    w.read_all(topic, dead_letters__content="full")
    [(_, body)] = w.letters(topic)
    assert body["content_dropped"] is True and body["offset"] == 10 and "payload" not in body, body
    w.check(topic)


def made_anew(w):
    """F14: the topic is deleted and made anew, shorter: a loud error that names the ways out; taking one,
    old rows stay and new ones are a source of their own."""
    topic = w.topic(2)
    broker.produce(topic, events.mixture(w.rng, 300, 2, "old"))
    w.read_all(topic)
    old = w.check(topic)
    broker.delete(topic)
    broker.create(topic, 2)
    broker.produce(topic, events.mixture(w.rng, 40, 2, "new"))
    refuse = lambda **s: w.run(topic, "--until-end", **s).ends(1, 40).text()
    text = refuse()
    assert "made anew" in text and "kafka.generation=2" in text and "kafka.topic" in text, text[-1500:]
    w.same_rows(old)
    # As long as before, or longer: its first record is newer than what was read.
    broker.produce(topic, events.mixture(w.rng, 400, 2, "more"))
    assert "made anew" in refuse()
    # Skipping lost records is no answer to it.
    assert "made anew" in refuse(kafka__on_lost_records="skip")
    w.same_rows(old)
    w.read_all(topic, kafka__generation="2")
    w.same_rows(events.Expected(broker.log(topic)), f"source LIKE '%/{topic}#2'")
    w.same_rows(old, f"source LIKE '%/{topic}'")


def lost_records(w):
    """F14: records were removed before they were read: loud, unless kafka.on_lost_records=skip."""
    topic = w.topic(1)
    send = lambda prefix: broker.produce(
        topic, [(0, events.payload(it)) for it in events.events(w.rng, 100, prefix)])
    send("read")
    w.read_all(topic)
    before = events.Expected(broker.log(topic))
    send("lost-or-kept")
    broker.delete_records(topic, 0, 150)
    text = w.run(topic, "--until-end").ends(1, 40).text()
    assert "kafka.on_lost_records=skip" in text and "50 records" in text, text[-1500:]
    w.same_rows(before)
    w.read_all(topic, kafka__on_lost_records="skip")
    after = events.Expected(broker.log(topic))
    after.rows += before.rows
    assert sum(after.rows.values()) == 150
    w.same_rows(after)


CASES = [kills, kafka_offsets_lost, frozen_instance, behind_is_not_idle, stop_with_a_long_flush, refused_dead_letters,
         dead_letter_too_large, made_anew, lost_records]

if __name__ == "__main__":
    if not cases.skip("kills, freezes, lost offsets and dead letters refused"):
        cases.main(World, CASES)
