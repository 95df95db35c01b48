"""Days of answers -> `ingest` -> the table `profile` -> what attempts of unknown billing cost by it.

gpt-4.1 costs $2 and $8 for a million tokens, gpt-4.1-mini $0.4 and $1.6; a read timeout was billed with
a chance of 0.9. Every due figure is worked out by hand.
"""

import csv
import json
import pathlib
import sys
from decimal import Decimal

from harness import cases
from harness.world import World

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "oracle"))
import foreign_read  # noqa: E402

CALL = {"attempt": 0, "model": "gpt-4.1", "provider": "openai", "service": "shop", "elapsed_ms": 1_000}
TIMEOUT = {"decision": "give_up", "error_type": "ReadTimeout", "phase": "read"}


def call(request, day, hour, **more):
    """A call that ended at this hour of a day of November."""
    hours, minutes = divmod(round(hour * 60), 60)
    return CALL | {"request_id": request, "ts": f"2025-11-{day:02}T{hours:02}:{minutes:02}:00Z"} | more


def answers(name, days, tokens, **more):
    """Each day an answer for each (input, output)."""
    return [call(f"{name}-{day}-{n}", day, 10 + n / 60, decision="success", input_tokens=i, output_tokens=o, **more)
            for day in days for n, (i, o) in enumerate(tokens)]


def history():
    """What the profile for the 9th is made of, and a day that it is not made of.

    shop, max_tokens 1000: 14 of (1000, 100), 14 of (2000, 300), 7 of (9000, 500). Of 35 the 18th is 2000 and
      300, the 35th (34.65) 9000 and 500.
    shop, 1024: 15 of (100, 10), 15 of (201, 20). The 15th and the 16th: 150.5 and 15; the 30th: 201 and 20.
    shop without max_tokens: 29 of (1500, 200), too few.
    openai's gpt-4.1 in all: 94. Input 15 x 100, 15 x 201, 14 x 1000, 29 x 1500, 14 x 2000, 7 x 9000: the 47th
      and the 48th are 1500, the 94th (93.06) is 9000. Output likewise 200 and 500.
    gpt-4.1-mini of nobody in no service: 30 of (1000, 100).
    """
    return (
        # The 1st is the eighth day before: it would make the medians 90000.
        answers("old", [1], [(90_000, 900)] * 100, max_tokens=1000)
        + answers("a", range(2, 9), [(1000, 100), (1000, 100), (2000, 300), (2000, 300), (9000, 500)], max_tokens=1000)
        + answers("b", range(2, 7), [(100, 10)] * 3 + [(201, 20)] * 3, max_tokens=1024)
        + answers("c", [3], [(1500, 200)] * 29)
        + answers("d", [4], [(1000, 100)] * 30, model="gpt-4.1-mini", provider=None, service=None)
        # Neither counted by the provider, nor sent to it.
        + answers("guessed", [5], [(70_000, 700)] * 40, max_tokens=1024, usage_source="estimated")
        + answers("cached", [5], [(70_000, 700)] * 40, max_tokens=1024, cache_hit=True))


# A call of the 9th -> its expected cost with basis, and its ceiling.
UNKNOWN = {
    # 2000 x 0.000002 + 300 x 0.000008 = 0.0064. At most 9000 in, and 1000 out: 0.018 + 0.008.
    "own-kind": ({"max_tokens": 1000}, "0.00576", "profile", "0.026"),
    # 1023 is of the kind of 512 and more, 1024 of the next: 150.5 x 0.000002 + 15 x 0.000008 = 0.000421.
    "last-of-kind": ({"max_tokens": 1023}, "0.00576", "profile", "0.026184"),
    "next-kind": ({"max_tokens": 1024}, "0.0003789", "profile", "0.008594"),
    # 29 rows are too few: 1500 x 0.000002 + 200 x 0.000008 = 0.0046. At most 9000 in and 500 out: 0.018 + 0.004.
    "too-few": ({}, "0.00414", "profile", "0.022"),
    "new-service": ({"service": "new", "max_tokens": 1000}, "0.00414", "profile", "0.026"),
    # No answer is longer than 40 tokens: 0.003 + 0.00032; at most 0.018 + 0.00032.
    "short": ({"max_tokens": 40}, "0.002988", "profile", "0.01832"),
    # Two answers of 40.
    "twice": ({"max_tokens": 40, "n": 2}, "0.003276", "profile", "0.01864"),
    "nobody": ({"model": "gpt-4.1-mini", "provider": None, "service": None}, "0.000504", "profile", "0.00056"),
    "nobody-knows": ({"model": "gpt-4.1-mini"}, None, None, None),
    "unheard-of": ({"model": "gpt-4o", "max_tokens": 1000}, None, None, None),
    # Its own input goes before the median: 0.1 + 0.0024. The ceiling is its own: 0.1 + 0.008.
    "long-prompt": ({"max_tokens": 1000, "input_tokens": 50_000, "usage_source": "estimated"},
                    "0.09216", "profile", "0.108"),
    # All of its own tokens: 0.00002 + 0.00004.
    "own": ({"max_tokens": 1000, "input_tokens": 10, "output_tokens": 5, "usage_source": "estimated"},
            "0.000054", "own", "0.00802"),
    # Where the profile does not know the model either.
    "formula": ({"model": "gpt-4o-mini", "max_tokens": 1000, "input_tokens": 1000, "usage_source": "estimated"},
                "0.000675", "formula", "0.00075"),
}


def unknown(day, hour=8):
    return [call(name, day, hour, **TIMEOUT | more) for name, (more, *_) in UNKNOWN.items()]


