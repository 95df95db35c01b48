"""Runs cases one after the other; a case that fails leaves its evidence on the terminal."""

import os
import random
import sys
import time
import traceback

LONG = os.environ.get("RETRYTOLL_TEST_LONG") == "1"


def until(what, condition, seconds):
    """Polls until `condition()` is true, and gives its value; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return value


def skip(what):
    """True, and said so, where there is no broker."""
    if os.environ.get("KAFKA_BOOTSTRAP"):
        return False
    print(f"SKIPPED (no Kafka: KAFKA_BOOTSTRAP is not set): {what}")
    return True


def main(world, cases):
    """Runs the cases named on the command line, else all; exits 1 when one failed."""
    seed = int(os.environ.get("RETRYTOLL_TEST_SEED") or random.randrange(1 << 32))
    print(f"seed {seed} (RETRYTOLL_TEST_SEED)")
    wanted = sys.argv[1:]
    failed = []
    for case in cases:
        if wanted and case.__name__ not in wanted:
            continue
        started = time.monotonic()
        w = world(case.__name__, random.Random(f"{seed} {case.__name__}"))
        try:
            case(w)
            verdict = "ok"
        except Exception:
            verdict = "FAILED"
            failed.append(case.__name__)
            traceback.print_exc(limit=-4, file=sys.stdout)
            w.evidence()
        finally:
            w.close()
        print(f"{verdict:6} {case.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
    sys.exit(1 if failed else 0)
