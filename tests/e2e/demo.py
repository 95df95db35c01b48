"""`retrytoll demo` against what it made up: every figure of the report, by share.py's own sums."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# RETRYTOLL_BIN and its like would be taken for keys of the configuration.
ENV = {name: value for name, value in os.environ.items() if not name.startswith("RETRYTOLL_")}


def figures_equal_the_truth(folder):
    """The share by service equals the generator's truth to the last digit, for two seeds."""
    for seed in ("42", "7"):
        lake = folder / f"lake-{seed}"
        toll = lambda *args: subprocess.run(
            [os.environ["RETRYTOLL_BIN"], *args, "--lake", lake],
            env=ENV, check=True, capture_output=True, text=True).stdout
        shown = toll("demo", "--seed", seed, "--operations", "6000")
        assert "Retry-cost share" in shown and "Try next:" in shown, shown
        report = folder / f"{seed}.json"
        report.write_text(toll("report", "retry_cost_share", "--by", "service", "--since", "30h", "--format", "json"))
        subprocess.run([sys.executable, ROOT / "tests/oracle/share.py", lake / "truth.jsonl", "--prices",
                        ROOT / "crates/core/data/prices.json", "--compare", report], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        figures_equal_the_truth(pathlib.Path(name))
    print("ok     figures_equal_the_truth")
