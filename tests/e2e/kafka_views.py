"""Kills and rebalances: no query fails beside them, and the views say the same afterwards; so do the rollup's reports."""

import csv
import shutil
import threading
import time

from harness import broker, cases, events
from harness.world import Toll, World

COUNT = 100_000 if cases.LONG else 4_000
KILLS = 100 if cases.LONG else 20
# Each is over the whole lake.
QUERIES = ["SELECT count(*) AS attempts, sum(cost_expected) AS expected FROM attempts",
           "SELECT count(*) AS operations, sum(attempts) AS attempts FROM operations",
           "SELECT service, error_class, count(*) AS attempts FROM attempts WHERE is_retry GROUP BY 1, 2"]


class Asking(threading.Thread):
    """Asks the lake each second, until told to stop. The first failure ends it."""

    def __init__(self, w):
        super().__init__(daemon=True)
        self.w, self.stopped, self.error, self.asked, self.attempts = w, threading.Event(), None, 0, 0
        self.start()

    def run(self):
        try:
            while not self.stopped.wait(1):
                self.ask(self.asked)
                self.asked += 1
        except (AssertionError, OSError) as error:
            self.error = error

    def ask(self, n):
        toll = Toll(self.w.folder, f"query-{n}", ["sql", QUERIES[n % 3], "--lake", self.w.lake, "--format", "csv"], {})
        toll.ends(0, 120)
        found = list(csv.DictReader(toll.lines()))
        if n % 3 == 0:
            attempts = int(found[0]["attempts"])
            assert attempts >= self.attempts, f"{attempts} attempts, after {self.attempts}"
            self.attempts = attempts

    def finish(self):
        self.stopped.set()
        self.join(120)
        assert not self.is_alive() and self.error is None, f"query {self.asked}: {self.error or 'hangs'}"
        return self.asked


def kills_beside_queries(w):
    """F25: kill -9 again and again while queries run each second: none fails, none sees fewer rows than before."""
    topic = w.topic(8)
    made = events.mixture(w.rng, COUNT, 8)
    broker.produce(topic, made[:200])
    w.read_all(topic)
    feed = broker.Feed(topic, made[200:], 2 * KILLS)
    # A member of this name takes its partitions back at once, with no session to wait for.
    static = {"kafka__instance_id": f"{topic}-1"}
    asking = Asking(w)
    for _ in range(KILLS):
        interval = w.rng.choice(["100ms", "250ms", "700ms"])
        toll = w.run(topic, flush__interval=interval, flush__interval_behind=interval, **static).claimed(8)
        threading.Event().wait(w.rng.random())  # a random moment
        assert toll.is_up()
        toll.kill()
        assert asking.is_alive(), asking.error
    feed.finish()
    w.run(topic, "--until-end", **static).ends(0, 300)
    assert asking.finish() >= KILLS // 2
    expected = w.check(topic, repeats=True)
    assert sum(expected.rows.values()) == COUNT


def operations_torn(w):
    """Records of operations whose attempts lie apart in time and partition, every other operation with times of three
    hours ago; beside them repeats, bad records and nulls."""
    three_hours_ago, ordered = time.time() - 3 * 3_600, []
    for n, it in enumerate(events.events(w.rng, COUNT)):
        number = int(it["request_id"].split("-")[1])
        if number % 2:
            it["ts"] = three_hours_ago + number + 70 * it["attempt"]
        ordered.append((n + 300 * it["attempt"], it))
    ordered.sort(key=lambda pair: pair[0])
    plan = []
    for n, (_, it) in enumerate(ordered):
        record = (w.rng.randrange(4), events.payload(it))
        plan += [record, record] if n % 20 == 0 else [record]
        if n % 30 == 0:
            plan += [(w.rng.randrange(4), None), (w.rng.randrange(4), events.bad(w.rng, n))]
    return plan