def write(w, name, made):
    path = w.folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(it) + "\n" for it in made))
    return path


def csv_of(w, *args):
    path = w.folder / "answer.csv"
    w.start(*args, "--lake", w.lake, "--format", "csv", "-o", path).ends(0)
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def costs(w, where="TRUE"):
    """{request: (expected, basis, ceiling)} of attempts of unknown billing."""
    rows = csv_of(w, "sql", "SELECT request_id, cost_expected, expected_basis, cost_ceiling FROM attempts "
                            f"WHERE billing = 'unknown' AND {where}")
    number = lambda text: Decimal(text) if text else None
    return {it["request_id"]: (number(it["cost_expected"]), it["expected_basis"] or None, number(it["cost_ceiling"]))
            for it in rows}


def profile(w, where="TRUE"):
    return csv_of(w, "sql", f"SELECT * FROM profile WHERE {where} ORDER BY date, level, provider, model, service, "
                            "max_tokens_pow2")


def estimates(w):
    """Each way to an estimate, and each that the profile does not take."""
    # The retry that was answered tells what the one before it used: 0.002 + 0.0008.
    sibling = [call("sibling", 9, 8, **TIMEOUT | {"decision": "retry"}, max_tokens=1000),
               call("sibling", 9, 8.1, attempt=1, decision="success", input_tokens=1000, output_tokens=100)]
    w.ingest(write(w, "calls", history() + unknown(9) + sibling))
    found = costs(w)
    due = {name: (expected and Decimal(expected), basis, ceiling and Decimal(ceiling))
           for name, (_, expected, basis, ceiling) in UNKNOWN.items()}
    # At most its sibling's input, and its own max_tokens.
    due["sibling"] = (Decimal("0.00252"), "sibling", Decimal("0.010"))
    wrong = {name: (found.get(name), it) for name, it in due.items() if found.get(name) != it}
    assert not wrong and found.keys() == due.keys(), f"found, due: {wrong}"
    whole = profile(w, "date = '2025-11-09' AND level = 2 AND provider = 'openai'")
    assert [{k: it[k] for k in ("rows", "input_median", "input_p99", "output_median", "output_p99")} for it in whole] \
        == [{"rows": "94", "input_median": "1500", "input_p99": "9000", "output_median": "200", "output_p99": "500"}]


def share(w):
    """The retry-cost share stands on it: two timeouts of 0.00414 each, one of them a retry."""
    pay = [call("p", 9, 8, service="pay", **TIMEOUT | {"decision": "retry"}),
           call("p", 9, 8.1, service="pay", attempt=1, **TIMEOUT)]
    w.ingest(write(w, "calls", history() + pay))
    rows = csv_of(w, "report", "retry_cost_share", "--since", "2025-11-09", "--until", "2025-11-10")
    found = [(it["key"], Decimal(it["retry_expected_usd"]), Decimal(it["other_expected_usd"]),
              Decimal(it["retry_ceiling_usd"])) for it in rows]
    assert found == [("pay", Decimal("0.00414"), Decimal("0.00414"), Decimal("0.022"))], found


def as_of(w):
    """An attempt looks at its own day's profile, at an older one until that is made, never at a later one."""
    # With these the profile for the 10th is of the 3rd to the 9th: 30 of the old ones and 40 of (100000, 700),
    # of which the 35th and 36th of 70 are: 0.2 + 0.0056 = 0.2056.
    later = answers("e", [9], [(100_000, 700)] * 40, max_tokens=1000)
    early = unknown(9)[:1] + later + [call("next", 10, 1, **TIMEOUT, max_tokens=1000)]
    path = write(w, "calls", history() + early)
    w.ingest(path)
    days = lambda: sorted({it["date"] for it in profile(w)})
    assert days() == [f"2025-11-{day:02}" for day in range(2, 10)], days()
    by_ninth = (Decimal("0.00576"), "profile", Decimal("0.026"))
    assert costs(w) == {"own-kind": by_ninth, "next": by_ninth}, costs(w)
    # At 02:00 the 9th is closed. At most 100000 in and 1000 out: 0.2 + 0.008.
    write(w, "calls", history() + early + [call("closes", 10, 2, decision="success", input_tokens=1, output_tokens=1)])
    w.ingest(path)
    assert days()[-1] == "2025-11-10", days()
    found = costs(w)
    assert found == {"own-kind": by_ninth, "next": (Decimal("0.18504"), "profile", Decimal("0.208"))}, found


def made_once(w):
    """The rows of a day are the same in whatever order, and pieces, its events came; they are made once, and
    late events change them no more."""
    made = history() + unknown(9)
    w.ingest(write(w, "calls", made))
    due = profile(w)
    again = World("made_once", w.rng)
    try:
        shuffled = w.rng.sample(made, len(made))
        again.ingest(write(again, "shuffled", shuffled))
        assert profile(again) == due
        again.lake = again.folder / "pieces"
        for day in range(1, 10):
            again.ingest(write(again, f"day-{day}", [it for it in shuffled if it["ts"].startswith(f"2025-11-{day:02}")]))
        assert profile(again) == due
    finally:
        again.close()
    w.ingest(write(w, "late", answers("late", [8], [(90_000, 900)] * 100, max_tokens=1000)))
    w.ingest(w.folder / "calls.jsonl")
    assert profile(w) == due
    files = foreign_read.live_files(w.lake / "profile")[1]
    folders = sorted(str(it).rsplit("date=", 1)[1].split("/")[0] for it in files)
    assert folders == [f"2025-11-{day:02}" for day in range(2, 10)], folders


if __name__ == "__main__":
    cases.main(World, [estimates, share, as_of, made_once])
