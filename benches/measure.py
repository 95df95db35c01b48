"""A command -> what it took: time, CPU, memory; and what the machine and the binary were.

CPU and peak memory come from the kernel's account of the ended process (wait4). The kernel lets a
new process inherit its parent's peak, so the parent must stay small: what needs memory (reading
the lake back) runs in a process of its own, and a peak not above the parent's is unknown.
"""

import hashlib
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# RETRYTOLL_BIN and its like would be taken for keys of the configuration.
ENV = {name: value for name, value in os.environ.items() if not name.startswith("RETRYTOLL_")}
TICKS = os.sysconf("SC_CLK_TCK")


def say(text):
    print(text, file=sys.stderr, flush=True)


def own_python():
    """Starts again with the Python that has the packages of tests/oracle, unless it is this one."""
    python = subprocess.run([ROOT / "scripts/python-env"], stdout=subprocess.PIPE, text=True).stdout.strip()
    if not python:
        raise SystemExit("no Python with the packages of tests/oracle, see above")
    if pathlib.Path(sys.prefix) != pathlib.Path(python).parents[1]:
        os.execv(python, [python, *sys.argv])


def all_busy_s():
    """CPU seconds of the whole machine since it started, with what a hypervisor took away."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def cpu_of_s(pid):
    """CPU seconds of a process that runs."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(args, folder, output=None, broker=None, seconds=3_600):
    """Runs a command to its end; `broker` is a pid whose CPU is no noise. Fails when it fails."""
    os.sync()  # what was written before must not be written back meanwhile
    log = folder / "stderr"
    broker_before, all_before = cpu_of_s(broker) if broker else 0, all_busy_s()
    with open(log, "wb") as err, open(output or os.devnull, "wb") as out:
        started = time.monotonic()
        process = subprocess.Popen(list(map(str, args)), cwd=folder, env=ENV, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=err)
        limit = threading.Timer(seconds, process.kill)
        limit.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - started
        except BaseException:
            process.kill()
            raise
        finally:
            limit.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, args))} ended with {process.returncode}:\n"
                         + log.read_text(errors="replace")[-3_000:])
    own_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu_s = used.ru_utime + used.ru_stime
    broker_s = cpu_of_s(broker) - broker_before if broker else 0
    others = max(all_busy_s() - all_before - cpu_s - broker_s, 0) / wall_s
    return {"wall_s": wall_s, "cpu_s": cpu_s, "user_s": used.ru_utime, "system_s": used.ru_stime,
            "peak_bytes": used.ru_maxrss * 1_024 if used.ru_maxrss > own_kb else None, "broker_cpu_s": broker_s if broker else None,
            "others_busy_cores": others}


def spread(values):
    values = list(values)
    if None in values:
        return dict.fromkeys(("median", "min", "max"))
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def machine(folder):
    """What the figures depend on, beside the code."""
    cpu = dict(line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n") if ":" in line)
    cpu = {key.strip(): value.strip() for key, value in cpu.items()}
    memory_kb = int(pathlib.Path("/proc/meminfo").read_text().split()[1])
    disk = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    return {"cores": len(os.sched_getaffinity(0)), "cpu": cpu.get("model name", "unknown"),
            "memory_bytes": memory_kb * 1_024, "kernel": os.uname().release, "arch": os.uname().machine,
            "file_system": disk.stdout.strip()}


def find_binary(given):
    """The one given, else RETRYTOLL_BIN, else what cargo built: `dist` before `release`."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    named = given or os.environ.get("RETRYTOLL_BIN")
    for path in [named] if named else [target / "dist/retrytoll", target / "release/retrytoll"]:
        if os.access(path, os.X_OK):
            return pathlib.Path(path).resolve()
    raise SystemExit("no binary: cargo build --profile dist --workspace, or name one with --bin")


def binary(path, profile):
    """Its version, and the profile by the folder that cargo puts it into, if it lies in one."""
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, env=ENV).stdout.strip()
    digest = hashlib.sha256()
    with open(path, "rb") as content:
        while piece := content.read(1 << 20):
            digest.update(piece)
    if not profile:
        profile = path.parent.name if path.parent.name in ("dist", "release", "debug") else "unknown"
    return {"version": version, "profile": profile, "sha256": digest.hexdigest()}


def surroundings(machine, binary):
    """Binary, machine and day, in one line."""
    return (f"{binary['version']}, profile {binary['profile']} ({binary['sha256'][:12]}); {machine['cores']} cores of "
            f"{machine['cpu']}, {machine['memory_bytes'] / 2**30:.0f} GiB, {machine['file_system']}, "
            f"Linux {machine['kernel']} {machine['arch']}; {time.strftime('%Y-%m-%d', time.gmtime())}")
