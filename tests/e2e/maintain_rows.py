"""`retrytoll maintain reprice | forget | expire`: rows that are there are judged anew, or go and stay away."""

import contextlib
import json
import pathlib
import signal
import subprocess
import time
import tomllib
from decimal import Decimal

import duckdb

from harness import cases, events
from harness.world import World, foreign_read, words

ROOT = pathlib.Path(__file__).parents[2]

DAY_MS = 86_400_000
# 2026-01-01T00:00:00Z.
FIRST_MS = 1_767_225_600_000
KILLED = -signal.SIGABRT


def days(w, each=60, count=3, **more):
    """A lake of some days, each read as a file of its own and then again with the others, so that there are
    files that compaction replaced; [(offset, event)]."""
    made = events.events(w.rng, each * count)
    for n, it in enumerate(made):
        it["ts"] = FIRST_MS + n * count * DAY_MS // len(made)
        it |= {key: value(n) for key, value in more.items() if value(n)}
    path = w.folder / "calls.jsonl"
    for day in range(1, count + 1):
        path.write_bytes(b"".join(events.payload(it) + b"\n" for it in made[:each * day]))
        w.ingest(path)
    return list(enumerate(made))


def expected(rows):
    return events.Expected([(0, n, events.payload(it)) for n, it in rows])


@contextlib.contextmanager
def dearer(model):
    """With a model ten times as dear."""
    kept = events.PRICES[model]
    events.PRICES[model] = {k: v * 10 if "_cost" in k else v for k, v in kept.items()}
    try:
        yield
    finally:
        events.PRICES[model] = kept


def price_file(w, name, times, models):
    """The built-in table, with these models so many times as dear."""
    prices = json.loads((ROOT / "crates/core/data/prices.json").read_text())
    for model in models:
        for key, value in prices[model].items():
            if "_cost" in key:
                prices[model][key] = float(Decimal(str(value)) * times)
    path = w.folder / f"{name}.json"
    path.write_text(json.dumps(prices))
    return path


def receipts(w, what):
    return [json.loads(p.read_text()) for p in sorted((w.lake / "receipts").glob(f"*-{what}-*.json"))]


def repriced(w):
    """The attempts of a day cost what they cost by the new prices, to the last digit, and all others what they
    did; the receipt and the log say what that changed. Killed before its commit it has done nothing."""
    model = "gpt-4o-mini"
    rows = days(w)
    old, day = expected(rows), [FIRST_MS + DAY_MS, FIRST_MS + 2 * DAY_MS]
    w.same_rows(old)
    prices = ["--set", f"prices.file={price_file(w, 'dear-2026', 10, [model])}"]
    args = ["reprice", "--since", "2026-01-02", "--until", "2026-01-03", *prices]
    told = w.maintain(*args, "--dry-run").lines()
    w.maintain(*args, code=KILLED, FAULTS="edited=kill")
    w.same_rows(old)
    assert not receipts(w, "reprice")
    said = w.maintain(*args).lines()
    assert told == [said[0].replace("judged anew", "would be judged anew"), *said[1:-1]], (told, said)

    within = [(n, it) for n, it in rows if day[0] <= it["ts"] < day[1]]
    others = [(n, it) for n, it in rows if not day[0] <= it["ts"] < day[1]]
    before = expected(within)
    with dearer(model):
        anew = expected(within)
    due = expected(others)
    due.rows += anew.rows
    w.same_rows(due)
    assert anew.sum(9) > before.sum(9) > 0
    versions = w.query("SELECT DISTINCT price_version, date::TEXT FROM attempts ORDER BY 2")
    [name] = [v for v, d in versions if d == "2026-01-02"]
    assert name.startswith("dear-2026"), versions
    assert len(versions) == 3 and versions[0][0] == versions[2][0] != name, versions

    [receipt] = receipts(w, "reprice")
    assert receipt["attempts_changed"] == len(within) and receipt["price_version"] == name, receipt
    for money, column in [("cost_confirmed_usd", 8), ("cost_ceiling_usd", 9)]:
        told = receipt[money]
        assert (Decimal(told["before"]), Decimal(told["after"])) == (before.sum(column), anew.sum(column)), (money, told)
    [record] = [c["retrytollRecord"] for _, c in w.actions("commitInfo") if "retrytollRecord" in c]
    assert receipt.items() >= record.items() and receipt["version"] == max(v for v, _ in w.actions("commitInfo")), record
    assert w.maintain(*args).lines()[0].startswith("nothing to change"), "again"
    # Back again is where it was, but for who says so.
    w.maintain("reprice", "--since", "2026-01-02", "--until", "2026-01-03")
    w.same_rows(old)


def said_anew(w):
    """Every kind of attempt of the golden cases: by the same tables nothing changes; by others, a lake that was repriced
    says in every column what one says that read the same file with them."""
    lines = []
    for path in sorted((ROOT / "tests/golden").glob("*.toml")):
        case = tomllib.loads(path.read_text())
        lines += [json.dumps(case.get("defaults", {}) | it) + "\n" for it in case["events"]]
    calls = w.folder / "calls.jsonl"
    calls.write_text("".join(lines))
    (w.folder / "policy.toml").write_text('[[row]]\nclass = ["read", "server"]\nstate = "unknown"\np_billed = "0.25"\n'
                                          'source = "our bill"\ndate = "2026-11"\n')
    others = words({"source.attempt_base": 1, "source.count_layer": "sdk", "prices.file": price_file(w, "dear", 3, events.PRICES),
                    "policy.file": w.folder / "policy.toml"})
    fresh = w.folder / "fresh"
    w.ingest(calls)
    w.start("ingest", calls, "--lake", fresh, *others).ends(0)
    all_time = ["--since", "2000-01-01", "--until", "2100-01-01"]
    told = w.maintain("reprice", *all_time).lines()
    assert told[0].startswith("nothing to change"), told
    w.maintain("reprice", *all_time, *others)
    db, other = w.load(), foreign_read.load(fresh / "attempts")[0]
    columns = [name for name, *_ in db.execute("DESCRIBE attempts").fetchall()]
    assert "policy_version" in columns and len(columns) > 80, columns
    where = "ORDER BY source_offset"
    for column in columns:
        found, due = (it.execute(f"SELECT source_offset, {column} FROM attempts {where}").fetchall() for it in (db, other))
        wrong = [(f, d) for f, d in zip(found, due, strict=True) if f != d]
        assert not wrong, (column, wrong[:5])
    changed = db.execute("SELECT count(DISTINCT error_class), count(DISTINCT cost_basis), count(*) FROM attempts "
                         "WHERE price_version LIKE 'dear%'").fetchone()
    assert changed[0] >= 8 and changed[1] >= 3 and changed[2] > 500, changed


