"""A disk that is full, a lake that can't be written, a clock that jumps: it says so, and rows stay exact."""

import os
import shutil
import signal
import subprocess

from harness import broker, cases, events
from harness.world import World


class Disk:
    """A small file system below the world's folder, for its lake."""

    def __init__(self, w, size):
        self.path = w.lake
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path], check=True)

    def __enter__(self):
        return self

    def remount(self, options):
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=False)


def can_mount():
    """Whether this machine lets us mount a tmpfs."""
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0


def a_full_disk(w):
    """The disk fills up, in a file or in the log: it says so, stops when told to or by itself, and nothing is lost or
    doubled; with room again the next one goes on, also from what the full disk left."""
    topic = w.topic(4)
    with Disk(w, "200k") as disk:
        for number in range(8):
            broker.produce(topic, events.mixture(w.rng, 1_500, 4, f"r{number}"))
        for size in ["450k", "64m"]:
            toll = w.run(topic)
            cases.until("the disk is full", lambda: "No space left" in toll.text(), 60)
            if toll.process.poll() is None:
                toll.send(signal.SIGTERM)
            toll.ends(1, 10)
            assert "No space left" in toll.text().splitlines()[-1], toll.text()[-1000:]
            disk.remount(f"size={size}")
        w.read_all(topic)
        w.check(topic, repeats=True)


def a_lake_that_is_read_only(w):
    """The lake turns read-only while an instance runs: it says so and goes on when it can be written again. Told
    to stop meanwhile, it stops in time."""
    topic = w.topic(4)
    refused = lambda toll: toll.is_up() and [e for e in toll.told("commit not taken, trying again")
                                             if "Read-only file system" in e["error"]]
    with Disk(w, "64m") as disk:
        toll = w.run(topic).claimed(4)
        broker.produce(topic, events.mixture(w.rng, 500, 4, "before"))
        w.wait_rows(500)
        disk.remount("ro")
        # No rows, so that no file is begun: positions alone are to be committed.
        broker.produce(topic, [(n % 4, None) for n in range(20)])
        cases.until("it says so", lambda: refused(toll), 20)
        disk.remount("rw")
        broker.produce(topic, events.mixture(w.rng, 500, 4, "after"))
        w.wait_rows(1_000)
        disk.remount("ro")
        broker.produce(topic, [(n % 4, None) for n in range(20)])
        cases.until("it says so again", lambda: len(refused(toll)) > 1, 20)
        toll.send(signal.SIGTERM)
        toll.ends(1, 10)
        started = w.run(topic)
        cases.until("one that starts says so, too", lambda: refused(started), 20)
        started.send(signal.SIGTERM)
        started.ends(1, 10)
        disk.remount("rw")
        w.read_all(topic)
        w.check(topic, repeats=True)


def a_clock_that_jumps(w):
    """The machine's clock is set a day forward and back, and an hour back, while an instance runs: no row is
    lost, doubled or late for it, and the mark never moves back."""
    topic = w.topic(2)
    moved = w.folder / "moved"
    library = shutil.which("faketime") and subprocess.run(
        ["faketime", "-f", "+0", "printenv", "LD_PRELOAD"], capture_output=True, text=True).stdout.strip()
    if not library:
        print("SKIPPED (no faketime: apt-get install faketime): a clock that jumps")
        return
    # Good events alone: faketime does not reach all of librdkafka's waits, and a producer's may then be long.
    good = lambda prefix: [(n % 2, events.payload(it)) for n, it in enumerate(events.events(w.rng, 300, prefix))]
    moved.write_text("+0")
    toll = w.run(topic, env={"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(moved), "FAKETIME_NO_CACHE": "1",
                             "FAKETIME_DONT_FAKE_MONOTONIC": "1"}, flush__position_interval="1s",
                 # Files' times are the kernel's, and it has not moved: to vacuum they would look a day old.
                 maintain__vacuum_every="30d").claimed(2)
    for number, offset in enumerate(["+0", "+86400", "-3600", "+0"]):
        moved.write_text(offset)
        broker.produce(topic, good(f"r{number}"))
        w.wait_rows(300 * (number + 1), 40)
    toll.kill()
    w.check(topic, repeats=True)
    for partition in range(2):
        clocks = [t["version"] for _, t in w.actions("txn") if t["appId"].startswith(f"retrytoll/clock/{partition}/")]
        assert clocks == sorted(clocks), f"the clock of partition {partition} moved back"


CASES = [a_full_disk, a_lake_that_is_read_only, a_clock_that_jumps]

if __name__ == "__main__":
    if not cases.skip("full disks and jumping clocks"):
        if not can_mount():
            print("SKIPPED (no tmpfs: mounting one needs root): full and read-only disks")
            CASES = CASES[2:]
        cases.main(World, CASES)
