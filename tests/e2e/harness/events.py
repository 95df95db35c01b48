"""seed -> payloads -> the rows that a table must hold for them, money by `decimal`.

A *row* is (partition, offset, request_id, attempt, model, decision, error class, billing,
cost_confirmed, cost_ceiling), money as text with 12 places, or None.
"""

import json
import pathlib
from collections import Counter
from decimal import Decimal

PRICES = json.loads(
    (pathlib.Path(__file__).parents[3] / "crates/core/data/prices.json").read_text(), parse_float=Decimal)
PRICED = ["gpt-4o", "gpt-4o-mini", "gpt-5-nano", "claude-sonnet-4-5"]
UNPRICED = "no-such-model-1"


def event(rng, request, attempt, number):
    """One attempt: a success with usage, a 429, or a read timeout with an estimate; a few unpriced."""
    it = {"request_id": request, "attempt": attempt, "service": "shop", "elapsed_ms": number % 60_000,
          "model": UNPRICED if rng.random() < 0.02 else rng.choice(PRICED),
          "max_tokens": rng.choice([256, 1024, 4096])}
    if rng.random() < 0.7:
        it["event_id"] = f"{request}/{attempt}"
    kind = rng.random()
    if kind < 0.7:
        cached, fresh = rng.randrange(2_000), rng.randrange(1, 3_000)
        it |= {"decision": "success", "input_tokens": cached + fresh, "cached_input_tokens": cached,
               "output_tokens": rng.randrange(1, 1_000)}
        if it["model"].startswith("claude"):
            it["cache_write_tokens"] = rng.randrange(fresh)
    elif kind < 0.85:
        it |= {"decision": "retry", "status_code": 429, "error_type": "rate_limit", "next_retry_ms": 1_000}
    else:
        it |= {"decision": "retry", "error_type": "timeout", "phase": "read", "timeout_ms": 60_000,
               "input_tokens": rng.randrange(1, 3_000), "usage_source": "estimated"}
    return it


def events(rng, count, prefix="r"):
    """`count` events of operations with one to three attempts; all identities differ."""
    made, operation = [], 0
    while len(made) < count:
        for attempt in range(rng.choice([1, 1, 1, 2, 3])):
            made.append(event(rng, f"{prefix}-{operation}", attempt, len(made)))
        operation += 1
    return made[:count]


def payload(it):
    return json.dumps(it, separators=(",", ":")).encode()


def bad(rng, number, prefix="r"):
    """A payload that is no event, unlike all others."""
    return rng.choice([
        b'{"request_id":"bad-%s-%d","attempt":0,"model":"gpt-4o"' % (prefix.encode(), number),
        b'{"request_id":"bad-%s-%d","attempt":0,"decision":"success"}' % (prefix.encode(), number),
        b'["bad-%s-%d"]' % (prefix.encode(), number),
    ])


def mixture(rng, count, partitions, prefix="r"):
    """[(partition, payload or None)]: `count` events, and beside them 5 % each of repeats, bad records
    and nulls. A repeat lies a little behind its event, in the same partition."""
    plan, repeats = [], []
    for number, it in enumerate(events(rng, count, prefix)):
        record = (rng.randrange(partitions), payload(it))
        plan.append(record)
        repeats = [(due - 1, again) for due, again in repeats]
        plan += [again for due, again in repeats if due == 0]
        repeats = [(due, again) for due, again in repeats if due > 0]
        kind = rng.random()
        if kind < 0.05:
            repeats.append((rng.randrange(1, 40), record))
        elif kind < 0.10:
            plan.append((rng.randrange(partitions), bad(rng, number, prefix)))
        elif kind < 0.15:
            plan.append((rng.randrange(partitions), None))
    return plan + [again for _, again in repeats]


def cost(model, input_tokens, output_tokens, cached=0, written=0):
    price = PRICES[model]
    return ((input_tokens - cached - written) * price["input_cost_per_token"]
            + cached * price.get("cache_read_input_token_cost", 0)
            + written * price.get("cache_creation_input_token_cost", 0)
            + output_tokens * price["output_cost_per_token"])


def text(money):
    return None if money is None else f"{Decimal(money):.12f}"


def due(it):
    """(error class, billing, cost_confirmed, cost_ceiling) of one of `event`'s."""
    model = it["model"]
    if it["decision"] == "success":
        if model not in PRICES:
            return "none", "billed", None, None
        whole = cost(model, it["input_tokens"], it["output_tokens"],
                     it.get("cached_input_tokens", 0), it.get("cache_write_tokens", 0))
        return "none", "billed", text(whole), text(whole)
    if it.get("status_code") == 429:
        return "rate_limit", "unbilled", text(0), text(0)
    most = cost(model, it["input_tokens"], it["max_tokens"]) if model in PRICES else None
    # Whatever it may cost, nothing shows yet that it was billed.
    return "read", "unknown", text(0), text(most)


def row(partition, offset, it):
    return (partition, offset, it["request_id"], it["attempt"], it["model"], it["decision"], *due(it))


def parsed(value):
    """The event of a payload, or None where it is none."""
    try:
        it = json.loads(value)
    except ValueError:
        return None
    return it if isinstance(it, dict) and "model" in it else None


class Expected:
    """What is due for a log [(partition, offset, payload)] in the order of each partition's offsets."""

    def __init__(self, log):
        self.rows, self.bad, self.nulls, self.repeats = Counter(), set(), 0, 0
        seen = set()
        for partition, offset, value in log:
            if value is None:
                self.nulls += 1
            elif (partition, value) in seen:
                self.repeats += 1
            elif it := parsed(value):
                seen.add((partition, value))
                self.rows[row(partition, offset, it)] += 1
            else:
                self.bad.add((partition, offset))

    def sum(self, column):
        """The exact sum of cost_confirmed (8) or cost_ceiling (9)."""
        return sum((Decimal(r[column]) * n for r, n in self.rows.items() if r[column] is not None), Decimal(0))