def forgotten(w):
    """A tenant's rows go from every file of the lake, whatever is killed, and read again they stay away; later ones
    are there."""
    name = {0: "acme", 1: "other"}
    rows = days(w, tenant=lambda n: name.get(n % 3))
    others = expected([(n, it) for n, it in rows if it.get("tenant") != "acme"])
    gone = len(rows) - others.rows.total()
    every = lambda: duckdb.sql(
        f"SELECT tenant, filename FROM read_parquet('{w.table}/*/*.parquet', filename=true, union_by_name=true)").fetchall()
    # Of a flush that was never committed.
    some = next(w.table.glob("date=*/*.parquet"))
    orphan = some.with_name("part-orphan.parquet")
    orphan.write_bytes(some.read_bytes())
    held = {f for t, f in every() if t == "acme"}
    assert held - {str(w.table / p) for p in w.live()}, "no file is held by older versions alone"
    args = ["forget", "tenant=acme", "--at-once"]
    for fault in ["landed=kill", "edited=kill", "vacuum-removed=kill"]:
        w.maintain(*args, code=KILLED, FAULTS=fault)
    w.maintain(*args)
    w.same_rows(others)
    assert {t for t, _ in every()} == {"other", None}
    assert not orphan.exists()
    told = subprocess.run(["grep", "-rl", "acme", w.lake], capture_output=True, text=True)
    assert told.stdout == "", told.stdout
    # What the killed ones took is in no receipt: the rows were gone when the last began.
    [receipt] = receipts(w, "forget")
    assert receipt["tables"]["attempts"]["rows_removed"] == 0, receipt

    toll = w.ingest(w.folder / "calls.jsonl", code=0)
    again = w.start("ingest", w.folder / "calls.jsonl", "--source", "again", "--lake", w.lake).ends(0)
    assert f"{gone} attempts left out: their tenant was forgotten" in again.text(), again.text()
    assert "left out" not in toll.text(), "what the lake knows is not read again"
    w.same_rows(others, "source <> 'again'")
    w.same_rows(others, "source = 'again'")
    late = w.folder / "late.jsonl"
    since = events.event(w.rng, "late", 0, 0) | {"ts": int(time.time() * 1000), "tenant": "acme"}
    late.write_bytes(events.payload(since) + b"\n")
    w.ingest(late)
    assert w.query("SELECT request_id FROM attempts WHERE tenant = 'acme'") == [("late",)]


def one_run(w):
    """What one command that nothing disturbs says of it: all rows, and all files."""
    rows = days(w, tenant=lambda n: "acme" if n % 2 else None)
    said = w.maintain("forget", "tenant=acme", "--at-once").lines()
    [receipt] = receipts(w, "forget")
    attempts = receipt["tables"]["attempts"]
    assert attempts["rows_removed"] == len(rows) // 2, receipt
    assert said[0].startswith(f"forgotten: {len(rows) // 2} rows of attempts"), said
    assert receipt["files_removed_from_disk"] >= attempts["files_rewritten"] >= 3, receipt
    # sha256("tenant=acme"), by printf and sha256sum.
    assert receipt["tenant_key"] == "181d02af0439c1be790b3d40389fc501", receipt
    wrong = w.maintain("forget", "service=shop", code=2).text()
    assert "only a tenant can be forgotten" in wrong, wrong
    wrong = w.maintain("forget", "tenant=other", code=2).text()
    assert "what the rollup calls tenants that it put together" in wrong, wrong


def expired(w):
    """Dates older than is kept go, counted from the newest; a year ahead in time nothing more does."""
    rows = days(w)
    keep = ["--set", "maintain.keep=1d"]
    assert w.maintain("expire").lines() == [f"nothing to expire: no attempts from before {before(396)}"]
    told = w.maintain("expire", "--dry-run", *keep).lines()
    assert told[0].endswith("with attempts from before 2026-01-02 would go"), told
    w.same_rows(expected(rows))
    w.maintain("expire", *keep)
    left = expected([(n, it) for n, it in rows if it["ts"] >= FIRST_MS + DAY_MS])
    w.same_rows(left)
    w.maintain("expire", *keep)
    w.same_rows(left)
    report = w.report("toll", "--since", "2026-01-01", "--until", "2026-01-05")
    assert report["rows"][0]["attempts"] == left.rows.total(), report


def before(days):
    """The date so many days before 2026-01-03, the newest."""
    return time.strftime("%Y-%m-%d", time.gmtime(FIRST_MS / 1000 + (2 - days) * DAY_MS / 1000))


CASES = [repriced, said_anew, forgotten, one_run, expired]

if __name__ == "__main__":
    cases.main(World, CASES)
