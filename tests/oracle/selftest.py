#!/usr/bin/env python3
"""The oracles against cases small enough to work out by hand."""

import json
import pathlib
import sys
import tempfile
from decimal import Decimal

import duckdb

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import alerts  # noqa: E402
import foreign_read  # noqa: E402
import operations  # noqa: E402
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


def attempt(request, number, start, end, **fields):
    """An attempt from one second of an hour to another."""
    at = lambda second: f"2026-09-01T10:{second // 60:02}:{second % 60:02}.000Z"
    return {"request_id": request, "attempt": number, "started_at": at(start), "ts": at(end), "model": "m", "provider": "p",
            "service": "chat", "tenant": "t", "prompt_hash": "sha256:1", "scenario": "interactive",
            "client_request_id": f"{request}-{number}", "input_tokens": 1000, "max_tokens": 500} | fields


def read_operations(folder, events):
    truth = folder / "truth.jsonl"
    truth.write_text("".join(json.dumps({"kind": "event", "event": event}) + "\n" for event in events))
    (folder / "prices.json").write_text(PRICES)
    return operations.read(truth, share.Prices(folder / "prices.json"))


LATE = {"error_type": "ReadTimeout", "phase": "read", "usage_source": "estimated"}
UNUSABLE = {"error_type": "JSONDecodeError", "status_code": 200, "output_tokens": 250}
OTHER = {"prompt_hash": "sha256:2"}


def test_operations(folder):
    found = read_operations(folder, [
        # At most 0.001 + 500 x 0.000004 = 0.003 each, of which 0.9 is expected.
        attempt("r1", 0, 0, 60, decision="retry", **LATE),
        attempt("r1", 1, 61, 121, decision="ask_user", **LATE),
        # The button, pressed a minute later: 0.001 + 250 x 0.000004 = 0.002, then 0.003.
        attempt("r2", 0, 181, 183, decision="retry", **UNUSABLE),
        attempt("r2", 1, 184, 190, output_tokens=500, **USAGE),
        # Another prompt. The late one is taken for the answer's 0.003, and limited to 0.9 of it.
        attempt("r3", 0, 200, 260, decision="retry", **LATE, **OTHER),
        attempt("r3", 1, 261, 265, output_tokens=500, **USAGE, **OTHER),
        # After a delivery, and then 15 minutes and a second after a failure: no resends.
        attempt("r4", 0, 300, 301, decision="no_retry", error_type="RateLimitError", status_code=429, usage_source="estimated", **OTHER),
        attempt("r5", 0, 1202, 1203, decision="cancelled", usage_source="estimated", prompt_hash="sha256:3"),
        attempt("r6", 0, 1202, 1203, output_tokens=0, **USAGE, **OTHER),
    ])
    assert [it.outcome for it in found] == ["timed_out", "delivered", "delivered", "failed", "cancelled", "delivered"]
    roles = [[it.role for it in operation.attempts] for operation in found]
    assert roles == [["undelivered"] * 2, ["repeat", "delivered"], ["repeat", "delivered"], ["undelivered"], ["cancelled"],
                     ["delivered"]], roles
    bases = [[it.basis for it in operation.attempts] for operation in found[:4]]
    assert bases == [["formula"] * 2, ["own", "own"], ["sibling", "own"], [None]], bases
    right = operations.reports(found)
    chat = right["repeated_billing"]["chat"]
    # r1 and r3 are likely: two late ones, and one beside an answer.
    assert (chat["confirmed_operations"], chat["likely_operations"], chat["operations"]) == (1, 2, 6)
    assert chat["confirmed_redundant_usd"] == Decimal("0.002")
    assert (chat["likely_redundant_confirmed_usd"], chat["likely_redundant_expected_usd"]) == (0, Decimal("0.0081"))
    assert right["repeated_operations"]["r2"]["evidence"] == (
        "0 invalid_output billed usage $0.002; 1 none billed usage $0.003")
    assert right["repeated_operations"]["r3"]["evidence"] == "0 read unknown p=0.9 sibling $0.0027; 1 none billed usage $0.003"
    read = right["rescue_by_class"]["read 1"]
    assert (read["first_failures"], read["tried"], read["rescued"], read["rescue_share_pct"]) == (2, 2, 1, 50)
    assert right["rescue"]["1"]["rescue_share_pct"] == 50  # two of four
    assert (right["rescue_by_class"]["rate_limit 1"]["tried"], read["mark"]) == (0, None)
    assert list(right["resends"]) == ["r1"]
    chain = right["resends"]["r1"]
    assert (chain["operations"], chain["attempts"], chain["span_ms"]) == (2, 4, 190_000)
    assert (chain["expected_usd"], chain["again_expected_usd"]) == (Decimal("0.0104"), Decimal("0.005"))
    # Redundant: both of r1, the first of r2 and of r3.
    headline = right["toll"]["toll"]
    assert (headline["toll_expected_usd"], headline["toll_confirmed_usd"]) == (Decimal("0.0101"), Decimal("0.002"))
    assert (headline["retries"], headline["redundant_attempts"], headline["delivered"]) == (3, 4, 3)
    assert right["alerts"] == {}
    row = {"key": "chat"} | {name: operations.plain(it) if isinstance(it, Decimal) else it for name, it in chat.items()}
    differ = lambda *rows: operations.differences("repeated_billing", list(rows), {"chat": chat})
    assert differ(row) == []
    assert differ(row | {"confirmed_redundant_usd": "0.002000000001"}) == [
        "repeated_billing: confirmed_redundant_usd of chat is 0.002000000001, should be 0.002"]
    assert (len(differ()), len(differ(row, row)), len(differ(row, row | {"key": "x"}))) == (1, 1, 1)
    try:
        read_operations(folder, [attempt("r1", 1, 0, 1, **USAGE)])
    except AssertionError as odd:
        assert "r1 has the attempts [1]" in str(odd)
    else:
        sys.exit("an operation without its first attempt went unseen")


