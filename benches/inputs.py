"""Events -> what a benchmark reads: a file, or a topic on a real broker; and its lake, checked.

A topic is complete and acknowledged before it is read. Each read has a lake and a consumer group
of its own, and the lake is read back by another implementation: every event once, or no figure.
"""

import contextlib
import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import zlib

from measure import ENV, ROOT, run, say
import traffic

sys.path.insert(0, str(ROOT / "tests/e2e"))  # for `harness`

PARTITIONS = 8


def options(parser):
    """What is read, and by which binary."""
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--day", choices=["open", "closed"], default="open", help="events of today, or of three days ago")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--codec", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="lz4", help="the topic's")
    parser.add_argument("--file-codec", choices=["none", "gzip", "zstd"], default="none")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of retrytoll's configuration")
    parser.add_argument("--bin", help="default: RETRYTOLL_BIN, else target/dist, else target/release")
    parser.add_argument("--profile", help="how the binary was built, where its folder does not say")
    parser.add_argument("--dir", help="where files, lakes and the broker's data go; default: the temporary folder")


def made(args):
    """The events that the command line asks for."""
    first_ms, last_ms = traffic.window(args.events, args.day, int(time.time() * 1_000))
    if args.day == "open" and last_ms - first_ms < args.events * 1_000 // traffic.RATE:
        say("the day is so young that the events lie closer together than usual; later, or --day closed")
    return traffic.events(args.seed, args.events, first_ms, last_ms)


def lake_of(lake, count):
    """What is in a lake by its Delta log, read by DuckDB; it must be `count` events, each once."""
    # In a process of its own, see `measure`.
    read = subprocess.run([sys.executable, ROOT / "tests/oracle/foreign_read.py", lake / "attempts"],
                          capture_output=True, text=True)
    if read.returncode:
        raise SystemExit(f"{lake} can't be read: {read.stderr[-2_000:]}")
    facts = json.loads(read.stdout)
    if not facts["rows"] == facts["distinct_lineage"] == count:
        raise SystemExit(f"{lake} has {facts['rows']} rows of {facts['distinct_lineage']} records; {count} were sent")
    return {"rows": facts["rows"], "files": facts["files"], "lake_bytes": facts["bytes"], "commits": facts["version"] + 1}


class File:
    name = "file"

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.path = folder / "events.jsonl"
        self.bytes = 0
        with open(self.path, "wb") as out:
            for _, _, payload in made(args):
                out.write(payload + b"\n")
                self.bytes += len(payload)
        if args.file_codec == "gzip":
            with open(self.path, "rb") as plain, gzip.open(f"{self.path}.gz", "wb", 6) as packed:
                shutil.copyfileobj(plain, packed)
            self.path = pathlib.Path(f"{self.path}.gz")
        elif args.file_codec == "zstd":
            subprocess.run(["zstd", "-q", "--rm", self.path], check=True)
            self.path = pathlib.Path(f"{self.path}.zst")

    def command(self, binary, lake):
        return [binary, "ingest", self.path, "--lake", lake, *sets(self.args)]

    def measured(self, binary, number):
        """One run into a new lake."""
        lake = self.folder / f"lake-{number}"
        with open(self.path, "rb") as warm:
            while warm.read(1 << 20):
                pass
        took = run(self.command(binary, lake), self.folder)
        took |= lake_of(lake, self.args.events)
        shutil.rmtree(lake)
        return took

    def bare(self):
        return None

    def close(self):
        self.path.unlink()


