"""A lake that is slow: the group keeps its members, what is paused stays paused, every partition gets on."""

import threading
import time

from harness import broker, cases, events
from harness.world import World

ROUNDS = 50 if cases.LONG else 4
BACKLOG = 400_000 if cases.LONG else 30_000
# Small, so that a slow flush soon stands in the way of all that follows.
SMALL = {"limits__prefetch": "1MB", "limits__batches": "8MB", "limits__encode": "16MB"}


def backlog(w, topic, count, prefix, partitions=8):
    """`count` events, with as many bytes each as a careless caller logs."""
    made = events.events(w.rng, count, prefix)
    records = [(n % partitions, events.payload(it | {"note": "x" * 400})) for n, it in enumerate(made)]
    broker.produce(topic, records)


def a_flush_outlasts_the_poll_interval(w):
    """F30: a flush takes twice max.poll.interval.ms. The member stays, and memory does not grow meanwhile."""
    topic = w.topic(8)
    backlog(w, topic, 2_000, "first")
    toll = w.run(topic, "--set", "kafka.properties.max.poll.interval.ms=6000", env={"FAULTS": "files=sleep 12s"},
                 **SMALL).claimed(8)
    cases.until("the flush sleeps", lambda: toll.is_up() and list(w.table.glob("*/*.parquet")), 20)
    started = time.monotonic()
    backlog(w, topic, BACKLOG, "meanwhile")
    held = toll.peak_bytes()
    toll_committed = lambda: [e for e in toll.told("committed") if e["rows"]]
    cases.until("the flush ends", lambda: toll.is_up() and len(toll_committed()) > 1, 60)
    print(f"peak {held / 1e6:.0f} MB when all was there, {toll.peak_bytes() / 1e6:.0f} MB after another flush, "
          f"{time.monotonic() - started:.0f} s")
    assert toll.peak_bytes() < 300e6, toll.peak_bytes()
    assert not toll.told("revoked") and len(toll.told("assigned")) == 1, "the member was thrown out"
    toll.kill()
    w.read_all(topic)
    w.check(topic)


def paused_through_a_rebalance(w):
    """F18: an instance is paused for a slow flush when partitions come to it; they are paused, too, and
    memory stays as it is."""
    topic = w.topic(8)
    backlog(w, topic, BACKLOG, "all")
    slow = {"FAULTS": "files=sleep 4s"}
    a, b = w.run(topic, env=slow, **SMALL), w.run(topic, env=slow, **SMALL)
    cases.until("each owns half", lambda: all(t.is_up() and len(t.owned()) == 4 for t in (a, b)), 60)
    cases.until("a flush", lambda: a.is_up() and a.told("committed"), 60)
    b.kill()
    a.claimed(8)
    threading.Event().wait(9)  # two slow flushes, and whatever was fetched too much would be here
    print(f"peak {a.peak_bytes() / 1e6:.0f} MB")
    assert a.peak_bytes() < 300e6, a.peak_bytes()
    a.kill()
    w.read_all(topic)
    w.check(topic)


def every_partition_gets_on(w):
    """F10: a slow lake, and the same partitions are taken away and given back again and again: each gets on."""
    topic = w.topic(8)
    slow = {"FAULTS": "put=sleep 200ms"}
    a = w.run(topic, env=slow).claimed(8)
    longest = 0

    def all_committed(count):
        nonlocal longest
        started = time.monotonic()
        w.wait_rows(count, 10 if cases.LONG else 40)
        longest = max(longest, time.monotonic() - started)

    for number in range(ROUNDS):
        b = w.run(topic, env=slow)
        cases.until("both own some", lambda: all(t.is_up() and t.owned() for t in (a, b))
                    and len(a.owned()) + len(b.owned()) == 8, 60)
        backlog(w, topic, 80, f"two-{number}")
        all_committed(160 * number + 80)
        b.stop(20) if number % 2 else b.kill()
        cases.until("one owns all", lambda: a.is_up() and len(a.owned()) == 8, 60)
        backlog(w, topic, 80, f"one-{number}")
        all_committed(160 * number + 160)
    print(f"{2 * ROUNDS} rebalances; every partition had committed all after {longest:.1f} s at most")
    a.stop(20)
    w.check(topic)


CASES = [a_flush_outlasts_the_poll_interval, paused_through_a_rebalance, every_partition_gets_on]

if __name__ == "__main__":
    if not cases.skip("a slow lake"):
        cases.main(World, CASES)
