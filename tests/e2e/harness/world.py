"""What one case touches: a folder, topics, processes, a lake; all of it gone at the end."""

import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from decimal import Decimal

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "oracle"))
import foreign_read  # noqa: E402

from . import broker, events
from .cases import until

# Short, so that a case takes seconds; 6 s is the least that brokers allow by default.
QUICK = {"kafka.session_timeout": "6s", "flush.interval": "300ms", "flush.interval_behind": "300ms",
         "flush.position_interval": "1s"}
ROW = """source_partition, source_offset, request_id, attempt, model, decision, error_class, billing,
         cost_confirmed::TEXT, cost_ceiling::TEXT"""


def words(settings):
    """Keys and values as flags."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def faulty():
    """The program with faults at named points (tests/faults), built beside the other."""
    return str(pathlib.Path(os.environ["RETRYTOLL_BIN"]).parent / "examples/retrytoll-faults")


class Toll:
    """A retrytoll process; its log and its results are read from files."""

    def __init__(self, folder, name, args, env, program=None, stdin=None):
        self.name, self.err, self.out = name, folder / f"{name}.err", folder / f"{name}.out"
        # RETRYTOLL_BIN and its like would be taken for keys of the configuration.
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RETRYTOLL_")}
        with open(self.err, "wb") as err, open(self.out, "wb") as out:
            self.process = subprocess.Popen(
                [program or os.environ["RETRYTOLL_BIN"], *map(str, args)], cwd=folder, env=clean | env, stderr=err,
                stdin=stdin or subprocess.DEVNULL, stdout=out)

    def text(self):
        return self.err.read_text(errors="replace")

    def lines(self):
        """The whole lines of its results."""
        return self.out.read_text().split("\n")[:-1]

    def entries(self, word):
        """The log's entries with this word, but those that its death, or our look, cut short."""
        for line in self.text().splitlines():
            if word in line and line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:
                    pass

    def told(self, message):
        """The log's entries with this message."""
        return [entry for entry in self.entries(message) if entry.get("message") == message]

    def owned(self):
        """The partitions that it holds, by what it told."""
        held = set()
        for entry in self.entries("partitions"):
            numbers = set(map(int, re.findall(r"\d+", str(entry.get("partitions", "")))))
            if entry.get("message") == "assigned":
                held |= numbers
            elif entry.get("message") == "revoked":
                held -= numbers
        return held

    def claimed(self, count):
        """Waits until it has claimed so many partitions."""
        until(f"{self.name} claims {count} partitions", lambda: self.is_up() and len(
            {e["partition"] for e in self.told("partition claimed")}) >= count, 40)
        return self

    def is_up(self):
        code = self.process.poll()
        assert code is None, f"{self.name} ended with {code}: {self.text()[-2000:]}"
        return True

    def peak_bytes(self):
        """The most memory it ever held."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024

    def processor_seconds(self):
        """User and system time of all its threads so far."""
        words = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def ends(self, code=0, seconds=60):
        """Waits for its end; it must be with this exit code."""
        try:
            found = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {seconds} s") from None
        assert found == code, f"{self.name} ended with {found}, not {code}: {self.text()[-3000:]}"
        return self

    def stop(self, seconds=10):
        """SIGTERM, and a clean end in time."""
        self.send(signal.SIGTERM)
        return self.ends(0, seconds)


class World:
    def __init__(self, name, rng):
        self.rng, self.processes, self.topics, self.numbers = rng, [], [], itertools.count()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"retrytoll-{name}-"))
        self.lake = self.folder / "lake"

    # --- topics and processes ---

    def topic(self, partitions=8, config=None, dead_letters=None):
        """A topic and its dead-letter topic, both new."""
        topic = f"e2e-{self.folder.name.split('-')[1]}-{uuid.uuid4().hex[:8]}"
        for name, count, settings in [(topic, partitions, config), (f"{topic}.dead-letters", 1, dead_letters)]:
            self.topics.append(name)
            broker.create(name, count, settings)
        return topic

    def beside(self, topic, ending, partitions=1, config=None):
        """Another of the topic's topics: `alerts` or `breaker`."""
        name = f"{topic}.{ending}"
        self.topics.append(name)
        broker.create(name, partitions, config)

    def start(self, *args, env=None, input=None):
        """With FAULTS in `env` it is the program that has them; `input` is its stdin."""
        program = faulty() if "FAULTS" in (env or {}) else None
        toll = Toll(self.folder, f"retrytoll-{next(self.numbers)}", args, env or {}, program, input)
        self.processes.append(toll)
        return toll

    def run(self, topic, *flags, env=None, lake=None, bootstrap=None, **settings):
        """`retrytoll run`; flush__interval="1s" sets flush.interval."""
        given = QUICK | {"kafka.group": f"{topic}-group"} | {k.replace("__", "."): v for k, v in settings.items()}
        if "flush__interval_behind" not in settings:  # it must not be shorter
            given["flush.interval_behind"] = given["flush.interval"]
        return self.start("run", "--bootstrap", bootstrap or broker.bootstrap(), "--topic", topic, "--lake", lake or self.lake,
                          *flags, *words(given), env=env)

    def read_all(self, topic, **settings):
        """Reads the topic to its end, in one process."""
        return self.run(topic, "--until-end", **settings).ends(0, 600)

    def ingest(self, *files, code=0, **env):
        return self.start("ingest", *files, "--lake", self.lake, env=env).ends(code)

    def maintain(self, *args, code=0, **env):
        return self.start("maintain", *args, "--lake", self.lake, env=env).ends(code)

    def report(self, name, *args):
        """What `retrytoll report` says, as JSON."""
        toll = self.start("report", name, *args, "--lake", self.lake, "--format", "json").ends(0)
        return json.loads("\n".join(toll.lines()))

    # --- the lake, as a stranger reads it ---

    @property
    def table(self):
        return self.lake / "attempts"

    def load(self):
        """DuckDB with the view `attempts`, or None while there is no file."""
        if not (self.table / "_delta_log").exists() or not foreign_read.live_files(self.table)[1]:
            return None
        return foreign_read.load(self.table)[0]

    def count(self):
        db = self.load()
        return db.execute("SELECT count(*) FROM attempts").fetchone()[0] if db else 0

    def query(self, sql, *args):
        db = self.load()
        return db.execute(sql, args).fetchall() if db else []

    def rows(self, where="true"):
        return Counter(self.query(f"SELECT {ROW} FROM attempts WHERE {where}"))

    def actions(self, kind):
        """[(version, action)] of one kind, over the whole log."""
        found = []
        for entry in sorted((self.table / "_delta_log").glob("*.json")):
            if entry.stem.isdigit():
                lines = map(json.loads, entry.read_text().splitlines())
                found += [(int(entry.stem), line[kind]) for line in lines if kind in line]
        return found

    def live(self):
        """The live files, relative to the table."""
        gone = {a["path"] for _, a in self.actions("remove")}
        return [a["path"] for _, a in self.actions("add") if a["path"] not in gone]

    def position(self, topic, partition, field="next"):
        """A partition's txn, by the last commit that states it; None before the first."""
        found = None
        for _, txn in self.actions("txn"):
            if txn["appId"].startswith(f"retrytoll/{field}/{partition}/") and txn["appId"].endswith(f"/{topic}"):
                found = txn["version"]
        return found

    def committed(self, topic):
        """The sum of every partition's `next`."""
        found = {}
        for _, txn in self.actions("txn"):
            if txn["appId"].startswith("retrytoll/next/") and txn["appId"].endswith(f"/{topic}"):
                found[txn["appId"]] = txn["version"]
        return sum(found.values())

    def letters(self, topic):
        """Dead letters: [(key, body)]."""
        return [(m.key().decode(), json.loads(m.value())) for m in broker.messages(f"{topic}.dead-letters")]

    def wait_rows(self, count, seconds=60):
        def there():
            for toll in self.processes:
                code = toll.process.poll()
                assert code in (None, 0, -9), f"{toll.name} ended with {code}: {toll.text()[-3000:]}"
            return self.count() >= count
        try:
            until("", there, seconds)
        except AssertionError as error:
            raise AssertionError(str(error) if str(error)[:3] != "not" else
                                 f"{self.count()} rows of {count} after {seconds} s") from None

    def same_rows(self, expected, where="true"):
        """The table's rows are those, no more, no fewer, and their money sums to the last digit."""
        found = self.rows(where)
        more, fewer = found - expected.rows, expected.rows - found
        assert not more and not fewer, (f"{sum(more.values())} rows more, as {sorted(more, key=str)[:3]}; "
                                        f"{sum(fewer.values())} fewer, as {sorted(fewer, key=str)[:3]}")
        if not found:
            return
        confirmed, ceiling, rows, lineages = self.query(
            "SELECT sum(cost_confirmed)::TEXT, sum(cost_ceiling)::TEXT, count(*), count(DISTINCT (source, "
            f"source_partition, source_offset, source_index)) FROM attempts WHERE {where}")[0]
        sums = (Decimal(confirmed or 0), Decimal(ceiling or 0))
        due = (expected.sum(8), expected.sum(9))
        assert sums == due, f"sums {sums}, due {due}"
        assert rows == lineages == sum(expected.rows.values()), f"{rows} rows of {lineages} lineages"

    def check(self, topic, repeats=False):
        """Rows and dead letters against the topic's log. `repeats`: a dead letter may
        come again after a kill, under the same key."""
        expected = events.Expected(broker.log(topic))
        self.same_rows(expected, f"source LIKE '%/{topic}'")
        letters = self.letters(topic)
        found = Counter((body["partition"], body["offset"]) for _, body in letters)
        assert set(found) == expected.bad, (f"dead letters missing: {sorted(expected.bad - set(found))[:5]}, "
                                            f"too many: {sorted(set(found) - expected.bad)[:5]}")
        if not repeats:
            assert max(found.values(), default=1) == 1, f"twice: {[k for k, n in found.items() if n > 1][:5]}"
        for key, body in letters:
            assert key == f"{body['source']}/{body['partition']}/{body['offset']}", key
        return expected

    # --- the end ---

    def evidence(self):
        for toll in self.processes:
            print(f"--- {toll.name} (exit code {toll.process.poll()}): {' '.join(toll.process.args[1:])}")
            lines = [x for x in toll.text().splitlines() if '"committed"' not in x]
            print("\n".join(lines[-25:]))

    def close(self):
        for toll in self.processes:
            if toll.process.poll() is None:
                toll.kill()
        if self.topics:
            broker.delete(*self.topics)
        shutil.rmtree(self.folder, ignore_errors=True)
