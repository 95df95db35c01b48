"""A large backlog over many partitions: memory stays below a cap, and each record is one row.

    RETRYTOLL_BACKLOG=50000000 kafka_backlog.py    so many events, in place of those of the tier
"""

import os
import time
from decimal import Decimal

from harness import broker, cases, events
from harness.world import World

PARTITIONS = 32
CAP = 512e6
# 2 GB of payloads in the long tier.
PAYLOAD = (b'{"request_id":"0190a4c2-7b1e-7c3d-9f00-%012x","attempt":0,"service":"checkout","model":"gpt-4o-mini",'
           b'"provider":"openai","decision":"success","tenant":"t-%d","elapsed_ms":%d,"status_code":200,'
           b'"input_tokens":1000,"cached_input_tokens":200,"output_tokens":100,"max_tokens":1024,"streamed":false,'
           b'"prompt_hash":"sha256:%064x","labels":{"region":"eu-west-1","release":"2026.11.2","caller":"cart"}}')
COUNT = int(os.environ.get("RETRYTOLL_BACKLOG", 0)) or (5_000_000 if cases.LONG else 1_000_000)


def under_a_cap(w):
    """F11: everything is there before the first instance starts."""
    topic = w.topic(PARTITIONS)
    started, size = time.monotonic(), 0

    def records(first, last):
        nonlocal size
        for n in range(first, last):
            payload = PAYLOAD % (n, n % 50, n % 60_000, n * 0x9E3779B97F4A7C15 % (1 << 256))
            size += len(payload)
            yield n % PARTITIONS, payload

    for first in range(0, COUNT, 1_000_000):
        broker.produce(topic, records(first, min(COUNT, first + 1_000_000)), compression_type="lz4", linger_ms=50)
    produced = time.monotonic() - started
    toll = w.run(topic, flush__interval="5s", flush__interval_behind="60s", jobs__tick="1h")
    peak, began = 0, time.monotonic()
    while w.committed(topic) < COUNT:
        assert toll.is_up()
        peak = max(peak, toll.peak_bytes())
        assert peak < CAP, f"{peak / 1e6:.0f} MB"
        time.sleep(0.2)  # between two looks
    took = time.monotonic() - began
    peak = max(peak, toll.peak_bytes())
    seconds = toll.processor_seconds()
    toll.stop(20)
    print(f"{COUNT} events, {size / 1e6:.0f} MB of payloads on {PARTITIONS} partitions, produced in {produced:.0f} s: in the "
          f"lake after {took:.0f} s, {seconds:.0f} CPU-s, {COUNT / seconds:.0f} events per CPU-second, peak {peak / 1e6:.0f} MB")
    assert peak < CAP, f"{peak / 1e6:.0f} MB"
    each = events.cost("gpt-4o-mini", 1_000, 100, 200)
    rows, places, reach, cost = w.query(
        "SELECT count(*), count(DISTINCT source_partition * 1000000000000 + source_offset), "
        "(SELECT sum(n) FROM (SELECT max(source_offset) + 1 AS n FROM attempts GROUP BY source_partition)), "
        "sum(cost_confirmed)::TEXT FROM attempts")[0]
    assert rows == places == reach == COUNT, (rows, places, reach)
    assert Decimal(cost) == each * COUNT, (cost, each * COUNT)


CASES = [under_a_cap]

if __name__ == "__main__":
    if not cases.skip("a large backlog"):
        cases.main(World, CASES)
