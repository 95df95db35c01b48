"""A network that is cut, a broker that dies: members come back, rows stay exact, and a stop is a stop.

Starts a broker of its own, reached through a proxy that can be cut."""

import os
import pathlib
import subprocess
import sys
import tempfile

from harness import broker, cases, events
from harness.proxy import Proxy
from harness.world import World

OWN = pathlib.Path(tempfile.mkdtemp(prefix="retrytoll-cuts-"))


def start_broker():
    """A broker with a proxied listener; None where there can be none. Clients of KAFKA_BOOTSTRAP go past the proxy."""
    proxy = Proxy(lambda: int((OWN / "proxied").read_text()))
    if broker.start_own(OWN, "--proxied", str(proxy.port)):
        return proxy
    proxy.close()
    return None


def through(proxy):
    return f"127.0.0.1:{proxy.port}"


def a_member_without_a_network(w):
    """A member is cut off past its session, with rows that it has not committed: another takes over; back on the
    network its commit is refused and it goes on. Once with closed connections, once with silent ones."""
    topic = w.topic(4)
    a = w.run(topic, bootstrap=through(PROXY), flush__interval="10m", flush__interval_behind="30m").claimed(4)
    total = 0
    for number, (cut, heal) in enumerate([(PROXY.cut, PROXY.heal), (PROXY.stall, PROXY.heal)]):
        broker.produce(topic, events.mixture(w.rng, 300, 4, f"before-{number}"))
        total += 300
        cases.until("A holds rows", lambda: a.is_up() and len(list(w.table.glob("*/*.parquet"))) > len(w.actions("add")), 20)
        cut()
        b = w.run(topic).claimed(4)
        broker.produce(topic, events.mixture(w.rng, 300, 4, f"cut-{number}"))
        total += 300
        w.wait_rows(total, 30)
        heal()
        cases.until("A is back", lambda: a.is_up() and b.is_up() and a.owned() and len(a.owned()) + len(b.owned()) == 4, 60)
        b.stop(20)
        cases.until("A owns all", lambda: a.is_up() and len(a.owned()) == 4, 60)
    broker.produce(topic, events.mixture(w.rng, 300, 4, "after"))
    a.stop(20)
    w.read_all(topic)
    w.check(topic, repeats=True)


def stopped_while_the_broker_is_down(w):
    """F19: SIGTERM while no broker answers: it ends in time, and what it held is committed."""
    topic = w.topic(4)
    a = w.run(topic, bootstrap=through(PROXY), flush__interval="10m", flush__interval_behind="30m").claimed(4)
    broker.produce(topic, events.mixture(w.rng, 300, 4, "held"))
    cases.until("rows are held", lambda: a.is_up() and list(w.table.glob("*/*.parquet")), 20)
    bad = len(events.Expected(broker.log(topic)).bad)
    PROXY.cut()
    a.send(15)
    code = a.process.wait(15)
    PROXY.heal()
    # Dead letters can't be acknowledged then, so nothing may pass them: it must say so, and no more.
    assert code == (1 if bad else 0), (code, a.text()[-2000:])
    w.read_all(topic)
    w.check(topic, repeats=True)


def the_broker_dies(w):
    """The broker is killed and comes back, twice, while an instance runs: it goes on by itself."""
    topic = w.topic(4)
    a = w.run(topic).claimed(4)
    for number in range(2):
        broker.produce(topic, events.mixture(w.rng, 300, 4, f"r{number}"))
        port = os.environ["KAFKA_BOOTSTRAP"].split(":")[1]
        pid = int((OWN / "pid").read_text())
        os.kill(pid, 9)
        cases.until("the broker is gone", lambda: not pathlib.Path(f"/proc/{pid}").exists(), 10)
        subprocess.run([broker.SCRIPT, "up", "--dir", str(OWN), "--port", port, "--proxied", str(PROXY.port)],
                       check=True, stdout=subprocess.DEVNULL)
        broker.produce(topic, events.mixture(w.rng, 300, 4, f"back-{number}"))
        w.wait_rows(600 * (number + 1), 60)
    a.stop(20)
    w.check(topic, repeats=True)


CASES = [a_member_without_a_network, stopped_while_the_broker_is_down, the_broker_dies]

if __name__ == "__main__":
    if PROXY := start_broker():
        cases.main(World, CASES)
    print("SKIPPED (no Kafka: scripts/kafka could not start one, see above): cut networks")
    sys.exit(0)