def test_alerts(folder):
    def storm(retries, most):
        """An answer at first and in minute 40; between them, in minute 14, retries that all fail."""
        failing = [attempt(f"s{at}", number, 842 + number * 10, 843 + number * 10, max_tokens=most,
                           decision=("retry", "give_up")[number], **LATE | {"prompt_hash": f"sha256:{at}"})
                   for at in range(retries) for number in (0, 1)]
        answers = [attempt(name, 0, at, at + 1, output_tokens=1, **USAGE, **OTHER) for name, at in (("a", 0), ("b", 2400))]
        found = operations.reports(read_operations(folder, answers + failing))["alerts"]
        return {(it["rule"], it["entity"], it["severity"], it["since"][11:16], it["ended"] and it["ended"][11:16]): it.get("why")
                for it in found.values()}

    # A retry costs at most 0.001 + 3000 x 0.000004 = 0.013, expected 0.0117: 100 a minute are $70.20 an
    # hour, and none is delivered. A quarter of an hour later nobody was heard of for three windows.
    outage = ("doomed_outage", "p/m", "critical", "10:15", "10:30")
    assert storm(100, 3000) == {("retry_storm", "chat", "critical", "10:15", "10:30"): "no_data", outage: "no_data"}
    assert storm(99, 3000) == {outage: "no_data"}
    # 0.9 x (0.001 + 500 x 0.000004) = 0.0027: $16.20 an hour.
    assert storm(100, 500) == {outage: "no_data"}
    assert storm(49, 3000) == {}
    instants = lambda first, last: [at // alerts.MINUTE for at, *_ in alerts.ticks(first * alerts.MINUTE, last * alerts.MINUTE)]
    assert instants(1, 31) == [15, 30, 31, 32]
    bounds = [("share", alerts.OVER, 5), ("rate", alerts.UNDER, 3), ("count", alerts.AT_LEAST, 100)]
    at = lambda share, rate, count, tenths: alerts.holds(bounds, {"share": share, "rate": rate, "count": count}, tenths)
    assert at(Decimal("5.1"), Decimal("2.9"), 100, 10) is True
    assert (at(5, 2, 100, 10), at(6, 3, 100, 10), at(6, 2, 99, 10)) == (False, False, False)
    assert (at(5, 3, 90, 9), at(Decimal("4.5"), 3, 90, 9), at(5, 3, 89, 9)) == (True, False, False)
    assert (at(5, Decimal("3.4"), 90, 9), at(None, 3, 90, 9)) == (False, None)


for test in (test_share, test_operations, test_alerts, test_foreign_read):
    with tempfile.TemporaryDirectory() as name:
        test(pathlib.Path(name))
test_classes()
print("oracle self-test: ok")
