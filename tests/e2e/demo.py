"""`retrytoll demo` against what it made up: every figure of the report and the share of its alert, by
share.py's own sums."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from decimal import Decimal

ROOT = pathlib.Path(__file__).resolve().parents[2]
# RETRYTOLL_BIN and its like would be taken for keys of the configuration.
ENV = {name: value for name, value in os.environ.items() if not name.startswith("RETRYTOLL_")}


def the_alert_is_told(shown, lake):
    """The alert of contract-review came over the topic, and its share is that of the truth up to its tick."""
    block = re.search(r"Alerts, read back from the topic llm-retries.alerts:\n\n(.*?)\n\nThe lake is in", shown, re.S)[1]
    head = re.search(r"^  FIRING  error  contract-review  (\S+) (\S+) UTC\n +what +Retry-cost share, service "
                     r"contract-review: (\S+) %, over 5 % \(24h\)$", block, re.M)
    assert head, block
    assert re.search(r"^ +last hour +\$\S+ redundant, \$\S+ of it confirmed", block, re.M), block
    assert re.search(r"^ +do +\S", block, re.M), block
    until = f"{head[1]}T{head[2]}"
    # The window reaches back before the first event.
    truth = json.loads(subprocess.run(
        [sys.executable, ROOT / "tests/oracle/share.py", lake / "truth.jsonl", "--until", until,
         "--prices", ROOT / "crates/core/data/prices.json"],
        check=True, capture_output=True, text=True).stdout)
    share = Decimal(truth["by_service"]["contract-review"]["share"]) * 100
    assert share.quantize(Decimal("0.01")) == Decimal(head[3]), (share, head[3])


def figures_equal_the_truth(folder):
    """The share by service equals the generator's truth to the last digit, for two seeds; with the usual
    traffic the alert rule is met, too."""
    for seed, operations in (("42", "30000"), ("7", "6000")):
        lake = folder / f"lake-{seed}"
        toll = lambda *args: subprocess.run(
            [os.environ["RETRYTOLL_BIN"], *args, "--lake", lake],
            env=ENV, check=True, capture_output=True, text=True).stdout
        shown = toll("demo", "--seed", seed, "--operations", operations)
        assert "Retry-cost share" in shown and "Try next:" in shown, shown
        if seed == "42":
            the_alert_is_told(shown, lake)
        report = folder / f"{seed}.json"
        report.write_text(toll("report", "retry_cost_share", "--by", "service", "--since", "30h", "--format", "json"))
        subprocess.run([sys.executable, ROOT / "tests/oracle/share.py", lake / "truth.jsonl", "--prices",
                        ROOT / "crates/core/data/prices.json", "--compare", report], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        figures_equal_the_truth(pathlib.Path(name))
    print("ok     figures_equal_the_truth")
