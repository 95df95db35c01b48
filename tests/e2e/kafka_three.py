"""A cluster of three loses one broker after the other: what leads moves, members come back, rows stay exact.

Starts a cluster of its own."""

import os
import pathlib
import subprocess
import sys
import tempfile

from harness import broker, cases, events
from harness.world import World

OWN = pathlib.Path(tempfile.mkdtemp(prefix="retrytoll-three-"))
PARTITIONS = 8


def script(action, number):
    subprocess.run([broker.SCRIPT, action, "--dir", str(OWN / str(number))], check=True, capture_output=True)


def kill(number):
    pid = int((OWN / str(number) / "pid").read_text())
    os.kill(pid, 9)
    cases.until(f"broker {number} is gone", lambda: not pathlib.Path(f"/proc/{pid}").exists(), 10)


def copies(topic):
    """How many brokers have all of each partition, by any broker that answers."""
    found = broker.admin().list_topics(topic, timeout=10).topics[topic].partitions
    return [len(it.isrs) for it in found.values()]


def one_broker_after_the_other_is_lost(w):
    """By kill -9, in the long run by clean stops, too, under two instances and traffic. With it go leaders of partitions,
    and in one of three cases those of the group and of the cluster. Nobody starts an instance again."""
    topic = w.topic(PARTITIONS)
    tolls = [w.run(topic) for _ in range(2)]
    cases.until("each has its partitions", lambda: all(toll.is_up() and toll.owned() for toll in tolls), 60)
    due = 0
    lost = w.rng.sample([1, 2, 3], 3) * 5 if cases.LONG else [w.rng.choice([1, 2, 3])]
    for turn, number in enumerate(lost):
        beside, then = (events.mixture(w.rng, count, PARTITIONS, f"{count}-{turn}") for count in (600, 300))
        due += len(beside) + len(then)
        feed = broker.Feed(topic, beside, 3)
        if turn % 4 == 1:
            script("down", number)
        else:
            kill(number)
        feed.finish()
        broker.produce(topic, then)
        cases.until(f"all is read without broker {number}",
                    lambda: all(toll.is_up() for toll in tolls) and w.committed(topic) >= due, 60)
        script("up", number)
        cases.until("all have all again", lambda: min(copies(topic)) == 3, 60)
    for toll in tolls:
        toll.stop(20)
    w.read_all(topic)
    w.check(topic, repeats=True)
    print(f"lost one after the other: {lost}")


CASES = [one_broker_after_the_other_is_lost]

if __name__ == "__main__":
    if broker.start_own(OWN, "--brokers", "3"):
        cases.main(World, CASES)
    print("SKIPPED (no Kafka: scripts/kafka could not start a cluster, see above): brokers that are lost")
    sys.exit(0)