class Topic:
    name = "kafka"

    def __init__(self, args, folder):
        from harness import broker  # needs the broker's address in the environment
        self.args, self.folder, self.broker = args, folder, broker
        self.topic, self.groups = f"bench-{os.getpid()}-{int(time.time())}", []
        pid = folder / "kafka/pid"
        self.pid = int(pid.read_text()) if pid.exists() else None
        # Events of a closed day must not be old enough to go.
        broker.create(self.topic, PARTITIONS, {"retention.ms": "-1"})
        broker.create(f"{self.topic}.dead-letters", 1)
        self.bytes = self.produce()

    def produce(self):
        """Sends all events, keyed and stamped as callers do; returns when the broker has them."""
        from confluent_kafka import Producer
        failed, sent = [], 0
        producer = Producer({"bootstrap.servers": self.broker.bootstrap(), "linger.ms": 20, "acks": "all",
                             "compression.type": self.args.codec, "batch.size": 262_144,
                             "queue.buffering.max.kbytes": 8_192})  # see `measure`: this process must stay small
        told = lambda error, _: failed.append(error) if error else None
        for ts_ms, key, payload in made(self.args):
            sent += len(payload)
            while True:
                try:
                    producer.produce(self.topic, payload, key, zlib.crc32(key.encode()) % PARTITIONS, told, ts_ms)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush(120) or failed:
            raise SystemExit(f"the broker did not take every event: {failed[:3]}")
        return sent

    def command(self, binary, lake):
        self.groups.append(f"{self.topic}-{lake.name}")
        return [binary, "run", "--until-end", "--bootstrap", self.broker.bootstrap(), "--topic", self.topic,
                "--lake", lake, "--set", f"kafka.group={self.groups[-1]}",
                # Reading alone: at its end a run would look at a day of ticks.
                "--set", "alerts.retry_share=false", *sets(self.args)]

    def measured(self, binary, number):
        """One run by a new group into a new lake."""
        lake = self.folder / f"lake-{number}"
        took = run(self.command(binary, lake), self.folder, broker=self.pid)
        took |= lake_of(lake, self.args.events)
        shutil.rmtree(lake)
        return took

    def bare(self):
        """A reader that does nothing with what it reads; None where there is none."""
        if shutil.which("kcat"):
            read = self.folder / "read"
            # One byte per message, so that they can be counted.
            took = run(["kcat", "-b", self.broker.bootstrap(), "-C", "-t", self.topic, "-o", "beginning", "-e", "-q",
                        "-f", "."], self.folder, read, self.pid)
            count, name = read.stat().st_size, "kcat"
        else:
            self.groups.append(f"{self.topic}-bare-{len(self.groups)}")
            read = self.folder / "read"
            took = run([ROOT / "scripts/kafka", "consumer-perf", "--topic", self.topic, "--group", self.groups[-1],
                        "--num-records", self.args.events, "--hide-header"], self.folder, read, self.pid)
            count, name = int(read.read_text().split(",")[4]), "kafka-consumer-perf-test, start of the JVM included"
        if count != self.args.events:
            raise SystemExit(f"{name} read {count} of {self.args.events} events")
        return took | {"reader": name}

    def close(self):
        for group in self.groups:
            with contextlib.suppress(Exception):  # a group that never joined is not there
                self.broker.forget_group(group)
        self.broker.delete(self.topic, f"{self.topic}.dead-letters")
        self.broker.admin.cache_clear()  # or it complains when the broker goes


def sets(args):
    return [word for pair in args.set for word in ("--set", pair)]


@contextlib.contextmanager
def kafka(folder):
    """The broker that KAFKA_BOOTSTRAP names, else one of our own for as long as this lasts."""
    if os.environ.get("KAFKA_BOOTSTRAP"):
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the broker must not outlive this
    script, place = ROOT / "scripts/kafka", ["--dir", folder / "kafka"]
    up = subprocess.run([script, "up", *place], stdout=subprocess.PIPE, text=True, env=ENV)
    if up.returncode:
        raise SystemExit("no Kafka, see above; `benches/throughput file` needs none")
    os.environ["KAFKA_BOOTSTRAP"] = ENV["KAFKA_BOOTSTRAP"] = up.stdout.strip().partition("=")[2]
    try:
        yield
    finally:
        del os.environ["KAFKA_BOOTSTRAP"], ENV["KAFKA_BOOTSTRAP"]
        subprocess.run([script, "down", "--wipe", *place], env=ENV, check=False)


@contextlib.contextmanager
def opened(name, args, folder):
    """The input of this name, ready to be read; gone at the end."""
    with kafka(folder) if name == "kafka" else contextlib.nullcontext():
        source = {"file": File, "kafka": Topic}[name](args, folder)
        try:
            yield source
        finally:
            source.close()
