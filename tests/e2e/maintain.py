"""`retrytoll maintain`: fewer files, a checkpoint, no orphans, a source that is over; killed in the middle, too."""

import os
import signal
import time

from harness import cases, events
from harness.world import World


def lake_of_many_files(w, files=10, each=40):
    """A closed day of small files; the events."""
    made = events.events(w.rng, files * each)
    for n, it in enumerate(made):
        it["ts"] = 1_767_225_600_000 + 1_000 * n
    path = w.folder / "calls.jsonl"
    for number in range(files):
        path.write_bytes(b"".join(events.payload(it) + b"\n" for it in made[:each * (number + 1)]))
        # `ingest` compacts at its end, if it comes to that.
        toll = w.start("ingest", path, "--lake", w.lake, env={"FAULTS": "compacted=kill"})
        toll.ends(0 if number == 0 and toll.process.wait() == 0 else -signal.SIGABRT)
    return events.Expected([(0, n, events.payload(it)) for n, it in enumerate(made)])


def compacts(w):
    """Killed before its commit it has done nothing; then it leaves one file of the day, with the same rows."""
    due = lake_of_many_files(w)
    before = len(w.live())
    assert before >= 10, before
    w.maintain("compact", code=-signal.SIGABRT, FAULTS="compacted=kill")
    assert len(w.live()) == before
    w.same_rows(due)
    w.maintain("compact")
    assert len(w.live()) == 1, w.live()
    w.same_rows(due)
    assert w.maintain("compact").lines() == ["nothing to compact"]


def checkpoints(w):
    """Killed at any moment of it, the log is whole, for us and for others; then there is a checkpoint."""
    due = lake_of_many_files(w, files=3)
    for fault in ["checkpoint-begun=kill", "checkpoint-begun=kill 3ms", "checkpoint-written=kill"]:
        w.maintain("checkpoint", code=-signal.SIGABRT, FAULTS=fault)
        w.same_rows(due)
    said = w.maintain("checkpoint").lines()
    version = max(int(p.stem) for p in (w.table / "_delta_log").glob("*.json") if p.stem.isdigit())
    assert said == [f"checkpoint of version {version}; 0 old entries removed"], said
    assert (w.table / f"_delta_log/{version:020}.checkpoint.parquet").exists()
    w.same_rows(due)


def vacuums(w):
    """What no commit names goes once it is old; what is live, young, or not ours stays."""
    due = lake_of_many_files(w, files=3)
    orphans = {str(p.relative_to(w.table)) for p in w.table.glob("*/*.parquet")} - set(w.live())
    day = next(w.table.glob("date=*"))
    young, foreign = day / "part-young.parquet", day / "notes.txt"
    for path in list(w.table.glob("*/*.parquet")):
        os.utime(path, (time.time() - 3 * 86_400,) * 2)
    for path in [young, foreign]:
        path.write_bytes(b"x")
    assert len(orphans) >= 2, orphans
    listed = w.maintain("vacuum", "--dry-run").lines()
    assert set(listed[:-1]) == orphans and listed[-1].startswith(f"{len(orphans)} files of "), listed
    w.maintain("vacuum", code=-signal.SIGABRT, FAULTS="vacuum-listed=kill")
    w.maintain("vacuum", code=-signal.SIGABRT, FAULTS="vacuum-removed=kill")
    w.same_rows(due)
    w.maintain("vacuum")
    assert {str(p.relative_to(w.table)) for p in w.table.glob("*/*.parquet")} == set(w.live()) | {
        str(young.relative_to(w.table))}
    assert foreign.exists()
    w.same_rows(due)


def retires(w):
    """A source that is not there is named with those that are; one that is retired holds nothing back."""
    path = w.folder / "calls.jsonl"
    path.write_bytes(b"".join(events.payload(it) + b"\n" for it in events.events(w.rng, 20)))
    with path.open() as piped:
        toll = w.start("ingest", "-", "--source", "gateway-eu", "--lake", w.lake, input=piped)
    toll.ends(0)
    wrong = w.maintain("retire", "gateway", code=2).text()
    assert 'the lake knows no source "gateway"' in wrong and "it knows gateway-eu" in wrong, wrong
    said = w.maintain("retire", "gateway-eu").lines()
    assert said == ["gateway-eu is retired: its 1 partitions hold nothing back"], said
    done = [t["version"] for _, t in w.actions("txn") if t["appId"] == "retrytoll/done/0/gateway-eu"]
    assert done[-1:] == [1], done
    assert w.count() == 20


def no_lake(w):
    """A folder that is none is made no lake."""
    for what in [["compact"], ["checkpoint"], ["vacuum"], ["retire", "x"]]:
        wrong = w.maintain(*what, code=2).text()
        assert "there is no lake in" in wrong and "--lake" in wrong, wrong
    assert not w.table.exists()


CASES = [compacts, checkpoints, vacuums, retires, no_lake]

if __name__ == "__main__":
    cases.main(World, CASES)
