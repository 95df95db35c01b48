"""Several instances of one group on one lake: joins, leaves, restarts, one table, exact rows."""

from harness import broker, cases, events
from harness.world import World

COUNT = 200_000 if cases.LONG else 4_000
ROUNDS = 20 if cases.LONG else 3
MEMBERS = 8 if cases.LONG else 3


def settled(w, tolls, partitions):
    """Waits until these instances, and they alone, own every partition, each at least one."""
    def is_so():
        owned = [t.owned() for t in tolls if t.is_up()]
        return all(owned) and sum(map(len, owned)) == partitions and set().union(*owned) == set(range(partitions))
    cases.until(f"{len(tolls)} instances own {partitions} partitions", is_so, 60)


def joins_and_leaves(w):
    """F4: a second instance starts, and stops or dies, again and again while events are produced."""
    topic = w.topic(8)
    feed = broker.Feed(topic, events.mixture(w.rng, COUNT, 8), 10)
    first = w.run(topic).claimed(8)
    for number in range(ROUNDS):
        second = w.run(topic)
        settled(w, [first, second], 8)
        if number % 2:
            second.kill()
            settled(w, [first], 8)
        else:
            second.stop()
    feed.finish()
    settled(w, [first], 8)
    w.wait_rows(COUNT)
    first.stop()
    w.check(topic, repeats=True)


def one_after_another(w):
    """F16: members join one shortly after the other; rows come steadily, and exactly. (A revoke drops what
    was not flushed, as a crash does, so dead letters may repeat.)"""
    topic = w.topic(8)
    feed = broker.Feed(topic, events.mixture(w.rng, COUNT, 8), 8)
    tolls = []
    for _ in range(MEMBERS):
        tolls.append(w.run(topic))
        before = w.count()
        cases.until("rows come", lambda: w.count() > before or not feed.is_alive(), 20)
    settled(w, tolls, 8)
    feed.finish()
    w.wait_rows(COUNT)
    for toll in tolls:
        toll.stop()
    # A flush that a new owner's claim refuses is read again, and its dead letters with it.
    w.check(topic, repeats=True)


def static_membership(w):
    """An instance with kafka.instance_id that restarts takes its partitions back, and the other one
    loses none meanwhile."""
    topic = w.topic(6)
    name = lambda number: {"kafka__instance_id": f"{topic}-{number}", "kafka__session_timeout": "30s"}
    broker.produce(topic, events.mixture(w.rng, 300, 6, "r0"))
    a, b = w.run(topic, **name(1)), w.run(topic, **name(2))
    settled(w, [a, b], 6)
    held, kept = a.owned(), b.owned()
    rebalances = len(b.told("revoked")) + len(b.told("assigned"))
    for number in range(2):
        a.kill() if number == 0 else a.stop()
        broker.produce(topic, events.mixture(w.rng, 300, 6, f"r{number + 1}"))
        a = w.run(topic, **name(1)).claimed(len(held))
        assert a.owned() == held, (a.owned(), held)
        w.wait_rows(300 * (number + 2), 20)
    assert b.owned() == kept and len(b.told("revoked")) + len(b.told("assigned")) == rebalances
    a.stop()
    b.stop()
    w.check(topic, repeats=True)


def first_start_of_two(w):
    """F47: two instances make the lake at the same instant: one table, exact rows."""
    topic = w.topic(4)
    broker.produce(topic, events.mixture(w.rng, 400, 4))
    expected = events.Expected(broker.log(topic))
    for number in range(5):
        w.lake = w.folder / f"lake-{number}"
        pair = [w.run(topic, kafka__group=f"{topic}-{number}") for _ in range(2)]
        w.wait_rows(400, 30)
        for toll in pair:
            toll.stop(15)
        tables = w.actions("metaData")
        assert len(tables) == 1 and tables[0][0] == 0, [(v, m["id"]) for v, m in tables]
        w.same_rows(expected)


def partitions_added(w):
    """F15: partitions that are added while it runs are read from their beginning, also with
    kafka.start=latest, and also when they appear while nothing runs."""
    topic = w.topic(2)
    broker.produce(topic, events.mixture(w.rng, 100, 2, "before"))
    toll = w.run(topic, kafka__start="latest").claimed(2)
    start = {p: w.position(topic, p) for p in range(2)}
    assert all(start.values()), start
    broker.add_partitions(topic, 4)
    cases.until("4 partitions", lambda: len(broker.partitions_of(topic)) == 4, 20)
    for prefix in ["added", "later"]:
        broker.produce(topic, events.mixture(w.rng, 200, 4, prefix))
    due = lambda: events.Expected([r for r in broker.log(topic) if r[1] >= start.get(r[0], 0)])
    w.wait_rows(sum(due().rows.values()), 40)
    toll.stop()
    broker.add_partitions(topic, 5)
    cases.until("5 partitions", lambda: len(broker.partitions_of(topic)) == 5, 20)
    broker.produce(topic, events.mixture(w.rng, 100, 5, "stopped"))
    w.read_all(topic, kafka__start="latest")
    w.same_rows(due())


CASES = [joins_and_leaves, one_after_another, static_membership, first_start_of_two, partitions_added]

if __name__ == "__main__":
    if not cases.skip("several instances of one group"):
        cases.main(World, CASES)
