"""tests/golden/<job>.<case>.toml -> its events -> `ingest` -> `report <job>` -> exactly its rows.

A case's comment holds the arithmetic; nothing here computes what is due. The jobs are those of
sql/jobs, so that a changed query needs no build. Names on the command line run those cases alone.
"""

import csv
import json
import os
import pathlib
import shutil
import tomllib
from decimal import Decimal, InvalidOperation

from harness import cases
from harness.world import World

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
# How much memory queries get is the machine's matter; all else is the case's.
LIMITS = {key: value for key, value in os.environ.items() if key.startswith("RETRYTOLL_LIMITS_")}
KEYS = {"args", "columns", "rows", "defaults", "events"}


def same(found, due):
    """As text, or as exact decimals: 0.018 is 0.018000000000, and null is not 0."""
    try:
        return found == due or Decimal(found) == Decimal(due)
    except InvalidOperation:
        return False


def jobs_folder(w):
    """What --sql-dir takes: the queries and their meaning, side by side."""
    folder = w.folder / "jobs"
    shutil.copytree(ROOT / "sql/jobs", folder)
    shutil.copy(ROOT / "sql/jobs.toml", folder)
    return folder


def answer(w, job, args):
    """(columns, rows) of the report, rows as {column: text}."""
    path = w.folder / "answer.csv"
    told = w.start("report", job, "--sql-dir", jobs_folder(w), "--lake", w.lake, "--format", "csv", "-o", path, *args,
                   env=LIMITS)
    told.ends(0)
    # A job that is left out here would be answered by the one in the binary.
    assert "is left out" not in told.text(), told.text()
    with path.open(newline="") as lines:
        reader = csv.DictReader(lines)
        return reader.fieldnames or [], list(reader)


def events(case):
    """Its events; one with `repeat` stands for so many, with their number for {n} in the request_id."""
    for it in case["events"]:
        it = case.get("defaults", {}) | it
        for n in range(it.pop("repeat", 1)):
            yield it | {"request_id": it["request_id"].replace("{n}", str(n))}


def check(w, path):
    case = tomllib.loads(path.read_text())
    job = path.name.split(".")[0]
    assert case.keys() <= KEYS and path.read_text().startswith("# "), f"{path.name}: {sorted(case.keys() - KEYS)}"
    calls = w.folder / "calls.jsonl"
    calls.write_text("".join(json.dumps(it) + "\n" for it in events(case)))
    w.ingest(calls)
    letters = w.lake / "dead-letters.jsonl"
    assert not letters.exists() or not letters.read_text(), letters.read_text()

    columns, found = answer(w, job, case["args"])
    meta = tomllib.loads((ROOT / "sql/jobs.toml").read_text())[job]
    missing = [it for it in case["columns"] + meta.get("shown", []) if it not in columns]
    assert not missing, f"{job} has no column {missing}: it has {columns}"
    found = [[row[it] for it in case["columns"]] for row in found]
    due = case["rows"]
    wrong = [n for n, (f, d) in enumerate(zip(found, due)) if len(f) != len(d) or not all(map(same, f, d))]
    assert not wrong and len(found) == len(due), "\n".join(
        [f"columns {case['columns']}; {len(found)} rows, due {len(due)}; wrong: {wrong}"]
        + [f"  found {it}" for it in found] + [f"  due   {it}" for it in due])


def golden(path):
    def case(w):
        check(w, path)
    case.__name__ = path.stem
    return case


def every_job_has_an_empty_case(_):
    """What a job says of nothing is as much its answer as any other; and no case is of no job."""
    jobs = {it.stem for it in (ROOT / "sql/jobs").glob("*.sql")}
    there = {it.stem for it in GOLDEN.glob("*.toml")}
    missing = sorted(it for it in jobs if f"{it}.empty" not in there)
    assert not missing, f"write tests/golden/JOB.empty.toml for {missing}"
    stray = sorted(it for it in there if it.split(".")[0] not in jobs)
    assert not stray, f"no job is named so: {stray}"


if __name__ == "__main__":
    cases.main(World, [every_job_has_an_empty_case] + [golden(it) for it in sorted(GOLDEN.glob("*.toml"))])
