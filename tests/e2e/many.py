"""Reports over more events than a golden case holds; what they must say is found a second time, here."""

import csv
import datetime
from collections import defaultdict

from harness import cases, events
from harness.world import World

COUNT = 100_000 if cases.LONG else 5_000
DAY = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()


def stamp(seconds):
    return datetime.datetime.fromtimestamp(DAY + seconds, datetime.UTC).isoformat()


def report(w, job, *args):
    """[{column: text}]"""
    path = w.folder / "answer.csv"
    w.start("report", job, "--lake", w.lake, "--since", "2026-03-01", "--until", "2026-03-02", "--format", "csv",
            "-o", path, *args).ends(0)
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def write(w, name, made):
    path = w.folder / name
    path.write_bytes(b"".join(events.payload(it) + b"\n" for it in made))
    return path


def late(w):
    """F29: two files of a day, one in 20 lines hours behind: each line is there, and those that are late are told."""
    due, files, keys = defaultdict(list), [], defaultdict(int)
    for name in ["one", "two"]:
        came = []
        for n in range(COUNT):
            ts = w.rng.uniform(0, 86_399)
            behind = w.rng.uniform(0, 6 * 3_600) if w.rng.random() < 0.05 else w.rng.uniform(0, 60)
            came.append((ts + behind, ts, f"{name}-{n}", w.rng.choice(["shop", "forms", "chat"])))
        reached, made = -1, []
        for _, ts, request, service in sorted(came):
            minute = int(ts) // 60
            if reached - minute > 120:
                due[service].append(60_000 * (reached - minute))
            reached = max(reached, minute)
            keys[service] += 1
            made.append({"request_id": request, "attempt": 0, "service": service, "model": "gpt-4.1",
                         "decision": "success", "ts": stamp(ts), "elapsed_ms": 500})
        files.append(write(w, f"{name}.jsonl", made))
    w.ingest(*files)
    assert w.count() == 2 * COUNT
    rows = {row["key"]: row for row in report(w, "late")}
    assert rows.keys() == due.keys() and len(due) == 3, (rows.keys(), due.keys())
    for service, behind in due.items():
        row, behind = rows[service], sorted(behind)
        found = [int(row[it]) for it in ["late", "attempts", "late_p50_ms", "late_max_ms", "late_cost_unknown"]]
        # No line has usage: no cost is known.
        assert found == [len(behind), keys[service], behind[(len(behind) - 1) // 2], behind[-1], len(behind)], (row, behind)
    by_file = report(w, "late", "--by", "partition")
    assert sum(int(row["late"]) for row in by_file) == sum(map(len, due.values())) and len(by_file) == 2, by_file


def retry_pair(n, began):
    """An operation that is limited and retries at this second."""
    limited = {"request_id": f"r{n}", "service": "shop", "provider": "openai", "model": "gpt-4.1", "status_code": 429}
    return [limited | {"attempt": 0, "decision": "retry", "ts": stamp(began - 2), "elapsed_ms": 500},
            limited | {"attempt": 1, "decision": "give_up", "ts": stamp(began + 0.25), "started_at": stamp(began),
                       "elapsed_ms": 250}]


def retries_that_are_not_synchronized(w):
    """M28: 80 retries in each tenth of a second, at random: no instant stands out, until a thousand come at one."""
    at, made = 36_000.0, []
    for n in range(COUNT):
        at += w.rng.expovariate(800)
        made += retry_pair(n, at)
    w.ingest(write(w, "stream.jsonl", made))
    assert report(w, "synchronized_retries") == []
    at = (36_000.0 + at) // 2 + 0.05
    together = [it for n in range(COUNT, COUNT + 1_000) for it in retry_pair(n, at)]
    w.ingest(write(w, "together.jsonl", together))
    [row] = report(w, "synchronized_retries")
    among = sum(1 for it in made if it["attempt"] and at - 0.05 <= seconds(it) < at + 0.05)
    assert [row["key"], int(row["retries"]), int(row["operations_max"])] == ["openai/gpt-4.1", *[1_000 + among] * 2], row


def seconds(it):
    return datetime.datetime.fromisoformat(it["started_at"]).timestamp() - DAY


if __name__ == "__main__":
    cases.main(World, [late, retries_that_are_not_synchronized])
