"""`retrytoll demo` against what it made up: every figure that it shows, and many more, by the oracles'
own sums (tests/oracle/share.py, operations.py, alerts.py)."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRICES = ROOT / "crates/core/data/prices.json"
# RETRYTOLL_BIN and its like would be taken for keys of the configuration.
ENV = {name: value for name, value in os.environ.items() if not name.startswith("RETRYTOLL_")}

# What the oracle is given, by the names that it has for it.
QUERIES = {
    "attempts": "SELECT request_id, attempt, op_place, op_attempts, outcome, role, is_retry, is_hedge, error_class, "
                "billing, redundant, cost_confirmed, cost_expected, cost_ceiling, expected_basis FROM attempts",
    "operations": "SELECT * FROM operations",
}
REPORTS = {
    "toll": ["toll"],
    "repeated_billing": ["repeated_billing", "--by", "service"],
    "repeated_operations": ["repeated_billing", "--by", "operation"],
    "rescue": ["retry_rescue", "--by", "all"],
    "rescue_by_class": ["retry_rescue", "--by", "class"],
    "rescue_by_service": ["retry_rescue", "--by", "service"],
    "resends": ["resends", "--by", "chain"],
}


def section(shown, title):
    """The lines of a section, without its title and what it means."""
    found = re.search(rf"^{re.escape(title)}\n[^\n]+\n\n(.*?)\n  more: ", shown, re.M | re.S)
    assert found, (title, shown)
    return found[1]


def the_sections_show_it(shown, told, lake):
    """The text on the terminal holds what the JSON of the reports and alerts holds, in a hundred columns."""
    assert max(len(line.replace(str(lake), "demo-lake")) for line in shown.splitlines()) <= 100, shown
    assert re.search(r"^Your toll: \$\d+\.\d+ \(confirmed \$\d+\.\d+\), \S+ % of spend; retry share \S+ % "
                     r"\(review at 5 %\)$", shown, re.M), shown
    repeated = section(shown, "Billed more than once")
    for row in told["repeated_operations"][:3]:
        assert row["request_id"] in repeated, repeated
        for attempt in row["evidence"].split("; "):
            assert attempt in repeated, (attempt, repeated)
    for row in told["rescue"]:
        figures = rf"^{re.escape(row['retry'])} +{row['first_failures']:,} +{row['tried']:,} +{row['rescued']:,} "
        assert re.search(figures, section(shown, "What each retry rescues"), re.M), row
    longest = max(told["resends"], key=lambda row: row["operations"])
    chain = re.findall(r"req-\S+", section(shown, "One prompt, sent again and again"))
    assert chain == longest["predecessors"].split(", ") + [longest["last_request_id"]], (chain, longest)
    alerts = section(shown, "Alerts")
    for row in told["alerts"]:
        for state, at in (("FIRING", row["since"]), ("RESOLVED", row["ended"])):
            line = f"  {state:8}  {(at or '').replace('T', ' ').replace('Z', ' UTC')}  "
            if at and not (row["why"] or "").startswith("kept back"):
                assert line in alerts and row["entity"] in alerts, (row, alerts)


def figures_equal_the_truth(folder):
    """For two seeds: what each attempt was and cost, operations, toll, shares, repeated billing with its
    evidence, rescue, resends and alerts equal the generator's truth to the last digit."""
    for seed, operations in (("42", "30000"), ("7", "6000")):
        lake, answers = folder / f"lake-{seed}", folder / f"answers-{seed}"
        answers.mkdir()
        toll = lambda *args: subprocess.run(
            [os.environ["RETRYTOLL_BIN"], *args, "--lake", lake],
            env=ENV, check=True, capture_output=True, text=True).stdout
        ask = lambda name, *args: (answers / f"{name}.json").write_text(toll(*args, "--format", "json"))
        shown = toll("demo", "--seed", seed, "--operations", operations)
        for name, query in QUERIES.items():
            ask(name, "sql", query)
        for name, report in REPORTS.items():
            ask(name, "report", *report, "--since", "30h")
        ask("alerts", "alerts", "--since", "30h")
        ask("share", "report", "retry_cost_share", "--by", "service", "--since", "30h")
        complete = json.loads((answers / "toll.json").read_text())["complete_through"]
        assert complete == "everything", complete
        of = [sys.executable, ROOT / "tests/oracle/share.py", lake / "truth.jsonl", "--prices", PRICES]
        subprocess.run([*of, "--compare", answers / "share.json"], check=True, stdout=subprocess.DEVNULL)
        of[1] = ROOT / "tests/oracle/operations.py"
        subprocess.run([*of, "--compare", answers], check=True)
        rows = lambda found: found["rows"] if isinstance(found, dict) else found
        told = {name: rows(json.loads((answers / f"{name}.json").read_text()))
                for name in ("repeated_operations", "rescue", "resends", "alerts")}
        the_sections_show_it(shown, told, lake)
        rules = {(row["rule"], row["state"]) for row in told["alerts"]}
        if seed == "42":
            # What the demo is made to show.
            assert {("retry_storm", "resolved"), ("doomed_outage", "resolved"), ("retry_share", "firing")} <= rules, rules
            assert max(row["operations"] for row in told["resends"]) >= 3, told["resends"]
        else:
            assert "retry_storm" not in {rule for rule, _ in rules}, rules


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        figures_equal_the_truth(pathlib.Path(name))
    print("ok     figures_equal_the_truth")
