#!/usr/bin/env python3
"""Reads a table as a stranger would: the Delta log by hand, the Parquet files with plain DuckDB.

    foreign_read.py TABLE [--at-version N] [--dump FILE] [--without COLUMN,...] [--also READER]...

Prints one JSON object: version, files, their bytes, rows, distinct lineages, and for each money column its
exact sum (a string) and its nulls. --dump writes every row, one tab-separated line each, in the
order of its text: two tables hold the same rows when their dumps are equal. --also deltalake or
polars reads the table through that implementation, log replay and all, and exits 1 on any row
that differs. Knows add, remove and classic checkpoints; refuses the rest.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import urllib.parse

import duckdb

LINEAGE = ["source", "source_partition", "source_offset", "source_index"]
MONEY = ["cost", "estimated_cost", "cost_confirmed", "cost_ceiling"]


def checkpoint(log, version):
    """{path: partition values} of the files that the checkpoint of `version` calls live."""
    parts = [str(p) for p in sorted(log.glob(f"{version:020}.checkpoint*.parquet"))]
    assert parts, f"{log}/_last_checkpoint names version {version}, but there is no such checkpoint"
    query = "SELECT add.path, add.partitionValues FROM read_parquet(?) WHERE add.path IS NOT NULL"
    return {path: dict(values) for path, values in duckdb.execute(query, [parts]).fetchall()}


def live_files(table, version=None):
    """(version, {file: partition values}) by replaying the log up to `version`, else to its end."""
    log = pathlib.Path(table) / "_delta_log"
    entries = {int(p.stem): p for p in log.glob("*.json") if len(p.stem) == 20 and p.stem.isdigit()}
    live, start = {}, 0
    if 0 not in entries:  # cleaned up: what the checkpoint says, then the entries after it
        start = json.loads((log / "_last_checkpoint").read_text())["version"]
        live, start = checkpoint(log, start), start + 1
    last = max(entries, default=start - 1) if version is None else version
    assert last >= start - 1, f"version {last} is before the log's first readable one, {start - 1}"
    for v in range(start, last + 1):
        assert v in entries, f"version {v} is missing from {log}"
        for line in entries[v].read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
            if add := action.get("add"):
                assert not add.get("deletionVector"), f"version {v} has a deletion vector"
                live[add["path"]] = add["partitionValues"]
    return last, {str(pathlib.Path(table) / urllib.parse.unquote(p)): v for p, v in live.items()}


def load(table, version=None):
    """(DuckDB with the live rows as view `attempts`, facts); `date` comes from the log alone."""
    version, live = live_files(table, version)
    assert live, f"{table} has no files at version {version}"
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.execute("CREATE TABLE live (file TEXT PRIMARY KEY, date DATE)")
    db.executemany("INSERT INTO live VALUES (?, ?)", [[f, v.get("date") or None] for f, v in live.items()])
    files = ", ".join("'" + f.replace("'", "''") + "'" for f in sorted(live))
    db.execute(f"""CREATE VIEW attempts AS SELECT data.* EXCLUDE (filename), live.date FROM read_parquet(
        [{files}], filename = true, hive_partitioning = false, union_by_name = true) data
        JOIN live ON data.filename = live.file""")
    size = sum(pathlib.Path(f).stat().st_size for f in live)
    return db, {"version": version, "files": len(live), "bytes": size}


def summary(db, view="attempts"):
    """Counts and exact sums of a view."""
    columns = names(db, view)
    money = [c for c in MONEY if c in columns]
    sums = "".join(f", sum({c})::TEXT, count(*) - count({c})" for c in money)
    rows, distinct, *sums = db.execute(
        f"SELECT count(*), count(DISTINCT ({', '.join(LINEAGE)})){sums} FROM {view}").fetchone()
    per_column = {c: {"sum": sums[2 * i], "nulls": sums[2 * i + 1]} for i, c in enumerate(money)}
    return {"rows": rows, "distinct_lineage": distinct} | per_column


def names(db, view):
    """The view's columns by name."""
    return sorted(c for c, *_ in db.execute(f"DESCRIBE {view}").fetchall())


def as_text(db, view, without=()):
    """A query for every row of a view as text: bytes as hex, columns by name."""
    kinds = {c: kind for c, kind, *_ in db.execute(f"DESCRIBE {view}").fetchall()}
    shown = [f'hex("{c}") AS "{c}"' if kinds[c] == "BLOB" else f'"{c}"::TEXT AS "{c}"'
             for c in sorted(kinds) if c not in without]
    return f"SELECT {', '.join(shown)} FROM {view}"


def dump(db, path, without=()):
    """Writes every row as a line, null as \\N, lines in the order of their columns' text."""
    db.execute(f"COPY ({as_text(db, 'attempts', without)} ORDER BY ALL) TO '{path}' "
               "(FORMAT csv, DELIMITER '\t', NULLSTR '\\N', HEADER)")


def differences(db, table, version, reader):
    """How many rows another implementation has more, and how many less, than the view `attempts`."""
    import polars
    if reader == "polars":
        frame = polars.read_delta(str(table), version=version)
    else:
        from deltalake import DeltaTable, QueryBuilder
        source = QueryBuilder().register("t", DeltaTable(str(table), version=version))
        frame = polars.DataFrame(source.execute("SELECT * FROM t").read_all())
    with tempfile.NamedTemporaryFile(suffix=".parquet") as copy:
        frame.write_parquet(copy.name)
        db.execute(f"CREATE OR REPLACE VIEW other AS SELECT * FROM read_parquet('{copy.name}', hive_partitioning = false)")
        assert names(db, "other") == names(db, "attempts"), f"{reader} sees other columns: {names(db, 'other')}"
        ours, theirs = as_text(db, "attempts"), as_text(db, "other")
        count = lambda a, b: db.execute(f"SELECT count(*) FROM ({a} EXCEPT ALL {b})").fetchone()[0]
        return {"rows": len(frame), "only_there": count(theirs, ours), "only_here": count(ours, theirs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("--at-version", type=int)
    parser.add_argument("--dump", metavar="FILE")
    parser.add_argument("--without", default="", metavar="COLUMN,...")
    parser.add_argument("--also", action="append", default=[], choices=["deltalake", "polars"])
    args = parser.parse_args()
    db, facts = load(args.table, args.at_version)
    facts |= summary(db)
    if args.dump:
        dump(db, args.dump, args.without.split(","))
    for reader in args.also:
        facts[reader] = differences(db, args.table, facts["version"], reader)
    print(json.dumps(facts, indent=2))
    return any(facts[r]["only_there"] or facts[r]["only_here"] for r in args.also)


if __name__ == "__main__":
    sys.exit(main())