def view(w, lake, name, order):
    path = w.folder / f"{lake.name}-{name}.csv"
    w.start("sql", f"SELECT * FROM {name} ORDER BY {order}", "--lake", lake, "--format", "csv", "-o", path).ends(0)
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def kills_while_operations_are_open(w):
    """Kills, and members that come and go, between the attempts of operations: `attempts` and `operations` are, column
    by column, those of a lake that one undisturbed process made of the same topic. Lineage and times are the
    topic's, so that no column is left out."""
    topic = w.topic(4)
    disturbed = w.folder / "disturbed"
    group = {"kafka__group": f"{topic}-disturbed", "lake": disturbed}
    feed = broker.Feed(topic, operations_torn(w), 16)
    for n in range(6):
        interval = w.rng.choice(["100ms", "300ms", "1s"])
        one = w.run(topic, flush__interval=interval, kafka__instance_id=f"{topic}-1", **group)
        cases.until("it holds partitions", lambda: one.is_up() and one.owned(), 60)
        if n % 2:
            other = w.run(topic, flush__interval=interval, kafka__instance_id=f"{topic}-2", **group)
            cases.until("both hold partitions", lambda: other.is_up() and one.is_up() and other.owned(), 60)
            other.stop() if w.rng.random() < 0.5 else other.kill()
        threading.Event().wait(w.rng.random())  # a random moment
        one.kill()
    feed.finish()
    w.run(topic, "--until-end", kafka__instance_id=f"{topic}-1", **group).ends(0, 300)
    w.read_all(topic)
    w.check(topic, repeats=True)
    # A day's profile is made once, of what is there by then: just after midnight that is a matter of the moment.
    for lake in (w.lake, disturbed):
        shutil.rmtree(lake / "profile", ignore_errors=True)
    for name, order in [("attempts", "source_partition, source_offset, source_index"), ("operations", "operation_id")]:
        due, found = view(w, w.lake, name, order), view(w, disturbed, name, order)
        assert len(found) == len(due), f"{name}: {len(found)} rows, due {len(due)}"
        for n, (one, other) in enumerate(zip(found, due)):
            columns = [it for it in other if one[it] != other[it]]
            assert not columns, f"{name}, row {n}: " + ", ".join(f"{it} {one[it]!r}, due {other[it]!r}" for it in columns)
        outcomes = {row["outcome"] for row in due}
        # Both ended ones and open ones were compared.
        assert {"delivered", "abandoned", ""} <= outcomes, outcomes


REPORTS = [("toll",), ("retry_cost_share", "--by", "hour"), ("retries",), ("month",)]


def reports(w):
    """What reports over two days say, up to six hours ago: rows, and the counts beside them."""
    until = time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(time.time() - 6 * 3_600))
    told = []
    for name, *by in REPORTS:
        report = w.report(name, *by, "--since", "48h", "--until", until)
        told.append({key: report[key] for key in ["rows", "beside"]})
    assert told[0]["rows"] and told[0]["beside"]["attempts"], told
    return told


def without_rollup(w):
    rollup, aside = w.lake / "rollup", w.folder / "aside"
    rollup.rename(aside)
    told = reports(w)
    aside.rename(rollup)
    return told


def rolled_up(w):
    """Events of thirty hours up to seven hours ago: their hours are put in the table `rollup`, and again when others
    come late; reports say the same with the table and without it, and with it need no attempts of its hours."""
    topic = w.topic(4)
    made, start = events.events(w.rng, COUNT), time.time() - 37 * 3_600
    for n, it in enumerate(made):
        it["ts"] = start + n * 30 * 3_600 / COUNT
    records = [(w.rng.randrange(4), events.payload(it)) for it in made]
    late = [it for it in records if w.rng.random() < 0.02]
    assert late
    broker.produce(topic, [it for it in records if it not in late])
    first = w.read_all(topic).told("rolled up")[0]
    assert first["hours"] >= 29, first
    before = reports(w)
    assert before == without_rollup(w)
    broker.produce(topic, late)
    again = w.read_all(topic).told("rolled up")[0]
    assert again["hours"] > 0 and again["version"] > first["version"], again
    after = reports(w)
    assert before != after == without_rollup(w)
    # Files that are not there can't be read.
    for day in w.table.glob("date=*"):
        day.rename(w.folder / f"lost-{day.name}")
    assert reports(w) == after


CASES = [kills_beside_queries, kills_while_operations_are_open, rolled_up]

if __name__ == "__main__":
    if not cases.skip("kills beside queries and while operations are open, the rollup"):
        cases.main(World, CASES)
