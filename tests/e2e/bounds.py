"""Input that would fill memory: what is bounded stays bounded, and every row is there."""

import datetime
import os
import pathlib
import time

from harness import cases, events
from harness.world import World

COUNT = 1_000_000 if cases.LONG else 60_000
# What the limits of `ingest` sum up to, and the program itself.
MEMORY = 400e6
SMALL = {"RETRYTOLL_LIMITS_ENCODE": "16MB", "RETRYTOLL_LIMITS_BATCHES": "8MB", "RETRYTOLL_LIMITS_SEEN": "16MB"}


def ingest_watched(w, path, env):
    """Ingests a file; (most memory, most Parquet files open at a time) as seen while it ran."""
    toll = w.start("ingest", path, "--lake", w.lake, env=env)
    peak, open_max = 0, 0
    while toll.process.poll() is None:
        try:
            peak = max(peak, toll.peak_bytes())
            names = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{toll.process.pid}/fd").iterdir()]
            open_max = max(open_max, sum(name.endswith(".parquet") for name in names))
        except (OSError, TypeError):
            pass  # it has ended, and has no memory any more, or a file was closed
        time.sleep(0.005)  # between two looks; nothing waits for it
    toll.ends(0)
    return peak, open_max


def write(w, made):
    path = w.folder / "calls.jsonl"
    with path.open("wb") as out:
        for it in made:
            out.write(events.payload(it) + b"\n")
    return path


def of_every_date(w):
    """F7: the events of 400 dates and 5,000 hours come in any order: few files are open at a time, memory
    stays within its limits, and each date has its rows."""
    first = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    hours = w.rng.sample(range(400 * 24), 5_000)
    made, due = [], {}
    for n in range(COUNT):
        at = first + datetime.timedelta(hours=w.rng.choice(hours), seconds=w.rng.randrange(3_600))
        made.append({"request_id": f"r-{n}", "attempt": 0, "model": "gpt-4o", "decision": "success", "ts": at.isoformat(),
                     "input_tokens": n % 1_000, "output_tokens": 10})
        due[at.date()] = due.get(at.date(), 0) + 1
    peak, open_max = ingest_watched(w, write(w, made), SMALL)
    print(f"{COUNT} events of {len(due)} dates: peak {peak / 1e6:.0f} MB, {open_max} files open at a time")
    found = dict(w.query("SELECT date, count(*) FROM attempts WHERE CAST(ts AS DATE) = date GROUP BY 1"))
    assert found == due
    assert 0 < open_max <= 16 + 16, open_max  # the flush's, and those that compaction merges
    assert peak < MEMORY, peak


def free_text(w):
    """Models and tenants that never repeat, as when a caller logs prompts in their place."""
    made = ({"request_id": f"r-{n}", "attempt": 0, "model": f"model {n} of {w.rng.random()}", "decision": "success",
             "tenant": f"tenant {n} " + "x" * 40, "service": f"s{n % 7}", "ts": 1_767_225_600_000 + n,
             "input_tokens": 10, "output_tokens": 10} for n in range(COUNT))
    peak, _ = ingest_watched(w, write(w, made), SMALL)
    print(f"{COUNT} models and tenants: peak {peak / 1e6:.0f} MB")
    assert w.query("SELECT count(*), count(DISTINCT model), count(DISTINCT tenant), count(cost_confirmed) FROM attempts") == [
        (COUNT, COUNT, COUNT, 0)]
    assert peak < MEMORY, peak


def never_rests(w):
    """F42: one request id and one prompt, an attempt a second for as long as there are events: bounded memory,
    operations that are cut where they may be longest, and a report that ends."""
    prompt = "sha256:" + "ab" * 32
    made = ({"request_id": "the-one", "attempt": n, "model": "gpt-4o", "decision": "retry", "status_code": 429,
             "prompt_hash": prompt, "service": "loop", "ts": 1_767_225_600_000 + 1_000 * n} for n in range(COUNT))
    peak, _ = ingest_watched(w, write(w, made), SMALL)
    print(f"{COUNT} attempts of one request: peak {peak / 1e6:.0f} MB")
    assert w.count() == COUNT
    assert peak < MEMORY, peak
    answer = w.folder / "answer.csv"
    w.start("sql", "--lake", w.lake, "--since", "2026-01-01", "--until", "2026-02-01", "--format", "csv", "-o", answer,
            "SELECT sum(attempts) AS attempts, max(attempts) AS longest FROM operations").ends(0)
    total, longest = map(int, answer.read_text().splitlines()[1].split(","))
    assert total == COUNT and longest <= 1_000, (total, longest)


CASES = [of_every_date, free_text, never_rests]

if __name__ == "__main__":
    cases.main(World, CASES)
