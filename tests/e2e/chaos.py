"""Kills at every named point and at random moments, while three instances read a topic: each row once.

    chaos.py [--kills N] [--seed S] [--from K]

A round is 25 kills on a topic and a lake of its own. An instance dies at a named point of the protocol
(tests/faults; N milliseconds after it, for what lies within other programs), or it is killed from
outside, or frozen past its session and thawed. It starts again with other flush settings, at once or
so late that the others have taken over. Meanwhile alerts are decided, hours rolled up, files
compacted, orphans vacuumed, and all attempts priced anew by a command that is killed, too. At the end of a round everything is read to its end, and DuckDB, Polars
and delta-rs must find what was produced, each row once.
The seed makes the plan; the moment at which a process dies is the machine's.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter

from harness import broker, cases, events
from harness.world import World, faulty, foreign_read, words

PRICES = pathlib.Path(__file__).parents[2] / "crates/core/data/prices.json"
ROUND = 25
INSTANCES = 3
PARTITIONS = 8
# Between two events, by the broker's timestamps: hours pass in a round, and no repeat leaves the dedupe horizon.
EVENT_MS = 9_000
SPAN_MS = 3 * 86_400_000
# Events between calm and retries.
TURN = 400
TICK = "2s"
OLD_S = 30
# What only the leader passes; the last ones need commits, orphans and hours, so they come late.
EARLY = ["alert-decided", "alert-sent", "alert-marked", "compacted"]
LATE = ["rollup-files", "vacuum-listed", "vacuum-removed", "checkpoint-begun", "checkpoint-written"]
# What no instance passes, but a command beside them.
BY_HAND = ["edited"]
PATIENCE_S = 15
RULES_OFF = "retry_storm,doomed_outage,pipeline,retry_share,repeated_billing,usage_coverage,unpriced"


def points():
    listed = subprocess.run([faulty()], env={"FAULTS": "list"}, check=True, capture_output=True, text=True)
    return listed.stdout.split()


class Figures:
    """Of a whole run."""

    def __init__(self):
        self.kills, self.rows, self.lost, self.doubled, self.rounds = Counter(), 0, 0, 0, 0
        self.recovery_s, self.repriced = 0.0, 0

    def __str__(self):
        named = sum(n for what, n in self.kills.items() if what not in ("random", "frozen"))
        return (f"kills {self.kills.total()} ({named} at {len(self.kills.keys() - {'random', 'frozen'})} named points, "
                f"{self.kills['random']} at random, {self.kills['frozen']} frozen), rounds {self.rounds}, "
                f"rows {self.rows}, lost {self.lost}, doubled {self.doubled}, repriced {self.repriced} times, "
                f"longest from a death to the next claim {self.recovery_s:.1f} s")


class Round:
    def __init__(self, world, rng, kills, figures):
        self.w, self.rng, self.figures, self.left = world, rng, figures, kills
        self.lock = threading.RLock()
        self.topic = world.topic(PARTITIONS)
        world.beside(self.topic, "alerts")
        world.beside(self.topic, "breaker", config={"cleanup.policy": "compact"})
        named = points()
        common = [p for p in named if p not in EARLY + LATE + BY_HAND]
        outside = ["random"] * (ROUND - len(named) - 2) + ["frozen"] * 2
        self.common = rng.sample(common + outside, len(common + outside))
        self.leaders = rng.sample(EARLY, len(EARLY)) + rng.sample(LATE, len(LATE))
        self.begun_ms = int(time.time() * 1000) - SPAN_MS
        self.produced = 0
        self.failed, self.missed = [], []

    # --- traffic ---

    def produce(self, count):
        """In turns calm events of the last days, of which hours are rolled up, and retries of now, each time of another
        service, so that an alert fires soon: its clock is ours as soon as a partition is silent."""
        with self.lock:
            now, made = int(time.time() * 1000), f"r{self.produced}"
            turn, is_now = divmod(self.produced // TURN, 2)
            if is_now:
                records = events.mixture(self.rng, count, PARTITIONS, made)
                named = b'"service":"shop-%d"' % turn
                records = [(p, value and value.replace(b'"service":"shop"', named)) for p, value in records]
            else:
                calm = {"attempt": 0, "service": "shop", "model": "gpt-4o", "decision": "success", "input_tokens": 1,
                        "output_tokens": 1}
                records = [(n % PARTITIONS, events.payload(calm | {"request_id": f"{made}-{n}"})) for n in range(count)]
            timed = []
            for record in records:
                then = self.begun_ms + self.produced * EVENT_MS
                timed.append((*record, now if is_now else min(then, now)))
                self.produced += 1
            broker.produce(self.topic, timed)

    def age_orphans(self):
        """What was begun long ago and never finished looks old enough for vacuum."""
        now = time.time()
        for path in self.w.table.glob("*/*.parquet"):
            try:
                if now - path.stat().st_mtime > OLD_S:
                    os.utime(path, (now - 3 * 86_400,) * 2)
            except FileNotFoundError:
                pass  # vacuum was there first

    # --- instances ---

    def next_fault(self, leads):
        """What is to happen next to an instance, or None."""
        with self.lock:
            if leads and self.leaders:
                return self.leaders.pop(0)
            return self.common.pop() if self.common else None

    def is_over(self):
        return self.left <= 0 or self.failed

    def start(self, slot, fault):
        rng = self.rng
        faults = ""
        if fault not in (None, "random", "frozen"):
            number = rng.choice([1, 1, 2, 5]) if fault not in EARLY + LATE else 1
            # Within a checkpoint or a file, no point of ours is passed.
            late = f" {rng.randrange(1, 20)}ms" if rng.random() < 0.3 or fault == "checkpoint-begun" else ""
            faults = f"{fault}:{number}=kill{late}"
        interval = rng.choice(["100ms", "250ms", "700ms", "2s"])
        return self.w.run(
            self.topic, env={"FAULTS": faults}, kafka__instance_id=f"{self.topic}-{slot}", jobs__tick=TICK,
            flush__interval=interval, alerts__off=RULES_OFF, alerts__retries_per_hour=5, alerts__heartbeat="false",
            maintain__log_every="1s", maintain__compact_every="1s", maintain__vacuum_every="1s")

    def life(self, slot):
        """Starts an instance, sees it die, and again, until the round is over."""
        leads, died = slot == 0, None
        while not self.is_over():
            fault = self.next_fault(leads)
            toll = self.start(slot, fault)
            self.produce(160)
            is_claimed, led = False, time.monotonic()
            deadline = time.monotonic() + (self.rng.uniform(1, 4) if fault == "random" else
                                           4 * PATIENCE_S if fault in EARLY + LATE else PATIENCE_S)
            while toll.process.poll() is None and not self.failed:
                if not is_claimed and toll.told("partition claimed"):
                    is_claimed = True
                    if died is not None:
                        with self.lock:
                            self.figures.recovery_s = max(self.figures.recovery_s, time.monotonic() - died)
                if is_claimed:
                    leads = 0 in toll.owned()
                if leads:
                    led = time.monotonic()
                if fault == "frozen" and is_claimed:
                    self.freeze(toll)
                    break
                if self.is_over() if fault is None else time.monotonic() > deadline:
                    break
                if fault is None and leads and self.leaders:
                    break  # it leads by now, and should die of it
                if fault in EARLY + LATE:
                    if time.monotonic() - led > PATIENCE_S:
                        break  # another leads
                    self.age_orphans()
                    self.produce(10)
                threading.Event().wait(0.1)
            died = time.monotonic()
            self.end(toll, fault)
            if self.rng.random() < 0.15:
                threading.Event().wait(7)  # the others take over

    def freeze(self, toll):
        toll.send(signal.SIGSTOP)
        threading.Event().wait(self.rng.uniform(3, 9))
        toll.send(signal.SIGCONT)
        threading.Event().wait(self.rng.uniform(0, 2))

    def end(self, toll, fault):
        code = toll.process.poll()
        assert code in (None, -signal.SIGABRT), f"{toll.name} ended with {code}: {toll.text()[-3000:]}"
        toll.kill()
        with self.lock:
            if fault is None or code is None and fault not in ("random", "frozen"):
                self.figures.kills["random"] += 1
                if fault is not None:
                    # It was not passed, as when another leads by now: it is for a later one.
                    (self.leaders if fault in EARLY + LATE else self.common).append(fault)
                    self.missed.append(fault)
                    assert len(self.missed) <= ROUND, f"not passed in time: {self.missed}"
                return
            self.figures.kills[fault] += 1
            self.left -= 1

    def guarded(self, work, *args):
        try:
            work(*args)
        except BaseException:
            self.failed.append(traceback.format_exc())

    def edit(self):
        """Prices all there is anew, by a table of another name with the same prices; killed once, then to its end, as
        long as others leave it a chance."""
        prices = self.w.folder / "renamed.json"
        prices.write_bytes(PRICES.read_bytes())
        fault = "edited=kill"
        while not self.is_over():
            toll = self.w.start("maintain", "reprice", "--since", "30d", "--lake", self.w.lake, *words({"prices.file": prices}),
                                env={"FAULTS": fault})
            code = toll.process.wait()
            if code == -signal.SIGABRT:
                with self.lock:
                    self.figures.kills["edited"] += 1
                    self.left -= 1
                fault = ""
            self.figures.repriced += code == 0
            assert code in (0, -signal.SIGABRT) or "meanwhile" in toll.text() or "no lake" in toll.text(), toll.text()
            threading.Event().wait(5)

    def run(self):
        slots = [threading.Thread(target=self.guarded, args=(self.life, slot)) for slot in range(INSTANCES)]
        slots.append(threading.Thread(target=self.guarded, args=(self.edit,)))
        for thread in slots:
            thread.start()
        for thread in slots:
            thread.join()
        assert not self.failed, "\n".join(self.failed)
        self.check()

    # --- the end ---

    def check(self):
        w = self.w
        # In a group of its own: members that were killed are waited for by theirs.
        w.read_all(self.topic, kafka__group=f"{self.topic}-last", jobs__tick=TICK, alerts__off=RULES_OFF,
                   alerts__retries_per_hour=5)
        expected = events.Expected(broker.log(self.topic))
        found = w.rows()
        lost, doubled = (expected.rows - found).total(), (found - expected.rows).total()
        self.figures.rows += found.total()
        self.figures.lost += lost
        self.figures.doubled += doubled
        w.check(self.topic, repeats=True)
        db, facts = foreign_read.load(w.table)
        for reader in ("deltalake", "polars"):
            told = foreign_read.differences(db, w.table, facts["version"], reader)
            assert told == {"rows": found.total(), "only_there": 0, "only_here": 0}, (reader, told)
        self.check_rollup()
        self.check_alerts()

    def sql(self, query):
        toll = self.w.start("sql", "--lake", self.w.lake, "--since", "30d", "--format", "json", query).ends(0)
        return json.loads("\n".join(toll.lines()))

    def check_rollup(self):
        """Hours of the rollup and attempts say the same."""
        figures = "sum({}) AS n, sum(cost_confirmed) AS confirmed, sum(cost_expected) AS expected"
        rolled = self.sql(f"SELECT {figures.format('attempts')} FROM rollup")
        asked = self.sql(f"SELECT {figures.format('1')} FROM attempts")
        assert rolled == asked, (rolled, asked)

    def check_alerts(self):
        """Of each alert the transitions are numbered without a gap, all are marked, and what was sent is
        one state under each id."""
        rows = self.sql("SELECT dedup_key, transition, max(revision) AS revision, count(DISTINCT state) AS states, "
                        "any_value(id) AS id FROM alerts GROUP BY 1, 2 ORDER BY 1, 2")
        of = Counter()
        for row in rows:
            of[row["dedup_key"]] += 1
            assert row["transition"] == of[row["dedup_key"]], row
            assert row["revision"] == 1 and row["states"] == 1, row
        told = {}
        for message in broker.messages(f"{self.topic}.alerts"):
            event = json.loads(message.value())
            it = event["data"]
            state = told.setdefault(event["id"], (it["dedup_key"], it["transition"], it["state"]))
            assert state == (it["dedup_key"], it["transition"], it["state"]), (state, it)
        assert len(told) == len(rows), (len(told), len(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1_000 if cases.LONG else ROUND)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--from", type=int, default=0, dest="done", metavar="K", help="kills that were done before")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    figures, started = Figures(), time.monotonic()
    print(f"seed {seed}", flush=True)
    for first in range(args.done, args.kills, ROUND):
        rng = random.Random(f"{seed} {first}")
        w = World("chaos", rng)
        try:
            Round(w, rng, min(ROUND, args.kills - first), figures).run()
            figures.rounds += 1
        except Exception:
            traceback.print_exc(limit=-4, file=sys.stdout)
            w.evidence()
            print(f"FAILED after {figures}; the same plan: --seed {seed} --from {first}")
            return 1
        finally:
            w.close()
        print(f"{first + ROUND} of {args.kills} after {time.monotonic() - started:.0f} s: {figures}", flush=True)
    if args.kills >= ROUND:
        assert not (missed := set(points()) - set(figures.kills)), f"points that no instance passed: {missed}"
    return 0


if __name__ == "__main__":
    sys.exit(cases.skip("kills at named points") or main())
