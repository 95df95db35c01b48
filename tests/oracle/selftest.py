#!/usr/bin/env python3
"""The oracles against cases small enough to work out by hand."""

import json
import pathlib
import sys
import tempfile
from decimal import Decimal

import duckdb

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import foreign_read  # noqa: E402
import share  # noqa: E402

PRICES = """{"sample_spec": {"input_cost_per_token": 0.0},
 "m": {"input_cost_per_token": 1e-06, "output_cost_per_token": "0.000004", "cache_read_input_token_cost": 1e-07,
       "input_cost_per_token_above_2k_tokens": 3e-06}}"""

USAGE = {"decision": "success", "status_code": 200}
EVENTS = [
    # 1000 x 0.000001 + 500 x 0.000004 = 0.003
    USAGE | {"service": "a", "attempt": 0, "input_tokens": 1000, "output_tokens": 500},
    # ceiling 0.001 + 1000 x 0.000004 = 0.005, of which 0.9 is expected
    {"service": "a", "attempt": 0, "decision": "retry", "error_type": "ReadTimeout", "phase": "read", "status_code": 408,
     "input_tokens": 1000, "max_tokens": 1000, "usage_source": "estimated"},
    # 0.001 + 250 x 0.000004 = 0.002
    USAGE | {"service": "a", "attempt": 1, "input_tokens": 1000, "output_tokens": 250},
    {"service": "a", "attempt": 0, "decision": "retry", "error_type": "RateLimitError", "status_code": 429},
    # 600 x 0.000001 + 400 x 0.0000001 + 340 x 0.000004 = 0.002
    USAGE | {"service": "a", "attempt": 1, "input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 340},
    # half of b's answers have usage
    USAGE | {"service": "b", "attempt": 0, "input_tokens": 2000, "output_tokens": 0},
    USAGE | {"service": "b", "attempt": 0},
]

CLASSES = [
    ("connect", {"error_type": "ConnectTimeout", "phase": "connect"}),
    ("connect", {"error_type": "PoolTimeout", "phase": "pool"}),
    ("connect", {"error_type": "dns"}),
    ("write", {"error_type": "connection_reset", "phase": "write"}),
    ("write", {"error_type": "WriteError", "phase": "write"}),
    ("write", {"error_type": "gremlins", "phase": "write"}),
    ("read", {"error_type": "APITimeoutError", "status_code": 500, "phase": "read"}),
    ("read", {"error_type": "timeout", "phase": "total"}),
    ("read", {"error_type": "RemoteDisconnected"}),
    ("read", {"status_code": 504}),
    ("stream", {"error_type": "overloaded_error", "status_code": 200, "phase": "stream"}),
    ("rate_limit", {"error_type": "RateLimitError", "status_code": 429}),
    ("quota", {"error_type": "insufficient_quota", "status_code": 429}),
    ("overloaded", {"error_type": "overloaded_error", "status_code": 529}),
    ("overloaded", {"error_type": "overloaded_error", "status_code": 503}),
    ("server", {"error_type": "service_unavailable", "status_code": 503}),
    ("server", {"status_code": 502}),
    ("client", {"error_type": "invalid_request_error", "status_code": 400}),
    ("content", {"finish_reason": "content_filter", "status_code": 200}),
    ("truncated", {"finish_reason": "length", "status_code": 200}),
    ("invalid_output", {"error_type": "json_parse", "status_code": 200}),
    ("cancelled", {"decision": "cancelled"}),
    ("none", {"decision": "success", "status_code": 200}),
    ("unknown", {"error_type": "gremlins"}),
]


def test_share(folder):
    truth = folder / "truth.jsonl"
    lines = [{"kind": "event", "event": {"model": "m"} | e} for e in EVENTS]
    lines += [{"kind": "duplicate", "event": lines[0]["event"]}, {"kind": "malformed", "event": "{"}]
    truth.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "prices.json").write_text(PRICES)
    prices = share.Prices(folder / "prices.json")
    result = share.report(list(share.read(truth, prices, {})))
    a, b = result["by_service"]["a"], result["by_service"]["b"]
    assert (a["attempts"], a["retries"]) == (5, 2)
    assert (a["retry_confirmed"], a["retry_expected"], a["retry_ceiling"]) == (Decimal("0.004"),) * 3
    assert (a["other_confirmed"], a["other_expected"], a["other_ceiling"]) == tuple(map(Decimal, ("0.003", "0.0075", "0.008")))
    assert round(a["share"], 9) == Decimal("0.347826087")  # 0.004 / 0.0115
    assert round(a["share_low"], 9) == Decimal("0.333333333")  # 0.004 / 0.012
    assert round(a["share_high"], 9) == Decimal("0.571428571")  # 0.004 / 0.007
    assert a["coverage"] == 1 and not a["withheld"]
    assert b["coverage"] == Decimal("0.5") and b["withheld"] and b["without_money"] == 1
    assert result["attempts_by_class"]["read"] == {"count": 1, "expected": Decimal("0.0045")}
    # exactly 2,000 tokens take the base rate, 2,001 the tier for all of them
    assert prices.of_usage({"model": "m", "input_tokens": 2000}) == Decimal("0.002")
    assert prices.of_usage({"model": "m", "input_tokens": 2001}) == Decimal("0.006003")
    assert prices.of_usage({"model": "other", "input_tokens": 1}) is None
    test_compare(folder, result["by_service"])


