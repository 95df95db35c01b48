"""Files -> `retrytoll ingest` -> the exact rows: grown, compressed, repeated, in odd zones."""

import datetime
import gzip
import json
import os
import shutil
import signal
import subprocess

from harness import cases, events
from harness.world import World

COUNT = 100_000 if cases.LONG else 3_000


def lines(made):
    return b"".join(events.payload(it) + b"\n" for it in made)


def zstd(path):
    """A copy compressed by the zstd program, or None without one."""
    if not shutil.which("zstd"):
        print("SKIPPED (no zstd): a file compressed by zstd")
        return None
    copy = path.with_suffix(".zst")
    subprocess.run(["zstd", "-q", "-f", str(path), "-o", str(copy)], check=True)
    return copy


def gzipped(path):
    copy = path.with_suffix(".gz")
    copy.write_bytes(gzip.compress(path.read_bytes()))
    return copy


def due(made):
    """What a file of these lines gives: partition 0, the line's number."""
    return events.Expected([(0, number, events.payload(it)) for number, it in enumerate(made)])


def version_of(w):
    """The table's version; -1 before the first."""
    return max((int(p.stem) for p in (w.table / "_delta_log").glob("*.json")), default=-1)


def grown(w):
    """F45: a file that grew and is ingested again, plain, gzipped, by zstd, and under another name:
    each event once."""
    made = events.events(w.rng, COUNT)
    path = w.folder / "calls.jsonl"
    third = COUNT // 3
    for end, copy in [(third, None), (2 * third, gzipped), (COUNT - 5, zstd), (COUNT, None)]:
        path.write_bytes(lines(made[:end]))
        for _ in range(2):
            w.ingest((copy and copy(path)) or path)
            w.same_rows(due(made[:end]))
    other = w.folder / "copied.jsonl"
    shutil.copy(path, other)
    for again in [path, other, gzipped(path), zstd(path)]:
        if again:
            w.ingest(again)
    w.same_rows(due(made))
    assert len(w.query("SELECT DISTINCT source FROM attempts")) == 1


def half_a_line(w):
    """F45: a last line that is still being written is left for the next time; a shorter file is refused."""
    made = events.events(w.rng, 50)
    whole = lines(made)
    path = w.folder / "calls.jsonl"
    for cut in [len(whole) - 20, len(whole) - 1, len(whole)]:
        path.write_bytes(whole[:cut])
        w.ingest(path)
        # Without its line feed alone the last line is whole.
        w.same_rows(due(made[:49] if cut == len(whole) - 20 else made))
    path.write_bytes(lines(made[:30]))
    assert "--source NAME" in w.ingest(path, code=1).text()
    w.same_rows(due(made))
    assert not (w.lake / "dead-letters.jsonl").read_text()


def begin_alike(w):
    """Two files that begin with the same line are two sources, each read once."""
    made = events.events(w.rng, 60)
    ones, others = made[:30], made[:1] + made[30:]
    paths = []
    for name, part in [("one", ones), ("other", others)]:
        path = w.folder / f"{name}.jsonl"
        path.write_bytes(lines(part))
        paths.append(path)
    for _ in range(2):
        w.ingest(*paths)
    sources = [s for s, in w.query("SELECT DISTINCT source FROM attempts ORDER BY 1")]
    assert len(sources) == 2, sources
    w.same_rows(due(ones), f"source = '{sources[0]}'")
    w.same_rows(due(others), f"source = '{sources[1]}'")


def duplicates(w):
    """F49, M31: the same event twice in a file, and again after a restart: one row; what is no event is
    in the dead-letter file once, with its position."""
    made = events.events(w.rng, 100)
    for it in made:
        it["ts"] = "2026-11-01T10:00:00Z"
    path = w.folder / "calls.jsonl"
    text = lines(made[:50]) + b"\n" + b'{"request_id":\n' + lines(made[40:60])
    log = [(0, n, line or None) for n, line in enumerate((text + lines(made[55:])).split(b"\n")[:-1])]
    for content in [text, text, text + lines(made[55:])]:
        path.write_bytes(content)
        w.ingest(path)
    expected = events.Expected(log)
    assert expected.bad == {(0, 51)} and expected.repeats == 15
    w.same_rows(expected)
    letters = [json.loads(x) for x in (w.lake / "dead-letters.jsonl").read_text().splitlines()]
    assert [(x["partition"], x["offset"], x["reason"]) for x in letters] == [(0, 51, "invalid_json")], letters


# What a caller wrote, the instant in UTC, and so the day that its row stands under.
TIMES = [
    ("2026-11-02T01:30:00+08:00", "2026-11-01 17:30:00"),
    ("2026-11-01T20:00:00-05:30", "2026-11-02 01:30:00"),
    ("2026-11-01T23:59:59.999999Z", "2026-11-01 23:59:59.999999"),
    ("2026-11-02T00:00:00Z", "2026-11-02 00:00:00"),
    # No such hour in Berlin, and none in New York where no zone is given: an instant all the same.
    ("2026-03-29T02:30:00+01:00", "2026-03-29 01:30:00"),
    ("2026-03-08T02:30:00", "2026-03-08 02:30:00"),
    # The hour that comes twice in New York.
    ("2026-11-01T01:30:00-04:00", "2026-11-01 05:30:00"),
    ("2026-11-01T01:30:00-05:00", "2026-11-01 06:30:00"),
    (1793491199, "2026-10-31 23:59:59"),
]


def zones(w):
    """F13, M25: the process's zone changes nothing, days are UTC's."""
    made = events.events(w.rng, len(TIMES))
    for it, (given, _) in zip(made, TIMES):
        it["ts"] = given
    for zone in ["Asia/Singapore", "America/New_York", "UTC"]:
        w.lake = w.folder / zone.replace("/", "-")
        path = w.folder / "calls.jsonl"
        path.write_bytes(lines(made))
        w.ingest(path, TZ=zone)
        w.same_rows(due(made))
        found = w.query("SELECT ts::TEXT, date::TEXT FROM attempts ORDER BY source_offset")
        for (ts, date), (given, utc) in zip(found, TIMES, strict=True):
            assert ts.removesuffix("+00") == utc and date == utc[:10], (zone, given, ts, date)
        folders = {p.parent.name for p in w.table.rglob("date=*/*.parquet")}
        assert folders == {f"date={utc[:10]}" for _, utc in TIMES}, folders


def across_midnight(w):
    """F6: a thousand events that alternate across midnight make at most two files per flush."""
    made = events.events(w.rng, 1_000)
    for number, it in enumerate(made):
        it["ts"] = "2026-11-01T23:59:59.5Z" if number % 2 else "2026-11-02T00:00:00.5Z"
    path = w.folder / "calls.jsonl"
    path.write_bytes(lines(made))
    w.ingest(path)
    w.same_rows(due(made))
    added = {}
    for version, _ in w.actions("add"):
        added[version] = added.get(version, 0) + 1
    assert added and max(added.values()) <= 2, added
    assert w.query("SELECT date::TEXT, count(*) FROM attempts GROUP BY 1 ORDER BY 1") == [
        ("2026-11-01", 500), ("2026-11-02", 500)]


def killed(w):
    """kill -9 in the middle of a file that is ingested again and again: each event once."""
    made = events.events(w.rng, COUNT * 50)
    path = w.folder / "calls.jsonl"
    path.write_bytes(lines(made))
    flags = ["--lake", w.lake, "--set", "flush.interval=100ms", "--set", "flush.interval_behind=100ms"]
    partial = 0
    # After the claim, in a file, before and after a commit: some before the first row of their run, some after it.
    for fault in ["claimed=kill", "file-begun:3=kill", "committed=kill", "put:3=kill", "file-begun:9=kill 5ms", "landed:2=kill"]:
        w.start("ingest", path, *flags, env={"FAULTS": fault}).ends(-signal.SIGABRT)
        partial += 0 < w.count() < len(made)
    assert partial, "no kill fell between the first row and the last"
    w.ingest(path)
    w.same_rows(due(made))


def alerts(w):
    """`ingest --alerts`: a file of yesterday's fires one alert, to a file and to stdout; a second one, of
    which the share is low, lessens it, then resolves it. Reading nothing new decides nothing."""
    start = datetime.datetime.now(datetime.UTC).replace(minute=0, second=0, microsecond=0) - datetime.timedelta(hours=20)

    def written(name, first_minute, count, refused):
        """An operation a minute, a dollar each; so many of them at the second try only."""
        made = []
        for number in range(count):
            ts = start + datetime.timedelta(minutes=first_minute + number)
            it = {"request_id": f"{name}-{number}", "model": "gpt-4o", "service": "shop", "ts": ts.isoformat()}
            answer = {"decision": "success", "input_tokens": 0, "output_tokens": 100_000}
            unusable = answer | {"decision": "retry", "status_code": 200, "error_type": "JSONDecodeError"}
            tries = [unusable, answer] if number < refused else [answer]
            made += [it | {"attempt": n} | each for n, each in enumerate(tries)]
        path = w.folder / f"{name}.jsonl"
        path.write_bytes(lines(made))
        return path

    told = w.folder / "alerts.jsonl"
    events_of = lambda text: [json.loads(x) for x in text.splitlines()]
    states = lambda: [(e["data"]["state"], e["data"]["entity"]) for e in events_of(told.read_text())]
    ids = lambda: {e["id"] for e in events_of(told.read_text())}
    # One rule alone: what is billed twice is an alert of its own.
    alone = ["--set", "alerts.off=repeated_billing,retry_storm,doomed_outage,usage_coverage,unpriced"]
    first = written("first", 0, 300, 40)
    w.ingest(first, "--alerts", told, *alone)
    assert states() == [("firing", "shop")], states()
    # 200 operations are there after minute 199; more than an hour behind, a day is looked at by the hour.
    at = events_of(told.read_text())[0]["data"]["at"]
    assert at == (start + datetime.timedelta(minutes=240)).strftime("%Y-%m-%dT%H:%M:%SZ"), at
    # It fires still: told again under its id, on stdout this time.
    args = [os.environ["RETRYTOLL_BIN"], "ingest", first, "--lake", w.lake, "--alerts", "-", *alone]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RETRYTOLL_")}
    out = subprocess.run(args, check=True, capture_output=True, text=True, env=clean).stdout
    assert {e["id"] for e in events_of(out)} == ids() and len(events_of(out)) == 1, out
    # By the hour, of operations so far and 40 retries: 40 of 580 dollars are 6.9 %, under 90 % of the 8 % of
    # an error; 40 of 940 are 4.3 %, under 90 % of 5 %.
    w.ingest(written("second", 300, 600, 0), "--alerts", told, *alone)
    severities = {e["id"]: e["data"]["severity"] for e in events_of(told.read_text())}
    assert list(severities.values()) == ["error", "warning", "warning"], severities
    assert states()[-1] == ("resolved", "shop"), states()
    w.ingest(first, "--alerts", told, *alone)
    assert len(ids()) == 3 and states()[-1] == ("resolved", "shop"), states()


CASES = [alerts, grown, half_a_line, begin_alike, duplicates, zones, across_midnight, killed]

if __name__ == "__main__":
    cases.main(World, CASES)