def test_compare(folder, ours):
    report = folder / "report.json"
    percent = lambda n, value: value * 100 if n in share.RATIOS and value is not None else value
    row = lambda s: {"key": s} | {
        f: share.plain(percent(n, ours[s][n])) for f, n in share.FIELDS.items()}
    a, b = row("a"), row("b")
    a |= {"share_pct": "34.7826", "share_low_pct": "33.3333", "share_high_pct": "57.1429"}
    b |= {"share_pct": None, "share_low_pct": None, "share_high_pct": None}
    check = lambda rows: (report.write_text(json.dumps(rows)), share.compare(report, ours))[1]
    assert check([a, b]) == []
    assert check([a | {"share_pct": "34.7827"}, b]) == [
        f"a: share_pct is 34.7827, should be {ours['a']['share']}"]
    assert len(check([a | {"other_ceiling_usd": "0.008000000001"}, b])) == 1
    assert len(check([a])) == 1
    assert len(check([a, b | {"share_pct": "0"}])) == 1


def test_classes():
    for right, event in CLASSES:
        found = share.classify({"decision": "give_up"} | event)
        assert found == right, f"{event} is {found}, should be {right}"


def write_log(folder, version, *actions):
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020}.json").write_text("".join(json.dumps(a) + "\n" for a in actions))


def write_rows(folder, name, first, rows, cost):
    duckdb.execute(f"""COPY (SELECT 's' AS source, 0 AS source_partition, {first} + range AS source_offset, 0 AS source_index,
        {cost}::DECIMAL(18,12) AS cost_confirmed FROM range({rows})) TO '{folder}/{name}' (FORMAT parquet)""")
    return {"add": {"path": name.replace(" ", "%20"), "partitionValues": {"date": "2026-09-01"}}}


def test_foreign_read(folder):
    remove = lambda name: {"remove": {"path": name}}
    a = write_rows(folder, "a b.parquet", 0, 3, "0.000000000001")
    b = write_rows(folder, "b.parquet", 3, 2, "1.5")
    c = write_rows(folder, "c.parquet", 0, 5, "0.1")
    write_rows(folder, "orphan.parquet", 100, 9, "9")
    write_log(folder, 0, {"protocol": {}}, a)
    write_log(folder, 1, b, {"txn": {"appId": "x", "version": 5}})
    check = lambda v, files, rows, total: (lambda db, facts: (
        facts["files"], foreign_read.summary(db)["rows"], foreign_read.summary(db)["cost_confirmed"]["sum"]
    ) == (files, rows, total) or sys.exit(f"version {v}: {facts} {foreign_read.summary(db)}"))(*foreign_read.load(folder, v))
    check(0, 1, 3, "0.000000000003")
    check(1, 2, 5, "3.000000000003")
    write_log(folder, 2, remove("a%20b.parquet"), remove("b.parquet"), c)
    check(None, 1, 5, "0.500000000000")
    # The same from a checkpoint of version 1, with the entries up to it gone.
    duckdb.execute(f"""COPY (SELECT {{'path': path, 'partitionValues': MAP {{'date': '2026-09-01'}}}} AS add
        FROM (VALUES ('a%20b.parquet'), ('b.parquet')) t(path)) TO '{folder}/_delta_log/{1:020}.checkpoint.parquet' (FORMAT parquet)""")
    (folder / "_delta_log/_last_checkpoint").write_text('{"version": 1}')
    for version in (0, 1):
        (folder / f"_delta_log/{version:020}.json").unlink()
    check(None, 1, 5, "0.500000000000")
    check(1, 2, 5, "3.000000000003")
    (folder / f"_delta_log/{2:020}.json").rename(folder / f"_delta_log/{3:020}.json")
    try:
        foreign_read.load(folder)
    except AssertionError as gap:
        assert "version 2 is missing" in str(gap)
    else:
        sys.exit("a gap in the log went unseen")


for test in (test_share, test_foreign_read):
    with tempfile.TemporaryDirectory() as name:
        test(pathlib.Path(name))
test_classes()
print("oracle self-test: ok")
